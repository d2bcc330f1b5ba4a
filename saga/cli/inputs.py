"""What a command works on: persons from a source, a forecaster from a bundle, and the line that was typed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from saga.cli import console
from saga.cli.options import parse_prices
from saga.errors import InputError
from saga.requests import OnError, Precision, RolloutName

if TYPE_CHECKING:
    from saga.data.panel import Panel
    from saga.forecaster import Forecaster


def read_people(
    source: Path,
    mapping: str | None,
    prices: str | None,
    on_error: OnError,
    rejected: Path | None,
) -> Panel:
    """The panel of a source, with a note of what was left out. Raises InputError, with a way out where rows break a rule."""
    from saga.data.reading import read_panel
    from saga.data.validation import RULES

    try:
        panel = read_panel(
            source,
            mapping=mapping,
            prices=parse_prices(prices),
            on_error=on_error,
            rejected=rejected,
        )
    except InputError as error:
        if not any(problem.rule in RULES for problem in error.problems) or on_error == "drop":
            raise
        where = (
            f"The broken rows are in {rejected}"
            if rejected
            else "`--rejected FILE` writes the broken rows"
        )
        raise InputError(
            f"{error.args[0]}. {where}, `--on-error drop` goes on without them.", error.problems
        ) from None
    meta = panel.meta
    for what, counts in (
        ("set aside", meta.excluded),
        ("dropped", meta.dropped),
        ("cells made unknown by the mapping", meta.nulled),
    ):
        if counts:
            console.note(f"{what}: {counted(counts)}")
    if meta.ignored:
        console.note(f"columns not used: {', '.join(meta.ignored)}")
    return panel


def open_forecaster(
    bundle: Path | None,
    threads: int | None,
    rollout: RolloutName | None,
    precision: Precision | None = None,
) -> Forecaster:
    """The forecaster of a bundle (by default the shipped one), in as many threads or processes as given, or as there are cores."""
    from saga.bundle import default_bundle
    from saga.forecaster import Forecaster

    note_precision(precision)
    workers = threads or os.cpu_count() or 1
    chosen = bundle or default_bundle()
    return Forecaster.load(
        chosen, threads=threads, workers=workers, rollout=rollout, precision=precision or "float32"
    )


def note_precision(precision: Precision | None) -> None:
    """A word where another precision would be faster."""
    from saga.simulation.matmul import has_bfloat16

    if precision == "bfloat16" and not has_bfloat16():
        console.note(
            "This processor has no units for bfloat16: without --precision it would be faster."
        )


def command_line(ctx: typer.Context) -> str:
    """The command as it was typed, for provenance."""
    return shlex.join(["saga", *ctx.obj])


def counted(counts: Mapping[str, int]) -> str:
    """Rules or statuses with their numbers, for people."""
    return ", ".join(f"{rule} {count:,}" for rule, count in counts.items())
