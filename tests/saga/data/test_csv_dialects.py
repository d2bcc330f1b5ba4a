"""CSV files of other systems: encodings, decimal commas, prefixed ids, lost zeros."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from saga.data.panel import Panel
from saga.data.reading import Source, read_panel
from saga.errors import InputError

ROWS = "person_id;year;birth_year;earnings;capital_income;county\nÅsa;2020;1980;{};{};01\n"


def _read(folder: Path, text: str, mapping: str, encoding: str = "utf-8") -> Panel:
    (folder / "panel.csv").write_bytes(text.encode(encoding))
    (folder / "mapping.yaml").write_text(mapping)
    return read_panel(folder / "panel.csv", mapping=folder / "mapping.yaml", prices=2022)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8"])
def test_an_encoding_gives_the_panel_of_the_same_text(tmp_path: Path, encoding: str) -> None:
    text = ROWS.format(300000, 0)
    panel = _read(tmp_path, text, f"encoding: {encoding}", encoding)
    assert panel.persons() == ["Åsa"]
    assert_frame_equal(panel.frame, _read(tmp_path, text, "name: panel").frame)


def test_a_file_in_utf_8_is_read_as_such_whatever_the_mapping_says(tmp_path: Path) -> None:
    """Years of a register may be in several encodings, and `encoding` is about those that vary."""
    for bytes_of, year in (("latin-1", 2020), ("utf-8", 2021), ("utf-8-sig", 2022)):
        text = ROWS.format(1, 0).replace("2020", str(year))
        (tmp_path / f"{year}.csv").write_bytes(text.encode(bytes_of))
    (tmp_path / "m.yaml").write_text("encoding: latin-1")
    panel = read_panel(tmp_path, mapping=tmp_path / "m.yaml", prices=2022)
    assert (panel.persons(), len(panel)) == (["Åsa"], 3)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_zero_bytes_are_not_utf_8(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(InputError, match="the text is UTF-16"):
        _read(tmp_path, ROWS.format(1, 0), "name: x", encoding)
    assert _read(tmp_path, ROWS.format(1, 0), f"encoding: {encoding}", encoding).persons()


@pytest.mark.parametrize(
    ("earnings", "amount"),
    [
        ("300000,5", 300_000.5),
        ("300.000,5", 300_000.5),
        ("1 300 000", 1_300_000.0),
        ("1\u00a0300\u00a0000,25", 1_300_000.25),
        ("300000", 300_000.0),
        ("+300000,5", 300_000.5),
        ("0", 0.0),
        ("", None),
    ],
)
def test_numbers_with_a_decimal_comma(tmp_path: Path, earnings: str, amount: float | None) -> None:
    panel = _read(tmp_path, ROWS.format(earnings, "-1,5"), 'decimal: ","')
    assert panel.frame["earnings"].to_list() == [amount]
    assert panel.frame["capital_income"].to_list() == [-1.5]


@pytest.mark.parametrize(
    ("earnings", "mapping"),
    [
        *((earnings, 'decimal: ","') for earnings in ("12.5", "1.30", "1,2,3", "300,000.5", ".")),
        ("300000,5", "name: x"),  # a decimal comma without the key
    ],
)
def test_a_number_that_may_have_two_meanings_is_refused(
    tmp_path: Path, earnings: str, mapping: str
) -> None:
    with pytest.raises(InputError, match="column earnings"):
        _read(tmp_path, ROWS.format(earnings, 0), mapping)


def test_dots_that_may_separate_thousands_are_refused_file_by_file(tmp_path: Path) -> None:
    head, folder = "person_id,year,birth_year,earnings\n", tmp_path / "panel"
    folder.mkdir()
    (folder / "a.csv").write_text(f"{head}P,2020,1980,275000\n")
    for last in ("2022,1980,286000", "2022,1980,"):  # a whole amount and a blank do not tell either
        (folder / "b.csv").write_text(f"{head}P,2021,1980,285.000\nP,{last}\n")
        with pytest.raises(InputError, match=r"b\.csv has amounts that can be read in two ways"):
            read_panel(folder, prices=2022)
        with pytest.raises(InputError, match="in two ways"):
            list(Source(folder, prices=2022).blocks())
    (folder / "b.csv").write_text(f"{head}P,2021,1980,285.000\nP,2022,1980,0.5\n")
    with pytest.raises(InputError, match="in two ways"):  # 0.5 has no zeros at its end
        read_panel(folder, prices=2022)
    for other, amount in (("285.125", 285.125), ("285.000", 285.0)):
        last = "290.5" if other == "285.125" else "0.500"
        (folder / "b.csv").write_text(f"{head}P,2021,1980,{other}\nP,2022,1980,{last}\n")
        assert read_panel(folder, prices=2022).frame["earnings"][1] == amount
    (folder / "b.csv").write_text(f"{head}P,2021,1980,285.000\n")
    for sign, amount in ((".", 285.0), (",", 285_000.0)):
        mapping = tmp_path / "m.yaml"
        mapping.write_text(f"decimal: '{sign}'\n")
        assert read_panel(folder, mapping=mapping, prices=2022).frame["earnings"][1] == amount


@pytest.mark.parametrize("column", ["employer_size", "employers", "wealth"])
def test_dots_of_counts_and_of_own_columns_are_those_of_amounts(
    tmp_path: Path, column: str
) -> None:
    file, own = tmp_path / "p.csv", {"extra": {"wealth": {"kind": "number"}}}
    text = f"person_id,year,birth_year,earnings,{column}\nP,2021,1980,{{}},1.250\n"
    file.write_text(text.format("300000"))
    with pytest.raises(InputError, match=rf"{column} has a dot with three digits behind it"):
        read_panel(file, mapping=own, prices=2022)
    file.write_text(text.format("300000.000"))  # the file writes all numbers with three decimals
    panel = read_panel(file, mapping=own, prices=2022)
    assert 1.25 in panel.frame.row(0)
    assert 300_000.0 in panel.frame.row(0)


def test_ids_of_lisa_with_the_number_of_a_project_are_found_if_there_is_one() -> None:
    names = ["P1105_LopNr_PersonNr", "Ar", "FodelseAr", "LoneInk", "FInk"]
    frame = pl.DataFrame([[7, 2015, 1980, 3000, 0]], names, orient="row")
    assert read_panel(frame, mapping="lisa").persons() == ["7"]
    with pytest.raises(InputError, match="may be P1105_LopNr_PersonNr or P2_LopNr_PersonNr"):
        read_panel(frame.with_columns(P2_LopNr_PersonNr=8), mapping="lisa")


def _with_codes(**codes: list[object]) -> pl.DataFrame:
    n = len(next(iter(codes.values())))
    return pl.DataFrame(
        {
            "person_id": "a",
            "year": range(2000, 2000 + n),
            "birth_year": 1970,
            "earnings": 1.0,
            **codes,
        },
        strict=False,
    )


@pytest.mark.parametrize("codes", [[1, 12, None], ["1", "12", None], [1.0, 12.0, None]])
def test_one_lost_zero_is_added_and_counted(codes: list[object]) -> None:
    panel = read_panel(_with_codes(county=codes))
    assert panel.frame["county"].to_list() == ["01", "12", None]
    assert panel.meta.padded == {"county": 1}


@pytest.mark.parametrize("codes", [[1, 2, 3], ["1", "2", "3"]])
def test_codes_of_another_classification_do_not_become_codes_of_this_one(
    codes: list[object],
) -> None:
    with pytest.raises(InputError, match="occupation has an unknown code"):
        read_panel(_with_codes(occupation=codes))


HEADER, FIRST, SECOND = "person_id,year,birth_year,earnings", "007,2000,1970,1", "007,2001,1970,+2"
PLAIN = f"{HEADER}\n{FIRST}\n{SECOND}\n"
DIALECTS = {
    "plain.csv": PLAIN.encode(),
    "numbers of rows.csv": "".join(
        f"{number},{line}\n" for number, line in zip(("", 1, 2), PLAIN.split(), strict=True)
    ).encode(),
    "one comma at the end.csv": PLAIN.replace("\n", ",\n").encode(),
    "three commas at the end.csv": PLAIN.replace("\n", ",,,\n").encode(),
    "CR.csv": PLAIN.replace("\n", "\r").encode(),
    "CR and semicolons.csv": PLAIN.replace("\n", "\r").replace(",", ";").encode(),
    "CRLF.csv": PLAIN.replace("\n", "\r\n").encode(),
    "sep.csv": f"sep=;\n{PLAIN.replace(',', ';')}".encode(),
    "sep, CRLF.csv": f"sep=;\n{PLAIN.replace(',', ';')}".replace("\n", "\r\n").encode(),
    "sep in quotes.csv": f'"sep=;"\n{PLAIN.replace(",", ";")}'.encode(),
    "sep, padded.csv": f"sep=;;;;\n{PLAIN.replace(',', ';')}".encode(),
    "another sep.csv": f"sep=~\n{PLAIN.replace(',', '~')}".encode(),
    "blank lines first.csv": f"\r\n \r\n{PLAIN}".replace(",", ";").encode(),
    "BOM.csv": f"\ufeff{PLAIN}".encode(),
    "blank lines and empty cells.csv": PLAIN.replace("\n", "\n\n\n", 1).encode() + b"\n,,,\n",
    "blanks around names.csv": PLAIN.replace("year,b", " year ,b").replace(",", "|").encode(),
    "BOM and sep.csv": f"\ufeffsep=\t\n{PLAIN}".replace(",", "\t").encode(),
    "named with a comma.csv": PLAIN.replace(",", ";")
    .replace("gs\n", 'gs;"a,b,c,d,e"\n')
    .replace("70;1", "70;1;")
    .replace("+2", "+2;")
    .encode(),
    "packed.csv.gz": gzip.compress(PLAIN.replace(",", ";").encode()),
    "packed.CSV.GZ": gzip.compress(PLAIN.encode()),
    "packed unnamed.csv": gzip.compress(PLAIN.replace(",", ";").encode()),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_csv_files_of_other_programs_give_the_same_panel(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(DIALECTS[name])
    source = Source(tmp_path, None, 2022)
    for panel in (source.panel(*source.rows()), source.panel(pl.concat(source.blocks()))):
        assert panel.frame["earnings"].to_list() == [1.0, 2.0]
        assert panel.persons() == ["007"]
        assert set(panel.meta.ignored) <= {"a,b,c,d,e"}


NOTED = PLAIN.replace("\n", ",note\n")  # with a last column that is not read
PLACED = PLAIN.replace(",", ",place,", 1).replace("007,", "007,x,")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NOTED.replace(",1,", ",310,000,"), "line 2 has more cells"),
        (NOTED.replace(",1,note", ",310,000,"), "line 2 has more cells"),
        (PLACED.replace("007,x,2001", "007,x,y,2001"), "line 3 has more cells"),
        (NOTED.replace("note\n007,2001", "note007,2001"), "line 2 has more cells"),
        (NOTED.replace("note\n007,2001", "note\r007,2001"), "line 2 has a line end of another"),
        (
            NOTED.replace("1,note", '1,5" pipe') + '8,2000,1970,1,note\n8,2001,1970,1,5" pipe\n',
            "line 2 has a quotation mark that is not closed",
        ),
        (NOTED.replace("1,note", '1,5" pipe'), "line 2 has a quotation mark that is not closed"),
        (
            PLAIN.replace("gs", "gs,").replace(",1\n", ",310,000\n"),
            "line 2 has a value in a column",
        ),
        (PLAIN.replace("gs", "gs,,").replace("+2", "2,,x"), "line 3 has a value in a column"),
    ],
)
def test_a_row_with_too_many_values_is_refused_whichever_columns_are_read(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode())
    for read in (lambda source: source.rows(), lambda source: list(source.blocks())):
        with pytest.raises(InputError, match=message):
            read(Source(tmp_path / "a.csv"))


LONG = gzip.compress((PLAIN + "".join(f"p{i},{i},1970,{i * 37}\n" for i in range(5000))).encode())
BROKEN = {
    "checksum": LONG[:-6] + b"\0\1\2\3" + LONG[-2:],
    "block": LONG[:9000] + bytes(9) + LONG[9009:],
    "half": LONG[: len(LONG) // 2],
    "start": LONG[:15],
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_damaged_packed_file_is_refused(content: bytes, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(content)
    with pytest.raises(InputError, match="the file is damaged"):
        read_panel(tmp_path, mapping={"encoding": encoding}, prices=2022)


LINES = 'person_id,year,birth_year,earnings,"n, o"\n7,2000,1970,1,"a\nb ""c"", d"\n7,2001,1970,2,\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (NOTED[:-6], 3),  # cut off in the last row
        (NOTED[:-3], None),  # in the last cell, which no reader can see
        (NOTED[:-1], None),
        (NOTED.replace("1,note", "1"), 2),  # an empty last cell without its comma
        (NOTED.replace(",2000,1970,1,note", ""), 2),
        (f"{NOTED}Source: Statistics Sweden\n", 4),
        (f"{NOTED}\n# in SEK\n", 5),
        (f"sep=;\n{NOTED.replace(',', ';')}Total;;\n", 5),
        (NOTED.replace(",", "\t") + "x\t2000\n", 4),
        (NOTED.replace("\n", "\r") + "x,2000\r", 4),
        (NOTED.replace("\n", "\r\n") + "x,2000\r\n", 4),
        (PLAIN.replace("earnings\n", "earnings,,\n"), None),  # only columns without names end early
        (f"\n{NOTED}x,2000\n", 5),
        (LINES, None),
        (LINES.replace("2,\n", "2\n"), 4),
        (f'{LINES}"x, y",2000\n', 5),
        (f'{LINES}"x,\n y",2000\n8,2000,1970,1,\n', 5),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "gzip"])
def test_a_row_with_too_few_cells_is_refused_with_its_line(
    text: str, line: int | None, encoding: str, tmp_path: Path
) -> None:
    """Its missing cells would be unknown earnings of a person."""
    packed = encoding == "gzip"
    content = text.encode("utf-8" if packed else encoding)
    (tmp_path / "a.csv").write_bytes(gzip.compress(content) if packed else content)
    mapping = {"encoding": "utf-8" if packed else encoding}
    for read in (
        lambda source: source.rows(),
        lambda source: list(source.blocks()),
        lambda source: source.persons(),
    ):
        if line is None:
            read(Source(tmp_path, mapping))
            continue
        with pytest.raises(InputError, match=f"line {line} has fewer cells than the header"):
            read(Source(tmp_path, mapping))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", PLAIN.replace("007", "1,007"), "line 2 has more cells.*row.names = FALSE"),
        ("a.csv", PLAIN.replace("007", '"1","007"'), "line 2 has more cells.*row.names = FALSE"),
        (
            "a.csv",
            f"sep=,\n{PLAIN}1,2,3,4,5,6\n",
            "line 5 has more cells than the header. Give each line as many",
        ),
        ("a.csv", PLAIN.replace("earnings", "earnings,year"), "names a column twice"),
        ("a.csv", PLAIN.replace(",", "~"), "line 1 is one cell, .* by ','.*: sep=~"),
        ("a.csv", f"sep=;\n{PLAIN}", "line 2 is one cell, .* by ';'"),
        ("a.csv", f"# of 2020\n{PLAIN}", "line 1 is one cell"),
        ("a.parquet.gz", PLAIN, "it is packed"),
        ("a.csv.zip", PLAIN, "it is packed"),
        ("a.csv", PLAIN.replace("007", "Å"), "encoding: latin-1"),
        ("a.csv.gz", PLAIN.replace("007", "Å"), "encoding: latin-1"),
        ("a.csv.gz", f"{PLAIN}1,2,3,4,5,6\n", "line 4 has more cells"),
    ],
)
def test_csv_files_that_cannot_be_read_are_refused_with_the_place(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    """Also a packed file beside others, which would be left out."""
    (tmp_path / "b.csv").write_text(PLAIN)
    content = text.encode("latin-1")
    (tmp_path / name).write_bytes(gzip.compress(content) if name == "a.csv.gz" else content)
    with pytest.raises(InputError, match=message):
        read_panel(tmp_path, prices=2022)
