"""A register held against the table of targets: one row a target with value, standard error, band and verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from saga.errors import UsageError
from saga.register import births, dynamics, levels
from saga.register.estimates import Estimate
from saga.register.levels import Measured
from saga.register.people import People, read_people
from saga.register.targets import Target, targets

# The measure that yields the keys with a given first word.
MEASURES: dict[str, Callable[[People], Measured]] = {
    "level": levels.income_2020,
    "bins": levels.income_classes,
    "assessed2019": levels.income_classes,
    "employment": levels.employment_2015,
    "zeros": levels.zeros,
    "wage_ratio": levels.wages,
    "growth": levels.wages,
    "gap44": levels.gap_at_44,
    "education": levels.education,
    "premium": levels.premia,
    "sign": dynamics.signs,
    "grid": dynamics.recalled,
    "childless": births.childless,
    "first_birth": births.age_at_first,
    "child_penalty": births.penalty,
    "lifetime": levels.lifetime,
}
SCHEMA = {
    "key": pl.String, "topic": pl.String, "concept": pl.String, "population": pl.String, "statistic": pl.String,
    "target": pl.Float64, "low": pl.Float64, "high": pl.Float64, "value": pl.Float64, "se": pl.Float64, "n": pl.Int64,
    "holds": pl.Boolean, "enforced": pl.Boolean, "verdict": pl.String, "mark": pl.String, "source": pl.String,
}  # fmt: skip


def check_register(directory: Path, *, only: Sequence[str] = ()) -> pl.DataFrame:
    """The table of a register: columns of `SCHEMA`, one row a target, in the order of the table of targets.

    `only` keeps the targets whose key is, or begins with, one of the given words (`level.women`). `holds` says whether the
    value lies in the band (null without band or value); `verdict` is inside or outside for enforced targets, unmeasured where
    the register does not cover the years or ages, and reported for all others. Raises InputError where `directory` is no
    generated register, UsageError where `only` matches no target.
    """
    chosen = [t for t in targets() if not only or any(t.key == word or t.key.startswith(f"{word}.") for word in only)]
    if not chosen:
        words = ", ".join(dict.fromkeys(t.key.split(".")[0] for t in targets()))
        raise UsageError(f"No target begins with {', '.join(only)}; their first words are {words}")
    people = read_people(directory)
    measures = dict.fromkeys(MEASURES[word] for word in dict.fromkeys(t.key.split(".")[0] for t in chosen) if word in MEASURES)
    found = {key: estimate for measure in measures for key, estimate in measure(people)}
    return pl.DataFrame([judge(target, found.get(target.key)) for target in chosen], schema=SCHEMA, orient="row")


def judge(target: Target, estimate: Estimate | None) -> tuple[object, ...]:
    """The row of a target."""
    low, high = target.band(estimate.se if estimate else 0.0)
    holds = None
    if estimate is not None and (low, high) != (None, None):
        holds = (low is None or estimate.value >= low) and (high is None or estimate.value <= high)
    verdict = "reported" if not target.enforced else "unmeasured" if holds is None else "inside" if holds else "outside"
    measured = (estimate.value, estimate.se, estimate.n) if estimate else (None, None, None)
    what = (target.key, target.topic, target.concept, target.population, target.statistic, target.target, low, high)
    return (*what, *measured, holds, target.enforced, verdict, target.mark, target.source)


def passed(table: pl.DataFrame) -> bool:
    """Whether every enforced target is inside its band."""
    return bool((table.filter("enforced")["verdict"] == "inside").all())


def as_text(table: pl.DataFrame) -> str:
    """The table for a terminal, topic by topic, and the count of verdicts."""
    lines = []
    for (topic,), part in table.group_by(["topic"], maintain_order=True):
        lines += [f"{topic}", f"  {'key':<36}{'target':>12}{'from':>12}{'to':>12}{'value':>12}{'s.e.':>10}  verdict"]
        for row in part.iter_rows(named=True):
            cells = "".join(f"{number(row[name]):>12}" for name in ("target", "low", "high", "value"))
            lines.append(f"  {row['key']:<36}{cells}{number(row['se']):>10}  {row['verdict']}")
        lines.append("")
    counts = Counter(table.filter("enforced")["verdict"].to_list())
    return "\n".join([*lines, f"Of the enforced targets: {', '.join(f'{n} {verdict}' for verdict, n in counts.most_common())}."])


def number(value: float | None) -> str:
    """A figure as a person reads it."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) >= 10 else f"{value:.4f}"
