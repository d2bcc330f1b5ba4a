"""A service with a ledger: it records intervals, settles outcomes and names its state."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import uvicorn
from pydantic import SecretStr
from saga.api.codecs import JSON, PARQUET
from saga.api.server import serve
from saga.api.settings import Settings
from saga.calibration.adaptive.ledger import open_ledger

from saga.bundle import Bundle
from saga.errors import UsageError
from tests.conftest import Running, Start
from tests.encoded import encoded
from tests.waiting import awaited

Person = Callable[..., dict[str, Any]]
OPTIONS = {"horizons": [1, 2], "paths": 50}


def settings(bundle: Path, folder: Path, **more: Any) -> Settings:
    return Settings(
        bundle=bundle,
        threads=1,
        database=SecretStr(f"sqlite:///{folder / 'ledger.sqlite'}"),
        **more,
    )


@pytest.fixture
def with_ledger(start: Start, tiny_bundle: Path, tmp_path: Path) -> Iterator[Running]:
    """A ready service with an empty ledger."""
    with start(settings(tiny_bundle, tmp_path)) as service:
        yield service


@pytest.fixture(scope="module")
def without_records(
    start: Start, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A ready service with an empty ledger, which all refused calls share."""
    with start(settings(tiny_bundle, tmp_path_factory.mktemp("ledger"))) as service:
        yield service


def people(person: Person, n: int = 20) -> list[dict[str, Any]]:
    return [person(f"P{i}") for i in range(n)]


def outcomes(n: int = 20, year: int = 2023, amount: float = 260_000.0) -> list[dict[str, Any]]:
    return [{"person_id": f"P{i}", "year": year, "earnings": amount} for i in range(n)]


def counts(answer: Any) -> dict[str, int]:
    return {name: answer.json()[name] for name in ("new", "duplicate", "conflicting", "unmatched")}


def bounds(answer: Any) -> list[tuple[float, ...]]:
    return [
        (i["lower"], i["upper"])
        for p in answer.json()["forecasts"]
        for h in p["horizons"]
        for i in h["intervals"]
    ]


def test_outcomes_settle_recorded_intervals_once_and_move_thresholds(
    with_ledger: Running, person: Person
) -> None:
    body = {"persons": people(person), **OPTIONS}
    first = with_ledger.forecast({**body, "record": True})
    assert first.json()["provenance"]["recorded"] == {"new": 40, "repeated": 0, "late": 0}
    assert (
        with_ledger.forecast({**body, "record": True}).json()["provenance"]["recorded"]["repeated"]
        == 40
    )

    # Nominal money of 2023, far above all histories: every interval misses.
    sent = {"outcomes": outcomes(amount=1.2e6) + outcomes(1, 2021)}
    answer = with_ledger.client.post("/v1/outcomes", json=sent)
    assert (answer.status_code, counts(answer)) == (
        200,
        {"new": 20, "duplicate": 0, "conflicting": 0, "unmatched": 1},
    )
    assert answer.json()["adaptive"]["version"] == 1
    assert answer.json()["adaptive"]["through"] == 2023
    repeated = with_ledger.client.post("/v1/outcomes", json=sent)
    assert counts(repeated) == {"new": 0, "duplicate": 20, "conflicting": 0, "unmatched": 1}
    assert repeated.json()["adaptive"] == answer.json()["adaptive"]

    second = with_ledger.forecast(body)
    assert second.json()["provenance"]["adaptive"] == answer.json()["adaptive"]
    intervals = second.json()["forecasts"][0]["horizons"][0]["intervals"]
    issued = [interval for interval in intervals if interval["guarantee"] == "assumption"]
    assert len(issued) >= 2
    assert all(
        "outcomes up to 2023 (adaptive state 1)" in interval["reason"] for interval in issued
    )
    assert not any(
        "adaptive" in interval["reason"]
        for interval in intervals
        if interval["guarantee"] == "none"
    )
    pairs = [
        (before, after)
        for before, after in zip(bounds(first), bounds(second), strict=True)
        if before[0] is not None
    ]
    assert all(after[0] >= before[0] and after[1] >= before[1] for before, after in pairs)
    assert any(before != after for before, after in pairs), "the sets of h = 1 are higher"

    table = with_ledger.client.get("/v1/calibration").json()
    assert {cell["horizon"] for cell in table["cells"]} >= {1, 2}
    assert (table["adaptive"]["settled"], table["adaptive"]["waiting"]) == (20, 20)
    (cell,) = [c for c in table["adaptive"]["cells"] if c["coverage"] == 0.5]
    assert (cell["horizon"], cell["persons"], cell["missed"], cell["through"]) == (1, 20, 20, 2023)
    assert cell["offset"] > 0
    assert sum(cell["experts"].values()) == pytest.approx(1)


def test_bands_and_present_values_are_recorded_and_judged_over_http(
    with_ledger: Running, person: Person, tiny_bundle: Path, tmp_path: Path
) -> None:
    """One band and one present value a person; both wait for the last of their years."""
    persons = [person(f"P{i}", birth_year=1960) for i in range(20)]  # 62: two years to age 64
    body = {"persons": persons, "paths": 200}
    forecast = {**body, "horizons": [1, 2], "bands": 2, "record": True}
    lifetime = {**body, "record": True}

    def call(route: str, content: dict[str, Any]) -> dict[str, Any]:
        answer = with_ledger.client.post(route, json=content)
        assert answer.status_code == 200, answer.text
        body_of_answer: dict[str, Any] = answer.json()
        return body_of_answer

    first = [call("/v1/forecasts", forecast), call("/v1/lifetimes", lifetime)]
    recorded = [answer["provenance"]["recorded"] for answer in first]
    assert [counts["new"] for counts in recorded] == [60, 20]
    again = call("/v1/lifetimes", lifetime)
    assert again["provenance"]["recorded"] == {"new": 0, "repeated": 20, "late": 0}
    assert any("Of 20 forecasts 20 were entered" in w["message"] for w in again["warnings"])
    for year in (2023, 2024):
        call("/v1/outcomes", {"outcomes": outcomes(year=year)})
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}", None)
    judged = {row.kind: row for row in ledger.span_coverage(Bundle.load(tiny_bundle).digest)}
    ledger.close()
    assert {kind: (row.years, row.year, row.persons) for kind, row in judged.items()} == {
        "band": (2, 2024, 20),
        "present_value": (2, 2024, 20),
    }
    value = 260_000 * (1 / 1.02 + 1 / 1.02**2)
    published = [
        next(i for i in p["present_value"]["intervals"] if i["coverage"] == 0.9)
        for p in first[1]["lifetimes"]
    ]
    inside = np.mean([i["lower"] <= value <= i["upper"] for i in published])
    assert judged["present_value"].inside[2] == inside
    late = call("/v1/lifetimes", {**lifetime, "persons": [person("P0", birth_year=1961)]})
    assert late["provenance"]["recorded"] == {"new": 0, "repeated": 0, "late": 1}


@pytest.mark.parametrize(
    ("route", "options", "rule"),
    [
        ("forecasts", {"horizons": [1, 2], "scenario": "high-growth"}, "record-scenario"),
        # Nobody's outcome judges these present values.
        *(
            ("lifetimes", {"paths": 200, **option}, "record")
            for option in ({"rate": 0.03}, {"from_age": 20}, {"paths": 20})
        ),
    ],
)
def test_what_no_outcome_can_judge_is_not_recorded(
    without_records: Running, person: Person, route: str, options: dict[str, Any], rule: str
) -> None:
    body = {"persons": people(person, 1), "record": True, **options}
    answer = without_records.client.post(f"/v1/{route}", json=body)
    assert answer.status_code == 422
    assert rule in answer.text


def test_a_contradiction_is_named_without_its_value_and_the_others_count(
    with_ledger: Running, person: Person
) -> None:
    with_ledger.forecast({"persons": people(person), **OPTIONS, "record": True})
    with_ledger.client.post("/v1/outcomes", json={"outcomes": outcomes(5)})
    answer = with_ledger.client.post(
        "/v1/outcomes", json={"outcomes": [*outcomes(1, amount=271_828.0), *outcomes(20)[1:]]}
    )
    assert (answer.status_code, counts(answer)) == (
        200,
        {"new": 15, "duplicate": 4, "conflicting": 1, "unmatched": 0},
    )
    (problem,) = answer.json()["problems"]
    assert (problem["rule"], problem["person_id"], problem["year"]) == (
        "outcome-conflict",
        "P0",
        2023,
    )
    assert "271828" not in answer.text
    assert "271828" not in with_ledger.log.getvalue()


def test_tables_give_the_same_result_as_json(with_ledger: Running, person: Person) -> None:
    with_ledger.forecast({"persons": people(person), **OPTIONS, "record": True})
    first = {"outcomes": outcomes(10), "prices": 2022}
    assert counts(with_ledger.client.post("/v1/outcomes", json=first))["new"] == 10
    table, headers = encoded(pl.DataFrame(outcomes(20))), {"Content-Type": PARQUET}
    answer = with_ledger.client.post("/v1/outcomes?prices=2022", content=table, headers=headers)
    assert counts(answer) == {"new": 10, "duplicate": 10, "conflicting": 0, "unmatched": 0}
    nominal = with_ledger.client.post("/v1/outcomes", content=table, headers=headers)
    assert counts(nominal)["conflicting"] == 20, (
        "the same figures in other prices are other amounts"
    )


P1 = {"person_id": "P1", "year": 2023, "earnings": 271_828.0}
LOST = [*outcomes(50), {"person_id": "LOST", "year": 2024, "earnings": -271_828.0}]
NAN = [*outcomes(50), {"person_id": "LOST", "year": 2024, "earnings": float("nan")}]
NULL = [*outcomes(50), {"person_id": "LOST", "year": 2024, "earnings": None}]


@pytest.mark.parametrize(
    ("kind", "rows", "query", "status", "place"),
    [
        # An outcome is final, so amounts with unclear prices or encoding settle nothing.
        (JSON, [P1], "?prices=2022", 422, {"rule": "query"}),
        ("gzip", [P1], "", 415, {"rule": "content-encoding"}),
        (PARQUET, [P1], "?prices=2022&prices=nominal", 422, {"rule": "query-twice"}),
        (JSON, [{"person_id": "P1", "year": 2023}], "", 422, {"rule": "missing"}),
        (JSON, [{**P1, "earnings": -271_828.5}], "", 422, {"rule": "greater_than_equal"}),
        (JSON, [{**P1, "earnings": "271828"}], "", 422, {"rule": "float_type"}),
        (JSON, [{**P1, "sex": "female"}], "", 422, {"rule": "extra_forbidden"}),
        *(
            (kind, rows, "", 422, {"person_id": "LOST", "year": 2024})
            for kind in (JSON, PARQUET)
            for rows in (LOST, NAN, NULL)
        ),
        *((kind, [{**P1, "earnings": 1.1e12}], "", 422, {}) for kind in (JSON, PARQUET)),
        # Databases drop a NUL at the end, so "P0" and "P0\0" would be one person.
        *(
            (kind, [{**P1, "person_id": name}], "", 422, {"rule": rule, "year": 2023})
            for kind in (JSON, PARQUET)
            for name, rule in (("P0\0", "not-text"), ("P\x1f0", "not-text"), (" ", "missing-value"))
        ),
        *((PARQUET, [{**P1, "person_id": "P" * n}], "", 422, {}) for n in (65, 100_000)),
        # Cells and names that can be read in two ways.
        (PARQUET, [{**P1, "year": 2023.5}], "", 422, {"rule": "column-type"}),
        (PARQUET, [{**P1, "earnings": "271 828"}], "", 422, {"rule": "column-type"}),
        (PARQUET, [{**P1, " Year": 2023}], "", 422, {"rule": "columns"}),
        *(
            (PARQUET, [{**P1, "earnings": text}], "", 422, {"rule": "doubtful-amount"})
            for text in ("271.828", "1.000")
        ),
        # In another unit than the training's, as those of a panel.
        *(
            (kind, outcomes(amount=amount), "", 422, {"rule": "unit", "column": "earnings"})
            for kind in (JSON, PARQUET)
            for amount in (271.828, 27_182_800.0)
        ),
    ],
)
def test_what_is_no_outcome_is_refused_with_its_place_and_no_value(
    without_records: Running,
    kind: str,
    rows: list[dict[str, Any]],
    query: str,
    status: int,
    place: dict[str, Any],
) -> None:
    content = (
        encoded(pl.DataFrame(rows)) if kind == PARQUET else json.dumps({"outcomes": rows}).encode()
    )
    headers = {"Content-Type": PARQUET if kind == PARQUET else JSON}
    headers |= {"Content-Encoding": "gzip"} if kind == "gzip" else {}
    answer = without_records.client.post(f"/v1/outcomes{query}", content=content, headers=headers)
    (problem,) = answer.json()["problems"]
    assert answer.status_code == status
    assert place.items() <= problem.items()
    assert "or null" not in problem["fix"], "an outcome is a number"
    assert not re.search(r"271 ?828|P{65}", answer.text)


@pytest.mark.parametrize(
    ("share", "n", "status"),
    [
        *((share, 20, 422) for share in (1 / 12, 1 / 52)),
        *((share, 20, 200) for share in (0, 0.3, 4)),
        (1 / 12, 19, 200),  # a few persons may earn little
    ],
)
def test_outcomes_in_another_unit_than_what_was_forecast_of_the_persons_move_nothing(
    with_ledger: Running, person: Person, share: float, n: int, status: int
) -> None:
    """Pay of a month is usual for a year at some age, but not of persons who earn more."""
    with_ledger.forecast({"persons": people(person, n), **OPTIONS, "record": True})
    sent = {"outcomes": outcomes(n, amount=260_000 * share)}
    answer = with_ledger.client.post("/v1/outcomes", json=sent)
    assert answer.status_code == status, answer.text
    if status == 422:
        assert [(p["rule"], p["column"]) for p in answer.json()["problems"]] == [
            ("unit", "earnings")
        ]
        right = with_ledger.client.post("/v1/outcomes", json={"outcomes": outcomes(n)})
        assert counts(right)["new"] == n


@pytest.mark.parametrize(("n", "amount"), [(19, 271.828), (20, 30_000.0), (20, 900_000.0)])
def test_few_persons_may_earn_little_and_many_what_is_usual_at_some_age(
    without_records: Running, n: int, amount: float
) -> None:
    answer = without_records.client.post(
        "/v1/outcomes", json={"outcomes": outcomes(n, 2023, amount)}
    )
    assert counts(answer)["unmatched"] == n


@pytest.mark.parametrize(
    "table",
    [
        {"person_id": [7.0], "year": [2023], "earnings": [1.0]},
        {"Person_ID": ["7"], " YEAR": [2023.0], "earnings ": [1]},
        {"person_id": [" 7 "], "year": [" 2023"], "earnings": ["1.0 "]},
    ],
)
def test_a_table_is_read_as_that_of_a_panel(
    with_ledger: Running, person: Person, table: dict[str, list[object]]
) -> None:
    """Whatever the case and blanks of names, and numbers and years in any type."""
    with_ledger.forecast({"persons": [person("7")], **OPTIONS, "record": True})
    answer = with_ledger.client.post(
        "/v1/outcomes", content=encoded(pl.DataFrame(table)), headers={"Content-Type": PARQUET}
    )
    assert counts(answer)["new"] == 1


def test_without_a_ledger_nothing_changes_and_calls_that_need_one_fail(
    service: Running, with_ledger: Running, person: Person
) -> None:
    body = {"persons": people(person, 3), **OPTIONS}
    plain, empty = service.forecast(body).json(), with_ledger.forecast(body).json()
    assert "adaptive" not in plain["provenance"]
    assert empty["provenance"].pop("adaptive") == {"version": 0, "through": None, "digest": None}
    assert plain == empty, "a ledger without outcomes changes no number"
    for answer in (
        service.forecast({**body, "record": True}),
        service.client.post("/v1/outcomes", json={"outcomes": outcomes()}),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:saga:problem:no-ledger")
    assert service.client.get("/v1/calibration").json()["adaptive"] is None


@pytest.mark.parametrize(
    ("url", "kind", "cause"),
    [
        ("sqlite:///{0}/file/SENTINEL.sqlite", "setup", "Not a directory"),
        ("sqlite:///{0}/file", "ledger", "DatabaseError"),
        ("mysql://u:SENTINEL@host/d", "setup", "Neither an SQLite file nor PostgreSQL"),
    ],
)
def test_an_unusable_ledger_is_a_503_and_only_the_log_has_the_cause(
    start: Start, tiny_bundle: Path, tmp_path: Path, url: str, kind: str, cause: str
) -> None:
    (tmp_path / "file").write_text("no database" * 1_000)
    database = SecretStr(url.format(tmp_path))
    options = Settings(bundle=tiny_bundle, threads=1, database=database)
    with start(options, ready=False) as service:
        awaited(lambda: "problem:loading" not in service.client.get("/readyz").text)
        answer = service.client.get("/readyz")
        for response in (answer, service.forecast({"persons": []})):
            assert (response.status_code, response.json()["type"]) == (
                503,
                f"urn:saga:problem:{kind}",
            )
            assert not any(word in response.text for word in (str(tmp_path), "SENTINEL", cause))
        assert cause in service.log.getvalue()
        assert "SENTINEL" not in service.log.getvalue()


def test_the_command_refuses_an_unusable_ledger_before_it_listens(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SAGA_DATABASE", f"sqlite:///{tmp_path}/file/ledger.sqlite")
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: pytest.fail("served"))
    with pytest.raises(UsageError, match="key cannot be read"):
        serve(Settings.of(bundle=tiny_bundle, port=0))
