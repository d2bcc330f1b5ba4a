"""Files of Stata and SPSS: texts in any encoding, years with formats, value labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyreadstat
import pytest

from saga.data.reading import Source, read_panel
from saga.errors import InputError, UsageError

NAMES = {"person_id": ["Åsa", "Åsa", "bé", "bé"], "civil": ["Ä", "Ä", "G", "Ä"]}


def _people(**columns: object) -> pd.DataFrame:
    base = {"year": [2000, 2001] * 2, "birth_year": [1970] * 4, "earnings": [1.0, 0.0, 2.0, 3.0]}
    return pd.DataFrame({**NAMES, **base, **columns})


def _spss(file: Path, encoding: str, charset: int, record: bytes = b"") -> None:
    """A file in another encoding than UTF-8, named by a record or by the number of a charset."""
    ascii_names = {name: [c.translate(str.maketrans("ÅÄé", "XYZ")) for c in of]
                   for name, of in NAMES.items()}  # fmt: skip
    pyreadstat.write_sav(_people(**ascii_names), str(file))
    content = file.read_bytes()
    at = content.index(b"UTF-8") - 4
    named = content[:at] + len(record).to_bytes(4, "little") + record + content[at + 9 :]
    content = named if record else content[: at - 12] + content[at + 9 :]
    content = content.replace((65001).to_bytes(4, "little"), charset.to_bytes(4, "little"))
    for letter, ascii_letter in (("Å", b"X"), ("Ä", b"Y"), ("é", b"Z")):
        content = content.replace(ascii_letter, letter.encode(encoding))
    file.write_bytes(content)


def _stata(version: int) -> Callable[[Path], object]:
    return lambda file: _people().to_stata(file, version=version, write_index=False)


TEXTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "format 114.dta": (_stata(114), ""),
    "format 117.dta": (_stata(117), ""),
    "format 118.dta": (_stata(118), ""),
    "UTF-8 as Stata 12.dta": (lambda f: pyreadstat.write_dta(_people(), str(f), version=12), ""),
    "named latin-1.dta": (_stata(117), "encoding: latin-1"),
    "named for nothing.dta": (_stata(118), "encoding: latin-1"),
    "utf-8.sav": (lambda f: pyreadstat.write_sav(_people(), str(f)), ""),
    "record windows-1252.sav": (lambda f: _spss(f, "cp1252", 2, b"windows-1252"), ""),
    "charset 1252.sav": (lambda f: _spss(f, "cp1252", 1252), ""),
    "charset unknown.sav": (lambda f: _spss(f, "cp1252", 3), ""),
    "charset wrong.sav": (lambda f: _spss(f, "mac_roman", 3), "encoding: mac_roman"),
    "text.csv": (lambda f: _people().to_csv(f, index=False, encoding="cp1252"), "encoding: cp1252"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_with_letters_beyond_ascii_are_read_as_they_were_written(
    name: str, tmp_path: Path
) -> None:
    """At once, and in blocks as for a batch."""
    write, line = TEXTS[name]
    write(tmp_path / name)
    (tmp_path / "m.yaml").write_text(f"extra: {{civil: {{kind: category}}}}\n{line}")
    if "wrong" in name:  # the library for SPSS does not know the encoding
        with pytest.raises(InputError, match="encoding"):
            read_panel(tmp_path / name, mapping=tmp_path / "m.yaml")
        return
    source = Source(tmp_path / name, tmp_path / "m.yaml", 2022)
    for panel in (source.panel(*source.rows()), source.panel(pl.concat(source.blocks()))):
        assert panel.persons() == ["bé", "Åsa"]
        assert panel.frame["extra_civil"].to_list() == ["G", "Ä", "Ä", "Ä"]


@pytest.mark.parametrize("suffix", [".dta", ".sav"])
def test_texts_that_are_not_utf_8_in_a_file_that_says_so_are_not_lost(
    suffix: str, tmp_path: Path
) -> None:
    """As those of old files that a newer Stata saved without translating them."""
    frame = _people(person_id=["b", "b", "QQa", "QQa"], civil=["G", "", "QQ", "QQ"])
    file = tmp_path / f"p{suffix}"
    if suffix == ".dta":
        frame.to_stata(file, version=118, write_index=False)
    else:
        pyreadstat.write_sav(frame, str(file))
    extra = {"extra": {"civil": {"kind": "category"}}}
    assert read_panel(file, mapping=extra, prices=2022).persons() == ["QQa", "b"]  # empty and UTF-8
    file.write_bytes(file.read_bytes().replace(b"QQ", b"\xc5s"))
    for used in (None, extra):
        with pytest.raises(InputError, match="not in the expected encoding"):
            read_panel(file, mapping=used, prices=2022)
    source = Source(file, {**extra, "encoding": "latin-1"}, 2022)
    for panel in (source.read(), source.panel(pl.concat(source.blocks()))):
        assert panel.persons() == ["b", "Åsa"]
        assert panel.frame["extra_civil"].to_list() == ["G", None, "Ås", "Ås"]


@pytest.mark.parametrize("form", ["%ty", "%tyCCYY", "%9.0g", "%-ty"])
def test_years_with_a_format_of_stata_are_years(form: str, tmp_path: Path) -> None:
    people = _people(year=[2000, 2001, 2000, 2003])
    pyreadstat.write_dta(people, str(tmp_path / "p.dta"), variable_format={"year": form})
    panel = read_panel(tmp_path / "p.dta", prices=2022)
    assert panel.frame["year"].to_list() == [2000, 2003, 2000, 2001]


@pytest.mark.parametrize("form", ["%td", "%tc", "%tq", "%tm"])
def test_dates_are_refused_as_years(form: str, tmp_path: Path) -> None:
    pyreadstat.write_dta(_people(), str(tmp_path / "p.dta"), variable_format={"year": form})
    with pytest.raises(
        InputError, match="year has dates, times or periods within years, not whole"
    ):
        read_panel(tmp_path / "p.dta", prices=2022)


@pytest.mark.parametrize("column", ["year", "birth_year"])
def test_first_days_and_yearly_periods_of_pandas_are_years_and_others_are_not(column: str) -> None:
    years = _people()[column].astype(str)
    panel = read_panel(_people(), prices=2022)
    for cells in (pd.PeriodIndex(years, freq="Y"), pd.to_datetime(years)):
        assert read_panel(_people(**{column: cells}), prices=2022).frame.equals(panel.frame)
    months = pd.PeriodIndex(years + "-12", freq="M")
    for cells in (months, months.to_timestamp(), pd.to_datetime(years.astype(int))):
        with pytest.raises(InputError, match=rf"{column} has dates, times or periods.*\.dt\.year"):
            read_panel(_people(**{column: cells}), prices=2022, on_error="drop")


@pytest.mark.parametrize("suffix", ["dta", "sav"])
def test_labels_belong_to_codes_and_not_to_numbers(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"p.{suffix}"
    labels = {"sex": {1: "male", 2: "female"}, "earnings": {0: "none"}, "year": {2000: "first"}}
    people = _people(sex=[1, 1, 2, 2])
    getattr(pyreadstat, f"write_{suffix}")(people, str(file), variable_value_labels=labels)
    panel = read_panel(file, prices=2022)
    assert panel.frame["earnings"].to_list() == [2.0, 3.0, 1.0, 0.0]
    assert panel.frame["sex"].to_list() == ["female"] * 2 + ["male"] * 2
    numbers = {"codes": {"sex": {1: "male", 2: "female"}}}
    assert read_panel(file, prices=2022, mapping=numbers).frame.equals(panel.frame)
    labels["sex"] = {1: "Man", 2: "Kvinna"}
    getattr(pyreadstat, f"write_{suffix}")(people, str(file), variable_value_labels=labels)
    (tmp_path / "m.yaml").write_text("codes: {sex: {Man: male}}")
    for mapping, read in ((None, "labels are read"), (tmp_path / "m.yaml", "numbers are read")):
        with pytest.raises(InputError, match=rf"labels the numbers of sex.*1 = Man.*{read}"):
            read_panel(file, mapping=mapping)


def test_missing_years_of_a_format_stay_missing(tmp_path: Path) -> None:
    people = _people(year=[2000, 2001, None, 2003])
    pyreadstat.write_dta(people, str(tmp_path / "p.dta"), variable_format={"year": "%ty"})
    with pytest.raises(InputError, match="year is empty"):
        read_panel(tmp_path / "p.dta", prices=2022)


def test_numpy_years_are_years_and_true_is_none() -> None:
    people = _people()
    whole = pd.Series([2022, 2000]).to_numpy()
    panel = read_panel(people, prices=whole[0], origin=whole[1])
    assert (panel.meta.last_year_read, len(panel)) == (2000, 2)
    assert type(panel.meta.last_year_read) is int
    with pytest.raises(UsageError, match="prices is a year"):
        read_panel(people, prices=True)


@pytest.mark.parametrize(("suffix", "write"), [(".dta", "write_dta"), (".sav", "write_sav")])
def test_an_amount_with_a_value_label_is_refused_unless_a_mapping_makes_it_unknown(
    suffix: str, write: str, tmp_path: Path
) -> None:
    """Surveys store "do not know" as a large or negative amount; a label of 0 is no such word."""
    import pyreadstat

    file = tmp_path / f"p{suffix}"
    rows = {"person_id": ["a", "a"], "year": [2000, 2001], "birth_year": 1970}
    frame = pl.DataFrame({**rows, "earnings": [9_999_998.0, 0.0], "capital_income": [-2.0, 5.0]})
    labels = {
        "earnings": {9_999_998: "do not know", 0: "none"},
        "capital_income": {-2: "does not apply", -1: "no answer"},
    }
    getattr(pyreadstat, write)(frame.to_pandas(), str(file), variable_value_labels=labels)
    of_income: dict[str, Any] = {"keep": {"capital_income": [0, None]}}
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, "earnings"),
        ({"keep": {"earnings": [0, 9_000_000]}}, "capital_income"),
        (of_income, "earnings"),
        ({**of_income, "codes": {"earnings": {"9999997": None}}}, "earnings"),
        # It makes the earnings of the row unknown, and leaves the income as it is.
        ({"null_if": {"earnings": 9_999_998, "capital_income": -2}}, "capital_income"),
    ]
    for mapping, column in refused:
        with pytest.raises(InputError, match=f"{column} has an amount that the file labels"):
            read_panel(file, prices=2022, mapping=mapping)
    accepted: list[dict[str, Any]] = [
        {"keep": {"earnings": [0, 9_000_000], **of_income["keep"]}},
        {**of_income, "codes": {"earnings": {"9999998": None}}},
        {**of_income, "codes": {"earnings": {"9999990-9999999": None}}},
        {**of_income, "null_if": {"earnings": 9_999_998}},
        {"codes": {"earnings": {"9999998": None}, "capital_income": {"-2": None}}},
    ]
    for mapping in accepted:
        panel = read_panel(file, prices=2022, mapping=mapping).frame
        assert panel["earnings"].to_list() == [None, 0.0]
        assert panel["capital_income"].to_list() == [None, 5.0]


@pytest.mark.parametrize(("suffix", "write"), [(".dta", "write_dta"), (".sav", "write_sav")])
def test_a_labelled_number_among_others_is_refused_and_a_scale_is_not(
    suffix: str, write: str, tmp_path: Path
) -> None:
    import pyreadstat

    file = tmp_path / f"p{suffix}"
    rows = {"person_id": ["a", "a"], "year": [2000, 2001], "birth_year": 1970, "earnings": [1.0, 2]}
    frame = pl.DataFrame(
        {**rows, "employer_size": [9_999.0, 25.0], "wealth": [-9.0, 5.0], "health": [5.0, 0.0]}
    )
    labels = {
        "employer_size": {9_999: "unknown"},
        "wealth": {-9: "refused"},
        "health": {0: "bad", 5: "good"},
    }
    getattr(pyreadstat, write)(frame.to_pandas(), str(file), variable_value_labels=labels)
    number, size = {"kind": "number"}, {"employer_size": [0, 9_000]}
    own: dict[str, Any] = {"extra": {"wealth": number, "health": number}}
    for mapping, column in (({}, "employer_size"), ({**own, "keep": size}, "wealth")):
        with pytest.raises(InputError, match=f"{column} has an amount that the file labels"):
            read_panel(file, prices=2022, mapping=mapping)
    for rest in (
        {"keep": {**size, "wealth": [0, None]}},
        {"keep": size, "codes": {"wealth": {"-9": None}}},
    ):
        panel = read_panel(file, prices=2022, mapping={**own, **rest}).frame
        assert panel["employer_size"].to_list() == [None, 25.0]
        assert panel["extra_wealth"].to_list() == [None, 5.0]
        assert panel["extra_health"].to_list() == [5.0, 0.0]
