"""A delivery as one command: its files follow from the ledger, so a repetition changes nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.calibration.adaptive.adaptive_state import AdaptiveState, ExcessCounts, compute_states
from saga.calibration.adaptive.database import parse_database_url
from saga.calibration.adaptive.ledger import open_ledger
from saga.calibration.yearly import yearly_delivery
from saga.calibration.yearly.year_diagnosis import with_state
from sqlalchemy import Engine, create_engine, text
from typer.testing import CliRunner

from saga.bundle import Bundle, default_bundle
from saga.cli import app
from saga.data.origins import cut
from saga.data.panel import Panel
from saga.diagnostics_tables import Diagnostics
from saga.pages.report import render_report
from tests.postgresql_server import database_of

FILES = ("delivery.html", "years.parquet", "delivery.json")


def deliver(
    bundle: Path, panel: Path, folder: Path, out: str = "pages", ledger: str = ""
) -> tuple[int, Any]:
    """Deliver a panel; `ledger` are the options of another one than the SQLite file in `folder`."""
    ledger = ledger or f"--database sqlite:///{folder}/ledger.sqlite"
    options = f"{ledger} --persons 40 --prices 2022 --threads 1"
    arguments = ["deliver", str(bundle), "--panel", str(panel), "--out", str(folder / out)]
    result = CliRunner().invoke(app, [*arguments, *options.split(), "--json"])
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
    years = pl.read_parquet(tmp_path / "pages" / "years.parquet").filter(group="all")
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]
)
@pytest.mark.parametrize("table", ["settlement", "issued_interval"])
def test_a_delivery_killed_while_it_writes_is_whole_after_it_is_repeated(
    tiny_bundle: Path, panels: dict[int, Path], tmp_path: Path, table: str, kind: str
) -> None:
    """Killed with SIGKILL when rows of the table appear: settled, or entered for the next year.

    The other ledger, of an undisturbed delivery, is an SQLite file in both cases.
    """
    undisturbed, key = tmp_path / "undisturbed", tmp_path / "key"
    undisturbed.mkdir()
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    for year in (2018, 2019):
        assert deliver(tiny_bundle, panels[year], undisturbed)[0] == 0
    with database_of(kind, tmp_path) as url:
        ledger = f"--database {url} --database-key {key}"
        assert deliver(tiny_bundle, panels[2018], tmp_path, ledger=ledger)[0] == 0
        engine = create_engine(parse_database_url(url))
        before = count_rows(engine, table)
        options = f"--out {tmp_path}/pages {ledger} --persons 40 --prices 2022 --threads 1"
        program = "from saga.cli import main; main()"
        command = [sys.executable, "-c", program, "deliver", str(tiny_bundle), *options.split()]
        command += ["--panel", str(panels[2019])]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and count_rows(engine, table) == before:
            time.sleep(0.002)
        process.kill()
        assert process.wait() == -signal.SIGKILL, "killed before the end"
        engine.dispose()
        assert deliver(tiny_bundle, panels[2019], tmp_path, ledger=ledger)[0] == 0
        digest = Bundle.load(tiny_bundle).digest
        ledgers = [
            open_ledger(url, key),
            open_ledger(f"sqlite:///{undisturbed}/ledger.sqlite"),
        ]
        assert ledgers[0].state(digest) == ledgers[1].state(digest) == ledgers[0].replay(digest)
        assert ledgers[0].counts(digest) == ledgers[1].counts(digest)
        assert ledgers[0].span_coverage(digest) == ledgers[1].span_coverage(digest)
        for opened in ledgers:
            opened.close()
    assert written(tmp_path) == written(undisturbed)


def count_rows(engine: Engine, table: str) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(text(f"SELECT COUNT(*) FROM {table}")) or 0)


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


@pytest.fixture
def shipped() -> Diagnostics:
    return Diagnostics.of_bundle(Bundle.load(default_bundle()))


def state_after_misses(persons: int) -> AdaptiveState:
    """Outcomes of so many persons, nearly all above every limit."""
    levels = np.tile([0.5, 0.9], (persons, 1))
    counts = ExcessCounts.of(np.full((persons, 2), 0.99), levels, levels)
    cells = compute_states((0.5, 0.9), {(1, 2023): counts})
    return AdaptiveState(3, 2023, {("all", *key): cell for key, cell in cells.items()})


@pytest.mark.usefixtures("without_pictures")
def test_the_table_has_the_cells_of_the_state_and_no_figure_of_few_persons(
    shipped: Diagnostics,
) -> None:
    counts = {"settled": 400, "waiting": 7}
    shown = with_state(shipped, state_after_misses(400), counts)
    row = shown["adaptive"].filter(horizon=1, coverage=0.9).row(0, named=True)
    assert (row["n"], row["inside"], row["last_year"]) == (400, 0.0, 2023)
    assert row["size"] > 0
    facts = shown.provenance
    assert (facts["adaptive_version"], facts["adaptive_settled"]) == ("3", "400")
    assert with_state(shown, state_after_misses(400), counts).provenance == facts, "not twice"
    few = with_state(shipped, state_after_misses(4), counts)["adaptive"]
    assert few.filter(horizon=1, coverage=0.9)["n"].to_list() == [None]
    assert few["inside"].null_count() == few.height
    empty = with_state(shipped, None, {"settled": 0, "waiting": 0})
    assert empty["adaptive"].is_empty()
    assert len({render_report(each) for each in (shipped, shown, empty)}) == 3


def test_the_command_shows_the_state_of_a_ledger(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    open_ledger(url).close()
    command = ["report", str(default_bundle()), "--out", str(tmp_path / "r.html"), "--json"]
    done = CliRunner().invoke(app, [*command, "--database", url])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["provenance"]["adaptive_settled"] == "0"
