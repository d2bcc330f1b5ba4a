"""Forecasts under a ledger: command and batch use one state and record once."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.calibration.adaptive.issuance import AdaptedForecaster, AdaptiveRecipe
from saga.calibration.adaptive.ledger import open_ledger

from saga.batch.engine import score
from saga.batch.products import Recipe
from saga.conformal.calibrator import Calibrator
from saga.data.origins import history, origins_at
from saga.data.panel import Panel
from saga.data.reading import Source, read_panel
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest, LifetimeRequest
from tests.calibration.adaptive.ledgers import run_and_record
from tests.command_line import refusal

HORIZONS = (1, 2, 3)
REQUEST = ForecastRequest(HORIZONS, coverage=(0.5, 0.8), quantiles=(0.5,))
DRAWS = Draws(25, seed=4)
PERSONS = 24


@pytest.fixture(scope="module")
def people(register_panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Persons of the register as they were in 2019, as a file; everybody can be forecast."""
    test_persons = register_panel.only(persons_of(register_panel, "test"))
    origins = origins_at(test_persons, 2019).take(slice(0, PERSONS))
    file = tmp_path_factory.mktemp("people") / "people.parquet"
    history(test_persons, origins).frame.write_parquet(file)
    return file


@pytest.fixture
def url(forecaster: Forecaster, people: Path, tmp_path: Path) -> str:
    """A ledger with a state: all persons have intervals from 2019, and all for 2020 missed."""
    database_url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    ledger = open_ledger(database_url)
    panel = read_panel(people, prices=2022)
    run_and_record(AdaptedForecaster.of(forecaster, None), REQUEST, panel, DRAWS, ledger)
    ledger.settle((person, 2020, 9e7) for person in panel.persons())
    ledger.close()
    return database_url


def persons_outside(people: Path) -> list[str]:
    """Persons with issued intervals who are not in the batches."""
    return sorted(pl.read_parquet(people)["person_id"].unique())[-3:]


def one_year_later(people: Path, folder: Path) -> Path:
    """The other persons one year later: no intervals are issued from their new origin yet."""
    frame = pl.read_parquet(people).filter(~pl.col("person_id").is_in(persons_outside(people)))
    last_rows = (
        frame.group_by("person_id").agg(pl.all().sort_by("year").last()).select(frame.columns)
    )
    file = folder / "later.parquet"
    pl.concat([frame, last_rows.with_columns(pl.col("year") + 1)]).write_parquet(file)
    return file


def counts(url: str, bundle: str) -> dict[str, int]:
    ledger = open_ledger(url)
    interval_counts = ledger.counts(bundle)
    ledger.close()
    return interval_counts


def rows(folder: Path) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(part) for part in sorted(folder.glob("part-*.parquet")))


def test_a_state_moves_forecasts_and_present_values_and_what_is_issued_is_entered_once(
    url: str, people: Path, forecaster: Forecaster, tmp_path: Path
) -> None:
    """All outcomes of h = 1 were above the forecast, so only its distribution moves, upwards."""
    panel = read_panel(one_year_later(people, tmp_path), prices=2022)
    ledger = open_ledger(url)
    adapted = AdaptedForecaster.of(forecaster, ledger.state(forecaster.bundle.digest))
    assert adapted.identity()["through"] == 2020
    moved, split = (
        f.forecast(panel, REQUEST, DRAWS).table for f in (adapted.forecaster, forecaster)
    )
    assert (moved["mean"] > split["mean"]).to_list() == (split["horizon"] == 1).to_list()
    assert moved.filter(pl.col("horizon") > 1).equals(split.filter(pl.col("horizon") > 1))
    for request, draws in ((REQUEST, DRAWS), (LifetimeRequest(), Draws(50))):
        result, first = run_and_record(adapted, request, panel, draws, ledger)
        _, again = run_and_record(adapted, request, panel, draws, ledger)
        issued = len(result.issued)
        assert (first.new, first.late) == (issued, 0)
        assert (again.new, again.repeated) == (0, issued)
    unmoved = forecaster.lifetime(panel, LifetimeRequest(), Draws(50)).table
    assert (result.table["mean"] > unmoved["mean"]).all()
    ledger.close()


class Killed(BaseException):
    """Stands for the end of the process."""


def run_batch(source: Path, out: Path, bundle: Path, url: str, *, record: bool = True) -> None:
    recipe = Recipe(bundle, REQUEST, DRAWS)
    adaptive = AdaptiveRecipe.of(recipe, out, url=url, key=None, record=record)
    score(Source(source, prices=2022), out, adaptive, persons_per_partition=6)


def test_a_batch_that_follows_a_ledger_uses_the_facts_of_the_office(
    url: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    """As its description says: the macro series of an office, not the shipped ones."""
    own = tmp_path / "own.csv"
    own.write_text("series,year,value,unit,mark,source\nunemployment,2025,12.0,per cent,V,office\n")
    recipe = Recipe(tiny_bundle, REQUEST, DRAWS, facts=own)
    for record in (False, True):
        adaptive = AdaptiveRecipe.of(recipe, tmp_path / "out", url=url, key=None, record=record)
        computation = adaptive.open()
        digest = recipe.describe()["facts"]
        source = {"digest": digest, "source": own.name}
        assert computation.forecaster.provenance()["facts"] == source
        assert computation.forecaster.facts.digest == digest


def test_a_killed_batch_records_each_interval_once_and_keeps_its_state(
    url: str,
    people: Path,
    tiny_bundle: Path,
    forecaster: Forecaster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, digest = one_year_later(people, tmp_path), forecaster.bundle.digest
    shutil.copy(tmp_path / "ledger.sqlite", tmp_path / "undisturbed.sqlite")
    shutil.copy(tmp_path / "ledger.sqlite.key", tmp_path / "undisturbed.sqlite.key")
    undisturbed = f"sqlite:///{tmp_path / 'undisturbed.sqlite'}"
    run_batch(source, tmp_path / "undisturbed", tiny_bundle, undisturbed)
    expected = counts(undisturbed, digest)

    replace, out = Path.replace, tmp_path / "out"
    # Renames: run, mapping, staged file, then parts and receipts.
    for call, person in zip((3, 3, 4), persons_outside(people), strict=True):
        number = iter(range(1_000))

        def fatal(self: Path, target: Path, at: int = call, number: Any = number) -> Path:
            if next(number) == at:
                raise Killed
            return replace(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", fatal)
            with pytest.raises(Killed):
                run_batch(source, out, tiny_bundle, url)
        # Meanwhile the state of the ledger changes, and a new job would have other thresholds.
        ledger = open_ledger(url)
        assert ledger.settle([(person, 2021, 9e7)]).settled_intervals == 1
        ledger.close()
    run_batch(source, out, tiny_bundle, url)
    state = open_ledger(url).state(digest)
    assert state is not None
    assert state.version == 4, "the state must have changed meanwhile"
    assert rows(out).equals(rows(tmp_path / "undisturbed"))
    assert (out / "_run.json").read_bytes() == (tmp_path / "undisturbed" / "_run.json").read_bytes()
    assert counts(url, digest) == {
        "settled": expected["settled"] + 3,
        "waiting": expected["waiting"] - 3,
    }, "each interval once"
    # A new job, in another folder, uses the present state.
    run_batch(source, tmp_path / "new", tiny_bundle, url, record=False)
    assert not rows(tmp_path / "new").equals(rows(out))


def test_a_run_cannot_continue_under_another_ledger_or_without_one(
    url: str, people: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    source, out = one_year_later(people, tmp_path), tmp_path / "out"
    run_batch(source, out, tiny_bundle, url)
    with pytest.raises(UsageError, match="adaptive, ledger differ"):
        run_batch(source, out, tiny_bundle, f"sqlite:///{tmp_path / 'other.sqlite'}")
    recipe = Recipe(tiny_bundle, REQUEST, DRAWS)
    with pytest.raises(UsageError, match="adaptive, ledger, record differ"):
        score(Source(source, prices=2022), out, recipe, persons_per_partition=6)


def test_a_run_that_one_ledger_has_is_not_complete_for_another_or_another_holder(
    people: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    """Both ledgers are empty, so thresholds are the same; but the second would stay without."""
    out, recipe = tmp_path / "out", Recipe(tiny_bundle, REQUEST, DRAWS)
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    for name, holder, refused in (
        ("one", "common", None),
        ("other", "common", "ledger differ"),  # of the same key
        ("one", "office", "ledger differ"),
        ("one", "common", None),
    ):
        url = f"sqlite:///{tmp_path / name}.sqlite"
        of_holder = AdaptiveRecipe.of(recipe, out, url=url, key=key, record=True, holder=holder)
        with pytest.raises(UsageError, match=refused) if refused else nullcontext():
            score(Source(people, prices=2022), out, of_holder)


def test_an_error_about_recording_is_raised_before_any_work(
    url: str, people: Path, tiny_bundle: Path, forecaster: Forecaster, tmp_path: Path
) -> None:
    options = f"--prices 2022 --paths 25 --seed 4 --bundle {tiny_bundle} --record"
    told = refusal("forecast", people, "--out", tmp_path / "f.csv", options)
    assert "--database" in told
    for more, told in (
        ("--product paths", "no option --record"),
        ("--product lifetimes --rate 0.03", "rate"),
        ("--scenario high-growth", "scenario"),
    ):
        line = ("score", people, tmp_path / "out", more, "--database", url, options)
        assert told in refusal(*line).lower()
    uncalibrated = forecaster.with_calibrator(Calibrator())
    with pytest.raises(UsageError, match="no intervals to record"):
        AdaptedForecaster.of(uncalibrated, None).check_recordable(REQUEST, DRAWS)
