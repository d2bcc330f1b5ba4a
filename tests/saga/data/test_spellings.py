"""Ids and codes that other programs write otherwise are refused, never read as something else."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from saga.batch.partitions import plan
from saga.data.reading import Source, read_panel
from saga.errors import InputError, UsageError
from saga.files.folders import LocalFolder

HEADER = "person_id,year,birth_year,earnings\n"


def in_files(folder: Path, *rows: str, header: str = HEADER) -> Path:
    for number, row in enumerate(rows):
        (folder / f"{number}.csv").write_text(f"{header}{row}\n", encoding="utf-8")
    return folder


ONE_PERSON = [
    ("1001", "1.001"),  # dots between thousands
    ("1001", "1.001,00"),
    ("1001", "1,001.00"),
    ("1001", "1_001"),
    ("1.5", "1.500"),
    ("1001", "\u0661\u0660\u0660\u0661"),
    ("1001", "\u06f1\u06f0\u06f0\u06f1"),
    ("1001", "\u0967\u0966\u0966\u0967"),
    ("A1", "\u04101"),  # Cyrillic
    ("a1", "\u04301"),
    ("B1", "\u03921"),  # Greek
    ("1001", "b'1001'"),  # bytes of Python
    ("12-3", "12-03"),  # a person of a household
    ("12/3", "12/003"),
    ("12_3", "12_03"),
    ("1 001", "1001"),
]


@pytest.mark.parametrize(("id_", "other"), ONE_PERSON)
def test_ids_that_may_be_one_person_are_refused_if_they_differ_between_files(
    tmp_path: Path, id_: str, other: str
) -> None:
    cells = f'"{id_}",2015,1980,5', f'"{other}",2016,1980,5'
    with pytest.raises(InputError, match=r"differ between files") as refused:
        read_panel(in_files(tmp_path, *cells), prices=2022)
    assert refused.value.problems[0].column == "person_id"


@pytest.mark.parametrize(
    "others", [("1001", "10.01"), ("1001", "1001.5"), ("12-3", "12-30"), ("b1", "1"), ("Ä1", "A1")]
)
def test_other_ids_of_several_files_are_persons_of_their_own(
    tmp_path: Path, others: tuple[str, str]
) -> None:
    folder = in_files(tmp_path, *(f"{person},2015,1980,5" for person in others))
    assert read_panel(folder, prices=2022).persons() == sorted(others)


ALIKE = {
    "Arabic digits": ("1001", "\u0661\u0660\u0660\u0661"),
    "Persian digits": ("1001", "\u06f1\u06f0\u06f0\u06f1"),
    "Thai digits": ("1001", "\u0e51\u0e50\u0e50\u0e51"),
    "wide digits": ("1001", "\uff11\uff10\uff10\uff11"),
    "raised digits": ("11", "1\u00b9"),
    "a letter of Cyrillic": ("A1", "\u04101"),
    "a letter of Greek": ("A1", "\u03911"),
    "a letter of two": ("fi1", "\ufb011"),
    "an accent apart": ("\u00c51", "A\u030a1"),
    "the sign of a unit": ("\u00c51", "\u212b1"),
    "another dash": ("800101-1234", "800101\u20131234"),
    "a minus": ("800101-1234", "800101\u22121234"),
    "another blank": ("a 1", "a\u00a01"),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_ids_of_which_only_the_computer_sees_that_they_are_two_are_refused(
    tmp_path: Path, kind: str
) -> None:
    rows = "\n".join(f"{person},{2015 + i},1980,5" for i, person in enumerate(ALIKE[kind]))
    path = in_files(tmp_path, rows) / "0.csv"
    with pytest.raises(InputError, match="look alike") as of_file:
        read_panel(path, prices=2022)
    with pytest.raises(InputError) as of_frame:
        read_panel(pl.read_csv(path, infer_schema=False), prices=2022)
    with pytest.raises(InputError) as of_batch:
        plan(Source(path), lambda n: n, LocalFolder(tmp_path), "staged")
    problems = of_file.value.problems
    assert problems == of_frame.value.problems == of_batch.value.problems
    assert problems[0].column == "person_id"


def test_ids_of_other_scripts_are_ids(tmp_path: Path) -> None:
    persons = ["\u0416\u0443\u043a", "\u4e00", "\u00c5sa", "\u0661", "7", "007", "1.001", "1001"]
    path = in_files(tmp_path, "\n".join(f"{person},2015,1980,5" for person in persons))
    assert read_panel(path, prices=2022).persons() == sorted(persons)


WORDS = (
    *("na", "n/a", "NAN", "Null", "\\N", "(null)", "__HIVE_DEFAULT_PARTITION__", "#N/A"),
    *("#REF!", "#VALUE!", "#DIV/0!", "#NULL!", "#NAME?", "#NUM!"),
)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("column", ["person_id", "extra_branch"])
def test_a_word_for_unknown_is_neither_a_person_nor_a_code(column: str, word: str) -> None:
    rows = {
        "person_id": ["1", "2"],
        "year": 2015,
        "birth_year": [1980] * 2,
        "earnings": [5.0] * 2,
        "branch": ["1", "2"],
    }
    rows[column.removeprefix("extra_")] = ["1", word]
    mapping = {"extra": {"branch": {"kind": "category"}}}
    with pytest.raises(InputError) as refused:
        read_panel(pl.DataFrame(rows), prices=2022, mapping=mapping)
    assert [(p.rule, p.column) for p in refused.value.problems] == [("word-for-unknown", column)]


@pytest.mark.parametrize(
    ("kind", "code", "cell", "is_same"),
    [
        *(("category", 100_000, cell, True) for cell in ("1e+05", "1E+05", "1.0E5", "100000.0")),
        ("category", 120_000, "1.2e+05", True),
        ("category", -120_000, "-1.2e+05", True),
        *(("number", 9_999, cell, True) for cell in ("+9999", "9999.00", "9.999E3", "09999")),
        ("number", 99.9, "99.90", True),
        ("category", 100, "1E2", False),  # a code of letters and digits
        ("category", 7, "007", False),
        ("category", 1.1, "1.10", False),
        ("category", "1e+05", "100000", False),
    ],
)
def test_a_code_of_a_mapping_is_found_however_a_program_writes_the_number(
    tmp_path: Path, kind: str, code: object, cell: str, is_same: bool
) -> None:
    """In a column of numbers; in one of codes, an exponent tells that a program wrote a number."""
    rows = f"1,2015,1980,5,{cell}\n2,2015,1980,5,3"
    path = in_files(tmp_path, rows, header=f"{HEADER.strip()},code\n")
    mapping = {"extra": {"code": {"kind": kind}}, "codes": {"code": {code: None}}}
    panel = read_panel(path, prices=2022, mapping=mapping)
    assert (panel.frame["extra_code"].to_list()[0] is None) == is_same
    assert bool(panel.meta.unmatched) == (not is_same)
    flagged = read_panel(path, prices=2022, mapping={"null_if": {"code": code}})
    if kind == "category":
        assert (flagged.frame["earnings"].to_list()[0] is None) == is_same


def test_a_text_is_no_column_of_letters() -> None:
    columns = {
        "person_id": "17",
        "year": [2015] * 2,
        "birth_year": [1980] * 2,
        "earnings": [5.0] * 2,
    }
    with pytest.raises(UsageError, match="no common order"):
        read_panel(columns)


FOLDERS = {
    "the same year": ("year=2015", "1,2015,1980,5", True),
    "a year with a fraction of zero": ("year=2015", "1,2015.0,1980,5", True),
    "blanks": ("year=2015", "1, 2015 ,1980,5", True),
    "another spelling": ("Year=2015", "1,2015,1980,5", True),
    "an unknown cell": ("birth_year=1980", "1,2015,1980,5\n\n1,2016,1980,5", True),
    "a column that is not read": ("part=1", "1,2015,1980,5", True),
    "another year": ("year=2015", "1,2016,1980,5", False),
    "another year in one row": ("year=2015", "1,2015,1980,5\n1,2016,1980,5", False),
    "another year, other spelling": ("YEAR=2015", "1,2016,1980,5", False),
    "another person": ("person_id=2", "1,2015,1980,5", False),
    "another year of birth": ("birth_year=1981", "1,2015,1980,5", False),
    "an unknown year": ("year=__HIVE_DEFAULT_PARTITION__", "1,2015,1980,5", False),
    "another amount": ("earnings=6", "1,2015,1980,5", False),
}


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_value_in_the_name_of_a_folder_is_that_of_the_column(
    tmp_path: Path, kind: str, suffix: str
) -> None:
    name, rows, is_same = FOLDERS[kind]
    path = in_files(tmp_path, rows) / "0.csv"
    (tmp_path / "data" / name).mkdir(parents=True)
    panel = read_panel(path, prices=2022)
    if suffix == ".csv":
        path.rename(tmp_path / "data" / name / "part.csv")
    else:
        panel.frame.select(HEADER.strip().split(",")).write_parquet(
            tmp_path / "data" / name / "part.parquet"
        )
    if is_same:
        assert read_panel(tmp_path / "data", prices=2022).frame.equals(panel.frame)
        return
    with pytest.raises(InputError, match=r"its column \w+ differs from .* its folder"):
        read_panel(tmp_path / "data", prices=2022)


NINES = (99_999, 99_998, 99_997, 999_999, 999_998, 9_999_999, 9_999_998, 9_999_997, 99_999_998)


@pytest.mark.parametrize("amount", [*NINES, 99_990, 99_996, 100_000, 999_000, 999.0, 999_999.5])
@pytest.mark.parametrize("column", ["earnings", "transfers", "extra_wealth"])
def test_amounts_of_nines_are_told_as_codes_for_unknown_may_be(column: str, amount: float) -> None:
    """They stay amounts, because some persons earn so much."""
    rows = {
        "person_id": ["1", "1", "2"],
        "year": [2015, 2016, 2016],
        "birth_year": [1980] * 3,
        "earnings": [310_000.0] * 3,
        "transfers": [20_000.0] * 3,
        "wealth": [0.0] * 3,
    }
    rows[column.removeprefix("extra_")] = [float(amount), float(amount), 20_000.0]
    mapping = {"extra": {"wealth": {"kind": "number"}}}
    panel = read_panel(pl.DataFrame(rows), prices=2022, mapping=mapping)
    assert panel.meta.nines == ({column: 1} if amount in NINES else {})
    assert panel.frame[column].to_list() == [amount, amount, 20_000.0]
    kept = {
        **mapping,
        "keep": {column.removeprefix("extra_"): [0, 50_000 if amount < 1e5 else 9e5]},
    }
    assert not read_panel(pl.DataFrame(rows), prices=2022, mapping=kept).meta.nines


def test_amounts_of_nines_among_many_amounts_are_chance() -> None:
    amounts = [float(amount) for amount in range(98_000, 102_000)]
    rows = {"year": 2015, "birth_year": 1980, "earnings": amounts}
    frame = pl.DataFrame({"person_id": [str(i) for i in range(len(amounts))], **rows})
    assert not read_panel(frame, prices=2022).meta.nines
    codes = pl.concat([frame, frame.head(40).with_columns(year=2016, earnings=99_999.0)])
    assert read_panel(codes.cast({"year": pl.Int32}), prices=2022).meta.nines == {"earnings": 43}
