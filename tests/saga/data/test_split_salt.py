"""A bundle of real persons does not tell who was trained on, nor where and how."""

import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.calibration.fit.bundle_calibration import calibrate_bundle
from saga.training.fit import train

from saga.bundle import Bundle
from saga.data.origins import cut
from saga.data.panel import Panel
from saga.data.split import described_salt, persons_of, salt_beside, salted_beside, salted_like
from saga.errors import InputError, UsageError
from saga.small_groups import MIN_PERSONS, person_quantiles, pooled_values
from tests.toy_training import QUIET, TOY, make_panel


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("agency") / "ours"
    run = replace(QUIET, command=f"saga train --panel {out.parent}/secret.csv --seed 918273645")
    return train(salted_beside(make_panel(), out), out, config=TOY, seed=918273645, run=run)


def test_only_the_salt_tells_who_was_trained_on(trained: Bundle, tmp_path: Path) -> None:
    panel, file = make_panel(), salt_beside(trained.path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    ours = set(persons_of(trained.salted(panel), "train"))
    guessed = set(persons_of(panel, "train"))
    # Of two independent parts of 70 %, about 49 % are in both.
    assert abs(len(ours & guessed) / panel.n_persons - 0.49) < 0.1
    salted = salted_beside(panel, trained.path)
    assert salted.meta == trained.salted(panel).meta
    assert salted_beside(salted, tmp_path / "another").meta == salted.meta
    copy = tmp_path / "copy"
    copy.mkdir()
    for part in trained.path.iterdir():
        (copy / part.name).write_bytes(part.read_bytes())
    with pytest.raises(UsageError, match="--split-salt"):
        calibrate_bundle(copy, panel)
    salt_beside(copy).write_text("0" * 64)
    with pytest.raises(UsageError, match="not that of"):
        calibrate_bundle(copy, panel)
    salt_beside(copy).write_bytes(file.read_bytes())
    assert Bundle.load(copy).salted(panel).meta == trained.salted(panel).meta


def test_calibration_on_too_few_years_says_so(trained: Bundle) -> None:
    with pytest.raises(InputError, match="too short to train or calibrate on"):
        calibrate_bundle(trained.path, cut(make_panel(), 2007))


def with_ids(panel: Panel, ids: pl.Expr) -> Panel:
    return panel.with_frame(panel.frame.with_columns(person_id=ids))


@pytest.mark.parametrize("spelling", ["{}.0", "0{}", "SE-{}"])
def test_persons_whose_ids_are_written_otherwise_than_in_training_are_refused(
    trained: Bundle, spelling: str
) -> None:
    """They would be divided otherwise, and those trained on would be taken for unseen ones."""
    panel = make_panel()
    other = with_ids(panel, pl.format(spelling, "person_id"))
    with pytest.raises(UsageError, match="No person_id is written as"):
        trained.salted(other)


def test_persons_some_of_whose_ids_lost_zeros_are_refused() -> None:
    """Those without a leading zero keep their form, so the forms of ids alone do not show it."""
    number = pl.col("person_id").str.slice(1).cast(pl.Int64) * 41 + 1
    panel = with_ids(make_panel(), number.cast(pl.String).str.zfill(4))
    salted = replace(panel, meta=replace(panel.meta, salt="a" * 64))
    split = {"panel_id": panel.meta.panel_id, **described_salt(salted)}
    assert salted_like(salted, split, Path("b")).meta == salted.meta
    without = with_ids(salted, pl.col("person_id").str.strip_chars_start("0"))
    assert set(panel.persons()) & set(without.persons())
    with pytest.raises(UsageError, match="Not every person_id is written as"):
        salted_like(without, split, Path("b"))


def test_no_file_has_a_path_a_seed_or_the_salt(trained: Bundle) -> None:
    assert (trained.manifest["seed"], trained.manifest["command"]) == (None, "saga train")
    salt = trained.salted(make_panel()).meta.salt
    content = b"".join(file.read_bytes() for file in trained.path.iterdir())
    for secret in (salt, "918273645", "secret.csv", str(trained.path.parent)):
        assert secret.encode() not in content


def test_a_pooled_value_is_that_of_ten_persons() -> None:
    rng = np.random.default_rng(0)
    values, persons = rng.lognormal(size=2_000).round(2), rng.integers(0, 150, 2_000)
    values[persons == 7] += 1_000  # one person has all of the largest values
    values[:50] = np.nan
    pooled, known = pooled_values(values, persons), ~np.isnan(values)
    assert (np.isnan(pooled) == ~known).all()
    assert all(len(np.unique(persons[pooled == value])) >= MIN_PERSONS for value in pooled[known])
    order = np.argsort(values[known], kind="stable")
    assert (np.diff(pooled[known][order]) >= 0).all()
    assert pooled[known].mean() == pytest.approx(values[known].mean())
    assert (pooled_values(persons % 3 * 1.0, persons) == persons % 3).all()


def test_no_quantile_is_the_value_of_one_person() -> None:
    values = np.append(np.arange(990.0), np.full(60, 1e6))  # the last sixty are one person's
    persons = np.append(np.arange(990), np.full(60, 990))
    low, middle, high = person_quantiles(values, persons, [0.0, 0.5, 1.0])
    assert (low, middle) == (4.5, 524.5)
    assert high < 1e6
