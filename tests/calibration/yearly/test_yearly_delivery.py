"""A delivery as one command: its files follow from the ledger, so a repetition changes nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from calibration.adaptive.ledger import open_ledger
from calibration.yearly import yearly_delivery
from saga.bundle import Bundle
from saga.cli import app
from saga.data.origins import cut
from saga.data.panel import Panel

FILES = ("delivery.html", "years.parquet", "delivery.json")


def deliver(bundle: Path, panel: Path, folder: Path, out: str = "pages") -> tuple[int, Any]:
    options = f"--database sqlite:///{folder}/ledger.sqlite --persons 40 --prices 2022 --threads 1"
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
    assert (code, report["promised"], report["outcomes"]["new"]) == (0, 0, 0)
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


@pytest.mark.slow
@pytest.mark.parametrize("table", ["event", "promise"])
def test_a_delivery_killed_while_it_writes_is_whole_after_it_is_repeated(
    tiny_bundle: Path, panels: dict[int, Path], tmp_path: Path, table: str
) -> None:
    """Killed with SIGKILL when rows of the table appear: settled, or entered for the next year."""
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    assert deliver(tiny_bundle, panels[2018], tmp_path)[0] == 0
    for name in ("ledger.sqlite", "ledger.sqlite.key"):
        shutil.copy(tmp_path / name, undisturbed / name)
    assert deliver(tiny_bundle, panels[2019], undisturbed)[0] == 0
    before = count_rows(tmp_path, table)
    options = f"--out {tmp_path}/pages --database sqlite:///{tmp_path}/ledger.sqlite --persons 40"
    options += f" --prices 2022 --threads 1 --panel {panels[2019]}"
    program = "from saga.cli import main; main()"
    command = [sys.executable, "-c", program, "deliver", str(tiny_bundle), *options.split()]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and count_rows(tmp_path, table) == before:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert deliver(tiny_bundle, panels[2019], tmp_path)[0] == 0
    digest = Bundle.load(tiny_bundle).digest
    ledgers = [
        open_ledger(f"sqlite:///{folder}/ledger.sqlite") for folder in (tmp_path, undisturbed)
    ]
    assert ledgers[0].state(digest) == ledgers[1].state(digest) == ledgers[0].replay(digest)
    assert ledgers[0].counts(digest) == ledgers[1].counts(digest)
    assert written(tmp_path) == written(undisturbed)


def count_rows(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / "ledger.sqlite", timeout=30)) as connection:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


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
