"""Careers in the columns of other models: every living year once, with its amount."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "hand_over.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[Path, Path]:
    """Two persons on two paths; the second one dies on the second path."""
    people = {"person_id": ["07", "7"], "year": 2022, "birth_year": [1980, 1990]}
    pl.DataFrame(people | {"sex": ["male", "female"], "earnings": 1}).write_csv(tmp_path / "p.csv")
    state = ["employed", "retired", "employed", "dead"]
    (tmp_path / "paths").mkdir()
    pl.DataFrame(
        {
            "person_id": ["07", "07", "7", "7"] * 2,
            "path": np.repeat([0, 1], 4),
            "year": [2023, 2024] * 4,
            "earnings": [1200.0, 0.0, 2400.0, 0.0, 10.0, 20.0, 30.0, 40.0],
            "state": state + ["employed"] * 4,
        }
    ).write_parquet(tmp_path / "paths" / "part-0.parquet")
    return tmp_path / "paths", tmp_path / "p.csv"


@pytest.mark.parametrize(
    ("layout", "amount", "year"),
    [
        ("liam2", pl.col("earnings"), "period"),
        ("policyengine", pl.col("employment_income"), None),
        ("simpaths", pl.col("yEmpPersGrossMonth").sinh() * 12, "statInterviewYear"),
    ],
)
def test_every_living_year_of_a_path_is_written_once(
    layout: str, amount: pl.Expr, year: str | None, inputs: tuple[Path, Path], tmp_path: Path
) -> None:
    assert run(*inputs, layout, tmp_path / "out").returncode == 0
    first, second = (pl.read_csv(tmp_path / "out" / f"{layout}_{y}.csv") for y in (2023, 2024))
    assert first.select(amount).to_series().to_list() == pytest.approx([1200, 2400])
    assert second.select(amount).to_series().to_list() == [0]  # the dead have no row
    if year:
        assert second[year].to_list() == [2024]
    other = tmp_path / "other"
    assert run(*inputs, layout, other, "--path", 1).returncode == 0
    assert len(pl.read_csv(other / f"{layout}_2024.csv")) == 2


def test_a_panel_with_names_of_its_own_keeps_its_numbers(
    inputs: tuple[Path, Path], tmp_path: Path
) -> None:
    paths, panel = inputs
    part, own, out = paths / "part-0.parquet", tmp_path / "own.csv", tmp_path / "out"
    ids = pl.col("person_id").cast(pl.String).replace({"07": "31", "7": "12"})
    pl.read_parquet(part).with_columns(ids).write_parquet(part)
    people = pl.read_csv(panel, schema_overrides={"person_id": pl.String}).with_columns(ids)
    people.rename({"person_id": "idind", "year": "wave"}).write_csv(own)
    mapping = tmp_path / "own.yaml"
    mapping.write_text("""columns:
  {person_id: idind, year: wave, birth_year: birth_year, earnings: earnings, sex: sex}
""")
    done = run(paths, own, "simpaths", out, "--mapping", mapping)
    assert done.returncode == 0, done.stderr
    assert pl.read_csv(out / "simpaths_2023.csv")["idPers"].to_list() == [12, 31]
    assert pl.read_csv(out / "persons.csv").rows() == [(12, 12), (31, 31)]


def test_what_is_missing_is_named(inputs: tuple[Path, Path], tmp_path: Path) -> None:
    paths, panel = inputs
    assert "choose from 'liam2'" in run(paths, panel, "midas", tmp_path).stderr
    assert "no path 2" in run(paths, panel, "liam2", tmp_path, "--path", 2).stderr
    people = pl.read_csv(panel, schema_overrides={"person_id": pl.String})
    people.drop("sex").write_csv(tmp_path / "q.csv")
    assert "no column sex" in run(paths, tmp_path / "q.csv", "liam2", tmp_path).stderr
    people.drop("year").write_csv(tmp_path / "q.csv")
    assert "Error: " in run(paths, tmp_path / "q.csv", "liam2", tmp_path).stderr.splitlines()[0]
    part = paths / "part-0.parquet"
    pl.read_parquet(part).drop("state").write_parquet(part)
    assert "--circumstances" in run(paths, panel, "liam2", tmp_path).stderr
