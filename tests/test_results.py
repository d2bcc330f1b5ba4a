"""Figures in the docs agree with the committed tables and the code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.evaluation.scoring.small_cells import hide_small_cells

from saga.bundle import Bundle
from saga.files.tables import read_provenance, write_table

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The program `docs/results/write.py`; its folders may be replaced by keyword."""
    spec = spec_from_file_location("docs_results_write", ROOT / "docs/results/write.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*arguments: str, **folders: Path) -> int:
        for name, path in folders.items():
            monkeypatch.setattr(module, name, path)
        monkeypatch.setattr(sys, "argv", ["write.py", *arguments])
        status: int = module.main()
        return status

    return run


def test_results_and_readme_are_what_the_metrics_give(write: Callable[..., int]) -> None:
    assert write("--check") == 0, "run: python docs/results/write.py"


def test_the_results_are_of_the_shipped_model_and_calibration_or_the_page_says_of_which() -> None:
    scored = read_provenance(ROOT / "docs/results/metrics.parquet")["register"]
    shipped = Bundle.load(ROOT / "bundles/small")
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    if scored["calibration"] == shipped.calibration_digest:
        assert scored["bundle"] in (shipped.digest, *shipped.manifest["parents"])
    else:
        assert f"those of bundle `{scored['bundle'][:12]}`, not of the" in page
        assert shipped.digest[:12] in page


def test_every_table_can_be_written_as_a_page(tmp_path: Path, write: Callable[..., int]) -> None:
    write("--tables", str(tmp_path))
    text = (tmp_path / "register/tables.md").read_text(encoding="utf-8")
    for title in ("Accuracy, forward", "Subgroups", "Tax on lifetimes, rule paper", "Cost"):
        assert f"## {title}\n" in text
    for panel in ("register", "nlsy79", "nlsy79-1998"):
        assert "<table" in (tmp_path / panel / "tables.html").read_text(encoding="utf-8")


class Workspace:
    """The program with committed tables in its own `folder`, and contests to take."""

    def __init__(self, folder: Path, run: Callable[..., int]) -> None:
        self.folder, self.run = folder, run

    def contest(self, bundle: str, *models: str, variants: tuple[str, ...] = ()) -> str:
        """Writes the output of `saga evaluate`: one row per model, its value the bundle."""
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
        """Each model and the bundle of the contest that its row comes from."""
        return sorted(
            pl.read_parquet(self.folder / "metrics.parquet").select("model", "value").iter_rows()
        )

    def kept_record(self) -> Any:
        """Staying baselines and their bundles, from the provenance."""
        return read_provenance(self.folder / "metrics.parquet")["register"].get("kept")


@pytest.fixture
def workspace(tmp_path: Path, write: Callable[..., int]) -> Workspace:
    own = {"HERE": tmp_path, "RESULTS": tmp_path / "results.md", "README": tmp_path / "README.md"}
    return Workspace(tmp_path, partial(write, **own))


def test_staying_rows_keep_the_bundle_of_their_contest(workspace: Workspace) -> None:
    workspace.run("--take", "register", workspace.contest("B1", "abb", "gbt"))
    workspace.run("--take", "register", workspace.contest("B2", "gbt"), "abb")
    workspace.run("--take", "register", workspace.contest("B3"), "abb", "gbt")
    assert workspace.rows() == [("abb", "B1"), ("gbt", "B2"), ("saga", "B3")]
    assert workspace.kept_record() == {"abb": "B1", "gbt": "B2"}


def test_only_variants_of_a_file_stay_and_only_without_new_ones(workspace: Workspace) -> None:
    workspace.run(
        "--take",
        "register",
        workspace.contest("B1", "saga:told", "saga:static", variants=("small",)),
    )
    workspace.run("--take", "register", workspace.contest("B2"))
    assert workspace.rows() == [("saga", "B2"), ("saga:small", "B1")]
    workspace.run("--take", "register", workspace.contest("B3", variants=("large",)))
    assert workspace.rows() == [("saga", "B3"), ("saga:large", "B3")]


def test_a_staying_baseline_is_not_the_variant_of_the_same_name(workspace: Workspace) -> None:
    workspace.run("--take", "register", workspace.contest("B1", "lstm"))
    workspace.run("--take", "register", workspace.contest("B2", variants=("lstm",)), "lstm")
    assert "kept" not in read_provenance(workspace.folder / "variants.parquet")["register"]


@pytest.mark.parametrize(
    ("panel", "staying", "message"),
    [
        ("register", ["gbt"], "twice"),
        ("register", ["abbb"], "Those that could: abb."),
        ("register", ["saga:told"], "no baseline saga:told"),
        ("registre", [], "The panels are register"),
    ],
)
def test_refused_results_leave_the_committed_ones_unchanged(
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    panel: str,
    staying: list[str],
    message: str,
) -> None:
    workspace.run("--take", "register", workspace.contest("B1", "abb", "gbt", "saga:told"))
    before = (workspace.folder / "metrics.parquet").read_bytes()
    out = workspace.contest("B2", "gbt")
    with pytest.raises(SystemExit) as ended:
        workspace.run("--take", panel, out, *staying)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert (workspace.folder / "metrics.parquet").read_bytes() == before


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
def test_a_mistyped_command_line_is_an_error(workspace: Workspace, arguments: list[str]) -> None:
    workspace.run("--take", "register", workspace.contest("B1"))
    before = {file: file.read_bytes() for file in workspace.folder.rglob("*") if file.is_file()}
    with pytest.raises(SystemExit) as ended:
        workspace.run(*arguments)
    assert ended.value.code == 2
    assert {
        file: file.read_bytes() for file in workspace.folder.rglob("*") if file.is_file()
    } == before


@pytest.mark.parametrize("name", ["metrics", "comparisons", "lifetimes"])
def test_no_committed_figure_rests_on_fewer_than_ten_persons(name: str) -> None:
    table = pl.read_parquet(ROOT / f"docs/results/{name}.parquet")
    for rows in table.partition_by("panel"):
        assert rows.equals(hide_small_cells(rows))


def test_the_page_counts_the_rows_with_the_lowest_interval_score() -> None:
    rows = pl.read_parquet(ROOT / "docs/results/metrics.parquet").filter(
        pl.col("group") == "all",
        pl.col("n") > 0,
        pl.col("metric").str.starts_with("interval_"),
        pl.col("model") != "clairvoyant",
        ~pl.col("model").str.starts_with("saga:"),
    )
    lines = [
        line
        for line in (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("- mean interval score")
    ]
    counts = set()
    for of_panel in rows.partition_by("panel"):
        best = of_panel.sort("value").group_by("setting", "horizon", "metric").first()
        scored = of_panel.filter(pl.col("model") == "saga").select("setting", "horizon", "metric")
        best = best.join(scored, on=["setting", "horizon", "metric"])
        counts.add(f"{(best['model'] == 'saga').sum()} of {len(best)} rows")
    assert counts == {re.findall(r"lowest in (\d+ of \d+ rows)", line)[0] for line in lines}
