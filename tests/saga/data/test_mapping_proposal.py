"""`saga init` proposes the mapping that a user would write, and asks where it cannot know."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from saga import read_panel
from saga.data.mapping_file import load_mapping
from saga.data.mapping_proposal import Proposal, propose_mapping
from tests.command_line import done


def _rows() -> pl.DataFrame:
    """60 persons in 1990-1997 with earnings, of which some are a code for unknown ones."""
    rows = [
        (1000 + i, 1990 + t, 1955 + i % 8, -8.0 if (i + t) % 29 == 0 else 9e4 + 37 * i + 1e3 * t)
        for i in range(60)
        for t in range(8)
    ]
    frame = pl.DataFrame(rows, ["pid", "wave_year", "yob", "wage"], orient="row")
    person = pl.col("pid")
    return frame.with_columns(
        gender=pl.when(person % 2 == 0).then(pl.lit("F")).otherwise(pl.lit("M")),
        hhid=person // 2,
        union=person % 3,
    )


def _mapped(proposal: Proposal, folder: Path) -> dict[str, object]:
    path = folder / "proposal.yaml"
    path.write_text(proposal.text)
    return load_mapping(path)[0].model_dump(exclude_defaults=True)


def _as_csv(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.all().cast(pl.String))


@pytest.mark.parametrize("form", [lambda frame: frame, _as_csv], ids=["typed", "text"])
def test_the_columns_of_a_panel_are_found_by_name_and_content(form: object, tmp_path: Path) -> None:
    assert callable(form)
    rows = form(_rows())
    proposal = propose_mapping(rows)
    assert _mapped(proposal, tmp_path) == {
        "columns": {
            "person_id": "pid",
            "year": "wave_year",
            "birth_year": "yob",
            "earnings": "wage",
            "sex": "gender",
        },
        "codes": {"sex": {"F": "female", "M": "male"}},
        "keep": {"wage": (0.0, None)},
    }
    assert "# family: hhid" in proposal.text
    assert "education_level, or another column that SAGA knows" in proposal.text
    assert "#   union: {kind: category, static: true}" in proposal.text
    asked = "\n".join(proposal.questions)
    assert "cells are negative" in asked
    assert "Is the currency SEK" in asked
    panel = read_panel(rows, mapping=tmp_path / "proposal.yaml", prices=2022)
    assert panel.n_persons == 60
    assert panel.frame["earnings"].null_count() == (_rows()["wage"] < 0).sum()


@pytest.mark.parametrize(
    ("change", "question"),
    [
        (pl.col("wage").clip(1).log(), "are these logarithms"),
        (pl.col("gender").replace_strict({"F": 1, "M": 2}), "which code is female"),
        (pl.lit(1).alias("wave_year"), "No two columns name a person and a year"),
        ((pl.col("wave_year") - pl.col("yob")).alias("yob"), "Add birth_year to the data"),
        (pl.when(pl.col("wage") < 0).then(999_999).otherwise("wage").alias("wage"), "all nines"),
    ],
    ids=["logarithms", "codes", "no year", "age", "nines"],
)
def test_what_the_data_do_not_tell_is_asked(change: pl.Expr, question: str, tmp_path: Path) -> None:
    proposal = propose_mapping(_rows().with_columns(change))
    assert any(question in text for text in proposal.questions), proposal.questions
    _mapped(proposal, tmp_path)  # it can be read as it is


def test_the_year_may_be_in_the_names_of_yearly_files(tmp_path: Path) -> None:
    for (year,), rows in _rows().group_by("wave_year"):
        rows.drop("wave_year").write_csv(tmp_path / f"extract{year}.csv")
    out = tmp_path / "proposal.yaml"
    done("init", tmp_path, "--out", out)
    mapped = load_mapping(out)[0]
    assert (mapped.year_in_filename, mapped.columns["person_id"]) == (True, "pid")
    assert len(read_panel(tmp_path, mapping=out, prices=2022)) == _rows().height


def test_a_source_with_the_panels_own_names_needs_no_entry(tmp_path: Path) -> None:
    people = Path(__file__).resolve().parents[3] / "examples" / "people.csv"
    proposal = propose_mapping(pl.read_csv(people, infer_schema=False))
    assert _mapped(proposal, tmp_path) == {}
