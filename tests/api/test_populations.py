"""Groups over HTTP: what is hidden, whose weights count, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from saga.plans.plan import Plan
from tests.conftest import Running

Person = Callable[..., dict[str, Any]]


def _body(person: Person, men: int, women: int, **options: Any) -> dict[str, Any]:
    sexes = ["male"] * men + ["female"] * women
    persons = [person(f"P{k}", sex=sex, birth_year=1975 + k % 9) for k, sex in enumerate(sexes)]
    return {"persons": persons, "by": ["sex"], "paths": 20, "until": 2024, "to_age": 50, **options}


def _groups(service: Running, body: dict[str, Any]) -> pl.DataFrame:
    answer = service.client.post("/v1/populations", json=body)
    assert answer.status_code == 200, answer.text
    rows = [row.pop("group") | row for row in answer.json()["groups"]]
    return pl.DataFrame(rows, infer_schema_length=None)


def test_groups_under_ten_persons_and_what_reveals_them_are_hidden(
    service: Running, person: Person
) -> None:
    """Women are all minus men."""
    safe = _groups(service, _body(person, 12, 14))
    assert not safe["suppressed"].any()
    few = _groups(service, _body(person, 9, 14))
    hidden = few.filter("suppressed")
    assert set(hidden["sex"]) == {"female", "male"}
    assert few.filter(sex="male")["suppressed"].all()
    numbers = hidden.select("value", "^.*_90$", "^sd_.*$", "mc_error")
    assert numbers.null_count().sum_horizontal().item() == hidden.height * len(numbers.columns)
    assert _groups(service, _body(person, 3, 3))["suppressed"].all()


def test_a_table_without_a_published_value_says_so(service: Running, person: Person) -> None:
    for women, told in ((3, True), (12, False)):
        answer = service.client.post("/v1/populations", json=_body(person, women, women))
        codes = {warning["code"] for warning in answer.json()["warnings"]}
        assert ("all-suppressed" in codes) == told


def test_an_own_column_has_the_weights_of_a_sample(service: Running, person: Person) -> None:
    """A thousand times as many persons: the total is that of the population."""
    body = _body(person, 12, 14)
    for k, entry in enumerate(body["persons"]):
        for row in entry["history"]:
            row["earnings"] *= 1 + k % 7  # persons who differ
    one = _groups(service, body).filter(sex="total", year=2023)
    for entry in body["persons"]:
        for row in entry["history"]:
            row["extra"] = {"w": 1000}
    body["weights"] = "w"
    many = _groups(service, body).filter(sex="total", year=2023)
    value = {
        name: [t.filter(statistic=name)["value"].item() for t in (one, many)]
        for name in ("total", "mean")
    }
    assert value["total"][1] == pytest.approx(1000 * value["total"][0], rel=1e-3)
    assert value["mean"][1] == value["mean"][0]
    assert one.filter(statistic="mean")["sd_persons"].item() == 0
    assert many.filter(statistic="mean")["sd_persons"].item() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"events": ["mean all 2030"]}, "is no event"),
        ({"events": ["mean aliens 2024 < 1"]}, "which no group has"),
        ({"events": ["total all 2024 > 40,000,000"]}, "no separators of thousands"),
        ({"events": ["zero_share all 2024 < 10"]}, "Write 0.1 for 10 %"),
        ({"by": ["shoe_size"]}, "There is no group shoe_size"),
        ({"by": ["education"]}, "Is it education_"),
        ({"weights": "w"}, "There are no weights"),
        ({"until": 2000}, "Choose a later last year"),
        ({"reference": "baseline"}, "nothing would differ"),
        ({"record": True}, "record"),
        (
            {"inflow": [{"year": 2024, "age": 9, "persons": 5}]},
            "Row 1 of the inflow has no valid age",
        ),
        ({"inflow": [{"year": 2024, "age": 60, "persons": 5}]}, "fewer than ten donors near age"),
        ({"inflow": [{"year": 2024, "age": 45}]}, "inflow"),
    ],
)
def test_what_cannot_be_tabulated_is_refused(
    service: Running, person: Person, options: dict[str, Any], message: str
) -> None:
    answer = service.client.post("/v1/populations", json=_body(person, 12, 12, **options))
    assert (answer.status_code, message in answer.text) == (422, True), answer.text


def test_groups_that_nobody_has_are_refused_before_paths_are_simulated(
    service: Running, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Plan, "compute")
    body = _body(person, 12, 12, compare=["men/women"])
    answer = service.client.post("/v1/populations", json=body)
    assert (answer.status_code, "which no group has" in answer.text) == (422, True), answer.text


def test_more_groups_than_a_call_may_have_are_refused_before_paths_are_simulated(
    service: Running, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Occupation x industry: 101 x 51 cells, of which no person needs to go through any."""
    monkeypatch.delattr(Plan, "compute")
    body = _body(person, 60, 40) | {"by": ["occupation", "industry", "age"]}
    for k, entry in enumerate(body["persons"]):
        entry["history"][-1] |= {"occupation": f"{k:03d}", "industry": f"{k // 2:02d}"}
    answer = service.client.post("/v1/populations", json=body)
    assert (answer.status_code, "5151 groups" in answer.text) == (413, True), answer.text


def test_more_work_than_a_call_may_have_is_refused(service: Running, person: Person) -> None:
    answer = service.client.post("/v1/populations", json=_body(person, 500, 400, paths=10_000))
    assert answer.status_code == 413, answer.text


def _pieces(service: Running) -> float:
    text = service.client.get("/metrics").text
    name = 'saga_stage_seconds_count{stage="compute"}'
    return next((float(t.split()[-1]) for t in text.splitlines() if t.startswith(name)), 0.0)


def test_the_calls_of_others_are_answered_between_two_years_of_a_table(
    service: Running, person: Person
) -> None:
    before, body = _pieces(service), _body(person, 12, 14, until=2033)
    years = _groups(service, body)["year"].drop_nulls().n_unique()
    assert years >= 5
    assert _pieces(service) - before > years


def test_the_calls_of_others_are_answered_between_the_persons_of_few_paths(
    service: Running, person: Person
) -> None:
    """A thousand persons took six seconds, however few their paths."""
    before = _pieces(service)
    body = {"persons": _body(person, 100, 30)["persons"], "paths": 2, "to_age": 50}
    assert service.client.post("/v1/lifetimes", json=body).status_code == 200
    assert _pieces(service) - before >= 3
