"""The service against the library: the same persons get the same numbers, bit for bit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from saga.api.codecs import ARROW_FILE, ARROW_STREAM, JSON, PARQUET
from saga.api.response_models import ForecastResponse, LifetimeResponse

from saga.data.reading import read_panel
from saga.files.tables import KEY
from saga.forecast_tables import percent_label
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest, LifetimeRequest

if TYPE_CHECKING:
    from tests.conftest import Running

Person = Callable[..., dict[str, Any]]
SENTINEL = 7_654_321.125
WORD = "SENTINEL"
DOWN = {"year": 2023, "unemployment": 0.2, "real_wage_growth": -0.2, "inflation": 0.02}
KINDS: dict[str, tuple[str, Callable[..., pl.DataFrame]]] = {
    PARQUET: ("write_parquet", pl.read_parquet),
    ARROW_STREAM: ("write_ipc_stream", pl.read_ipc_stream),
    ARROW_FILE: ("write_ipc", pl.read_ipc),
}


@pytest.fixture(scope="module")
def library(tiny_bundle: Path) -> Forecaster:
    return Forecaster.load(tiny_bundle, threads=1)


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


def as_row(person: Any, horizon: Any) -> dict[str, Any]:
    """A horizon of an answer with the names of the library's table."""
    row = {"person_id": person.person_id, "origin_year": person.origin_year, "horizon": horizon.h}
    row |= {name: getattr(horizon, name) for name in ("year", "mean", "p_zero")}
    row |= {f"q{percent_label(float(q))}": value for q, value in horizon.quantiles.items()}
    for prefix, sets in (("", horizon.intervals), ("band_", horizon.bands or [])):
        for one in sets:
            assert one.reason
            level = percent_label(one.coverage)
            row |= {f"{prefix}{n}_{level}": getattr(one, n) for n in ("lower", "upper")}
            row |= {f"{prefix}includes_zero_{level}": one.includes_zero}
            row |= {f"guarantee_{prefix}{level}": one.guarantee}
    return row


@pytest.mark.parametrize(
    ("options", "request_", "draws"),
    [
        (
            {"horizons": [5, 1, 2], "paths": 100, "seed": 5},
            ForecastRequest([1, 2, 5]),
            Draws(100, 5),
        ),
        (
            {"horizons": [1, 4], "coverage": [0.5], "unrounded": True},
            ForecastRequest([1, 4], coverage=[0.5], unrounded=True),
            Draws(),
        ),
        (
            {"horizons": [1, 2, 7], "coverage": [0.5], "bands": 5},
            ForecastRequest([1, 2, 7], coverage=[0.5], bands=5),
            Draws(),
        ),
        ({"horizons": [1], "scenario": [DOWN]}, ForecastRequest([1]), Draws(scenario=[DOWN])),
    ],
)
def test_forecasts_are_those_of_the_library_in_the_order_of_the_request(
    service: Running,
    library: Forecaster,
    person: Person,
    options: dict[str, Any],
    request_: ForecastRequest,
    draws: Draws,
) -> None:
    persons = people(person)
    answer = service.forecast({"persons": persons, **options})
    assert answer.status_code == 200, answer.text
    body = ForecastResponse.model_validate_json(answer.content)
    result = library.forecast(read_panel(rows(persons)), request_, draws)
    assert [w.as_dict() for w in body.warnings] == [w.as_dict() for w in result.warnings]
    assert [f.person_id for f in body.forecasts] == ["Z9", "one", "A1"]
    # A1 turns 64 four years after 2022, so later years cannot be forecast.
    assert max(h.h for h in body.forecasts[2].horizons) <= 4
    served = [as_row(f, h) for f in body.forecasts for h in f.horizons]
    expected = result.table.to_dicts()
    assert len(served) == len(expected)
    for row, known in zip(
        sorted(served, key=lambda r: (r["person_id"], r["horizon"])), expected, strict=True
    ):
        assert row.items() <= known.items()
        missing = {n for n in known.keys() - row.keys() if known[n] is not None}
        assert missing <= {"cell"} | {n for n in missing if "band" in n and row["horizon"] > 5}


def test_persons_who_cannot_be_forecast_are_listed_and_the_others_answered(
    service: Running, person: Person
) -> None:
    """As on the command line; a faulty record still refuses the call."""
    left_out = {
        "ends": ("too-old", {"birth_year": 1959}),  # 64 in 2023, so the second year is too late
        "old": ("no-usable-row", {"birth_year": 1940}),
        "unknown": ("no-earnings", {"history": [{"year": 2020, "earnings": None}]}),
        "dead": ("has-left", {"exit_year": 2023, "exit_reason": "dead"}),
    }
    others = [person(name, **changes) for name, (_, changes) in left_out.items()]
    fine = [person("fine"), person("other", birth_year=1990)]
    alone = service.forecast({"persons": fine, "horizons": [2]}).json()
    answer = service.forecast({"persons": [fine[0], *others, fine[1]], "horizons": [2]}).json()
    assert answer["forecasts"] == alone["forecasts"]
    assert {p["person_id"]: p["rule"] for p in answer["left_out"]} == {
        name: rule for name, (rule, _) in left_out.items()
    }
    body = {"persons": [fine[0], *others], "paths": 4}
    lifetimes = service.client.post("/v1/lifetimes", json=body).json()
    assert [p["person_id"] for p in lifetimes["lifetimes"]] == ["fine", "ends"]
    assert lifetimes["population"]["persons"] == 2
    nobody = service.forecast({"persons": others[:3], "horizons": [2]})
    assert nobody.status_code == 422
    assert {p["rule"] for p in nobody.json()["problems"]} >= {"too-old", "no-usable-row"}


def test_the_work_of_a_forecast_does_not_depend_on_the_number_of_paths(
    service: Running, person: Person
) -> None:
    body = {"persons": [person(f"P{i}") for i in range(25)], "paths": 10_000}
    assert service.client.post("/v1/lifetimes", json=body).status_code == 413
    answer = service.forecast({**body, "horizons": [1]})
    assert answer.status_code == 200, answer.text
    assert [w["option"] for w in answer.json()["warnings"] if w["code"] == "no-effect"] == ["paths"]


def test_provenance_names_bundle_calibration_seed_scenario_and_money(
    service: Running, library: Forecaster, person: Person
) -> None:
    persons = people(person)[:1]
    persons[0]["history"].insert(0, {"year": 1990, "earnings": 1.0})  # aged 6
    options = {"horizons": [1], "paths": 20, "seed": 9, "scenario": "recession-1990s"}
    provenance = service.forecast({"persons": persons, **options}).json()["provenance"]
    assert provenance == library.provenance(Draws(20, 9, "recession-1990s")) | {
        "product": "forecasts",
        "rows_excluded": {"age-range": 1},
    }
    assert provenance["bundle"] == service.client.get("/readyz").json()["bundle"]


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
    service: Running, library: Forecaster, person: Person, kind: str
) -> None:
    frame, buffer = rows(people(person)), io.BytesIO()
    write, read = KINDS[kind]
    getattr(frame, write)(buffer)
    headers = {"Content-Type": kind, "Accept": kind}
    query = "horizons=1,2,7&coverage=0.5&paths=40&seed=4&bands=5"
    answer = service.client.post(
        f"/v1/forecasts?{query}", content=buffer.getvalue(), headers=headers
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == kind
    request = ForecastRequest([1, 2, 7], coverage=[0.5], bands=5)
    expected = library.forecast(read_panel(frame), request, Draws(40, 4)).table
    assert read(io.BytesIO(answer.content)).equals(expected)
    if kind == PARQUET:
        provenance = json.loads(pl.read_parquet_metadata(io.BytesIO(answer.content))[KEY])
        assert provenance["seed"] == 4
        assert provenance["warnings"]


def test_lifetimes_are_those_of_the_library(
    service: Running, library: Forecaster, person: Person
) -> None:
    persons = people(person)
    options = {"rate": 0.03, "to_age": 63, "from_age": 20, "tax": "se-2022"}
    answer = service.client.post(
        "/v1/lifetimes", json={"persons": persons, "paths": 60, "seed": 3, **options}
    )
    assert answer.status_code == 200, answer.text
    body = LifetimeResponse.model_validate_json(answer.content)
    result = library.lifetime(read_panel(rows(persons)), LifetimeRequest(**options), Draws(60, 3))
    assert [life.person_id for life in body.lifetimes] == ["Z9", "one", "A1"]
    for life in body.lifetimes:
        row = result.table.row(by_predicate=pl.col("person_id") == life.person_id, named=True)
        value, tax = life.present_value, life.tax
        assert tax is not None
        first = value.intervals[0]
        assert (value.mean, value.quantiles["0.5"]) == (row["mean"], row["q50"])
        assert (first.lower, first.upper) == (row["lower_90"], row["upper_90"])
        assert (tax.tax_mean, tax.net_mean) == (row["tax_mean"], row["net_mean"])
        for drawn, mean in (
            (value.histogram, value.mean),
            (tax.tax_histogram, tax.tax_mean),
            (tax.net_histogram, tax.net_mean),
        ):
            edges, shares = np.array(drawn.edges), np.array(drawn.shares)
            assert shares.sum() == pytest.approx(1)
            middle = float((edges[1:] + edges[:-1]) @ shares / 2)
            assert mean is not None
            assert abs(middle - mean) <= (edges[1] - edges[0]) / 2 + 1, "no path leaves its bar"
    assert body.population.persons == 3
    assert [w.as_dict() for w in body.warnings] == [w.as_dict() for w in result.warnings]
    for row in result.population.iter_rows(named=True):
        statistic = getattr(body.population, row["statistic"])
        assert (statistic.value, statistic.mc_error) == (row["value"], row["mc_error"])


def test_a_reform_is_computed_from_its_parameters(service: Running, person: Person) -> None:
    reform = {"base": "se-2026", "uprating": "law", "parameters": {"state_rate": 0.3}}
    body = {"persons": [person()], "paths": 10, "to_age": 63, "tax": reform}
    content = LifetimeResponse.model_validate_json(
        service.client.post("/v1/lifetimes", json=body).content
    )
    rule = content.provenance.tax_rule
    assert rule is not None
    assert (rule["uprating"], rule["changes"]) == ("law", {"state_rate": 0.3})
    assert "unpublished-prices" in {warning.code for warning in content.warnings}


def test_a_later_origin_is_named_and_origin_cuts_the_record(
    service: Running, person: Person
) -> None:
    """As on the command line: warning, guarantee, and a backtest without later records."""
    history = [{"year": year, "earnings": 300_000.0} for year in range(2014, 2025)]

    def forecast(years: list[dict[str, Any]], **options: Any) -> Any:
        options |= {"horizons": [1], "coverage": [0.5], "prices": 2022}
        return service.forecast({"persons": [person(history=years)], **options}).json()

    late, cut, backtest = forecast(history), forecast(history[:-5]), forecast(history, origin=2019)
    assert "late-origin" in {w["code"] for w in late["warnings"]}
    assert late["forecasts"][0]["horizons"][0]["intervals"][0]["guarantee"] == "extrapolated"
    assert backtest["forecasts"] == cut["forecasts"]
    assert backtest["provenance"]["rows_excluded"] == {"after-origin": 5}
    assert "seen-years" in {w["code"] for w in backtest["warnings"]}


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
        ("", "text/csv", "{}", 415, {"rule": "content-type"}),
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
