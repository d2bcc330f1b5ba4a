"""Careers in the columns of other models: every living year once, with its amount."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scored_folder import write_scored

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "hand_over.py"


Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the script; the answer is its error, or an empty text."""

    def call(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        try:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        except SystemExit as end:
            return f"{end.code}\n{capsys.readouterr().err}"
        return ""

    return call


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[Path, Path]:
    """Two persons on two paths; the second one dies on the second path."""
    people = {"person_id": ["07", "7"], "year": 2022, "birth_year": [1980, 1990]}
    pl.DataFrame(people | {"sex": ["male", "female"], "earnings": 1}).write_csv(tmp_path / "p.csv")
    state = ["employed", "retired", "employed", "dead"]
    rows = pl.DataFrame(
        {
            "person_id": ["07", "07", "7", "7"] * 2,
            "path": np.repeat([0, 1], 4),
            "year": [2023, 2024] * 4,
            "earnings": [1200.0, 0.0, 2400.0, 0.0, 10.0, 20.0, 30.0, 40.0],
            "state": state + ["employed"] * 4,
        }
    )
    return write_scored(tmp_path / "paths", rows), tmp_path / "p.csv"


def _changed(paths: Path, *changes: pl.Expr) -> Path:
    """Another run, whose rows are changed."""
    rows = pl.read_parquet(paths / "part-*.parquet").with_columns(*changes)
    return write_scored(paths.with_name("changed"), rows)


@pytest.mark.parametrize(
    ("layout", "amount", "year"),
    [
        ("liam2", pl.col("earnings"), "period"),
        ("policyengine", pl.col("employment_income"), None),
        ("simpaths", pl.col("yEmpPersGrossMonth").sinh() * 12, "statInterviewYear"),
    ],
)
def test_every_living_year_of_a_path_is_written_once(
    layout: str,
    amount: pl.Expr,
    year: str | None,
    inputs: tuple[Path, Path],
    run: Run,
    tmp_path: Path,
) -> None:
    assert run(*inputs, layout, tmp_path / "out") == ""
    first, second = (pl.read_csv(tmp_path / "out" / f"{layout}_{y}.csv") for y in (2023, 2024))
    assert first.select(amount).to_series().to_list() == pytest.approx([1200, 2400])
    assert second.select(amount).to_series().to_list() == [0]  # the dead have no row
    if year:
        assert second[year].to_list() == [2024]
    other = tmp_path / "other"
    assert run(*inputs, layout, other, "--path", 1) == ""
    assert len(pl.read_csv(other / f"{layout}_2024.csv")) == 2


@pytest.mark.parametrize(
    ("layout", "number", "numbers"),
    [
        ("simpaths", "idPers", [12, 31]),
        ("policyengine", "person_id", [12, 31]),
        ("liam2", "id", [1, 2]),
    ],
)
def test_a_panel_with_names_of_its_own_keeps_its_numbers_unless_they_must_be_small(
    layout: str,
    number: str,
    numbers: list[int],
    inputs: tuple[Path, Path],
    run: Run,
    tmp_path: Path,
) -> None:
    paths, panel = inputs
    own, out = tmp_path / "own.csv", tmp_path / "out"
    ids = pl.col("person_id").cast(pl.String).replace({"07": "31", "7": "12"})
    paths = _changed(paths, ids)
    people = pl.read_csv(panel, schema_overrides={"person_id": pl.String}).with_columns(ids)
    people.rename({"person_id": "idind", "year": "wave"}).write_csv(own)
    mapping = tmp_path / "own.yaml"
    mapping.write_text("""columns:
  {person_id: idind, year: wave, birth_year: birth_year, earnings: earnings, sex: sex}
""")
    assert run(paths, own, layout, out, "--mapping", mapping) == ""
    assert pl.read_csv(out / f"{layout}_2023.csv")[number].to_list() == numbers
    assert pl.read_csv(out / "persons.csv").rows() == list(zip(numbers, (12, 31), strict=True))


def test_earnings_abroad_that_the_files_lack_are_stated(
    inputs: tuple[Path, Path], run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Aligned totals count them, the files do not: the difference is told."""
    is_abroad = (pl.col("person_id") == "7") & (pl.col("path") == 0) & (pl.col("year") == 2023)
    state = pl.when(is_abroad).then(pl.lit("abroad")).otherwise("state")
    paths = _changed(inputs[0], state.alias("state"))
    assert run(paths, inputs[1], "liam2", tmp_path / "out") == ""
    assert "1 years abroad, 66.7% of all earnings" in capsys.readouterr().out
    assert pl.read_csv(tmp_path / "out" / "liam2_2023.csv")["earnings"].to_list() == [1200]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (pl.col("person_id") == "07", "does not have persons of the scored run"),
        (pl.lit(2021).alias("year"), "The year of persons is not that of the scored ones"),
    ],
)
def test_a_panel_of_other_persons_is_refused(
    change: pl.Expr, complaint: str, inputs: tuple[Path, Path], run: Run, tmp_path: Path
) -> None:
    people = pl.read_csv(inputs[1], schema_overrides={"person_id": pl.String})
    is_filter = people.select(change).dtypes == [pl.Boolean]
    other = people.filter(change) if is_filter else people.with_columns(change)
    other.write_csv(tmp_path / "q.csv")
    assert complaint in run(inputs[0], tmp_path / "q.csv", "liam2", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_named(inputs: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    paths, panel = inputs
    assert "choose from 'liam2'" in run(paths, panel, "midas", tmp_path)
    assert "no path 2" in run(paths, panel, "liam2", tmp_path, "--path", 2)
    people = pl.read_csv(panel, schema_overrides={"person_id": pl.String})
    people.drop("sex").write_csv(tmp_path / "q.csv")
    assert "no column sex" in run(paths, tmp_path / "q.csv", "liam2", tmp_path)
    people.drop("year").write_csv(tmp_path / "q.csv")
    assert "Error: " in run(paths, tmp_path / "q.csv", "liam2", tmp_path).splitlines()[0]
    rows = pl.read_parquet(paths / "part-*.parquet").drop("state")
    without = write_scored(tmp_path / "without", rows)
    assert "--circumstances" in run(without, panel, "liam2", tmp_path)
