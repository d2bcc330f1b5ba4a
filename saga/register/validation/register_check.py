"""A register held against the table of targets: one row a target with value, standard error, band and verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path

import polars as pl

from saga.bundle import current_version
from saga.errors import InputError, Problem, UsageError
from saga.register.validation import (
    earnings_dynamics,
    fertility,
    level_statistics,
    linear_benchmark,
)
from saga.register.validation.descriptive_statistics import describe
from saga.register.validation.estimators import Estimate
from saga.register.validation.level_statistics import Measured
from saga.register.validation.register_arrays import People, about, read_people
from saga.register.validation.reported import PAPER
from saga.register.validation.social_statistics import circumstances
from saga.register.validation.target import Target
from saga.register.validation.targets import targets

# The measure that yields the keys with a given first word.
MEASURES: dict[str, Callable[[People], Measured]] = {
    "level": level_statistics.income_2020,
    "bins": level_statistics.income_classes,
    "assessed2019": level_statistics.income_classes,
    "employment": level_statistics.employment_2015,
    "zeros": level_statistics.zeros,
    "wage_ratio": level_statistics.wages,
    "growth": level_statistics.wages,
    "gap44": level_statistics.gap_at_44,
    "education": level_statistics.education,
    "premium": level_statistics.premia,
    "sign": earnings_dynamics.signs,
    "grid": earnings_dynamics.recalled,
    "childless": fertility.childless,
    "first_birth": fertility.age_at_first,
    "child_penalty": fertility.penalty,
    "lifetime": level_statistics.lifetime,
    "circumstance": circumstances,
    "ar1": linear_benchmark.against_linear,
    "paper": level_statistics.paper_sample,
}
SCHEMA = {
    "key": pl.String, "topic": pl.String, "concept": pl.String, "population": pl.String, "statistic": pl.String,
    "target": pl.Float64, "low": pl.Float64, "high": pl.Float64, "value": pl.Float64, "se": pl.Float64, "n": pl.Int64,
    "holds": pl.Boolean, "enforced": pl.Boolean, "verdict": pl.String, "mark": pl.String, "source": pl.String,
}  # fmt: skip

FEWEST = 1_000  # persons: below, groups of a table are empty
AIMED = pl.col("source").ne("") | pl.col("key").str.starts_with(
    "ar1."
)  # the rows that are printed: without those that only describe


def check_register(
    directory: Path, *, only: Sequence[str] = (), paper: bool = False, described: bool = False
) -> pl.DataFrame:
    """The table of a register: columns of `SCHEMA`, one row a target, in the order of the table of targets.

    `only` keeps the targets whose key is, or begins with, one of the given words (`level.women`); `paper` adds the SAGA paper's
    selected sample, `described` the rows without target. `holds` says whether the value lies in the band (null without band or value);
    `verdict` is inside or outside for enforced targets, unmeasured where the register does not cover the years or ages, and
    reported for all others. Raises InputError where `directory` is no full register, UsageError where `only` matches no target.
    """
    chosen = [t for t in targets() if _asked(t.key, only) and (paper or t.topic != PAPER)]
    if not chosen:
        words = ", ".join(dict.fromkeys(t.key.split(".")[0] for t in targets()))
        raise UsageError(f"No target begins with {', '.join(only)}; their first words are {words}")
    people = read_people(directory)
    if len(people) < FEWEST:
        fix = f"Generate at least {FEWEST:,} persons; the targets are meant for 100,000 and more."
        raise InputError(
            f"{directory} is too small to be checked",
            [Problem("register-too-small", f"it has {len(people)} persons", fix)],
        )
    measures = dict.fromkeys(
        MEASURES[word]
        for word in dict.fromkeys(t.key.split(".")[0] for t in chosen)
        if word in MEASURES
    )
    found = {key: estimate for measure in measures for key, estimate in measure(people)}
    rows = [judge(target, found.get(target.key)) for target in chosen]
    if described:
        rows += [judge(target, estimate) for target, estimate in describe(people)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _asked(key: str, only: Sequence[str]) -> bool:
    return not only or any(key == word or key.startswith(f"{word}.") for word in only)


def judge(target: Target, estimate: Estimate | None) -> tuple[object, ...]:
    """The row of a target; an estimate that is not a number (of nobody) counts as none."""
    estimate = estimate if estimate and isfinite(estimate.value) and isfinite(estimate.se) else None
    low, high = target.band(estimate.se if estimate else 0.0)
    holds = None
    if estimate is not None and (low, high) != (None, None):
        holds = (low is None or estimate.value >= low) and (high is None or estimate.value <= high)
    verdict = (
        "reported"
        if not target.enforced
        else "unmeasured"
        if holds is None
        else "inside"
        if holds
        else "outside"
    )
    measured = (estimate.value, estimate.se, estimate.n) if estimate else (None, None, None)
    what = (
        target.key,
        target.topic,
        target.concept,
        target.population,
        target.statistic,
        target.target,
        low,
        high,
    )
    return (*what, *measured, holds, target.enforced, verdict, target.mark, target.source)


def passed(table: pl.DataFrame) -> bool:
    """Whether every enforced target is inside its band."""
    return bool((table.filter("enforced")["verdict"] == "inside").all())


def provenance(directory: Path) -> dict[str, object]:
    """What the table was measured on, and by which code."""
    described = about(directory)
    return {
        "register": described["register_id"],
        "persons": f"{described['persons']:,}",
        "person-years": f"{described['rows']:,}",
        "seed": described["seed"],
        "years": "-".join(map(str, described["years"])),
        "code": current_version(),
        "made with": ", ".join(
            f"{name} {version}" for name, version in described["versions"].items()
        ),
    }


def as_text(table: pl.DataFrame) -> str:
    """The table for a terminal, topic by topic, and the count of verdicts."""
    lines = []
    for (topic,), part in table.filter(AIMED).group_by(["topic"], maintain_order=True):
        lines += [
            f"{topic}",
            f"  {'key':<36}{'target':>12}{'from':>12}{'to':>12}{'value':>12}{'s.e.':>10}  verdict",
        ]
        for row in part.iter_rows(named=True):
            cells = "".join(
                f"{number(row[name]):>12}" for name in ("target", "low", "high", "value")
            )
            lines.append(f"  {row['key']:<36}{cells}{number(row['se']):>10}  {row['verdict']}")
        lines.append("")
    return "\n".join([*lines, tally(table)])


def tally(table: pl.DataFrame) -> str:
    """How many enforced targets got which verdict."""
    counts = Counter(table.filter("enforced")["verdict"].to_list())
    return f"{counts.total()} enforced targets: {', '.join(f'{n} {verdict}' for verdict, n in counts.most_common()) or 'none asked for'}."


def as_markdown(table: pl.DataFrame) -> str:
    """The same table as Markdown, with what each row is of and where its target is from."""
    lines = [
        "| target | population | statistic | aim | band | value | s.e. | verdict | mark | source |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in table.filter(AIMED).iter_rows(named=True):
        band = f"{number(row['low'])} to {number(row['high'])}"
        what = (
            f"`{row['key']}`",
            row["population"],
            row["statistic"],
            number(row["target"]),
            band,
            number(row["value"]),
            number(row["se"]),
        )
        lines.append(
            f"| {' | '.join((*what, row['verdict'], row['mark'] or '-', row['source'] or '-'))} |"
        )
    return "\n".join([*lines, ""])


def number(value: float | None) -> str:
    """A figure as a person reads it."""
    if value is None:
        return "-"
    return (
        f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.2f}"
        if abs(value) >= 10
        else f"{value:.4f}"
    )
