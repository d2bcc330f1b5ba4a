"""`saga init` proposes the mapping that a user would write, and asks where it cannot know."""

from __future__ import annotations

import errno
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from saga import InputError, read_panel
from saga.data.mapping_file import load_mapping
from saga.data.mapping_proposal import Proposal, propose_mapping
from saga.data.reading import Source
from tests.command_line import answer, done, run


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


def test_a_column_that_is_named_earnings_is_asked_about_if_it_has_logarithms(
    tmp_path: Path,
) -> None:
    logs = _rows().with_columns(pl.col("wage").clip(1).log()).rename({"wage": "earnings"})
    proposal = propose_mapping(logs)
    assert "earnings (earnings): are these logarithms? The panel has amounts?" in proposal.questions
    assert _mapped(proposal, tmp_path)["columns"]["earnings"] == "earnings"  # type: ignore[index]


def test_the_year_may_be_in_the_names_of_yearly_files(tmp_path: Path) -> None:
    for (year,), rows in _rows().group_by("wave_year"):
        rows.drop("wave_year").write_csv(tmp_path / f"extract{year}.csv")
    out = tmp_path / "proposal.yaml"
    done("init", tmp_path, "--out", out)
    mapped = load_mapping(out)[0]
    assert (mapped.year_in_filename, mapped.columns["person_id"]) == (True, "pid")
    assert len(read_panel(tmp_path, mapping=out, prices=2022)) == _rows().height


def test_no_half_of_a_proposal_is_left_by_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(path: Path, data: str, encoding: str) -> None:
        path.write_bytes(data.encode(encoding)[:50])
        raise OSError(errno.ENOSPC, "No space left on device")

    _rows().write_csv(tmp_path / "panel.csv")
    monkeypatch.setattr(Path, "write_text", is_full)
    result = run("init", tmp_path / "panel.csv", "--out", tmp_path / "proposal.yaml")
    assert (result.exit_code, "disk is full" in result.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["panel.csv"]


def test_a_source_with_the_panels_own_names_needs_no_entry(tmp_path: Path) -> None:
    people = Path(__file__).resolve().parents[3] / "examples" / "people.csv"
    proposal = propose_mapping(pl.read_csv(people, infer_schema=False))
    assert _mapped(proposal, tmp_path) == {}


def _written(sep: str, decimal: str, form: str = "{:.2f}") -> str:
    """60 persons as a Swedish, German or French office writes them, with the letters of each."""
    lines = [["Löpnr", "År", "Födelseår", "Kön", "Lönéinkomst", "Straße"]]
    for i in range(60):
        for year in range(2010, 2016):
            earned = 210_000.25 + 1_111.5 * i + 1_000 * (year - 2010)
            amount = form.format(earned).replace(".", decimal)
            amount = f'"{amount}"' if sep in amount else amount
            sex, street = ("kvinna", "Åsögatan") if i % 2 else ("man", "Große Straße é")
            lines.append([f"Å{i:03d}", f"{year}", f"{1970 + i % 9}", sex, amount, street])
    return "".join(sep.join(line) + "\r\n" for line in lines)


def _proposed(folder: Path, content: bytes) -> tuple[Path, Path, str]:
    """The file, the proposed mapping, and what the command printed."""
    file, out = folder / "panel.csv", folder / "proposal.yaml"
    file.write_bytes(content)
    result = done("init", file, "--out", out)
    return file, out, result.stdout + result.stderr


@pytest.mark.parametrize("decimal", [".", ","], ids=["point", "comma"])
@pytest.mark.parametrize("sep", [",", ";", "\t"], ids=["commas", "semicolons", "tabs"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"])
def test_a_proposal_reads_the_file_as_it_stands(
    encoding: str, sep: str, decimal: str, tmp_path: Path
) -> None:
    file, out, printed = _proposed(tmp_path, _written(sep, decimal).encode(encoding))
    panel = read_panel(file, mapping=out, prices=2022)
    assert panel.persons()[0] == "Å000"
    assert panel.frame["earnings"][0] == 210_000.25
    assert set(panel.frame["sex"]) == {"female", "male"}
    assert panel.meta.ignored == ("Straße",)
    plain = tmp_path / "plain.csv"
    plain.write_text(_written(";", "."), encoding="utf-8")
    names = {**load_mapping(out)[0].model_dump(), "encoding": "utf-8", "decimal": "."}
    assert_frame_equal(read_panel(plain, mapping=names, prices=2022).frame, panel.frame)
    assert ("? encoding (cp1252)" in printed) == (encoding in ("latin-1", "cp1252"))
    assert "\ufffd" not in printed


@pytest.mark.parametrize(
    ("form", "entries", "question", "amount"),
    [
        ("{:,.2f}", {"decimal": ","}, None, 210_000.25),  # 210.000,25 after the change of signs
        ("{:,.0f}", {"decimal": ","}, "is an amount such as 285.000", 210_000.0),
        ("{:.0f}", {}, None, 210_000.0),
    ],
    ids=["both signs", "dots that may be either", "whole"],
)
def test_signs_between_thousands_are_read_or_asked_about(
    form: str, entries: dict[str, str], question: str | None, amount: float, tmp_path: Path
) -> None:
    text = _written(";", ".", form)
    text = text.translate(str.maketrans(",.", ".,")) if "," in form else text
    file, out, printed = _proposed(tmp_path, text.encode("cp1252"))
    mapped = load_mapping(out)[0].model_dump(exclude_defaults=True)
    assert {key: mapped[key] for key in ("decimal",) if key in mapped} == entries
    assert (question or "? currency") in printed or question is None
    assert read_panel(file, mapping=out, prices=2022).frame["earnings"][0] == amount


def test_what_no_mapping_reads_is_asked(tmp_path: Path) -> None:
    _, out, printed = _proposed(tmp_path, _written(";", ".", "{:,.2f}").encode())
    assert "Lönéinkomst: signs separate thousands, which are not read" in printed
    assert "earnings" not in load_mapping(out)[0].columns


@pytest.mark.parametrize(
    ("decimals", "street", "question"),
    [
        (",500", "Storgatan", "is an amount such as 285,000 in Lönéinkomst 285"),
        (",5", "1.25", "decimal (','): Straße has the other sign, and one is read"),
        (".5", "1,25", "decimal ('.'): Straße has the other sign, and one is read"),
        (".500", "1.25", "decimal ('.'): is an amount such as 285.000 in Lönéinkomst 285"),
    ],
)
def test_the_sign_of_earnings_is_read_and_others_are_asked_about(
    decimals: str, street: str, question: str
) -> None:
    rows = pl.read_csv(_written(";", ",").encode(), separator=";", infer_schema=False)
    amount = pl.int_range(pl.len()) % 300 + 100
    changed = {"Lönéinkomst": amount.cast(pl.String) + decimals, "Straße": pl.lit(street)}
    proposal = propose_mapping(rows.with_columns(**changed))
    assert any(question in asked for asked in proposal.questions), proposal.questions
    assert "earnings: Lönéinkomst" in proposal.text


@pytest.mark.parametrize(
    ("name", "currency"),
    [("wage_eur", "EUR"), ("KGBP income", "GBP"), ("Inntekt (NOK)", "NOK"), ("euro", None)],
)
def test_a_currency_in_the_name_of_earnings_is_asked_about(name: str, currency: str | None) -> None:
    proposal = propose_mapping(_rows().rename({"wage": name}))
    asked = "\n".join(proposal.questions)
    assert f"\n# currency: {currency or 'USD'}\n" in proposal.text
    assert f"Is the currency {currency or 'SEK'}, {'as the name' if currency else 'in pr'}" in asked


@pytest.mark.parametrize(
    ("name", "divisor", "entry", "question"),
    [
        ("Lön_tkr", 1000, 1000.0, "? scale (1000): are the amounts in thousands, as the name"),
        ("Lön", 1000, None, "? scale (1000): half of the amounts are below 5,000"),
        ("Lön", 100, None, "? scale (1000): half of the amounts are below 5,000"),
        ("Lön", 4800, None, "? scale (1000): half of the amounts are below 5,000"),
        ("Lön", 1, None, None),
    ],
)
def test_the_unit_of_amounts_is_asked_and_never_assumed(
    name: str, divisor: int, entry: float | None, question: str | None
) -> None:
    rows = _rows().with_columns(pl.col("wage").clip(0) / divisor).rename({"wage": name})
    proposal = propose_mapping(rows)
    assert ("scale: 1000" in [line.split("  #")[0] for line in proposal.text.splitlines()]) == (
        entry is not None
    )
    asked = "\n".join(f"? {question}" for question in proposal.questions)
    assert (question in asked) if question else ("scale" not in asked)


@pytest.mark.parametrize("sep", [",", ";"], ids=["commas", "semicolons"])
def test_the_amounts_that_are_shown_are_those_that_the_panel_gets(sep: str, tmp_path: Path) -> None:
    content = _written(sep, "," if sep == ";" else ".").replace("Lönéinkomst", "Lön (tkr)")
    file, mapping, _ = _proposed(tmp_path, content.encode("cp1252"))
    shown = Source(file, mapping).preview().after["earnings"].to_list()
    panel = read_panel(file, mapping=mapping, prices=2022)
    assert shown == panel.frame["earnings"].to_list()
    assert min(shown) > 200_000_000


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("person_id", "wage"),
        ("person_id", "gender"),
        ("year", "yob"),
        ("year", "wage"),
        ("birth_year", "wave_year"),
        ("earnings", "gender"),
        ("sex", "union"),
    ],
)
def test_a_wrong_column_is_named_as_the_source_has_it(
    column: str, name: str, tmp_path: Path
) -> None:
    """By the panel that it would make, and by the command that shows what a mapping does."""
    file, mapping = tmp_path / "panel.csv", tmp_path / "m.yaml"
    _rows().with_columns(pl.col("wage").clip(0) + 0.5).write_csv(file)
    names = {"person_id": "pid", "year": "wave_year", "birth_year": "yob", "earnings": "wage"}
    hint = f"{column} is read from {name}."
    lines = [f"  {key}: {source}" for key, source in {**names, column: name}.items()]
    mapping.write_text("\n".join(["columns:", *lines]))
    with pytest.raises(InputError) as error:
        read_panel(file, mapping=mapping)
    assert hint in str(error.value)
    shown = done("init", file, "--mapping", mapping).stderr
    assert all(f"Error: {problem}" in shown for problem in error.value.problems)


@pytest.mark.parametrize(("growth", "codes"), [(0.08, ["unit"]), (0.01, [])])
def test_amounts_that_grow_as_nominal_ones_do_are_doubted_as_in_training(
    growth: float, codes: list[str], tmp_path: Path
) -> None:
    """Of a currency without a price index, all amounts are taken as those of one year."""
    file, mapping = tmp_path / "panel.csv", tmp_path / "m.yaml"
    rows = [
        (i, 2000 + t, 1950 + i % 25, 3e4 * (1 + growth) ** t * (1 + i % 7 / 10))
        for i in range(300)
        for t in range(9)
    ]
    frame = pl.DataFrame(rows, ["person_id", "year", "birth_year", "earnings"], orient="row")
    frame.write_csv(file)
    mapping.write_text("currency: USD\nfloor: none\nmacro: none\n")
    shown = answer("init", file, "--mapping", mapping)
    assert shown["problems"] == []
    assert [warning["code"] for warning in shown["warnings"]] == codes


def test_ids_and_years_of_any_file_are_shown_as_they_are_written(tmp_path: Path) -> None:
    _rows().to_pandas().to_stata(tmp_path / "panel.dta", write_index=False)
    shown = done("init", tmp_path / "panel.dta").stdout
    assert "1,000" not in shown
    assert "1,990" not in shown


@pytest.mark.parametrize(
    "labels", [{1: "Male", 2: "Female"}, {1: "[1] maennlich", 2: "[2] weiblich"}]
)
@pytest.mark.parametrize("number", [int, float])
def test_value_labels_say_which_code_is_female(
    tmp_path: Path, labels: dict[int, str], number: type
) -> None:
    rows = _rows().to_pandas()
    rows["Gender"] = rows.pop("gender").map({"M": 1, "F": 2}).astype(number)
    rows.to_stata(tmp_path / "panel.dta", write_index=False, value_labels={"Gender": labels})
    shown = done("init", tmp_path / "panel.dta").stdout
    assert "which code is female" not in shown
    assert "sex: {'1': male, '2': female}" in shown


def test_only_a_column_named_so_is_taken_for_the_age() -> None:
    rows = _rows().drop("yob").with_columns(weeks=pl.lit(48))
    assert "is the age" not in " ".join(propose_mapping(rows).questions)
    asked = propose_mapping(rows.with_columns(age_r=pl.col("wave_year") - 1960)).questions
    assert "it is wave_year - age_r." in " ".join(asked)
