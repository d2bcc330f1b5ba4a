"""Calls that are read and forecast together: each gets what it would get alone, bit by bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from saga.api.codecs import parse_json
from saga.api.panel_batches import (
    MAX_TOGETHER,
    ForecastPart,
    SentFrame,
    forecast_parts,
    parts_of,
    read_panels,
)
from saga.api.request_models import ForecastBody
from saga.api.request_panel import RequestPanel
from saga.calibration.adaptive.issuance import AdaptedForecaster

from saga.errors import InputError
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest

Person = Callable[..., dict[str, Any]]
REQUEST = ForecastRequest(horizons=[1, 4], unrounded=True)


def sent(*persons: dict[str, Any]) -> SentFrame:
    body = json.dumps({"persons": persons}).encode()
    return SentFrame(parse_json(body, ForecastBody, 1_000).frame, None)


def read(forecaster: Forecaster, *calls: SentFrame) -> list[RequestPanel]:
    """The panels of calls without a fault, which are read together."""
    panels = read_panels(forecaster.transforms, forecaster.facts, calls)
    return [panel for panel in panels if isinstance(panel, RequestPanel)]


def test_panels_read_together_are_those_read_alone(forecaster: Forecaster, person: Person) -> None:
    """Ids repeat between calls, have blanks, and one call has another column."""
    calls = [
        sent(person("B2"), person(" A1 ")),
        sent(person("A1", birth_year=1990)),
        sent(person("A1", birth_region="nordic")),
        sent(person("é")),
        sent(person("A1", history=[{"year": 2020, "earnings": 9_999_999.0}])),
    ]
    for call, panel in zip(calls, read(forecaster, *calls), strict=True):
        (alone,) = read(forecaster, call)
        assert panel.person_ids == alone.person_ids
        assert panel.panel.frame.equals(alone.panel.frame)
        assert panel.panel.meta == alone.panel.meta
    told = [warning for warning in forecaster.warnings(panel.panel, REQUEST) if warning.column]
    assert any("are nines" in warning.message for warning in told)


@pytest.mark.parametrize(
    "change",
    [
        {"person_id": " "},
        {"person_id": "a\x01b"},
        {"person_id": "a\x1c"},  # a blank for Python, not for polars
        {"person_id": "\u2003"},  # a blank for both
        {"birth_year": 2010},
        {"history": [{"year": 2020, "earnings": -1.0}]},
        {"history": [{"year": 1990, "earnings": 1.0}, {"year": 2020, "earnings": 1.0}]},
    ],
)
def test_a_wrong_call_is_answered_as_alone_and_does_not_touch_the_others(
    forecaster: Forecaster, person: Person, change: dict[str, Any]
) -> None:
    good, odd = sent(person("A1")), sent({**person("B2"), **change})
    beside, answer = read_panels(forecaster.transforms, forecaster.facts, [good, odd])
    (alone,) = read_panels(forecaster.transforms, forecaster.facts, [odd])
    (good_alone,) = read(forecaster, good)
    assert isinstance(beside, RequestPanel)
    assert beside.panel.frame.equals(good_alone.panel.frame)
    if isinstance(alone, RequestPanel):
        assert isinstance(answer, RequestPanel)
        assert answer.panel.frame.equals(alone.panel.frame)
        assert answer.panel.meta == alone.panel.meta
    else:
        assert isinstance(answer, InputError)
        assert answer.problems == alone.problems


def test_calls_read_together_have_the_warnings_of_calls_read_alone(
    forecaster: Forecaster, person: Person
) -> None:
    """Of each kind about records: other units in a whole call, and single persons unlike others.

    Years whose price level is an estimate are those of one call, too.
    """

    def of(person_id: str, *amounts: float, last_year: int = 2022) -> dict[str, Any]:
        history = [{"year": last_year - i, "earnings": amount} for i, amount in enumerate(amounts)]
        return person(person_id, history=history[::-1])

    ordinary = [300_000.0, 290_000.0, 310_000.0, 250_000.0, 280_000.0]
    calls = [
        sent(of("A1", *ordinary)),
        sent(*(of(f"M{i}", *(x / 1_000 for x in ordinary)) for i in range(3))),
        sent(of("A1", 1.0, 9e6, 1.0, 9e6, 1.0), of("B2", *ordinary)),
        sent(of("Z", *[0.0] * 5, *ordinary)),
        sent(of("B2", *ordinary), of("A1", 3e8, 3e8, 3e8, 3e8, 3e8)),
        sent(of("A1", *ordinary, last_year=max(forecaster.facts.price_index))),
    ]
    codes = set()
    for call, people in zip(calls, read(forecaster, *calls), strict=True):
        (alone,) = read(forecaster, call)
        assert people.compared is not None
        assert alone.compared is None
        warnings = forecaster.warnings(people.panel, REQUEST, compared=people.compared)
        assert warnings == forecaster.warnings(alone.panel, REQUEST)
        codes |= {warning.code for warning in warnings}
    assert {"unit", "unlike-training", "unpublished-prices"} <= codes


def parts(forecaster: Forecaster, *persons: dict[str, Any]) -> list[ForecastPart]:
    (people,) = read(forecaster, sent(*persons))
    return parts_of(forecaster.plan(REQUEST, people.panel))


def test_forecasts_computed_together_have_the_bits_of_those_computed_alone(
    forecaster: Forecaster, person: Person
) -> None:
    calls = [
        parts(forecaster, *(person(f"P{i}", birth_year=1975 + i) for i in range(n)))[0]
        for n in (1, 5, 2, 1, 9)
    ]
    assert len({call.batch_key for call in calls}) == 1
    for call, output in zip(calls, forecast_parts(calls), strict=True):
        assert output.table.equals(forecast_parts([call])[0].table)


@pytest.mark.parametrize("record", [False, True])
def test_the_parts_of_a_large_call_have_the_bits_of_the_whole(
    forecaster: Forecaster, person: Person, *, record: bool
) -> None:
    """Also of one that is recorded: in one piece it would hold up all other calls for seconds."""
    persons = [person(f"P{i}", birth_year=1965 + i % 30) for i in range(MAX_TOGETHER + 7)]
    (people,) = read(forecaster, sent(*persons))
    in_force = AdaptedForecaster.of(forecaster, None)
    plan = forecaster.plan(REQUEST, people.panel, Draws(), in_force, record=record)
    divided = parts_of(plan)
    assert [part.panel.n_persons for part in divided] == [MAX_TOGETHER, 7]
    assert all((part.batch_key is None) == record for part in divided)
    result = plan.result([forecast_parts([part])[0] for part in divided])
    whole = forecaster.run(REQUEST, people.panel, Draws(), in_force, record=record)
    assert result.table.equals(whole.table)
    n_intervals = [len(each.issued) for each in (result, whole)]
    assert n_intervals[0] == n_intervals[1]
    assert (n_intervals[0] > MAX_TOGETHER) == record


def test_calls_with_other_options_are_not_alike(forecaster: Forecaster, person: Person) -> None:
    (people,) = read(forecaster, sent(person()))
    variants = [
        parts_of(forecaster.plan(request, people.panel, draws))[0].batch_key
        for request, draws in (
            (REQUEST, Draws()),
            (ForecastRequest(horizons=[1]), Draws()),
            (REQUEST, Draws(scenario="high-growth")),
        )
    ]
    same = parts_of(forecaster.plan(REQUEST, people.panel, Draws(seed=7, n_paths=9)))[0].batch_key
    assert len(set(variants)) == 3
    assert same == variants[0]
