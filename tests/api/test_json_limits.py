"""Limits of JSON hold while a body arrives, in parts of any size."""

from __future__ import annotations

import json

import pytest
from saga.api.budget import MAX_MARKS, MAX_STRETCH, JsonScan
from saga.api.problems import ProblemError

from saga.errors import BudgetError, Problem


def refusal(body: bytes, size: int) -> tuple[Problem, int] | None:
    """What is wrong with a body that arrives in parts of `size`, and how many bytes arrived."""
    scan = JsonScan()
    for start in range(0, len(body), size):
        try:
            scan.take(body[start : start + size])
        except (BudgetError, ProblemError) as error:
            return error.problems[0], start + size
    return None


@pytest.mark.parametrize("size", [1_000, 65_536, 2**22])
@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"[" + b"[]," * 700_000 + b"1]", "json-values"),
        (b"{" + b'"a":{},' * 500_000, "json-values"),
        (b'{"persons":"' + b"x" * 3_000_000 + b'"}', "json-text"),
        (b'{"persons":' + b"9" * 3_000_000 + b"}", "json-text"),
    ],
)
def test_a_body_that_is_no_call_is_refused_before_it_is_complete(
    body: bytes, rule: str, size: int
) -> None:
    refused = refusal(body, size)
    assert refused is not None
    problem, n_bytes = refused
    assert problem.rule == rule
    assert n_bytes <= max(size, len(body) - 1)


@pytest.mark.parametrize("size", [1_000, 65_536])
def test_the_largest_call_of_the_documentation_passes(size: int) -> None:
    columns = {f"column{i}": 123_456.5 for i in range(13)}
    persons = [{"person_id": f"P{i}", "history": [columns] * 40} for i in range(1_000)]
    body = json.dumps({"persons": persons}, indent=1).encode()
    assert sum(map(body.count, (b",", b"[", b"{"))) <= MAX_MARKS
    assert refusal(body, size) is None


def test_blanks_and_texts_up_to_the_limit_pass() -> None:
    body = b"[" + b" " * (MAX_STRETCH - 1) + b',"' + b"x" * (MAX_STRETCH - 3) + b'",1]'
    assert refusal(body, 65_536) is None
