"""A new delivery of the panel: intervals never use later years.

So deliveries year by year and one delivery of all years give the same ledger.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.calibration.adaptive.delivery import apply_delivery
from saga.calibration.adaptive.ledger import Ledger
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from typer.testing import CliRunner

from saga.bundle import Bundle
from saga.cli import app
from saga.data.origins import without_later_exits
from saga.data.panel import Panel
from saga.errors import UsageError
from saga.requests import Draws

N_PERSONS, DRAWS = 40, Draws(25)


def delivery(panel: Panel, year: int) -> Panel:
    """The panel as it was when `year` was its last."""
    return panel.with_frame(
        without_later_exits(panel.frame.filter(pl.col("year") <= year), pl.lit(year))
    )


def test_one_delivery_equals_deliveries_by_year_and_a_repetition_changes_nothing(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    by_year, ledger = (
        Ledger(f"sqlite:///{tmp_path / name}", PseudonymKey(key * 8))
        for name, key in (("by_year.sqlite", b"some"), ("once.sqlite", b"other"))
    )
    reports = [
        apply_delivery(tiny_bundle, delivery(register_panel, year), by_year, n_persons=N_PERSONS)
        for year in (2018, 2019, 2020)
    ]
    assert [report.origins for report in reports] == [(2018,), (2019,), (2020,)]
    settled = [report.settled.settled_intervals for report in reports]
    assert settled[0] == 0 < settled[1] < settled[2], "for 2020 from 2018 and from 2019"
    last = delivery(register_panel, 2020)
    once = apply_delivery(tiny_bundle, last, ledger, since=2018, n_persons=N_PERSONS)
    assert once.recorded.new == sum(report.recorded.new for report in reports)
    assert once.state.cells == reports[-1].state.cells
    assert once.state.through == 2020
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
