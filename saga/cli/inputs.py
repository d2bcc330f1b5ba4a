"""What commands share: read persons, load a forecaster, report what was written."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from saga.cli import console, options
from saga.errors import InputError, Problem, UsageError
from saga.requests import OnError, Precision, RolloutName
from saga.schema import MAX_AGE

if TYPE_CHECKING:
    from saga.data.facts import Facts
    from saga.data.panel import Panel
    from saga.forecast_warnings import ForecastWarning
    from saga.forecaster import Forecaster


def read_persons(
    source: Path,
    mapping: str | None,
    prices: str | None,
    on_error: OnError,
    rejected: Path | None,
    *,
    facts: Facts | None = None,
    origin: int | None = None,
) -> Panel:
    """The panel of a source, with a note of the rows and columns that are not used.

    Raises:
        InputError: If rows break a rule; the message names the options that help.
    """
    from saga.data.reading import read_panel
    from saga.data.validation import RULES

    try:
        panel = read_panel(
            source,
            mapping=mapping,
            prices=options.parse_prices(prices),
            on_error=on_error,
            rejected=rejected,
            facts=facts,
            origin=origin,
        )
    except InputError as error:
        if any(problem.rule == "no-price-index" for problem in error.problems):
            raise InputError(
                f"{error.args[0]}. `--prices YEAR` says in which year's prices all amounts are, "
                "`--facts DIR` gives SAGA your own index of SEK.",
                error.problems,
            ) from None
        if not any(problem.rule in RULES for problem in error.problems) or on_error == "drop":
            raise
        broken_rows = (
            f"The broken rows are in {rejected}"
            if rejected
            else "`--rejected FILE` writes the broken rows"
        )
        raise InputError(
            f"{error.args[0]}. {broken_rows}, `--on-error drop` continues without them.",
            error.problems,
        ) from None
    meta = panel.meta
    for heading, counts in (
        ("set aside", meta.excluded),
        ("dropped", meta.dropped),
        ("values made unknown by the mapping", meta.nulled),
    ):
        if counts:
            console.note(f"{heading}: {format_counts(counts)}")
    if meta.ignored:
        console.note(f"columns not used: {', '.join(meta.ignored)}")
    return panel


def open_forecaster(
    bundle: Path | None,
    threads: int | None,
    rollout: RolloutName | None,
    precision: Precision | None = None,
    facts: Path | None = None,
) -> Forecaster:
    """The forecaster of a bundle, by default the shipped one, on `threads` or all cores."""
    from saga.bundle import default_bundle
    from saga.data.facts import open_facts
    from saga.forecaster import Forecaster

    note_precision(precision)
    return Forecaster.load(
        bundle or default_bundle(),
        threads=threads,
        workers=n_workers(threads),
        rollout=rollout,
        precision=precision or "float32",
        facts=open_facts(facts),
    )


def n_workers(threads: int | None) -> int:
    """Number of processes: `threads`, or one per core."""
    return threads or os.cpu_count() or 1


def note_precision(precision: Precision | None) -> None:
    """Print a note if another precision would be faster on this processor."""
    from saga.simulation.matmul import has_bfloat16

    if precision == "bfloat16" and not has_bfloat16():
        console.note(
            "This processor has no units for bfloat16: without --precision it would be faster."
        )


def keep_forecastable(
    panel: Panel, on_error: OnError, to_age: int = MAX_AGE
) -> tuple[Panel, list[Problem]]:
    """The persons who can be forecast, and the problems of the others.

    Raises:
        InputError: If `on_error` is "fail" and a person cannot be forecast, or if none can.
    """
    from saga.data.eligibility import find_ineligible

    ineligible = find_ineligible(panel, to_age)
    problems = [*([panel.meta.lost] if panel.meta.lost else []), *ineligible.values()]
    if not problems:
        return panel, []
    n_persons = sum(problem.count for problem in problems)
    if on_error == "fail":
        raise InputError(
            f"{n_persons:,} person(s) cannot be forecast; `--on-error drop` leaves them out and "
            "lists them.",
            problems[:20],
        )
    persons = [person for person in panel.persons() if person not in ineligible]
    if not persons:
        raise InputError("Nobody in the input can be forecast.", problems[:20])
    rules: Counter[str] = Counter()
    for problem in problems:
        rules[problem.rule] += problem.count
    console.note(
        f"{n_persons:,} persons cannot be forecast and are left out: {format_counts(rules)}"
    )
    return panel.only(persons), problems


def check_record(record: bool, database: str | None) -> None:
    """Raise UsageError if intervals are to be recorded and no ledger is named."""
    if record and database is None:
        raise UsageError(
            "--record records intervals in a ledger. Name it with --database or SAGA_DATABASE, or "
            "leave --record out."
        )


def command_line(ctx: typer.Context) -> str:
    """The command as it was typed, for provenance."""
    return shlex.join(["saga", *ctx.obj])


def format_counts(counts: Mapping[str, int]) -> str:
    """Rules or statuses with their numbers, as text."""
    return ", ".join(f"{rule} {count:,}" for rule, count in counts.items())


def reading_report(panel: Panel, left_out: Sequence[Problem]) -> dict[str, object]:
    """What reading set aside and which persons are left out, for `--json`."""
    meta = panel.meta
    return {
        "excluded": meta.excluded,
        "dropped": meta.dropped,
        "ignored": meta.ignored,
        "left_out": [problem.as_dict() for problem in left_out],
    }


def show_warnings(warnings: Sequence[ForecastWarning]) -> list[dict[str, object]]:
    """Print warnings on standard error, with numbers of persons; return them for `--json`."""
    from saga.forecast_warnings import merge_warnings, warning_dicts

    for warning in merge_warnings(warnings, max_persons=0):
        console.note(f"Warning: {warning}")
    return warning_dicts(warnings)


def report_table(
    out: Path,
    table: Mapping[str, int],
    provenance: Mapping[str, object],
    details: Mapping[str, object],
    *,
    as_json: bool,
) -> None:
    """Print what was written to `out`: the numbers of rows and persons in `table`, and details."""
    made_with = (
        f"{provenance['currency']} {provenance['price_year']}, "
        f"bundle {str(provenance['bundle'])[:12]}, seed {provenance['seed']}"
    )
    console.result(
        f"Wrote {table['rows']:,} rows for {table['persons']:,} persons to {out} ({made_with}).",
        {"out": out, **table, "provenance": provenance, **details},
        as_json=as_json,
    )
