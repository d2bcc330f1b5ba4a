"""What forecasts may be used for: answers to a reader's questions, from figures and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from saga.conformal.calibration_table import ALL
from saga.pages.format import money, short_percent

TOO_FEW = "Too few persons were judged to tell."
YEARS = 5  # the questions are about forecasts so many years ahead
_Row = Mapping[str, Any]  # of a table of the diagnostics
ANSWERS = {"holds": "Yes", "watch": "With care", "fails": "No", "unclear": "Not known"}


@dataclass(frozen=True)
class Use:
    """A question about a use, its answer, the status of the verdict behind it, and the reason."""

    question: str
    answer: str
    status: str
    reason: str


def decide_uses(
    tables: Mapping[str, pl.DataFrame], coverage: float, unit: str, simulated: bool
) -> tuple[int, list[Use]]:
    """The horizon nearest to five years, and the uses at it.

    Args:
        tables: The tables of the diagnostics.
        coverage: The coverage of the intervals that are named.
        unit: Unit of money.
        simulated: Whether the persons judged are simulated.
    """
    verdicts = tables["verdicts"]
    h = min(verdicts["horizon"].unique().to_list(), key=lambda each: (abs(each - YEARS), each))
    everybody = {"grouping": ALL, "coverage": coverage}
    totals = _first(tables["sums"].filter(horizon=h, grouping=ALL))
    verdict = _first(verdicts.filter(horizon=h, question="sum"))
    widths = _first(tables["widths"].filter(horizon=h, **everybody))
    rule = _first(tables["efficiency"].filter(horizon=h, rule="last_year"))
    return h, [
        _budget(totals, verdict, h, simulated),
        _one_person(widths, h, coverage, unit),
        _instead_of_last_year(rule),
    ]


def _budget(totals: _Row | None, verdict: _Row | None, h: int, simulated: bool) -> Use:
    """For sums over many persons: whether the sums of everybody and of groups were right."""
    status = "unclear" if verdict is None else verdict["status"]
    measured = "too few persons could be followed"
    if totals is not None:
        side = "above" if totals["size"] > 0 else "below"
        size = short_percent(totals["size"])
        measured = f"the true total was {size} {side} the forecast total"
    reason = (
        f"In this test {measured}. In a total the errors of single persons cancel out. An error "
        "that all share, such as a recession, does not: use the range of the total, and compute "
        "several scenarios."
    )
    if status == "unclear":
        why = "The sums of groups were not judged." if verdict is None else TOO_FEW
        reason = f"{why} {reason}"
    answer = ANSWERS[status]
    if simulated:
        answer = "Not yet for real people" if status == "holds" else answer
        status = "watch" if status == "holds" else status
        reason = (
            "The persons of this test are simulated. Before a real budget, train a model on your "
            f"own register and read the report on that model. {reason}"
        )
    return Use(f"A budget {h} years ahead, for many persons", answer, status, reason)


def _one_person(widths: _Row | None, h: int, coverage: float, unit: str) -> Use:
    """Never: whatever the verdicts, intervals hold on average over persons."""
    reason = (
        f"Even {short_percent(coverage)} intervals that hold miss the earnings of one person in "
        f"{round(1 / (1 - coverage))}, and nobody knows in advance whose."
    )
    if widths is not None and widths["width"] is not None:
        width, typical = widths["width"], widths["typical"]
        reason += (
            f" A typical {short_percent(coverage)} interval {h} years ahead is {money(width)} "
            f"wide, for a typical forecast of {money(typical)} ({unit})."
        )
    reason += " Intervals hold for many persons together, not for each of them."
    return Use("A decision on one person", "No", "fails", reason)


def _instead_of_last_year(rule: _Row | None) -> Use:
    """Whether the intervals say more than last year's earnings plus usual changes."""
    question = "Instead of the rule “same as last year”"
    if rule is None or rule["status"] is None:
        return Use(question, ANSWERS["unclear"], "unclear", TOO_FEW)
    size, status = rule["size"], rule["status"]
    better = "better" if size < 0 else "worse"
    reason = (
        "The simplest alternative is an interval around last year's earnings. These intervals are "
        f"{short_percent(size)} {better}, by a score that counts their width and how far outcomes "
        "lie outside."
    )
    if status == "unclear":
        reason = f"{TOO_FEW} {reason}"
    return Use(question, ANSWERS[status], status, reason)


def _first(table: pl.DataFrame) -> _Row | None:
    return table.row(0, named=True) if table.height else None
