"""The figures in the docs are what the committed metrics and the code say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from saga.bundle import Bundle
from saga.files.tables import read_provenance, write_table

ROOT = Path(__file__).resolve().parents[1]


def test_results_and_readme_are_what_the_metrics_give() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/results/write.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr or "run: python docs/results/write.py"


def test_the_results_are_of_the_shipped_model_and_calibration() -> None:
    judged = read_provenance(ROOT / "docs/results/metrics.parquet")["register"]
    shipped = Bundle.load(ROOT / "bundles/small")
    assert judged["calibration"] == shipped.calibration_digest
    assert judged["bundle"] in (shipped.digest, *shipped.manifest["parents"])


def test_the_page_of_parameters_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/parameters/write.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr or "run: python docs/parameters/write.py"


class Desk:
    """The program on committed tables of its own (`folder`), and contests to take."""

    def __init__(self, folder: Path, run: Callable[..., int]) -> None:
        self.folder, self.run = folder, run

    def contest(self, bundle: str, *models: str, variants: tuple[str, ...] = ()) -> str:
        """What `saga evaluate` of a bundle writes, as far as it matters: a row a model, its value the bundle's."""
        out = self.folder / bundle
        names = ["saga", *models, *(f"saga:{name}" for name in variants)]
        rows = pl.DataFrame({"model": names}).with_columns(
            metric=pl.lit("crps_log"), group=pl.lit("all"), value=pl.lit(bundle)
        )
        out.mkdir()
        write_table(rows, out / "metrics.parquet", {"bundle": bundle})
        if variants:
            write_table(
                pl.DataFrame({"name": variants, "bundle": variants}),
                out / "variants.parquet",
                {"bundle": bundle},
            )
        return str(out)

    def rows(self) -> list[tuple[str, str]]:
        """Model and the bundle whose contest its row is of."""
        return sorted(
            pl.read_parquet(self.folder / "metrics.parquet").select("model", "value").iter_rows()
        )

    def kept(self) -> Any:
        return read_provenance(self.folder / "metrics.parquet")["register"].get("kept")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    spec = spec_from_file_location("docs_results_write", ROOT / "docs/results/write.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, place in {
        "HERE": tmp_path,
        "RESULTS": tmp_path / "results.md",
        "README": tmp_path / "README.md",
    }.items():
        monkeypatch.setattr(module, name, place)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["write.py", *arguments])
        status: int = module.main()
        return status

    return Desk(tmp_path, run)


def test_rows_that_stay_are_of_the_contest_that_judged_them_however_often_they_stay(
    desk: Desk,
) -> None:
    desk.run("--take", "register", desk.contest("B1", "abb", "gbt"))
    desk.run("--take", "register", desk.contest("B2", "gbt"), "abb")
    desk.run("--take", "register", desk.contest("B3"), "abb", "gbt")
    assert desk.rows() == [("abb", "B1"), ("gbt", "B2"), ("saga", "B3")]
    assert desk.kept() == {"abb": "B1", "gbt": "B2"}


def test_variants_stay_where_there_are_no_new_ones_and_nothing_else_that_was_made_of_the_bundle_before(
    desk: Desk,
) -> None:
    desk.run(
        "--take", "register", desk.contest("B1", "saga:told", "saga:static", variants=("small",))
    )
    desk.run("--take", "register", desk.contest("B2"))
    assert desk.rows() == [("saga", "B2"), ("saga:small", "B1")]
    desk.run("--take", "register", desk.contest("B3", variants=("large",)))
    assert desk.rows() == [("saga", "B3"), ("saga:large", "B3")]


def test_a_baseline_that_stays_says_nothing_of_the_variant_of_its_name(desk: Desk) -> None:
    desk.run("--take", "register", desk.contest("B1", "lstm"))
    desk.run("--take", "register", desk.contest("B2", variants=("lstm",)), "lstm")
    assert "kept" not in read_provenance(desk.folder / "variants.parquet")["register"]


@pytest.mark.parametrize(
    ("panel", "stays", "says"),
    [
        ("register", ["gbt"], "twice"),
        ("register", ["abbb"], "Those that could: abb."),
        ("register", ["saga:told"], "no baseline saga:told"),
        ("registre", [], "The panels are register"),
    ],
)
def test_results_that_cannot_be_taken_leave_the_committed_ones_as_they_are(
    desk: Desk, capsys: pytest.CaptureFixture[str], panel: str, stays: list[str], says: str
) -> None:
    desk.run("--take", "register", desk.contest("B1", "abb", "gbt", "saga:told"))
    before = (desk.folder / "metrics.parquet").read_bytes()
    out = desk.contest("B2", "gbt")
    with pytest.raises(SystemExit) as ended:
        desk.run("--take", panel, out, *stays)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
    assert (desk.folder / "metrics.parquet").read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["--chek"],
        ["--tak", "register", "B1"],
        ["check"],
        ["--take", "register"],
        ["--take", "register", "B0"],
    ],
)
def test_a_mistyped_command_line_is_an_error(desk: Desk, arguments: list[str]) -> None:
    desk.run("--take", "register", desk.contest("B1"))
    before = {file: file.read_bytes() for file in desk.folder.rglob("*") if file.is_file()}
    with pytest.raises(SystemExit) as ended:
        desk.run(*arguments)
    assert ended.value.code == 2
    assert {file: file.read_bytes() for file in desk.folder.rglob("*") if file.is_file()} == before
