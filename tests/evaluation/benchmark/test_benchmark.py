"""Entries are scored as the contest scores the same forecasts, and wrong files are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.benchmark.entries import (
    REQUIRED,
    entry_table,
    grid_of_quantiles,
    read_entry,
    read_paths,
    required_rows,
)
from saga.evaluation.benchmark.rounds import Round
from saga.evaluation.benchmark.totals import score_totals
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.scoreboard import read_results
from saga.evaluation.scoring.evaluation_settings import Setting
from saga.evaluation.scoring.score_frame import score_block

from saga.data.panel import Panel
from saga.errors import InputError
from saga.requests import QUANTILES
from saga.scores import log_earnings
from tests.command_line import answer
from tests.evaluation.conftest import Walker

HORIZONS = (1, 5)
LEVELS = np.asarray(QUANTILES)
NAMES = list(REQUIRED[2:-1])


@pytest.fixture(scope="module")
def setting(grouped: Callable[..., Panel]) -> Setting:
    """Origins in 2015 and outcomes of 2016 and 2020, with zeros."""
    contest = Contest(grouped(1500), ContestOptions(HORIZONS, until=2015, n_paths=50))
    *_, forward = contest.settings()
    return forward


@pytest.fixture(scope="module")
def entry(setting: Setting) -> pl.DataFrame:
    """A valid entry with probabilities of zero between and at the levels."""
    rows = required_rows(setting, HORIZONS).drop("birth_year")
    rng = np.random.default_rng(1)
    p_zero = rng.choice([0.0, 0.003, 0.05, 0.2, 0.6, 0.995], rows.height)
    logs = 12 + rng.normal(0, 0.3, (rows.height, 1)) + np.linspace(-1.5, 1.5, len(LEVELS))
    amounts = np.where(LEVELS > p_zero[:, None], np.exp(logs).round(), 0)
    return rows.hstack(pl.DataFrame(amounts, NAMES)).with_columns(p_zero=p_zero)


@pytest.fixture(scope="module")
def outcomes(setting: Setting) -> pl.DataFrame:
    """Known outcomes `y` by person and horizon."""
    columns = {
        "person_id": np.repeat(setting.origins.person_id, 2).tolist(),
        "horizon": np.tile(np.array(HORIZONS, dtype=np.int32), len(setting.origins)),
        "y": setting.outcomes[0][1].ravel(),
    }
    return pl.DataFrame(columns).filter(pl.col("y").is_not_nan())


def read(table: pl.DataFrame, folder: Path, setting: Setting, suffix: str = ".csv") -> object:
    file = folder / f"entry{suffix}"
    table.write_csv(file) if suffix == ".csv" else table.write_parquet(file)
    return read_entry(file, "entry", setting, HORIZONS)


def scores(contestant: object, setting: Setting) -> pl.DataFrame:
    blocks = contestant.forecasts(  # type: ignore[attr-defined]
        setting.past, setting.origins, horizons=HORIZONS, n_paths=50, seed=0
    )
    outcomes, done, tables = setting.outcomes[0][1], 0, []
    for block in blocks:
        rows = slice(done, done := done + len(block))
        tables.append(score_block(block, outcomes[rows], HORIZONS, 24_150.0))
    return pl.concat(tables).sort("person_id", "horizon")


def test_scores_are_those_of_the_stated_distribution(
    entry: pl.DataFrame, outcomes: pl.DataFrame, setting: Setting, tmp_path: Path
) -> None:
    scored = scores(read(entry, tmp_path, setting), setting)
    rows = scored.join(entry, on=["person_id", "horizon"], suffix=":of").join(
        outcomes, on=["person_id", "horizon"]
    )
    assert rows.height == scored.height > 200
    quantiles, p, y = rows.select(NAMES).to_numpy(), rows["p_zero:of"].to_numpy(), rows["y"]
    t, floor = log_earnings(y.to_numpy()), np.log(24_150.0)
    error = t[:, None] - log_earnings(quantiles)
    pinball = np.maximum(LEVELS * error, (LEVELS - 1) * error).mean(axis=1)
    np.testing.assert_allclose(rows["pinball_log"], pinball, rtol=1e-5, atol=1e-6)
    brier = (p - (y == 0).to_numpy()) ** 2
    np.testing.assert_allclose(rows["brier_zero"], brier, rtol=1e-5, atol=1e-7)
    lower, upper = quantiles[:, 1], quantiles[:, 7]  # of 5 and 95 %
    inside = (y >= lower) & (y <= upper)
    assert rows["coverage_90"].to_list() == inside.cast(pl.Float32).to_list()
    x = np.linspace(floor, 18, 40_001)  # the integral of (F - [x >= t])^2
    for k in range(0, rows.height, 5):
        positive = LEVELS > p[k]
        at = np.concatenate([[floor], np.log(quantiles[k, positive])])
        cdf = np.interp(x, at, np.concatenate([[p[k]], LEVELS[positive]]))
        cdf[x >= at[-1]] = 1.0
        crps = np.trapezoid((cdf - (x >= t[k])) ** 2, x)
        assert rows["crps_log"][k] == pytest.approx(crps, abs=5e-4)


def test_a_forecaster_scores_the_same_in_the_contest_and_as_an_entry(
    setting: Setting, tmp_path: Path
) -> None:
    exact = Walker("exact")
    contest, as_entry = (
        scores(contestant, setting)
        for contestant in (
            exact,
            read(entry_table(exact, setting, HORIZONS), tmp_path, setting, ".parquet"),
        )
    )
    assert contest.select("person_id", "horizon").equals(as_entry.select("person_id", "horizon"))
    for metric in ("brier_zero", "pinball_log", "crps_log"):
        direct, entered = (scored[metric].to_numpy() for scored in (contest, as_entry))
        # 50 samples are a coarse distribution, and nine quantiles lose a part of it.
        assert abs(entered.mean() / max(direct.mean(), 1e-9) - 1) < 0.02 or not direct.any(), metric


def test_the_outcomes_themselves_score_best(
    entry: pl.DataFrame, outcomes: pl.DataFrame, setting: Setting, tmp_path: Path
) -> None:
    known = entry.join(outcomes, on=["person_id", "horizon"], how="left").with_columns(
        pl.col("y").fill_null(0.0)
    )
    told = known.with_columns(
        *(pl.col("y").alias(name) for name in NAMES), p_zero=(pl.col("y") == 0).cast(pl.Float64)
    )
    perfect = scores(read(told.drop("y"), tmp_path, setting), setting)
    vague = scores(read(entry, tmp_path, setting), setting)
    assert perfect["pinball_log"].max() == perfect["brier_zero"].max() == 0
    assert perfect["crps_log"].to_numpy().max() < 1e-3 < vague["crps_log"].to_numpy().mean()
    assert perfect["coverage_90"].min() == 1
    assert perfect["interval_90"].max() == 0


Break = Callable[[pl.DataFrame], pl.DataFrame]


def _set(name: str, value: object) -> Break:
    """The table with another value in its third row."""
    here = pl.int_range(pl.len()) == 2
    return lambda t: t.with_columns(pl.when(here).then(pl.lit(value)).otherwise(name).alias(name))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda t: t.drop("q25"), "a column is missing .at column q25"),
        (_set("p_zero", None), "p_zero is no finite number in row 3, horizon 1 .at person 000"),
        (lambda t: _set("q50", "many")(t.cast({"q50": pl.String})), "q50 is no finite number"),
        (_set("q05", -1.0), "q05 is below 0 in row 3"),
        (_set("p_zero", 1.5), "p_zero is above 1 in row 3"),
        (_set("q95", 1.0), "q95 is below q90 in row 3.*column q95"),
        (_set("p_zero", 0.999), "q99 is positive, but its level is below p_zero in row 3"),
        (lambda t: pl.concat([t, t.head(1)]), "a second time in row"),
        (lambda t: t.with_columns(pl.col(NAMES) / 1000), "q99 is below 24,150 SEK"),
        (lambda t: t.with_columns(pl.col(NAMES).log1p()), "q99 is below 24,150 SEK"),
        (
            lambda t: t.with_columns(pl.lit(0.0).alias("q01"), mean=pl.lit(1.0)),
            "mean is outside what the row's quantiles allow",
        ),
        (
            lambda t: t.with_columns(mean=pl.lit(1e9)),
            "mean is outside what the row's quantiles allow",
        ),
        (lambda t: t.with_columns(p50=pl.lit(1.0)), "a column is not read .at column p50"),
        (
            lambda t: pl.concat([t, t.head(1).with_columns(person_id=pl.lit("nobody"))]),
            "row .*, horizon 1, is not in the round .*person nobody",
        ),
        (lambda t: t.slice(2), r"there is no row of horizon 1 .*person 000.*\[2 times\]"),
    ],
)
def test_a_wrong_entry_is_refused_by_row_person_and_column(
    broken: Break, message: str, entry: pl.DataFrame, setting: Setting, tmp_path: Path
) -> None:
    low_zero = entry.with_columns(
        pl.when(pl.int_range(pl.len()) == 2).then(1e5).otherwise(name).alias(name) for name in NAMES
    ).with_columns(p_zero=pl.when(pl.int_range(pl.len()) == 2).then(0.0).otherwise("p_zero"))
    with pytest.raises(InputError, match=f"(?s){message}"):
        read(broken(low_zero), tmp_path, setting)


def test_totals_of_true_means_and_paths_have_no_error(setting: Setting, tmp_path: Path) -> None:
    (_, outcomes), n = setting.outcomes[0], len(setting.origins)
    two = replace(setting, outcomes=[(0, outcomes), (1, 2 * outcomes)])
    groups = pl.DataFrame({"person_id": setting.origins.person_id.tolist(), "sex": ["a"] * n})
    paths = np.stack([outcomes, outcomes, 2 * outcomes, 2 * outcomes], axis=-1)
    table = score_totals("told", 1.5 * outcomes, paths, two, HORIZONS, groups)
    assert set(table["group"]) == {"all", "sex=a"}
    at = table.filter(group="all", horizon=5).select("metric", "value").iter_rows()
    values = dict(at)
    # Forecasts are half too high in one future and a quarter too low in the other.
    assert values["total_bias"] == pytest.approx(0.125)
    assert values["total_error"] == pytest.approx(0.375)
    assert values["total_coverage_90"] == 1
    assert values["total_crps"] == pytest.approx(np.log(2) * (0.5 - 1 / 3), rel=1e-4)
    rows = required_rows(setting, HORIZONS)
    long = rows.select("person_id", "horizon").join(pl.DataFrame({"path": [1, 2]}), how="cross")
    year = pl.col("horizon") + int(setting.origins.year[0])
    long = long.with_columns(year=year, earnings=pl.col("path") * 1e5).drop("horizon")
    long.write_csv(tmp_path / "paths.csv")
    joint = read_paths(tmp_path / "paths.csv", setting, HORIZONS, rows)
    assert np.nanmin(joint[..., 0]) == np.nanmax(joint[..., 0]) == 1e5
    long.slice(1).write_csv(tmp_path / "paths.csv")
    with pytest.raises(InputError, match="path 1 lacks an amount at horizon 1"):
        read_paths(tmp_path / "paths.csv", setting, HORIZONS, rows)


def test_the_distribution_without_positive_quantiles_lies_at_zero_and_on_the_floor() -> None:
    grid, cdf = grid_of_quantiles(LEVELS, np.zeros((1, 1, 9)), np.array([[0.995]]))
    assert set(grid.ravel()) == {np.log(24_150.0)}
    assert cdf.ravel().tolist() == [0.995] * 10 + [1.0]


_run = partial(answer, "benchmark")


@pytest.mark.thorough
def test_a_judged_round_hides_its_seed_and_is_bound_to_its_outcomes(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    settings = ("--persons", 1000, "--futures", 2, "--horizons", "1,5", "--bundle", tiny_bundle)
    round_, truth = tmp_path / "round", tmp_path / "kept"
    record = _run("pasts", round_, "--seed", 7_777_777, "--truth", truth, *settings)
    assert record["seed"] is None
    published = b"".join(file.read_bytes() for file in round_.rglob("*") if file.is_file())
    assert b"7777777" not in published
    again = _run("pasts", tmp_path / "again", "--seed", 7_777_777, *settings)
    assert again["commitment"] == record["commitment"]
    other = _run("pasts", tmp_path / "other", "--seed", 8, *settings)
    assert other["commitment"] != record["commitment"]

    panel = pl.read_parquet(round_ / "panel.parquet")
    assert panel["year"].max() == 2022
    assert panel.height == pl.read_csv(round_ / "panel.csv").height
    entry = pl.read_parquet(round_ / "entries" / "saga.parquet")
    rows = pl.read_csv(round_ / "rows.csv", schema_overrides={"person_id": pl.String})
    assert entry.join(rows, on=["person_id", "horizon"], how="anti").is_empty()
    entry.write_csv(tmp_path / "mine.csv")
    judged = ("--round", round_, "--truth", truth, "--out", tmp_path / "scores")
    scored = _run("score", tmp_path / "mine.csv", *judged)
    (table,) = read_results(tmp_path / "scores")["pages"]
    assert {row[1] for row in table["rows"]} > {"mine", "saga"}, "a row of the scoreboard"
    differences = [row["difference"] for row in scored["comparisons"] if row["model"] == "mine"]
    assert differences
    assert set(differences) == {0.0}, "the same forecasts"
    with pytest.raises(InputError, match="not the truth of this round"):
        Round.open(round_, tmp_path / "other" / "truth")
