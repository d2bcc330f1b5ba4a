"""The service against the forecaster: the same persons get the same numbers, bit for bit."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest
from pydantic import SecretStr
from saga.api.codecs import ARROW_FILE, ARROW_STREAM, CSV, JSON, PARQUET
from saga.api.compute_queue import ComputeQueue, Ticket
from saga.api.negotiation import interval_json
from saga.api.response_models import LifetimeResponse
from saga.api.settings import Settings

from saga.bundle import shipped_bundle
from saga.conformal.families.set_family import SMALLEST_AMOUNT
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.plans import Plan
from saga.requests import Draws, ForecastRequest, LifetimeRequest, Request
from saga.schema import MAX_AMOUNT
from tests.conftest import Running
from tests.encoded import encoded
from tests.keys import make_keys

Person = Callable[..., dict[str, Any]]
SENTINEL = 7_654_321.125
WORD = "SENTINEL"
KINDS: dict[str, tuple[str, Callable[..., pl.DataFrame]]] = {
    PARQUET: ("parquet", pl.read_parquet),
    ARROW_STREAM: ("ipc_stream", pl.read_ipc_stream),
    ARROW_FILE: ("ipc", pl.read_ipc),
}


def people(person: Person) -> list[dict[str, Any]]:
    """Not in alphabetical order; one person has a single year, one has four decades."""
    decades = [
        {"year": year, "earnings": 300_000.0 + 1_000.0 * (year % 7)} for year in range(1982, 2023)
    ]
    return [
        person("Z9"),
        person("one", history=[{"year": 2021, "earnings": 0}]),
        person("A1", birth_year=1962, sex="male", history=decades),
    ]


def rows(persons: list[dict[str, Any]]) -> pl.DataFrame:
    person_years = [
        {**{k: v for k, v in p.items() if k != "history"}, **{"earnings": None}, **row}
        for p in persons
        for row in p["history"]
    ]
    return pl.DataFrame(person_years, schema_overrides={"earnings": pl.Float64})


@pytest.mark.parametrize("column", ["earnings", "transfers"])
def test_an_amount_beyond_all_money_is_named_and_one_at_the_bound_is_computed(
    service: Running, person: Person, column: str
) -> None:
    """Paths that start from it would overflow, and with them the call of all others."""
    sent = person("B2")
    sent["history"][-1][column] = 1e300
    body = {"persons": [person("A1"), sent], "from_age": 30, "paths": 20}
    answer = service.client.post("/v1/lifetimes", json=body)
    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    place = (problem["rule"], problem["person_id"], problem["year"], problem["column"])
    assert place == ("too-large", "B2", 2022, column)
    sent["history"][-1][column] = MAX_AMOUNT
    assert service.client.post("/v1/lifetimes", json=body).status_code == 200


def test_the_work_of_a_forecast_does_not_depend_on_the_number_of_paths(
    service: Running, person: Person
) -> None:
    body = {"persons": [person(f"P{i}") for i in range(25)], "paths": 10_000}
    assert service.client.post("/v1/lifetimes", json=body).status_code == 413
    answer = service.forecast({**body, "horizons": [1]})
    assert answer.status_code == 200, answer.text
    assert [w["option"] for w in answer.json()["warnings"] if w["code"] == "no-effect"] == ["paths"]


def test_another_call_is_answered_while_a_recorded_forecast_of_several_hundred_persons_runs(
    start: Callable[[Settings], AbstractContextManager[Running]],
    person: Person,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the order of events: the first piece ends when the other call waits for its turn, and the
    second one begins when that call is answered.
    """
    computed: list[str] = []
    has_begun, is_waiting, is_answered = (threading.Event() for _ in range(3))
    compute, run = Plan.compute, ComputeQueue.run

    def compute_in_order(plan: Plan[Request], piece: Panel, progress: Any = None) -> Any:
        computed.append("recorded" if plan.record else "other")
        if computed == ["recorded"]:
            has_begun.set()
            assert is_waiting.wait(60)
        elif computed[-1] == "recorded":
            assert is_answered.wait(60), "the other call has its turn first"
        return compute(plan, piece, progress)

    async def run_and_tell(queue: ComputeQueue, request: Any, ticket: Ticket, work: Any) -> Any:
        if ticket.holder == "other":
            is_waiting.set()
        return await run(queue, request, ticket, work)

    monkeypatch.setattr(Plan, "compute", compute_in_order)
    monkeypatch.setattr(ComputeQueue, "run", run_and_tell)
    headers = make_keys(tmp_path / "keys", "office", "other")
    body = {"persons": [person(f"P{i}") for i in range(300)], "horizons": [1], "record": True}
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    bundle, keys = shipped_bundle("small"), tmp_path / "keys"
    settings = Settings(bundle=bundle, threads=1, keys=keys, database=SecretStr(url))
    with start(settings) as served, ThreadPoolExecutor(1) as office:
        computed.clear()
        recorded = office.submit(
            served.client.post, "/v1/forecasts", json=body, headers=headers["office"]
        )
        assert has_begun.wait(60)
        other = {"persons": [person()], "horizons": [1]}
        answer = httpx.post(f"{served.url}/v1/forecasts", json=other, headers=headers["other"])
        is_answered.set()
        assert answer.status_code == 200, answer.text
        assert recorded.result().json()["provenance"]["recorded"]["new"] == 300
    assert computed == ["recorded", "other", *["recorded"] * 4]


def test_prices_decide_how_amounts_are_read(service: Running, person: Person) -> None:
    """Nominal amounts of 2015 are deflated; the deflated amounts give the same forecast."""

    def forecasts(earnings: float, **options: Any) -> Any:
        one = person(history=[{"year": 2015, "earnings": earnings}])
        return service.forecast({"persons": [one], "horizons": [1], **options}).json()["forecasts"]

    nominal = forecasts(300_000.0)
    one = person(history=[{"year": 2015, "earnings": 300_000.0}])
    amount = float(read_panel(rows([one])).frame["earnings"][0])
    assert forecasts(amount, prices=2022) == nominal != forecasts(300_000.0, prices=2022)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_in_and_out_has_the_numbers_of_the_library(
    service: Running, forecaster: Forecaster, person: Person, kind: str
) -> None:
    frame, (name, read) = rows(people(person)), KINDS[kind]
    headers = {"Content-Type": kind, "Accept": kind}
    query = "horizons=1,2,7&coverage=0.5&paths=40&seed=4&bands=5"
    answer = service.client.post(
        f"/v1/forecasts?{query}", content=encoded(frame, name), headers=headers
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == kind
    request = ForecastRequest([1, 2, 7], coverage=[0.5], bands=5)
    expected = forecaster.forecast(read_panel(frame), request, Draws(40, 4)).table
    assert read(io.BytesIO(answer.content)).equals(expected)


def test_csv_in_and_out_is_the_file_of_the_command_line(
    service: Running, forecaster: Forecaster, person: Person
) -> None:
    """Also who is left out; a set that begins above 0 has no lower limit in JSON."""
    persons = [*people(person), person("gone", birth_year=1940)]
    frame, headers = rows(persons), {"Content-Type": CSV, "Accept": CSV}
    body = frame.write_csv().encode()
    query = "horizons=1,3&coverage=0.9&seed=4"
    answer = service.client.post(f"/v1/forecasts?{query}", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    expected = forecaster.forecast(read_panel(frame), ForecastRequest([1, 3], coverage=[0.9]))
    assert answer.text == expected.table.write_csv()
    notes = json.loads(answer.headers["saga-notes"])
    assert (notes["seed"], notes["left_out"]) == (4, 1)
    assert "simulated-people" in notes["warnings"]
    as_json = service.forecast({"persons": persons, "horizons": [1, 3], "coverage": [0.9]}).json()
    lower = [
        horizon["intervals"][0]["lower"]
        for one in sorted(as_json["forecasts"], key=lambda one: str(one["person_id"]))
        for horizon in one["horizons"]
    ]
    stored = expected.table["lower_90"]
    assert lower == [None if x == SMALLEST_AMOUNT else x for x in stored.to_list()]
    row = {"lower_90": SMALLEST_AMOUNT, "upper_90": 5.0, "guarantee_90": "assumption"}
    assert interval_json(row, 0.9, lambda *_: "")["lower"] is None
    lives = service.client.post("/v1/lifetimes?paths=20", content=body, headers=headers)
    assert lives.text.startswith("person_id,origin_year,to_age,rate,mean")


def test_lifetimes_have_histograms_of_their_paths_and_the_statistics_of_the_library(
    service: Running, forecaster: Forecaster, person: Person
) -> None:
    persons = people(person)
    request = {"persons": persons, "paths": 60, "seed": 3, "tax": "se-2022"}
    answer = service.client.post("/v1/lifetimes", json=request)
    body = LifetimeResponse.model_validate_json(answer.content)
    for life in body.lifetimes:
        assert life.tax is not None
        for drawn, mean in (
            (life.present_value.histogram, life.present_value.mean),
            (life.tax.tax_histogram, life.tax.tax_mean),
            (life.tax.net_histogram, life.tax.net_mean),
        ):
            assert drawn is not None
            edges, shares = np.array(drawn.edges), np.array(drawn.shares)
            assert shares.sum() == pytest.approx(1)
            middle = float((edges[1:] + edges[:-1]) @ shares / 2)
            assert mean is not None
            assert abs(middle - mean) <= (edges[1] - edges[0]) / 2 + 1, "no path leaves its bar"
    lives = LifetimeRequest(tax="se-2022")
    result = forecaster.lifetime(read_panel(rows(persons)), lives, Draws(60, 3))
    assert body.population.persons == 3
    for row in result.population.iter_rows(named=True):
        statistic = getattr(body.population, row["statistic"])
        assert (statistic.value, statistic.mc_error) == (row["value"], row["mc_error"])


def test_the_rule_of_a_tax_is_in_the_provenance(service: Running, person: Person) -> None:
    body = {"persons": [person()], "paths": 10, "to_age": 63, "tax": "se-2026"}
    content = LifetimeResponse.model_validate_json(
        service.client.post("/v1/lifetimes", json=body).content
    )
    rule = content.provenance.tax_rule
    assert rule is not None
    assert (rule["name"], rule["law_year"]) == ("se-2026", 2026)
    assert "unpublished-prices" in {warning.code for warning in content.warnings}


# What is wrong, status, and what one of the problems says. A person is "A1" with known earnings;
# input that the command line refuses too is in tests/test_bad_input.py.
ROW = {"year": 2030, "unemployment": SENTINEL, "real_wage_growth": 0, "inflation": 0}
LATE = {"year": 2040, "unemployment": 0.1, "real_wage_growth": 0.0, "inflation": 0.02}
OLD = [{"year": year, "earnings": 1e5} for year in (2022, 2040)]
F, L = "forecasts", "lifetimes"
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], int, dict[str, Any]]] = [
    (F, {"sex": WORD}, {}, 422, {"person_id": "A1", "column": "sex"}),
    (F, {"sex": "f"}, {}, 422, {"column": "sex"}),
    (F, {"history": []}, {}, 422, {"person_id": "A1", "column": "history"}),
    (
        F,
        {"history": [{"year": 2018, "salary": SENTINEL}]},
        {},
        422,
        {"year": 2018, "column": "salary"},
    ),
    (F, {"history": [{"year": 2020, "earnings": -SENTINEL}]}, {}, 422, {"column": "earnings"}),
    (F, {"history": OLD}, {}, 422, {"column": "year"}),
    *((route, {"person_id": "P0\0"}, {}, 422, {"rule": "not-text"}) for route in (F, L)),
    (F, {"birth_year": 1940}, {}, 422, {"rule": "no-rows"}),
    (F, {"birth_year": None}, {}, 422, {"column": "birth_year"}),
    (F, {}, {"persons": []}, 422, {"column": "persons"}),
    (F, {}, {"prices": 1970}, 422, {"column": "prices"}),
    (F, {}, {"horizon": [1]}, 422, {"column": "horizon"}),
    (F, {}, {"paths": 1_000_000}, 422, {"column": "paths"}),
    (F, {}, {"bands": 0}, 422, {"column": "bands"}),
    (F, {}, {"bands": 31}, 422, {"column": "bands"}),
    (F, {}, {"bands": "5"}, 422, {"column": "bands"}),
    (F, {}, {"scenario": [ROW]}, 422, {"year": 2030}),
    (F, {}, {"scenario": "/etc/passwd"}, 422, {"column": "scenario"}),
    (F, {}, {"scenario": [LATE], "horizons": [1, 2], "bands": 20}, 422, {}),
    (
        F,
        {},
        {"persons": [{"person_id": str(i)} for i in range(1_001)]},
        413,
        {"rule": "max-persons"},
    ),
    (L, {}, {"scenario": [LATE], "to_age": 50}, 422, {}),
    (L, {}, {"scenario": [{"year": 2035, "female/man": 1.0}]}, 422, {}),
    (L, {}, {"to_age": 30}, 422, {"person_id": "A1"}),
    (L, {}, {"tax": "/etc/reform.yaml"}, 422, {"column": "tax"}),
    (L, {}, {"tax": {"base": "/etc/passwd"}}, 422, {}),
    (L, {}, {"tax": {"base": "se-2026", "parameters": {"state_rat": 0.3}}}, 422, {}),
    (L, {}, {"tax": {"base": "se-2040"}}, 422, {}),
]


@pytest.mark.parametrize(("route", "changes", "options", "status", "place"), REFUSED)
def test_wrong_input_is_a_problem_with_its_place_and_no_value(
    service: Running,
    person: Person,
    route: str,
    changes: dict[str, Any],
    options: dict[str, Any],
    status: int,
    place: dict[str, Any],
) -> None:
    body = {"persons": [person(**changes)], **options}
    answer = service.client.post(f"/v1/{route}", json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problems = answer.json()["problems"]
    assert not place or any(place.items() <= problem.items() for problem in problems), problems
    for problem in problems:
        assert problem["fix"]
        assert "--" not in problem["fix"], "an option of the command line helps nobody here"
    # The last two are valid earnings of the person.
    for value in (WORD, "7654321", "295000", "313000"):
        assert value not in answer.text + service.log.getvalue()


@pytest.mark.parametrize(
    ("query", "kind", "body", "status", "place"),
    [
        ("", "text/html", "{}", 415, {"rule": "content-type"}),
        ("", "", "{}", 415, {"rule": "content-type"}),
        ("", "application/x-www-form-urlencoded", "{}", 415, {"rule": "content-type"}),
        ("?seed=1", JSON, '{"persons":[]}', 422, {"rule": "query"}),
        *(
            ("", JSON, number, 422, {"person_id": "A1", "year": 2020, "column": "earnings"})
            for number in ("Infinity", "-Infinity", "NaN", "1e999")
        ),
    ],
)
def test_wrong_bytes_are_a_problem_with_their_place(
    service: Running, query: str, kind: str, body: str, status: int, place: dict[str, Any]
) -> None:
    if not body.startswith("{"):
        history = f'[{{"year":2020,"earnings":{body}}}]'
        body = f'{{"persons":[{{"person_id":"A1","birth_year":1984,"history":{history}}}]}}'
    answer = service.client.post(
        f"/v1/forecasts{query}", content=body, headers={"Content-Type": kind}
    )
    assert answer.status_code == status
    assert place.items() <= answer.json()["problems"][0].items()
