"""Problem documents: status and content of each error, and no value of the request."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from polars.exceptions import PanicException
from saga.api.app import create_app
from saga.api.codecs import CSV, parse_json
from saga.api.problems import (
    ProblemDocument,
    ProblemError,
    error_document,
    response_to,
    shape_problems,
    visible_problems,
)
from saga.api.refusals import REFUSALS, Http, Refusal
from saga.api.request_models import ForecastBody, LifetimeBody
from saga.api.settings import Settings

from saga.errors import BudgetError, BundleError, InputError, Problem, UsageError
from saga.requests import Draws, ForecastRequest, LifetimeRequest, Request, options_of
from tests.api.conftest import ask
from tests.conftest import Running
from tests.problems import problem_of, problems_of


@pytest.mark.parametrize(
    ("kind", "status"),
    [(InputError, 422), (UsageError, 422), (BudgetError, 413), (BundleError, 503)],
)
def test_each_kind_of_error_has_its_status(kind: type[InputError], status: int) -> None:
    answer = response_to(
        kind("A title", [Problem("rule", "Wrong", "Mend it", "earnings", "A1", 2001)])
    )
    body = ProblemDocument.model_validate_json(bytes(answer.body))
    assert (answer.status_code, body.status) == (status, status)
    assert answer.media_type == "application/problem+json"
    assert body.problems == [Problem("rule", "Wrong", "Mend it", "earnings", "A1", 2001)]


def _places(entry: Refusal) -> set[str | None]:
    """The values that the words and headers of a refusal need."""
    headers = entry.kind.headers.values() if isinstance(entry.kind, Http) else ()
    texts = (entry.message, entry.fix, *headers)
    return {name for text in texts for _, name, *_ in Formatter().parse(text) if name}


def test_every_refusal_is_used_and_gets_the_values_of_its_words() -> None:
    used = set()
    for path in (Path(__file__).parents[2] / "api").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match call:
                case ast.Call(ast.Name("refused"), [ast.Constant(str(name)), *values]):
                    stated = [key for value in values for key in getattr(value, "keys", ())]
                    assert {key.value for key in stated} == _places(REFUSALS[name]), name
                    used.add(name)
    of_tables = ("table", "file-", "column-", "string", "unreadable")  # by the rule of a verdict
    assert all(name.startswith(of_tables) for name in REFUSALS.keys() - used)


def test_a_wrong_shape_is_reported_with_person_year_column_and_count() -> None:
    body = {
        "persons": [
            {
                "person_id": "0017",
                "history": [
                    {"year": 2001, "earnings": 1},
                    *({"year": y, "earnings": "SENTINEL"} for y in (2002, 2003)),
                ],
            }
        ]
    }
    problem = problem_of(parse_json, json.dumps(body).encode(), ForecastBody, 10)
    assert (problem.person_id, problem.year, problem.column, problem.count) == (
        "0017",
        2002,
        "earnings",
        2,
    )
    assert problem.fix == "Send a number, in JSON without quotes, or null for unknown"
    assert "SENTINEL" not in str(problem)


@pytest.mark.parametrize(
    ("change", "column", "rule", "fix"),
    [
        ({"horizon": 1}, "horizon", "extra_forbidden", ", horizons, "),
        ({"name": 1}, "name", "extra_forbidden", ", horizons, "),
        (
            {"persons": [{"person_id": "A", "history": [{"earning": 1}]}]},
            "earning",
            "extra_forbidden",
            "GET /v1/variables",
        ),
        ({"prices": "2022"}, "prices", "int_type", "in JSON without quotes"),
        ({"prices": "real"}, "prices", "literal_error", "'nominal', or a year"),
        ({"scenario": "crisis"}, "scenario", "literal_error", "'high-growth', or a list of"),
        ({"scenario": [{"year": 1}]}, "scenario.year", "greater_than_equal", "1900"),
        ({"prices": 22}, "prices", "greater_than_equal", "1900"),
        (
            {"persons": [{"person_id": "", "history": [{}]}]},
            "person_id",
            "string_too_short",
            "1 or more characters",
        ),
        ({"coverage": [None]}, "coverage", "float_type", "Send a number"),
    ],
)
def test_the_fix_fits_what_was_sent(
    change: dict[str, object], column: str, rule: str, fix: str
) -> None:
    valid = {"persons": [{"person_id": "A", "history": [{"year": 2022}]}]}
    content = json.dumps({**valid, **change}).encode()
    problem = problem_of(parse_json, content, ForecastBody, 10)
    assert (problem.column, problem.rule, problem.person_id or "A") == (column, rule, "A")
    assert fix in problem.fix
    assert "null" not in problem.fix


LISTS = ("quantiles", "horizons")


@pytest.mark.parametrize(
    ("body", "request_type"), [(ForecastBody, ForecastRequest), (LifetimeBody, LifetimeRequest)]
)
def test_a_number_that_an_option_does_not_allow_has_the_hint_of_every_door(
    body: Any, request_type: type[Request]
) -> None:
    """As the command line and Python say: 0.02 is 2 %. Coverages are those of the bundles."""
    options = options_of(Draws) | options_of(request_type)
    hints = {option.name or name: option for name, (_, option) in options.items() if option.hint}
    person = {"person_id": "A", "history": [{"year": 2022}]}
    for name, option in hints.items() - {("coverage", hints["coverage"])}:
        number = 10**6 if option.most else 3
        content = {"persons": [person], name: [number] if name in LISTS else number}
        problems = problems_of(parse_json, json.dumps(content).encode(), body, 10)
        assert option.hint in str(problems[0])


def test_a_problem_of_an_unknown_type_does_not_repeat_its_message() -> None:
    """Messages come from our table of rules, also for future error types of pydantic."""
    (problem,) = shape_problems(
        [
            {
                "type": "new_kind",
                "loc": ("seed",),
                "msg": "SENTINEL",
                "input": "SENTINEL",
                "ctx": {"error": "SENTINEL"},
            }
        ],
        None,
    )
    assert "SENTINEL" not in json.dumps(problem.as_dict())
    assert problem.column == "seed"


def test_long_or_unprintable_names_are_not_repeated() -> None:
    for name, column in (("S" * 100, "S" * 63 + "…"), ("a\nb", "(unprintable name)")):
        (problem,) = visible_problems(
            shape_problems([{"type": "extra_forbidden", "loc": (name,)}], None)
        )
        assert problem.column == column


def test_a_problem_document_has_a_bounded_length_whatever_is_wrong() -> None:
    """A file of rules may have long names, and each of them may be wrong."""
    problem = Problem("pension-rule", "m" * 50_000, "f" * 50_000, column="c" * 50_000)
    document = error_document(UsageError("e" * 50_000, [problem] * 5_000))
    assert len(document["detail"]) == 10_000
    assert len(json.dumps(document)) < 150_000
    assert len(response_to(ProblemError(422, "s", "t", [problem] * 5_000)).body) < 150_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"persons": SENTINEL}',
        b"\xff\xfe",
        b'"SENTINEL"',
        b"[1]",
        b"null",
        b"[" * 5_000,
        b"9" * 5_000,
        b'{"a":"\\ud800"}',
    ],
)
def test_a_body_that_is_not_a_request_is_refused_without_repeating_it(body: bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_json(body, ForecastBody, 10)
    assert caught.value.status == 422
    assert "SENTINEL" not in repr([problem.as_dict() for problem in caught.value.problems])


@pytest.mark.parametrize("error", [ValueError, PanicException])
def test_the_message_of_an_unexpected_error_is_in_neither_answer_nor_log(
    error: type[BaseException], tmp_path: Path
) -> None:
    """Libraries in Rust end in a panic, which Python does not count among exceptions."""
    log = io.StringIO()
    app = create_app(Settings(bundle=tmp_path), log=log)

    @app.get("/broken")
    def broken() -> None:
        raise error("SENTINEL")

    answer = ask(app, "/broken")
    assert answer.status_code == 500
    body = ProblemDocument.model_validate_json(answer.content)
    events = [json.loads(line) for line in log.getvalue().splitlines()]
    failure = next(event for event in events if event["event"] == "internal_error")
    assert failure["error"] == error.__name__
    assert failure["at"][-1].startswith("broken:")
    assert body.instance.endswith(failure["request"]), "the answer names the log line"
    assert "SENTINEL" not in answer.text + log.getvalue()


@pytest.mark.parametrize(
    "broken",
    [
        {"history": [{"year": 2020}]},
        {"history": [{"year": 2020, "earnings": -1.0}]},
        {"history": [{"year": 2020, "earnings": 1.0, "education_level": "phd"}]},
        {"history": [{"year": 2020, "earnings": 1.0, "county": "2"}]},
        {"history": [{"year": 1905, "earnings": 1.0}], "birth_year": 1880},
        {"history": [{"year": 2020, "earnings": 1.0}], "exit_reason": "dead"},
        {"history": [{"year": 2020, "earnings": "250.000"}]},
        {"history": [{"year": 2020, "earnings": 1.0, "hobby": "x"}]},
        "A;2020;1985;285.000",
        "A;2020;1985;1.000,5",
        "A;2020;1985;NA",
        "A;2020;1985",
        'A;2020;1985;"1',
        "A;2020;1985;1\nA;2020;1985;1",
        "1E+12;2020;1985;1",
        ";2020;1985;1",
        "A;20;1985;1",
    ],
)
def test_errors_over_http_have_no_advice_about_files_and_mappings(
    service: Running, person: Callable[..., dict[str, Any]], broken: dict[str, Any] | str
) -> None:
    if isinstance(broken, str):
        answer = service.client.post(
            "/v1/forecasts",
            content=f"person_id;year;birth_year;earnings\n{broken}\n".encode("latin-1"),
            headers={"Content-Type": CSV},
        )
    else:
        answer = service.forecast({"persons": [person(**broken)], "horizons": [1]})
    assert answer.status_code == 422
    fixes = " ".join(problem["fix"] for problem in answer.json()["problems"])
    assert fixes
    assert not re.search(r"mapping|\bfile|columns: |--[a-z]|deflator", answer.text)
