"""Deliveries of a new year: the same ledger and files however they come; no later year is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.calibration.adaptive.delivery import apply_delivery
from saga.calibration.adaptive.ledger import Ledger, open_ledger
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from saga.calibration.fit.bundle_calibration import calibrate_bundle
from saga.calibration.yearly import yearly_delivery
from saga.calibration.yearly.yearly_delivery import TABLE

from saga.bundle import Bundle
from saga.data.origins import cut, without_later_exits
from saga.data.panel import Panel
from saga.errors import InputError, UsageError
from saga.files.tables import read_provenance
from tests import command_line

N_PERSONS = 40


def delivery(panel: Panel, year: int) -> Panel:
    """The panel as it was when `year` was its last."""
    return panel.with_frame(
        without_later_exits(panel.frame.filter(pl.col("year") <= year), pl.lit(year))
    )


@pytest.mark.thorough
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


def test_a_delivery_issues_the_spans_that_are_asked_for_and_needs_the_same_persons(
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
    other = last.with_frame(last.frame.with_columns(pl.format("{}.0", "person_id")))
    with pytest.raises(InputError, match="was forecast in an earlier delivery"):
        apply_delivery(tiny_bundle, other, ledger, since=2020, n_persons=N_PERSONS)


def test_amounts_in_another_unit_are_no_outcomes(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    """They would move intervals for ever, or be those of the calibration."""
    ledger = Ledger(f"sqlite:///{tmp_path / 'unit.sqlite'}", PseudonymKey(b"k" * 32))
    last = delivery(register_panel, 2020)
    thousands = last.with_frame(last.frame.with_columns(pl.col("earnings") / 1000))
    with pytest.raises(InputError, match="If they are thousands"):
        apply_delivery(tiny_bundle, thousands, ledger, n_persons=N_PERSONS)
    assert ledger.delivered_until(Bundle.load(tiny_bundle).digest) is None
    with pytest.raises(InputError, match="If they are thousands"):
        calibrate_bundle(tiny_bundle, thousands, out=tmp_path / "calibrated")


def test_the_command_reports_and_fails_if_the_delivery_contradicts_an_earlier_one(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    def run(name: str, frame: pl.DataFrame) -> tuple[int, dict[str, Any]]:
        frame.write_parquet(tmp_path / name)
        options = f"--append --database sqlite:///{tmp_path}/ledger.sqlite --persons 30"
        options += f" --prices 2022 --threads 1 --json --panel {tmp_path / name}"
        result = command_line.run("calibrate", tiny_bundle, options)
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


FILES = ("delivery.html", "years.parquet", "delivery.json")


def deliver(
    bundle: Path, panel: Path, folder: Path, out: str = "pages", ledger: str = ""
) -> tuple[int, Any]:
    """Deliver a panel; `ledger` are the options of another one than the SQLite file in `folder`."""
    ledger = ledger or f"--database sqlite:///{folder}/ledger.sqlite"
    options = f"{ledger} --persons 40 --prices 2022 --threads 1 --json"
    result = command_line.run("deliver", bundle, "--panel", panel, "--out", folder / out, options)
    return result.exit_code, json.loads(result.stdout or result.stderr)


def written(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "pages" / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def panels(register_panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder, files = tmp_path_factory.mktemp("panels"), {}
    for year in (2018, 2019, 2020):
        (folder / str(year)).mkdir()
        files[year] = folder / str(year) / "panel.parquet"
        cut(register_panel, year).frame.write_parquet(files[year])
    return files


@pytest.mark.parametrize("name", FILES)
def test_files_of_others_are_not_replaced(
    name: str, tiny_bundle: Path, panels: dict[int, Path], tmp_path: Path
) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / name).write_text("[]")
    code, report = deliver(tiny_bundle, panels[2018], tmp_path)
    assert (code, f"{name} exists and SAGA did not write it" in json.dumps(report)) == (2, True)


@pytest.mark.thorough
def test_deliveries_settle_diagnose_and_recommend_and_a_repetition_changes_nothing(
    tiny_bundle: Path,
    panels: dict[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, report = deliver(tiny_bundle, panels[2018], tmp_path)
    assert (code, report["recommendation"], report["tests"]) == (0, "keep", [])
    assert "No outcome" in report["rule"]
    code, report = deliver(tiny_bundle, panels[2019], tmp_path)
    assert (code, report["adaptive"]["through"]) == (0, 2019)
    assert report["outcomes"]["new"] == report["settled"]
    before = written(tmp_path)
    assert read_provenance(tmp_path / "pages" / TABLE)["adaptive"] == report["adaptive"]
    years = pl.read_parquet(tmp_path / "pages" / TABLE).filter(group="all")
    (row,) = years.to_dicts()
    assert (row["year"], row["horizon"], row["persons"]) == (2019, 1, report["settled"])
    assert row["covered"] + row["below"] + row["above"] == pytest.approx(1)
    page = (tmp_path / "pages" / "delivery.html").read_text()
    assert "What the new year says" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")

    code, report = deliver(tiny_bundle, panels[2019], tmp_path)
    assert (code, report["recorded"], report["outcomes"]["new"]) == (0, 0, 0)
    assert written(tmp_path) == before

    with monkeypatch.context() as patch:  # the process ends after the ledger, before the page

        def killed(*_: object) -> str:
            raise KeyboardInterrupt

        patch.setattr(yearly_delivery, "render_delivery", killed)
        assert deliver(tiny_bundle, panels[2020], tmp_path)[0] == 3
    assert deliver(tiny_bundle, panels[2020], tmp_path)[0] == 0
    (tmp_path / "once").mkdir()
    for year in panels:
        assert deliver(tiny_bundle, panels[year], tmp_path / "once")[0] == 0
    digest = Bundle.load(tiny_bundle).digest
    states = [
        open_ledger(f"sqlite:///{folder}/ledger.sqlite").state(digest)
        for folder in (tmp_path, tmp_path / "once")
    ]
    assert states[0] == states[1]
    assert written(tmp_path) == written(tmp_path / "once")


def test_a_folder_with_other_files_is_refused_before_anything_is_settled(
    tiny_bundle: Path, panels: dict[int, Path], tmp_path: Path
) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "thesis.txt").write_text("keep me")
    code, report = deliver(tiny_bundle, panels[2018], tmp_path)
    assert (code, "thesis.txt" in json.dumps(report)) == (2, True)
    assert not (tmp_path / "ledger.sqlite").exists()
    (tmp_path / "file").write_text("")
    assert deliver(tiny_bundle, panels[2018], tmp_path, "file")[0] == 2
