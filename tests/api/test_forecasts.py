"""The service against the library: the same persons get the same numbers, bit for bit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from saga.api.codecs import ARROW_FILE, ARROW_STREAM, PARQUET
from saga.api.response_models import ForecastResponse, LifetimeResponse

from saga import requests
from saga.data.reading import read_panel
from saga.files.tables import KEY
from saga.forecaster import Forecaster

if TYPE_CHECKING:
    from tests.conftest import Running

Person = Callable[..., dict[str, Any]]
SENTINEL = 7_654_321.125
WORD = "SENTINEL"


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


def test_forecasts_are_those_of_the_library_in_the_order_of_the_request(
    service: Running, library: Forecaster, person: Person
) -> None:
    persons = people(person)
    answer = service.forecast({"persons": persons, "horizons": [5, 1, 2], "paths": 100, "seed": 5})
    assert answer.status_code == 200, answer.text
    body = ForecastResponse.model_validate_json(answer.content)
    result = library.forecast(
        read_panel(rows(persons)), requests.ForecastRequest([1, 2, 5]), requests.Draws(100, 5)
    )
    table = result.table
    assert [w.as_dict() for w in body.warnings] == [
        warning.as_dict() for warning in result.warnings
    ]
    assert {w.person_id for w in body.warnings if w.code == "beyond-age"} == {"A1"}
    assert [f.person_id for f in body.forecasts] == ["Z9", "one", "A1"]
    for forecast in body.forecasts:
        expected = table.filter(person_id=forecast.person_id)
        assert [h.h for h in forecast.horizons] == expected["horizon"].to_list()
        for horizon, row in zip(forecast.horizons, expected.iter_rows(named=True), strict=True):
            assert (forecast.origin_year, horizon.year) == (row["origin_year"], row["year"])
            assert (horizon.mean, horizon.p_zero) == (row["mean"], row["p_zero"])
            assert horizon.quantiles["0.05"] == row["q05"]
            for interval, level in zip(horizon.intervals, ("50", "80", "90", "95"), strict=True):
                assert (interval.lower, interval.upper, interval.guarantee) == tuple(
                    row[f"{n}_{level}"] for n in ("lower", "upper", "guarantee")
                )
    # A1 turns 64 four years after 2022, so the fifth year cannot be forecast.
    assert [h.h for h in body.forecasts[2].horizons] == [1, 2]


def test_persons_who_cannot_be_forecast_are_listed_and_the_others_answered(
    service: Running, person: Person
) -> None:
    """As on the command line; a faulty record still refuses the call."""
    unknown = [{"year": 2020, "earnings": None}]
    persons = [
        person("fine"),
        person("ends", birth_year=1959),  # 64 in 2023, so the second year is too late
        person("old", birth_year=1940),
        person("old2", birth_year=1941),
        person("unknown", history=unknown),
        person("dead", exit_year=2023, exit_reason="dead"),
        person("other", birth_year=1990),
    ]
    alone = {"persons": [persons[0], persons[-1]], "horizons": [2]}
    expected = service.forecast(alone).json()
    answer = service.forecast({"persons": persons, "horizons": [2]})
    assert answer.status_code == 200, answer.text
    body = ForecastResponse.model_validate_json(answer.content)
    assert answer.json()["forecasts"] == expected["forecasts"]
    assert expected["left_out"] == []
    assert {(p.person_id, p.rule) for p in body.left_out} == {
        ("ends", "too-old"),
        ("old", "no-usable-row"),
        ("old2", "no-usable-row"),
        ("unknown", "no-earnings"),
        ("dead", "has-left"),
    }
    lifetimes = service.client.post("/v1/lifetimes", json={"persons": persons, "paths": 4}).json()
    assert [p["person_id"] for p in lifetimes["lifetimes"]] == ["fine", "ends", "other"]
    assert lifetimes["population"]["persons"] == 3

    nobody = service.forecast({"persons": persons[1:5], "horizons": [2]})
    assert nobody.status_code == 422
    assert {"too-old", "no-usable-row"} <= {p["rule"] for p in nobody.json()["problems"]}
    wrong = person("wrong", history=[{"year": 2020, "earnings": -1.0}])
    assert service.forecast({"persons": [*persons, wrong], "horizons": [2]}).status_code == 422


def test_a_forecast_does_not_depend_on_other_persons_or_their_order(
    service: Running, person: Person
) -> None:
    persons = people(person)
    options = {"horizons": [1, 3], "paths": 60, "seed": 2}

    def forecasts_of(persons: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            f["person_id"]: f
            for f in service.forecast({"persons": persons, **options}).json()["forecasts"]
        }

    together = forecasts_of(persons)
    assert forecasts_of(persons[::-1]) == together
    assert forecasts_of(persons[:1])["Z9"] == together["Z9"]


def test_intervals_are_nested_quantiles_ordered_and_guarantees_explained(
    service: Running, person: Person
) -> None:
    body = service.forecast({"persons": [person(birth_year=1995)], "paths": 200}).json()
    (forecast,) = body["forecasts"]
    assert [h["h"] for h in forecast["horizons"]] == list(range(1, 31))
    for horizon in forecast["horizons"]:
        values = list(horizon["quantiles"].values())
        assert values == sorted(values)
        assert list(horizon["quantiles"]) == [
            "0.01",
            "0.05",
            "0.1",
            "0.25",
            "0.5",
            "0.75",
            "0.9",
            "0.95",
            "0.99",
        ]
        with_ends = [i for i in horizon["intervals"] if i["guarantee"] != "none"]
        for inner, outer in pairwise(with_ends):
            assert outer["lower"] <= inner["lower"] or inner["upper"] == 0
            assert inner["upper"] <= outer["upper"]
            assert inner["includes_zero"] <= outer["includes_zero"]
        for interval in horizon["intervals"]:
            assert interval["reason"]
            assert interval["guarantee"] in ("assumption", "extrapolated", "none")
            if interval["guarantee"] == "none":
                assert interval["lower"] is interval["upper"] is interval["includes_zero"] is None
    assert any(
        i["guarantee"] == "assumption" for h in forecast["horizons"] for i in h["intervals"]
    ), "the bundle is calibrated"


def test_bands_are_those_of_the_library(
    service: Running, library: Forecaster, person: Person
) -> None:
    persons = people(person)
    options = {"horizons": [1, 2, 7], "coverage": [0.5], "paths": 50}
    answer = service.forecast({"persons": persons, **options, "bands": 5})
    assert answer.status_code == 200, answer.text
    body = ForecastResponse.model_validate_json(answer.content)
    table = library.forecast(
        read_panel(rows(persons)),
        requests.ForecastRequest([1, 2, 7], coverage=[0.5], bands=5),
        requests.Draws(50),
    ).table
    n_bands = 0
    for forecast in body.forecasts:
        expected = table.filter(person_id=forecast.person_id)
        for horizon, row in zip(forecast.horizons, expected.iter_rows(named=True), strict=True):
            if horizon.h > 5:
                assert horizon.bands is None
                continue
            assert horizon.bands is not None
            (band,) = horizon.bands
            assert (band.lower, band.upper, band.guarantee) == (
                row["band_lower_50"],
                row["band_upper_50"],
                row["guarantee_band_50"],
            )
            if band.guarantee != "none":
                assert band.includes_zero == row["band_includes_zero_50"]
                n_bands += 1
            assert "quintile" not in band.reason, "bands are calibrated on everybody"
    assert n_bands >= 3
    buffer = io.BytesIO()
    rows(persons).write_parquet(buffer)
    headers = {"Content-Type": PARQUET, "Accept": PARQUET}
    query = "horizons=1,2,7&coverage=0.5&paths=50&bands=5"
    answer = service.client.post(
        f"/v1/forecasts?{query}", content=buffer.getvalue(), headers=headers
    )
    assert pl.read_parquet(io.BytesIO(answer.content)).equals(table)


def test_bands_have_a_limit(service: Running, person: Person) -> None:
    plain = service.forecast({"persons": [person()], "horizons": [1], "paths": 20}).json()
    assert "bands" not in plain["forecasts"][0]["horizons"][0]
    for bands in (0, 31, "5"):
        answer = service.forecast({"persons": [person()], "paths": 20, "bands": bands})
        assert (answer.status_code, answer.json()["problems"][0]["column"]) == (422, "bands")


def test_the_work_of_a_forecast_does_not_depend_on_the_number_of_paths(
    service: Running, person: Person
) -> None:
    body = {"persons": [person(f"P{i}") for i in range(25)], "paths": 10_000}
    assert service.client.post("/v1/lifetimes", json=body).status_code == 413
    answer = service.forecast({**body, "horizons": [1]})
    assert answer.status_code == 200, answer.text
    assert [w["option"] for w in answer.json()["warnings"] if w["code"] == "no-effect"] == ["paths"]


def test_amounts_are_whole_units_unless_unrounded_ones_are_requested(
    service: Running, person: Person
) -> None:
    body = {"persons": [person()], "horizons": [1, 4], "coverage": [0.5]}
    rounded, exact = (
        service.forecast({**body, "unrounded": unrounded}).json()["forecasts"][0]["horizons"]
        for unrounded in (False, True)
    )
    for row, exact_row in zip(rounded, exact, strict=True):
        assert row["mean"] == round(exact_row["mean"]) != exact_row["mean"]
        assert row["p_zero"] == exact_row["p_zero"]
        assert row["quantiles"] == {q: round(x) for q, x in exact_row["quantiles"].items()}
        (interval,), (exact_interval,) = row["intervals"], exact_row["intervals"]
        for end in ("lower", "upper"):
            assert interval[end] in (None, round(exact_interval[end] or 0))


def test_provenance_names_bundle_calibration_seed_scenario_and_money(
    service: Running, library: Forecaster, person: Person
) -> None:
    persons = people(person)[:1]
    persons[0]["history"].insert(0, {"year": 1990, "earnings": 1.0})  # aged 6
    body = {
        "persons": persons,
        "horizons": [1],
        "paths": 20,
        "seed": 9,
        "scenario": "recession-1990s",
    }
    provenance = service.forecast(body).json()["provenance"]
    assert provenance["trained_on"] == "simulated people"
    assert provenance == library.provenance(requests.Draws(20, 9, "recession-1990s")) | {
        "product": "forecasts",
        "rows_excluded": {"age-range": 1},
    }
    assert provenance["bundle"] == service.client.get("/readyz").json()["bundle"]


@pytest.mark.parametrize(
    ("route", "options"),
    [("forecasts", {"horizons": [1, 2], "bands": 20}), ("lifetimes", {"to_age": 50})],
)
def test_a_scenario_beyond_all_rows_of_the_answer_is_refused(
    service: Running, person: Person, route: str, options: dict[str, Any]
) -> None:
    """Path bands of more years, and ages above `to_age`, do not make it useful."""
    body = {"persons": [person()], "paths": 20, **options}
    for year, status in ((2024, 200), (2040, 422)):
        row = {"year": year, "unemployment": 0.1, "real_wage_growth": 0.0, "inflation": 0.02}
        answer = service.client.post(f"/v1/{route}", json={**body, "scenario": [row]})
        assert answer.status_code == status, answer.text
    assert "The scenario is about 2040 to 2040" in answer.json()["detail"]


def test_a_scenario_of_rows_changes_the_forecast(service: Running, person: Person) -> None:
    """Only one year is given; the others are drawn."""
    row = {"year": 2023, "unemployment": 0.2, "real_wage_growth": -0.2, "inflation": 0.02}
    options = {"persons": people(person)[:1], "horizons": [1], "paths": 100}
    without_scenario, with_scenario = (
        service.forecast({**options, "scenario": scenario}).json() for scenario in (None, [row])
    )
    assert with_scenario["provenance"]["scenario"] == "given"
    mean, conditioned_mean = (
        answer["forecasts"][0]["horizons"][0]["mean"]
        for answer in (without_scenario, with_scenario)
    )
    assert conditioned_mean < mean


def test_prices_decide_how_amounts_are_read(service: Running, person: Person) -> None:
    """Nominal amounts of 2015 are deflated; the deflated amounts give the same forecast."""
    history = [{"year": 2015, "earnings": 300_000.0}]
    options = {"horizons": [1], "paths": 50}
    nominal = service.forecast({"persons": [person(history=history)], **options}).json()
    real = service.forecast(
        {"persons": [person(history=history)], "prices": 2022, **options}
    ).json()
    assert (
        nominal["forecasts"][0]["horizons"][0]["mean"] > real["forecasts"][0]["horizons"][0]["mean"]
    )
    amount = float(read_panel(rows([person(history=history)])).frame["earnings"][0])
    from_deflated = service.forecast(
        {
            "persons": [person(history=[{"year": 2015, "earnings": amount}])],
            "prices": 2022,
            **options,
        }
    ).json()
    assert from_deflated["forecasts"] == nominal["forecasts"]


@pytest.mark.parametrize("kind", [PARQUET, ARROW_STREAM, ARROW_FILE])
def test_a_table_in_and_out_has_the_numbers_of_the_library(
    service: Running, library: Forecaster, person: Person, kind: str
) -> None:
    frame = rows(people(person))
    buffer = io.BytesIO()
    write: dict[str, Callable[[io.BytesIO], object]] = {
        PARQUET: frame.write_parquet,
        ARROW_STREAM: frame.write_ipc_stream,
        ARROW_FILE: frame.write_ipc,
    }
    write[kind](buffer)
    headers = {"Content-Type": kind, "Accept": kind}
    answer = service.client.post(
        "/v1/forecasts?horizons=1,2&paths=40&seed=4", content=buffer.getvalue(), headers=headers
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == kind
    read = {PARQUET: pl.read_parquet, ARROW_STREAM: pl.read_ipc_stream, ARROW_FILE: pl.read_ipc}[
        kind
    ]
    assert read(io.BytesIO(answer.content)).equals(
        library.forecast(read_panel(frame), requests.ForecastRequest([1, 2])).table
    )
    if kind == PARQUET:
        provenance = json.loads(pl.read_parquet_metadata(io.BytesIO(answer.content))[KEY])
        assert provenance["seed"] == 4
        assert [w["option"] for w in provenance["warnings"] if w["code"] == "no-effect"] == [
            "paths",
            "seed",
        ]


def test_lifetimes_are_those_of_the_library(
    service: Running, library: Forecaster, person: Person
) -> None:
    persons = people(person)
    request = {
        "persons": persons,
        "paths": 60,
        "seed": 3,
        "rate": 0.03,
        "to_age": 63,
        "from_age": 20,
        "tax": "se-2022",
    }
    answer = service.client.post("/v1/lifetimes", json=request)
    assert answer.status_code == 200, answer.text
    body = LifetimeResponse.model_validate_json(answer.content)
    result = library.lifetime(
        read_panel(rows(persons)),
        requests.LifetimeRequest(rate=0.03, to_age=63, from_age=20, tax="se-2022"),
        requests.Draws(60, 3),
    )
    assert [life.person_id for life in body.lifetimes] == ["Z9", "one", "A1"]
    for life in body.lifetimes:
        row = result.table.filter(person_id=life.person_id).row(0, named=True)
        value = life.present_value
        assert (value.mean, value.quantiles["0.5"]) == (row["mean"], row["q50"])
        assert (value.intervals[0].lower, value.intervals[0].upper) == (
            row["lower_90"],
            row["upper_90"],
        )
        assert life.tax is not None
        assert (life.tax.tax_mean, life.tax.net_mean) == (row["tax_mean"], row["net_mean"])
        for drawn, mean in (
            (life.tax.tax_histogram, life.tax.tax_mean),
            (life.tax.net_histogram, life.tax.net_mean),
        ):
            edges, shares = np.array(drawn.edges), np.array(drawn.shares)
            assert shares.sum() == pytest.approx(1)
            middle = float((edges[1:] + edges[:-1]) @ shares / 2)
            assert mean is not None
            assert abs(middle - mean) <= (edges[1] - edges[0]) / 2 + 1, "no path leaves its bar"
        assert sum(value.histogram.shares) == pytest.approx(1)
        assert len(value.histogram.edges) == len(value.histogram.shares) + 1
    assert body.population.persons == 3
    assert [w.as_dict() for w in body.warnings] == [
        warning.as_dict() for warning in result.warnings
    ]
    assert "unobserved-past" in {warning.code for warning in body.warnings}
    for row in result.population.iter_rows(named=True):
        statistic = getattr(body.population, row["statistic"])
        assert (statistic.value, statistic.mc_error) == (row["value"], row["mc_error"])


# Input that the command line refuses too is in tests/test_bad_input.py.
INVALID: dict[str, tuple[Callable[[dict[str, Any]], object], int, dict[str, Any]]] = {
    "unknown sex": (
        lambda b: b["persons"][0].update(sex=WORD),
        422,
        {"person_id": "A1", "column": "sex"},
    ),
    "unknown column": (
        lambda b: b["persons"][0]["history"][2].update(salary=SENTINEL),
        422,
        {"person_id": "A1", "year": 2018, "column": "salary"},
    ),
    "nobody": (lambda b: b.update(persons=[]), 422, {"column": "persons"}),
    "no history": (
        lambda b: b["persons"][0].update(history=[]),
        422,
        {"person_id": "A1", "column": "history"},
    ),
    "nothing between 16 and 64": (
        lambda b: b["persons"][0].update(birth_year=1940),
        422,
        {"rule": "no-rows"},
    ),
    "prices of another year": (lambda b: b.update(prices=1970), 422, {"column": "prices"}),
    "scenario out of range": (
        lambda b: b.update(
            scenario=[
                {"year": 2030, "unemployment": SENTINEL, "real_wage_growth": 0, "inflation": 0}
            ]
        ),
        422,
        {"year": 2030},
    ),
    "unknown option": (lambda b: b.update(horizon=[1]), 422, {"column": "horizon"}),
    "too many paths": (lambda b: b.update(paths=1_000_000), 422, {"column": "paths"}),
    "too many persons": (
        lambda b: b.update(
            persons=[{**b["persons"][0], "person_id": str(i)} for i in range(1_001)]
        ),
        413,
        {},
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_input_is_a_problem_with_its_position_and_no_value(
    service: Running, person: Person, case: str
) -> None:
    change, status, position = INVALID[case]
    body: dict[str, Any] = {"persons": [person()]}
    change(body)
    answer = service.forecast(body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["problems"], document
    assert all(problem["fix"] for problem in document["problems"])
    assert any(position.items() <= problem.items() for problem in document["problems"]), document
    if status == 413:
        assert "saga score" in answer.text
    for value in (
        WORD,
        "7654321",
        "295000",
        "313000",
    ):  # the last two are valid earnings of the person
        assert value not in answer.text + service.log.getvalue()


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_earnings_that_are_not_finite_are_refused(service: Running, number: str) -> None:
    history = f'[{{"year":2020,"earnings":{number}}}]'
    body = f'{{"persons":[{{"person_id":"A1","birth_year":1984,"history":{history}}}]}}'
    answer = service.client.post(
        "/v1/forecasts", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    problem = answer.json()["problems"][0]
    assert (problem["person_id"], problem["year"], problem["column"]) == ("A1", 2020, "earnings")


@pytest.mark.parametrize("kind", ["text/csv", "", "application/x-www-form-urlencoded"])
def test_another_media_type_gets_415(service: Running, kind: str) -> None:
    assert (
        service.client.post(
            "/v1/forecasts", content=b"{}", headers={"Content-Type": kind}
        ).status_code
        == 415
    )


def test_query_parameters_beside_json_are_refused(service: Running, person: Person) -> None:
    assert (
        service.client.post("/v1/forecasts?seed=1", json={"persons": [person()]}).status_code == 422
    )


def test_lifetimes_name_a_person_above_the_last_age(service: Running, person: Person) -> None:
    answer = service.client.post("/v1/lifetimes", json={"persons": [person()], "to_age": 30})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["person_id"] == "A1"


@pytest.mark.parametrize("flaw", ["no birth year", "later money", "a code", "other prices"])
def test_no_fix_names_an_option_of_the_command_line(
    service: Running, person: Person, flaw: str
) -> None:
    """A fix names `prices`, not --prices, and a mapping only for files."""
    rows_2022 = [{"year": year, "earnings": 1e5} for year in (2022, 2040)]
    bodies: dict[str, dict[str, Any]] = {
        "no birth year": {"persons": [{"person_id": "A", "history": rows_2022[:1]}]},
        "later money": {"persons": [person(history=rows_2022)]},
        "a code": {"persons": [person(sex="f")]},
        "other prices": {"persons": [person()], "prices": 1970},
    }
    body = bodies[flaw]
    answer = service.forecast(body)
    (problem,) = answer.json()["problems"]
    assert answer.status_code == 422
    assert "--" not in problem["fix"]
    assert "mapping" not in problem["fix"].partition("If a file is read, ")[0]
    if flaw == "later money":
        assert (
            service.forecast({**body, "prices": 2022, "horizons": [1], "paths": 2}).status_code
            == 200
        ), "the fix works"
    if flaw == "other prices":
        assert "nominal amounts and leave prices out" in problem["fix"], "left out they are nominal"


def test_a_later_origin_is_named_and_origin_cuts_the_record(
    service: Running, person: Person
) -> None:
    """As on the command line: warning, guarantee, and a backtest without later records."""
    history = [{"year": year, "earnings": 300_000.0} for year in range(2014, 2025)]
    options = {"horizons": [1], "coverage": [0.5], "prices": 2022}
    late = service.forecast({"persons": [person(history=history)], **options}).json()
    (horizon,) = late["forecasts"][0]["horizons"]
    (message,) = (w["message"] for w in late["warnings"] if w["code"] == "late-origin")
    assert "after 20" in message
    assert horizon["intervals"][0]["guarantee"] == "extrapolated"
    assert "origin is after" in horizon["intervals"][0]["reason"]
    cut = service.forecast({"persons": [person(history=history[:-5])], **options}).json()
    backtest = service.forecast(
        {"persons": [person(history=history)], "origin": 2019, **options}
    ).json()
    assert backtest["forecasts"] == cut["forecasts"]
    assert backtest["provenance"]["rows_excluded"] == {"after-origin": 5}
    assert "seen-years" in {w["code"] for w in backtest["warnings"]}


def test_a_reform_is_an_object_and_never_a_file_of_the_server(
    service: Running, person: Person
) -> None:
    body = {"persons": [person()], "paths": 10, "to_age": 63}
    reform = {"base": "se-2026", "uprating": "law", "parameters": {"state_rate": 0.3}}
    answer = service.client.post("/v1/lifetimes", json={**body, "tax": reform})
    assert answer.status_code == 200, answer.text
    content = LifetimeResponse.model_validate_json(answer.content)
    rule = content.provenance.tax_rule
    assert rule is not None
    assert (rule["uprating"], rule["changes"]) == ("law", {"state_rate": 0.3})
    assert "unpublished-prices" in {warning.code for warning in content.warnings}
    refused = (
        "/etc/reform.yaml",
        {"base": "/etc/passwd"},
        {"base": "se-2026", "parameters": {"state_rat": 0.3}},
        {"base": "se-2040"},
    )
    for tax in refused:
        answer = service.client.post("/v1/lifetimes", json={**body, "tax": tax})
        assert answer.status_code == 422, answer.text
