"""Errors of bad input, on the command line and over HTTP, name position and fix but no value."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.api.settings import Settings

from saga.schema import STATIC
from tests.command_line import answer, done, refusal, run
from tests.conftest import Running
from tests.waiting import awaited

AMOUNT, WORD = 7_654_321, "SENTINEL"
Rows = list[dict[str, Any]]


def people() -> Rows:
    """Two persons, one with gaps in the record. No message may contain AMOUNT."""
    first = [
        {"person_id": "007", "year": y, "birth_year": 1984, "earnings": AMOUNT, "county": "01"}
        for y in (2015, 2018, 2022)
    ]
    second = [
        {"person_id": "B2", "year": y, "birth_year": 1990, "earnings": 0, "county": "25"}
        for y in (2021, 2022)
    ]
    return first + second


def set_all(person: str, **cells: Any) -> Callable[[Rows], None]:
    def spoil(rows: Rows) -> None:
        for row in rows:
            if row["person_id"] == person:
                row.update(cells)

    return spoil


def set_one(row: int, **cells: Any) -> Callable[[Rows], None]:
    return lambda rows: rows[row].update(cells)


def without(column: str) -> Callable[[Rows], None]:
    def spoil(rows: Rows) -> None:
        for row in rows:
            del row[column]

    return spoil


def problem_of(person_id: str, **entry: str) -> dict[str, str]:
    """Part of a problem: its person, and its column or rule."""
    return {"person_id": person_id, **entry}


SECOND_ROW = {"person_id": "007", "year": 2018}
SECOND_COUNTY = {**SECOND_ROW, "column": "county"}
SECOND_EARNINGS = {**SECOND_ROW, "column": "earnings"}
PANELS: dict[str, tuple[Callable[[Rows], None], dict[str, Any]]] = {
    "no column person_id": (without("person_id"), {"column": "person_id"}),
    "no column year": (without("year"), {"column": "year"}),
    "no column birth_year": (without("birth_year"), {"column": "birth_year"}),
    "no column earnings": (without("earnings"), {"column": "earnings"}),
    "a person-year twice": (lambda rows: rows.append(dict(rows[1])), SECOND_ROW),
    "negative earnings": (set_one(1, earnings=-AMOUNT), SECOND_EARNINGS),
    "infinite earnings": (set_one(1, earnings=float("inf")), SECOND_EARNINGS),
    "minus infinite earnings": (set_one(1, earnings=float("-inf")), SECOND_EARNINGS),
    "earnings that are no number": (set_one(1, earnings=float("nan")), SECOND_EARNINGS),
    "text in a number": (set_one(1, earnings=WORD), SECOND_EARNINGS),
    "a decimal comma": (set_one(1, earnings=f"{AMOUNT},5"), SECOND_EARNINGS),
    "an unknown code": (set_one(1, county=WORD), SECOND_COUNTY),
    "a control character in a name": (
        set_all("B2", person_id="B\x012"),
        {"year": 2021, "column": "person_id", "rule": "not-text"},
    ),
    "a space of no width in a name": (
        set_all("B2", person_id="B2\u200b"),
        {"year": 2021, "column": "person_id", "rule": "not-text"},
    ),
    "a name that only looks like another": (
        set_all("B2", person_id="\uff10\uff10\uff17"),
        {"column": "person_id", "rule": "person-id"},
    ),
    "a control character in a code": (
        set_one(1, county="01\x01"),
        {**SECOND_COUNTY, "rule": "unknown-code"},
    ),
    "half a year": (set_one(1, year=2018.5), problem_of("007", column="year")),
    "a year without a century": (set_one(1, year=18), problem_of("007", column="year")),
    "a year that no price index has": (set_one(2, year=2047), {"year": 2047, "column": "year"}),
    "no birth year": (set_all("B2", birth_year=None), problem_of("B2", column="birth_year")),
    "born after the first record": (
        set_all("007", birth_year=2016),
        problem_of("007", rule="born-after-record"),
    ),
    "alive after death": (
        set_all("B2", exit_year=2022, exit_reason="dead"),
        problem_of("B2", column="exit_year"),
    ),
    "dead without a year": (
        set_all("B2", exit_reason="dead"),
        problem_of("B2", column="exit_reason"),
    ),
}
# Persons without a mistake who cannot be forecast.
NOT_FORECAST: dict[str, tuple[Callable[[Rows], None], dict[str, Any]]] = {
    "earnings never known": (set_all("B2", earnings=None), problem_of("B2", rule="no-earnings")),
    "past age 63": (set_all("B2", birth_year=1958), problem_of("B2", rule="too-old")),
    "past age 64 in every year": (
        set_all("B2", birth_year=1950),
        problem_of("B2", rule="no-usable-row"),
    ),
    "dead": (set_all("B2", exit_year=2023, exit_reason="dead"), problem_of("B2", rule="has-left")),
}
OPTIONS: dict[str, tuple[tuple[str, str], dict[str, Any], str]] = {
    "horizon 0": (("--horizons", "0"), {"horizons": [0]}, "from 1 to 30"),
    "horizon 31": (("--horizons", "31"), {"horizons": [31]}, "from 1 to 30"),
    "coverage 1": (("--coverage", "1.0"), {"coverage": [1.0]}, "strictly between 0 and 1"),
    "coverage in per cent": (("--coverage", "90"), {"coverage": [90]}, "strictly between 0 and 1"),
    "coverage that is not calibrated": (
        ("--coverage", ".93"),
        {"coverage": [0.93]},
        "0.5, 0.8, 0.9, 0.95",
    ),
    "one path": (("--paths", "1"), {"paths": 1}, "from 2 to"),
    "a negative seed": (("--seed", "-1"), {"seed": -1}, "from 0"),
    "an unknown scenario": (("--scenario", "boom"), {"scenario": WORD}, "recession-1990s"),
}


@dataclass(frozen=True)
class Refusal:
    """The text and the problems of an error."""

    text: str
    problems: list[dict[str, Any]]


def command(*arguments: str | Path) -> Refusal:
    """Run `saga`; it must end with exit code 2, a JSON object as last line and no traceback."""
    done = run(*arguments, "--json")
    assert done.exit_code == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    error = json.loads(done.stderr.splitlines()[-1])
    return Refusal(done.stderr, error["problems"])


def write_csv(rows: Rows, path: Path) -> Path:
    """Write the rows as CSV and return the path."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        table.writeheader()
        table.writerows(rows)
    return path


def body(rows: Rows, **options: Any) -> str:
    """The rows as the JSON of a request: static columns once per person, the others per year."""
    persons: dict[Any, dict[str, Any]] = {}
    for row in rows:
        fixed = {name: value for name, value in row.items() if name in STATIC}
        person = persons.setdefault(row.get("person_id"), {**fixed, "history": []})
        person["history"].append({name: value for name, value in row.items() if name not in STATIC})
    return json.dumps({"persons": list(persons.values()), "paths": 20, "horizons": [1], **options})


def post(service: Running, content: str) -> Refusal:
    """Post a forecast request; return the text of the problem document and the log."""
    answer = service.client.post(
        "/v1/forecasts", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return Refusal(answer.text + service.log.getvalue(), answer.json()["problems"])


def assert_helps(refusal: Refusal, location: dict[str, Any]) -> None:
    problems = refusal.problems
    assert any(location.items() <= problem.items() for problem in problems), problems
    assert all(problem["fix"] for problem in problems)
    assert str(AMOUNT) not in refusal.text
    assert WORD not in refusal.text


@pytest.mark.parametrize("case", NOT_FORECAST)
def test_a_person_who_cannot_be_forecast_is_left_out_and_listed(
    tiny_bundle: Path, service: Running, tmp_path: Path, case: str
) -> None:
    """The others are forecast, on the command line and by the service."""
    spoil, location = NOT_FORECAST[case]
    rows = people()
    spoil(rows)
    source, out = write_csv(rows, tmp_path / "people.csv"), tmp_path / "f.csv"
    options = ("--bundle", tiny_bundle, "--horizons 1 --out", out)
    listed = answer("forecast", source, *options)["left_out"]
    assert set(pl.read_csv(out, infer_schema=False)["person_id"]) == {"007"}
    assert [location.items() <= problem.items() for problem in listed] == [True]
    served = service.client.post(
        "/v1/forecasts", content=body(rows), headers={"Content-Type": "application/json"}
    )
    assert served.status_code == 200, served.text
    assert [person["person_id"] for person in served.json()["forecasts"]] == ["007"]
    left_out = served.json()["left_out"]
    assert_helps(Refusal(json.dumps(left_out), left_out), location)
    only = write_csv([row for row in rows if row["person_id"] == "B2"], tmp_path / "one.csv")
    alone = command("forecast", only, *options).problems
    assert alone
    assert all(problem["fix"] for problem in alone)


@pytest.mark.parametrize("case", PANELS)
def test_a_bad_panel_is_refused_by_command_line_and_service(
    tiny_bundle: Path, service: Running, tmp_path: Path, case: str
) -> None:
    spoil, location = PANELS[case]
    rows = people()
    spoil(rows)
    source = write_csv(rows, tmp_path / "people.csv")
    before = source.read_bytes()
    options = f"--bundle {tiny_bundle} --paths 20 --horizons 1 --out {tmp_path / 'out.csv'}"
    assert_helps(command(f"forecast {source} {options}"), location)
    assert [entry.name for entry in tmp_path.iterdir()] == ["people.csv"]
    assert source.read_bytes() == before
    assert_helps(post(service, body(rows)), location)


@pytest.mark.parametrize("case", OPTIONS)
def test_a_bad_option_is_refused_by_command_line_and_service(
    tiny_bundle: Path, service: Running, tmp_path: Path, case: str
) -> None:
    arguments, entry, allowed = OPTIONS[case]
    source = write_csv(people(), tmp_path / "people.csv")
    refusal = command(
        f"forecast {source} --bundle {tiny_bundle} --out {tmp_path / 'out.csv'}", *arguments
    )
    assert allowed in refusal.text
    assert not (tmp_path / "out.csv").exists()
    assert_helps(post(service, body(people(), **entry)), {"column": next(iter(entry))})


HEADER = "person_id,year,birth_year,earnings\n"
GOOD = f"007,2020,1984,{AMOUNT}\n"
FILES: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "an empty file": ("p.csv", b"", ("p.csv is empty",)),
    "nothing but a header": ("p.csv", HEADER.encode(), ("there is no row",)),
    "Latin-1": (
        "p.csv",
        (HEADER + GOOD + "Åsa,2020,1984,1\n").encode("latin-1"),
        ("line 3 is not UTF-8",),
    ),
    "UTF-16": ("p.csv", (HEADER + GOOD).encode("utf-16"), ("UTF-16", "as UTF-8")),
    "no header line": ("p.csv", GOOD.encode(), ("required column earnings is missing",)),
    "a line too long": (
        "p.csv",
        (HEADER + GOOD + f"007,2021,1984,1,{AMOUNT}\n").encode(),
        ("line 3 has more cells",),
    ),
    "an open quotation": (
        "p.csv",
        (HEADER + GOOD + f'007,2021,1984,"{AMOUNT}\n').encode(),
        ("line 3 has a quotation mark that is not closed",),
    ),
    "a column twice": (
        "p.csv",
        (HEADER.strip() + ",year\n" + GOOD.strip() + ",2020\n").encode(),
        ("names a column twice",),
    ),
    "Excel": ("p.xlsx", b"PK\x03\x04", (".xlsx", ".csv")),
    "CSV called Parquet": ("p.parquet", (HEADER + GOOD).encode(), ("not what its suffix says",)),
    "not Arrow": ("p.arrow", (HEADER + GOOD).encode(), ("not what its suffix says",)),
    "not Stata": ("p.dta", (HEADER + GOOD).encode(), ("not what its suffix says",)),
    "not SPSS": ("p.sav", (HEADER + GOOD).encode(), ("not what its suffix says",)),
    "not SAS": ("p.sas7bdat", (HEADER + GOOD).encode(), ("not what its suffix says",)),
}


@pytest.mark.parametrize("case", FILES)
def test_the_error_of_an_unreadable_file_names_reason_and_line(
    tiny_bundle: Path, tmp_path: Path, case: str
) -> None:
    name, content, parts = FILES[case]
    (tmp_path / name).write_bytes(content)
    refusal = command(
        f"forecast {tmp_path / name} --bundle {tiny_bundle} --out {tmp_path / 'out.csv'}"
    )
    assert_helps(refusal, {})
    assert all(part in refusal.text for part in parts), refusal.text


SCENARIO = "year,unemployment,real_wage_growth,inflation\n"
OTHER_FILES: dict[str, tuple[str, bytes, str]] = {
    "a mapping with an unknown key": ("--mapping", b"colums: {year: YR}", "colums"),
    "a mapping with an unknown column": (
        "--mapping",
        b"columns: {wage: W}",
        "`columns` names wage",
    ),
    "a mapping that is not YAML": ("--mapping", b"columns: [1", "is not YAML"),
    "a scenario without a column": (
        "--scenario",
        b"year,unemployment\n2024,0.07\n",
        "row 1 lacks real_wage_growth, inflation",
    ),
    "a scenario with text": (
        "--scenario",
        f"{SCENARIO}2024,{WORD},0,0\n".encode(),
        "line 2 has something that is not a number",
    ),
    "a scenario in per cent": ("--scenario", f"{SCENARIO}2024,7,2,2\n".encode(), "0.07 for 7 %"),
    "a scenario with two decimal signs": (
        "--scenario",
        SCENARIO.replace(",", ";").encode() + b"2024;0,07;0.01;0\n",
        "all with a decimal comma",
    ),
    "an empty scenario": ("--scenario", b"", "is empty"),
    "a scenario in Latin-1": ("--scenario", SCENARIO.encode() + b"2024,\xe5,0,0\n", "UTF-8"),
    "a bundle that is a file": ("--bundle", b"", "no bundle at"),
}


@pytest.mark.parametrize("case", OTHER_FILES)
def test_the_error_of_a_broken_mapping_scenario_or_bundle_names_the_fault(
    tiny_bundle: Path, tmp_path: Path, case: str
) -> None:
    option, content, part = OTHER_FILES[case]
    source, file = write_csv(people(), tmp_path / "people.csv"), tmp_path / "other.csv"
    file.write_bytes(content)
    refusal = command(
        f"forecast {source} --bundle {tiny_bundle} --paths 20 --out {tmp_path / 'out.csv'}",
        f"{option} {file}",
    )
    assert part in refusal.text
    assert WORD not in refusal.text


def test_a_bundle_with_one_byte_changed_neither_forecasts_nor_serves(
    tiny_bundle: Path, start: Callable[..., AbstractContextManager[Running]], tmp_path: Path
) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, copy)
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    source = write_csv(people(), tmp_path / "people.csv")
    refusal = command(f"forecast {source} --bundle {copy} --out {tmp_path / 'out.csv'}")
    assert "model.safetensors was changed" in refusal.text
    with start(Settings(bundle=copy, threads=1), ready=False) as broken:
        awaited(lambda: "problem:loading" not in broken.client.get("/readyz").text)
        ready = broken.client.get("/readyz")
        assert (ready.status_code, ready.json()["type"]) == (503, "urn:saga:problem:bundle")
        assert "The bundle cannot be trusted" in ready.text
        assert str(tmp_path) not in ready.text, "clients do not see paths of the server"
        assert "model.safetensors was changed" in broken.log.getvalue()
        assert broken.forecast({"persons": []}).status_code == 503
        assert broken.client.get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("out", "part"),
    [
        ("people.csv", "is the input"),
        ("notes.csv", "SAGA did not write it"),
        ("out.ods", ".parquet, .csv"),
        ("people.csv/out.csv", "is the input"),
    ],
)
def test_an_output_never_replaces_a_file_that_saga_did_not_write(
    tiny_bundle: Path, tmp_path: Path, out: str, part: str
) -> None:
    source, notes = write_csv(people(), tmp_path / "people.csv"), tmp_path / "notes.csv"
    notes.write_text("notes\n")
    before = source.read_bytes()
    for product in ("forecast", "lifetime"):
        line = f"{product} {source} --bundle {tiny_bundle} --paths 20 --out {tmp_path / out}"
        assert part in refusal(line)
    assert (source.read_bytes(), notes.read_text()) == (before, "notes\n")


def test_an_output_of_saga_is_replaced_and_one_missing_folder_is_created(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    source, out = write_csv(people(), tmp_path / "people.csv"), tmp_path / "new" / "out.csv"
    line = f"forecast {source} --bundle {tiny_bundle} --out"
    for horizons, rows in (("1-3", 6), ("1", 2)):
        done(line, out, "--horizons", horizons)
        assert pl.read_csv(out).height == rows
    mistyped = tmp_path / "no" / "such" / "out.csv"
    assert f"There is no directory {tmp_path / 'no'}" in refusal(line, mistyped)
    assert not mistyped.parent.parent.exists()


def test_rejected_rows_and_results_are_never_written_to_the_folder_of_the_input(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = people()
    rows[1]["earnings"] = -AMOUNT
    source = write_csv(rows, folder / "people.csv")
    before = source.read_bytes()
    options = f"--bundle {tiny_bundle} --paths 20"
    for line in (
        f"forecast {source} --out {tmp_path / 'out.csv'} --rejected {source}",
        f"forecast {folder} --out {folder / 'out.csv'}",
        f"score {folder} {folder / 'out'}",
    ):
        assert "is the input or lies in its folder" in refusal(line, options)
    assert source.read_bytes() == before
    assert [entry.name for entry in folder.iterdir()] == ["people.csv"]


@pytest.mark.parametrize(
    "line",
    [
        "forecast {faulty} --bundle {bundle} --out {folder}/out.csv --rejected {foreign}.csv",
        "forecast {faulty} --bundle {bundle} --out {folder}/out.csv --rejected {foreign}.parquet",
        "calibrate {bundle} --panel {faulty} --out {folder}/b --rejected {foreign}.csv",
        "register check {folder} --markdown {foreign}.md",
        "vintages --panel {faulty} --out {folder}",
        "audit {bundle} --panel {faulty} --out {folder}",
    ],
)
def test_no_file_beside_the_output_replaces_one_that_saga_did_not_write(
    line: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    rows = people()
    rows[1]["earnings"] = -AMOUNT
    faulty = write_csv(rows, tmp_path / "faulty.csv")
    names = ["mine.csv", "mine.parquet", "mine.md", "vintages.md", "audit.html"]
    for name in names:
        (tmp_path / name).write_text("mine")
    paths = {"faulty": faulty, "bundle": tiny_bundle, "folder": tmp_path}
    assert "did not write it" in refusal(line.format(**paths, foreign=tmp_path / "mine"))
    assert {(tmp_path / name).read_text() for name in names} == {"mine"}


def test_rejected_rows_replace_those_of_the_run_before_and_nothing_else(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    rows = people()
    rows[1]["earnings"] = -AMOUNT
    faulty, out = write_csv(rows, tmp_path / "faulty.csv"), tmp_path / "out.csv"
    line = f"forecast {faulty} --bundle {tiny_bundle} --out {out} --on-error drop --rejected"
    for _ in range(2):
        done(line, tmp_path / "rejected.csv")
        assert pl.read_csv(tmp_path / "rejected.csv")["broken_rules"][0] == "negative earnings"
    assert "name one file" in refusal(line, out)
    assert "broken_rules" not in pl.read_csv(out).columns


def test_a_person_above_64_at_every_horizon_is_listed_without_an_error(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    rows = people()
    source = write_csv(
        [*rows, {**rows[0], "person_id": "sixty", "birth_year": rows[0]["year"] - 60}],
        tmp_path / "people.csv",
    )
    line = f"forecast {source} --bundle {tiny_bundle} --out {tmp_path / 'out.csv'} --horizons"
    listed = answer(line, "7,8")["left_out"]
    assert [(each["person_id"], each["rule"]) for each in listed] == [("sixty", "too-old")]
    assert "sixty" not in set(pl.read_csv(tmp_path / "out.csv", infer_schema=False)["person_id"])
    refusal(line, "60")


def test_dropping_names_every_person_that_is_left_out(tiny_bundle: Path, tmp_path: Path) -> None:
    rows = people()
    rows += [
        {**rows[0], "person_id": "old", "birth_year": 1950},
        {**rows[0], "person_id": "wrong", "earnings": -AMOUNT},
    ]
    rows += [{**rows[0], "person_id": "sixty", "birth_year": 1962}]
    source = write_csv(rows, tmp_path / "people.csv")
    told = answer(
        f"lifetime {source} --bundle {tiny_bundle} --paths 20 --to-age 50 --on-error drop",
        f"--out {tmp_path / 'out.csv'}",
    )
    left_out = {(p["person_id"], p["rule"], p["count"]) for p in told["left_out"]}
    # "wrong" is the second person without a usable row.
    assert left_out == {("old", "no-usable-row", 2), ("sixty", "too-old", 1)}
    assert told["dropped"] == {"negative": 1}
    table = pl.read_csv(tmp_path / "out.csv", infer_schema=False)
    assert table["person_id"].to_list() == ["007", "B2"]
