"""Comparison of a register with the table of targets: one row per target, with a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from math import isfinite
from pathlib import Path

import polars as pl

from saga.errors import InputError, Problem, UsageError
from saga.pages.format import markdown_table
from saga.register.validation import (
    earnings_dynamics,
    fertility,
    level_statistics,
    social_statistics,
)
from saga.register.validation.estimators import Estimate
from saga.register.validation.level_statistics import KeyedEstimates
from saga.register.validation.register_arrays import (
    RegisterArrays,
    read_register,
)
from saga.register.validation.targets import PAPER_TOPIC, RegisterTarget, read_targets

# The measure that yields the keys of a family (their first word).
MEASURES: dict[str, Callable[[RegisterArrays], KeyedEstimates]] = {
    "level": level_statistics.income_2020,
    "bins": level_statistics.income_classes,
    "assessed2019": level_statistics.income_classes,
    "employment": level_statistics.employment,
    "zeros": social_statistics.all_social_statistics,
    "wage_ratio": level_statistics.wages,
    "growth": level_statistics.wages,
    "gap44": level_statistics.gap_at_44,
    "education": social_statistics.all_social_statistics,
    "premium": level_statistics.premia,
    "sign": earnings_dynamics.signs,
    "grid": earnings_dynamics.log_spreads,
    "childless": fertility.childlessness,
    "first_birth": fertility.age_at_first_birth,
    "child_penalty": fertility.child_penalty,
    "lifetime": level_statistics.lifetime_dispersion,
    "circumstance": social_statistics.all_social_statistics,
    "paper": level_statistics.paper_sample,
}
SCHEMA = {
    "key": pl.String, "topic": pl.String, "concept": pl.String, "population": pl.String,
    "statistic": pl.String, "target": pl.Float64, "low": pl.Float64, "high": pl.Float64,
    "value": pl.Float64, "se": pl.Float64, "n": pl.Int64, "holds": pl.Boolean,
    "enforced": pl.Boolean, "verdict": pl.String, "mark": pl.String, "source": pl.String,
}  # fmt: skip

MIN_PERSONS = 1_000  # with fewer, groups of the table are empty


@cache
def targets() -> tuple[RegisterTarget, ...]:
    """All targets, in the order of their table."""
    return read_targets(MEASURES)


def check_register(
    directory: Path, *, only: Sequence[str] = (), paper: bool = False
) -> pl.DataFrame:
    """The table of a register: columns of `SCHEMA`, one row per target.

    `holds` says whether the value lies in the band (null without band or value). `verdict` is
    inside or outside for enforced targets, unmeasured if the register does not cover the years
    or ages, and reported for all other targets.

    Args:
        directory: A register of the process `full`.
        only: Keys, or beginnings of keys, to restrict the table to (`level.women`).
        paper: Add the SAGA paper's selected sample.

    Raises:
        InputError: If `directory` has no full register, or one that is too small.
        UsageError: If `only` matches no target.
    """
    selected = [t for t in targets() if _matches(t.key, only) and (paper or t.topic != PAPER_TOPIC)]
    if not selected:
        words = ", ".join(dict.fromkeys(target.family for target in targets()))
        raise UsageError(f"No target begins with {', '.join(only)}; their first words are {words}")
    register = read_register(directory)
    if len(register) < MIN_PERSONS:
        fix = (
            f"Generate at least {MIN_PERSONS:,} persons; the targets are meant for 100,000 and "
            "more."
        )
        raise InputError(
            f"{directory} is too small to be checked",
            [Problem("register-too-small", f"it has {len(register)} persons", fix)],
        )
    measures = dict.fromkeys(
        MEASURES[target.family] for target in selected if target.family in MEASURES
    )
    estimates = {key: estimate for measure in measures for key, estimate in measure(register)}
    rows = [judge(target, estimates.get(target.key)) for target in selected]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _matches(key: str, only: Sequence[str]) -> bool:
    return not only or any(key == word or key.startswith(f"{word}.") for word in only)


def judge(target: RegisterTarget, estimate: Estimate | None) -> tuple[object, ...]:
    """The row of a target; an estimate that is not finite (of an empty group) counts as none."""
    if estimate and not (isfinite(estimate.value) and isfinite(estimate.se)):
        estimate = None
    low, high = target.bounds(estimate.se if estimate else 0.0)
    holds = None
    if estimate and (low, high) != (None, None):
        holds = (low is None or estimate.value >= low) and (high is None or estimate.value <= high)
    verdict = {None: "unmeasured", True: "inside", False: "outside"}[holds]
    return (
        target.key,
        target.topic,
        target.concept,
        target.population,
        target.statistic,
        target.value,
        low,
        high,
        *((estimate.value, estimate.se, estimate.n) if estimate else (None, None, None)),
        holds,
        target.enforced,
        verdict if target.enforced else "reported",
        target.mark,
        target.source,
    )


def passed(table: pl.DataFrame) -> bool:
    """Whether every enforced target is inside its band."""
    return bool((table.filter("enforced")["verdict"] == "inside").all())


def format_text(table: pl.DataFrame) -> str:
    """The table for a terminal, topic by topic, and the count of verdicts."""
    lines = []
    head = ("target", "from", "to", "value")
    for (topic,), part in table.group_by(["topic"], maintain_order=True):
        lines += [
            f"{topic}",
            f"  {'key':<36}{''.join(f'{name:>12}' for name in head)}{'s.e.':>10}  verdict",
        ]
        for row in part.iter_rows(named=True):
            numbers = (format_number(row[name]) for name in ("target", "low", "high", "value"))
            columns = "".join(f"{number:>12}" for number in numbers)
            se = format_number(row["se"])
            lines.append(f"  {row['key']:<36}{columns}{se:>10}  {row['verdict']}")
        lines.append("")
    return "\n".join([*lines, count_verdicts(table)])


def count_verdicts(table: pl.DataFrame) -> str:
    """How many enforced targets have which verdict, as a sentence."""
    counts = Counter(table.filter("enforced")["verdict"].to_list())
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
    return f"{counts.total()} enforced targets: {verdicts or 'none selected'}."


def format_markdown(table: pl.DataFrame) -> str:
    """The table of the check as Markdown, with population, statistic and source of each row."""
    head = (
        *("target", "population", "statistic", "aim", "band", "value", "s.e."),
        *("verdict", "mark", "source"),
    )
    rows = (
        (
            f"`{row['key']}`",
            row["population"],
            row["statistic"],
            format_number(row["target"]),
            f"{format_number(row['low'])} to {format_number(row['high'])}",
            format_number(row["value"]),
            format_number(row["se"]),
            row["verdict"],
            row["mark"] or "-",
            row["source"] or "-",
        )
        for row in table.iter_rows(named=True)
    )
    return markdown_table(head, rows) + "\n"


def format_number(value: float | None) -> str:
    """A figure for print."""
    if value is None:
        return "-"
    decimals = 0 if abs(value) >= 1000 else 2 if abs(value) >= 10 else 4
    return f"{value:,.{decimals}f}"
