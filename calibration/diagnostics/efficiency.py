"""Table of efficiency: width and interval score of the intervals, beside simple rules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl
from saga.calibration.diagnostics.cases import QUESTION_ALPHA, Cases, Rows
from saga.calibration.diagnostics.simple_rules import RULES
from saga.calibration.diagnostics.verdicts import (
    MIN_VERDICT_PERSONS,
    Verdict,
    rounded,
    severity,
)
from scipy import stats

from saga.diagnostics_tables import QUESTIONS
from saga.forecast_tables import percent_label

SAGA = "saga"
QUESTION = "efficiency"


def tabulate_efficiency(
    cases: Cases, rules: Mapping[int, pl.DataFrame]
) -> tuple[Rows, list[Verdict]]:
    """Mean width and interval score of intervals and of the rules, for the same persons.

    The intervals are those of 90 %, or of the highest coverage. `rules` has, by horizon, the
    columns `person_id`, `rule`, `width`, `winkler`, `inside`. The difference of mean scores is
    judged against its paired standard error, and the worst verdict of a horizon counts.
    """
    label = percent_label(cases.headline)
    figures = max(1, len(RULES) * len(rules))
    z = float(stats.norm.ppf(1 - QUESTION_ALPHA / figures))
    rows: Rows = []
    verdicts: list[Verdict] = []
    for h, of_rules in rules.items():
        ours = cases.results[h].frame.select(
            "person_id",
            pl.col(f"width_{label}").alias("width_saga"),
            pl.col(f"winkler_{label}").alias("winkler_saga"),
            pl.col(f"inside_{label}").cast(pl.Float64).alias("inside_saga"),
        )
        paired = of_rules.drop_nulls().join(ours.drop_nulls(), on="person_id")
        of_horizon: list[Verdict] = []
        compared: Rows = []
        for rule in RULES:
            part = paired.filter(rule=rule)
            if part.height < cases.min_persons:
                of_horizon.append(Verdict(QUESTION, h, "unclear"))
                continue
            row, verdict = _compare(part, rule, h, cases.headline, z)
            compared = compared or [_describe(part, SAGA, h, cases.headline, suffix="_saga")]
            compared.append(row)
            of_horizon.append(verdict)
        rows += compared
        verdicts.append(max(of_horizon, key=severity))
    return rows, verdicts


def _describe(
    part: pl.DataFrame, rule: str, h: int, coverage: float, suffix: str = ""
) -> dict[str, Any]:
    mean = {name: float(part[name + suffix].mean()) for name in ("width", "winkler", "inside")}  # type: ignore[arg-type]
    return {
        "horizon": h,
        "rule": rule,
        "level": coverage,
        "n": part.height,
        "inside": mean["inside"],
        "width": rounded(mean["width"]),
        "value": rounded(mean["winkler"]),
    }


def _compare(
    part: pl.DataFrame, rule: str, h: int, coverage: float, z: float
) -> tuple[dict[str, Any], Verdict]:
    """The row that compares SAGA with a simple rule at a horizon and coverage, and its verdict."""
    of_rule, n = float(part["winkler"].mean()), part.height  # type: ignore[arg-type]
    difference = part["winkler_saga"] - part["winkler"]
    size = float(difference.mean()) / of_rule  # type: ignore[arg-type]
    reach = z * float(difference.std()) / math.sqrt(n) / of_rule  # type: ignore[arg-type]
    status = efficiency_status(size, reach, n)
    verdict = Verdict(QUESTION, h, status, n, size, coverage, rule)
    row = _describe(part, rule, h, coverage)
    return row | {"size": size, "reach": reach, "status": status}, verdict


def efficiency_status(size: float, reach: float, n: int) -> str:
    """The status of a relative difference of mean interval scores, negative if SAGA's is lower.

    A difference beyond the `reach` of chance "holds" if it is negative. If it is positive it
    "fails", or is on "watch" if it is within the tolerance. Any other difference is "unclear", and
    so is a negative one of fewer than 100 persons.
    """
    if size > reach:
        return "fails" if size > QUESTIONS[QUESTION] else "watch"
    return "holds" if size < -reach and n >= MIN_VERDICT_PERSONS else "unclear"
