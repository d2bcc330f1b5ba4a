"""Answers about uses: they follow the verdicts, and never allow a decision on one person."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from saga.diagnostics_tables import SIMULATED, Diagnostics
from saga.distributions import Marginals
from saga.pages.report import render_report
from saga.pages.uses import decide_uses


def answers(diagnostics: Diagnostics, *, simulated: bool = False) -> list[str]:
    return [use.answer for use in decide_uses(diagnostics.tables, 0.9, simulated)[1]]


def with_status(diagnostics: Diagnostics, question: str, status: str) -> Diagnostics:
    """The diagnostics with another verdict on a question."""
    of_question = pl.col("question") == question
    changed = pl.when(of_question).then(pl.lit(status)).otherwise("status").alias("status")
    return Diagnostics(
        {**diagnostics.tables, "verdicts": diagnostics["verdicts"].with_columns(changed)}
    )


@pytest.mark.parametrize(
    ("level", "coverage", "answer"),
    [
        ("holds", "holds", "Yes"),
        ("holds", "watch", "With care"),
        ("watch", "unclear", "Not known"),
        ("fails", "unclear", "No"),
        ("holds", "fails", "No"),
    ],
)
def test_a_budget_is_as_safe_as_the_worse_of_its_two_verdicts(
    faultless: Diagnostics, level: str, coverage: str, answer: str
) -> None:
    judged = with_status(with_status(faultless, "level", level), "coverage", coverage)
    assert answers(judged)[:2] == [answer, "No"]


def test_forecasts_that_are_far_too_low_serve_no_budget(
    diagnosed: Callable[..., Diagnostics],
) -> None:
    def too_low(marginals: Marginals) -> Marginals:
        return replace(marginals, grid=marginals.grid + np.log(0.4))

    budget, one_person, _ = decide_uses(diagnosed(fault=too_low).tables, 0.9, False)[1]
    assert (budget.answer, one_person.answer) == ("No", "No")
    assert re.search(r"forecast total was \d\d(\.\d)? % below", budget.reason)


def test_few_persons_answer_nothing(diagnosed: Callable[..., Diagnostics]) -> None:
    assert answers(diagnosed(n=9)) == ["Not known", "No", "Not known"]


def test_the_page_begins_with_the_answers_and_says_who_was_judged(faultless: Diagnostics) -> None:
    text = render_report(faultless)
    top = " ".join(text[text.index("<body>") : text.index("The answer in short")].split())
    assert "May I use these forecasts?" in top
    assert "A decision on one person" in top
    assert "One person in 10 earns more or less than the interval says" in top
    assert "simulated" not in top
    fact = pl.DataFrame({"name": ["people"], "text": [SIMULATED]})
    provenance = pl.concat([faultless["provenance"], fact])
    simulated = render_report(Diagnostics({**faultless.tables, "provenance": provenance}))
    assert "Not yet for real people" in simulated
    assert "Yes</p>" not in simulated[: simulated.index("A decision on one person")]
    words = {"CRPS", "quantile", "conformal", "marginal"}
    assert not {word for word in words if word in top}
