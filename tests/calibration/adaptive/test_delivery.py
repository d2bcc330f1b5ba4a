"""A new delivery of the panel: intervals never use later years.

So deliveries year by year and one delivery of all years give the same ledger.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.calibration.adaptive.delivery import DeliveryReport, apply_delivery
from saga.calibration.adaptive.issuance import AdaptedForecaster, run_and_record
from saga.calibration.adaptive.issued_intervals import IssuedInterval
from saga.calibration.adaptive.ledger import Ledger, RecordCounts
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from typer.testing import CliRunner

from saga.bundle import Bundle
from saga.cli import app
from saga.data.origins import without_later_exits
from saga.data.panel import Panel
from saga.data.rules import find_ineligible
from saga.errors import UsageError
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest

N_PERSONS, DRAWS = 40, Draws(25)


def delivery(panel: Panel, year: int) -> Panel:
    """The panel as it was when `year` was its last."""
    return panel.with_frame(
        without_later_exits(panel.frame.filter(pl.col("year") <= year), pl.lit(year))
    )


@pytest.fixture(scope="module")
def by_year(
    tiny_bundle: Path, register_panel: Panel, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ledger, list[DeliveryReport]]:
    ledger = Ledger(
        f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'by_year.sqlite'}", PseudonymKey(b"k" * 32)
    )
    return ledger, [
        apply_delivery(tiny_bundle, delivery(register_panel, year), ledger, n_persons=N_PERSONS)
        for year in (2018, 2019, 2020)
    ]


def test_each_delivery_settles_its_year_and_issues_intervals_from_it(
    by_year: tuple[Ledger, list[DeliveryReport]], tiny_bundle: Path
) -> None:
    ledger, reports_by_year = by_year
    assert [report.origins for report in reports_by_year] == [(2018,), (2019,), (2020,)]
    assert reports_by_year[0].settled.settled_intervals == reports_by_year[0].state.version == 0
    assert 20 < reports_by_year[1].settled.new <= N_PERSONS, (
        "the persons with intervals for 2019, unless they left"
    )
    assert (
        reports_by_year[2].settled.settled_intervals > reports_by_year[1].settled.settled_intervals
    ), "intervals for 2020 were issued from 2018 and from 2019"
    assert reports_by_year[2].state.through == 2020
    assert ledger.replay(Bundle.load(tiny_bundle).digest) == reports_by_year[2].state


def test_one_delivery_equals_deliveries_by_year_and_a_repetition_changes_nothing(
    by_year: tuple[Ledger, list[DeliveryReport]],
    tiny_bundle: Path,
    register_panel: Panel,
    tmp_path: Path,
) -> None:
    _, reports_by_year = by_year
    ledger = Ledger(f"sqlite:///{tmp_path / 'once.sqlite'}", PseudonymKey(b"other" * 8))
    last = delivery(register_panel, 2020)
    once = apply_delivery(tiny_bundle, last, ledger, since=2018, n_persons=N_PERSONS)
    assert once.recorded.new == sum(report.recorded.new for report in reports_by_year)
    assert once.state.cells == reports_by_year[-1].state.cells
    repeated = apply_delivery(tiny_bundle, last, ledger, n_persons=N_PERSONS)
    assert repeated.origins == ()
    assert repeated.recorded.new == repeated.settled.new == repeated.settled.conflicting == 0
    assert repeated.state == once.state


def test_a_delivery_issues_the_spans_that_are_asked_for(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path / 'spans.sqlite'}", PseudonymKey(b"k" * 32))
    for year in (2017, 2020):
        last = delivery(register_panel, year)
        apply_delivery(tiny_bundle, last, ledger, since=year, n_persons=N_PERSONS, spans=(3,))
    judged = ledger.span_coverage(Bundle.load(tiny_bundle).digest)
    assert {(row.kind, row.years, row.year) for row in judged} == {
        ("band", 3, 2020),
        ("present_value", 3, 2020),
    }
    with pytest.raises(UsageError, match="Spans"):
        apply_delivery(tiny_bundle, last, ledger, spans=(0,))


def test_an_interrupted_delivery_continues_with_its_year(
    by_year: tuple[Ledger, list[DeliveryReport]],
    tiny_bundle: Path,
    register_panel: Panel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Interrupted twice after two of five blocks, then repeated: the ledger is the same."""
    _, reports_by_year = by_year
    monkeypatch.setattr("saga.forecaster._BLOCK_PERSONS", 8)
    ledger = Ledger(f"sqlite:///{tmp_path / 'killed.sqlite'}", PseudonymKey(b"k" * 32))
    record, total = ledger.record, RecordCounts()

    def record_or_interrupt(bundle: str, issued: Sequence[IssuedInterval]) -> RecordCounts:
        nonlocal total
        recorded = record(bundle, issued)
        total += recorded
        if recorded.new and next(interruptions, 0):
            raise KeyboardInterrupt
        return recorded

    interruptions = iter([0, 1, 0, 1])
    monkeypatch.setattr(ledger, "record", record_or_interrupt)
    last = delivery(register_panel, 2019)
    reports: list[DeliveryReport | None] = []
    for _ in range(3):
        try:
            reports.append(
                apply_delivery(tiny_bundle, last, ledger, since=2018, n_persons=N_PERSONS)
            )
        except KeyboardInterrupt:
            reports.append(None)
    assert reports[:2] == [None, None]
    assert reports[2] is not None
    assert total.new == sum(
        report.recorded.new + report.spans.new for report in reports_by_year[:2]
    )
    assert reports[2].state.cells == reports_by_year[1].state.cells


def test_recorded_forecasts_do_not_count_as_a_delivery(
    by_year: tuple[Ledger, list[DeliveryReport]],
    tiny_bundle: Path,
    register_panel: Panel,
    tmp_path: Path,
) -> None:
    _, reports_by_year = by_year
    ledger = Ledger(f"sqlite:///{tmp_path / 'shared.sqlite'}", PseudonymKey(b"k" * 32))
    first = delivery(register_panel, 2018)
    adapted = AdaptedForecaster.of(Forecaster.load(tiny_bundle), None)
    ineligible = find_ineligible(first)
    person = [p for p in first.persons() if p not in ineligible][:1]
    request = ForecastRequest((1, 2), coverage=(0.5,), quantiles=(0.5,))
    _, recorded = run_and_record(adapted, request, first.only(person), DRAWS, ledger)
    assert recorded.new
    report = apply_delivery(tiny_bundle, first, ledger, n_persons=N_PERSONS)
    assert report.origins == (2018,)
    assert report.recorded.new + report.recorded.repeated == reports_by_year[0].recorded.new


def test_the_command_reports_and_fails_if_the_delivery_contradicts_an_earlier_one(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    def run(name: str, frame: pl.DataFrame) -> tuple[int, dict[str, Any]]:
        frame.write_parquet(tmp_path / name)
        options = f"--append --database sqlite:///{tmp_path}/ledger.sqlite --persons 30"
        options += f" --prices 2022 --threads 1 --json --panel {tmp_path / name}"
        result = CliRunner().invoke(app, ["calibrate", str(tiny_bundle), *options.split()])
        return result.exit_code, json.loads(result.stdout)

    first, second = delivery(register_panel, 2018).frame, delivery(register_panel, 2019).frame
    code, report = run("first.parquet", first)
    assert (code, report["origins"], report["through"]) == (0, [2018], None)
    assert report["recorded"]
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
    assert report["conflicting"] == len(report["problems"])
    assert "271828" not in json.dumps(report)
