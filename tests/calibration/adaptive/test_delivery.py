"""A new delivery of the panel: what is promised never looks ahead, so deliveries year by year and all at once give the same ledger."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from calibration.adaptive.delivery import DeliveryReport, apply_delivery
from calibration.adaptive.issuance import AdaptedForecaster, forecast_and_record
from calibration.adaptive.issued_intervals import IssuedIntervals
from calibration.adaptive.ledger import Ledger, RecordCounts
from calibration.adaptive.pseudonyms import PseudonymKey
from saga.bundle import Bundle
from saga.cli import app
from saga.data.origins import without_later_exits
from saga.data.panel import Panel
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest

PERSONS, DRAWS = 40, Draws(25)


def delivery(panel: Panel, year: int) -> Panel:
    """The panel as it was when `year` was its last."""
    return panel.with_frame(
        without_later_exits(panel.frame.filter(pl.col("year") <= year), pl.lit(year))
    )


@pytest.fixture(scope="module")
def by_year(
    tiny_bundle: Path, register_panel: Panel, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ledger, list[DeliveryReport]]:
    store = Ledger(
        f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'by_year.sqlite'}", PseudonymKey(b"k" * 32)
    )
    return store, [
        apply_delivery(
            tiny_bundle, delivery(register_panel, year), store, persons=PERSONS, draws=DRAWS
        )
        for year in (2018, 2019, 2020)
    ]


def test_each_delivery_settles_the_year_and_promises_from_it(
    by_year: tuple[Ledger, list[DeliveryReport]], tiny_bundle: Path
) -> None:
    store, done = by_year
    assert [report.origins for report in done] == [(2018,), (2019,), (2020,)]
    assert (done[0].settled.settled_intervals, done[0].state.version) == (0, 0)
    assert 20 < done[1].settled.new <= PERSONS, (
        "the persons promised something about 2019, unless they left"
    )
    assert done[2].settled.settled_intervals > done[1].settled.settled_intervals, (
        "2020 was promised about from 2018 and from 2019"
    )
    assert done[2].state.through == 2020
    assert store.replay(Bundle.load(tiny_bundle).digest) == done[2].state


def test_all_at_once_is_the_same_as_year_by_year_and_again_changes_nothing(
    by_year: tuple[Ledger, list[DeliveryReport]],
    tiny_bundle: Path,
    register_panel: Panel,
    tmp_path: Path,
) -> None:
    _, done = by_year
    store = Ledger(f"sqlite:///{tmp_path / 'once.sqlite'}", PseudonymKey(b"other" * 8))
    last = delivery(register_panel, 2020)
    once = apply_delivery(tiny_bundle, last, store, since=2018, persons=PERSONS, draws=DRAWS)
    assert once.recorded.new == sum(report.recorded.new for report in done)
    assert once.state.cells == done[-1].state.cells
    again = apply_delivery(tiny_bundle, last, store, persons=PERSONS, draws=DRAWS)
    assert (again.origins, again.recorded.new, again.settled.new, again.settled.conflicting) == (
        (),
        0,
        0,
        0,
    )
    assert again.state == once.state


def test_an_interrupted_delivery_goes_on_with_its_year(
    by_year: tuple[Ledger, list[DeliveryReport]],
    tiny_bundle: Path,
    register_panel: Panel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed after two of five blocks, as often as it likes: given again, the ledger is that of an undisturbed delivery."""
    _, done = by_year
    monkeypatch.setattr("saga.forecaster._BLOCK", 8)
    store = Ledger(f"sqlite:///{tmp_path / 'killed.sqlite'}", PseudonymKey(b"k" * 32))
    record, made = store.record, RecordCounts()

    def dying(bundle: str, promises: IssuedIntervals) -> RecordCounts:
        nonlocal made
        entered = record(bundle, promises)
        made += entered
        if entered.new and next(deaths, 0):
            raise KeyboardInterrupt
        return entered

    deaths = iter([0, 1, 0, 1])
    monkeypatch.setattr(store, "record", dying)
    last = delivery(register_panel, 2019)
    reports = []
    for _ in range(3):
        try:
            reports.append(
                apply_delivery(tiny_bundle, last, store, since=2018, persons=PERSONS, draws=DRAWS)
            )
        except KeyboardInterrupt:
            reports.append(None)
    assert reports[:2] == [None, None]
    assert reports[2] is not None
    assert made.new == done[0].recorded.new + done[1].recorded.new
    assert reports[2].state.cells == done[1].state.cells


def test_promises_of_forecasts_in_the_same_ledger_do_not_stand_for_a_delivery(
    by_year: tuple[Ledger, list[DeliveryReport]],
    tiny_bundle: Path,
    register_panel: Panel,
    tmp_path: Path,
) -> None:
    _, done = by_year
    store = Ledger(f"sqlite:///{tmp_path / 'shared.sqlite'}", PseudonymKey(b"k" * 32))
    first = delivery(register_panel, 2018)
    now = AdaptedForecaster.of(Forecaster.load(tiny_bundle), None)
    someone = [p for p in first.persons() if p not in now.split.obstacles(first)][:1]
    request = ForecastRequest((1, 2), coverage=(0.5,), quantiles=(0.5,))
    _, entered = forecast_and_record(now, first.only(someone), store, request, DRAWS)
    assert entered.new
    report = apply_delivery(tiny_bundle, first, store, persons=PERSONS, draws=DRAWS)
    assert report.origins == (2018,)
    assert report.recorded.new + report.recorded.repeated == done[0].recorded.new


def test_the_command_reports_what_it_did_and_fails_where_the_delivery_contradicts_an_earlier_one(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    def run(name: str, frame: pl.DataFrame) -> tuple[int, dict[str, object]]:
        frame.write_parquet(tmp_path / name)
        database = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
        options = [
            "--append",
            "--database",
            database,
            "--paths",
            "25",
            "--persons",
            "30",
            "--prices",
            "2022",
            "--threads",
            "1",
            "--json",
        ]
        done = CliRunner().invoke(
            app, ["calibrate", str(tiny_bundle), "--panel", str(tmp_path / name), *options]
        )
        return done.exit_code, json.loads(done.stdout)

    first, second = delivery(register_panel, 2018).frame, delivery(register_panel, 2019).frame
    code, report = run("first.parquet", first)
    assert (code, report["origins"], report["through"]) == (0, [2018], None)
    assert report["promised"]
    code, report = run("second.parquet", second)
    assert (code, report["through"]) == (0, 2019)
    changed = second.with_columns(
        pl.when(pl.col("year") == 2019)
        .then(pl.col("earnings") + 271_828)
        .otherwise(pl.col("earnings"))
        .alias("earnings")
    )
    code, report = run("second.parquet", changed)
    assert (code, report["new"]) == (1, 0)
    assert report["conflicting"] == len(report["problems"])  # type: ignore[arg-type]
    assert "271828" not in json.dumps(report)
