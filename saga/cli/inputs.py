"""What commands share: read persons, load a forecaster, report what was written."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from saga.cli import console, options
from saga.errors import InputError, Problem, UsageError
from saga.requests import OnError, Precision, RolloutName
from saga.summaries import count

if TYPE_CHECKING:
    import polars as pl

    from saga.calibration.adaptive.issuance import AdaptedForecaster
    from saga.calibration.adaptive.ledger import Ledger, RecordCounts
    from saga.data.facts import Facts
    from saga.data.panel import Panel
    from saga.forecast_results import Result
    from saga.forecast_warnings import ForecastWarning
    from saga.forecaster import Forecaster

STANDARD = Path("-")  # standard input or output


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

    Records after the year `origin` are left out.

    Raises:
        InputError: If rows break a rule; the message names the options that help.
    """
    from saga.data.origins import last_year
    from saga.data.reading import read_panel
    from saga.data.rules import RULES

    try:
        with _opened(source) as path:
            panel = read_panel(
                path,
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
                "`--facts DIR` gives SAGA your own index of SEK, and `deflator` in a mapping "
                "the index of another currency.",
                error.problems,
            ) from None
        if not any(problem.rule in RULES for problem in error.problems) or on_error == "drop":
            raise error from None
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
    if origin is not None and origin > last_year(panel):
        console.note(f"--origin {origin} changes nothing: no record is after {last_year(panel)}.")
    for heading, counts in (
        ("set aside", meta.excluded),
        ("dropped", meta.dropped),
        ("values made unknown by the mapping", meta.nulled),
        ("codes read with a leading zero", meta.padded),
    ):
        if counts:
            console.note(f"{heading}: {format_counts(counts)}")
    if meta.ignored:
        console.note(f"columns not used: {', '.join(meta.ignored)}")
    return panel


def facts_of_option(path: Path | None) -> Facts | None:
    """The facts of `--facts`; None for the shipped ones."""
    from saga.data.facts import open_facts

    return None if path is None else open_facts(path)


@contextmanager
def _opened(source: Path) -> Iterator[Path]:
    """The path of the source; standard input is stored in a temporary file.

    In an InputError "standard input" replaces the path of that file.
    """
    if source != STANDARD:
        yield source
        return
    content = sys.stdin.buffer.read()
    is_arrow = content.startswith((b"ARROW1", b"\xff\xff\xff\xff"))
    suffix = ".parquet" if content.startswith(b"PAR1") else ".arrow" if is_arrow else ".csv"
    with tempfile.TemporaryDirectory(prefix="saga-") as folder:
        path = Path(folder, f"standard-input{suffix}")
        path.write_bytes(content)
        try:
            yield path
        except InputError as error:
            message = str(error.args[0]).replace(str(path), "standard input")
            raise InputError(message, error.problems) from None


def check_output(source: Path, out: Path, *, as_json: bool) -> None:
    """Check before any work that the result can be written to `out`.

    Raises:
        UsageError: If it cannot.
    """
    from saga.data.files import require_output_outside_input
    from saga.files.tables import check_out, check_path

    if out == STANDARD:
        if as_json:
            raise UsageError("--json and --out - both write to standard output. Leave one out.")
        return
    if source != STANDARD:
        require_output_outside_input(source, out, "--out")
    check_path(out)
    check_out(out)


def write_output(table: pl.DataFrame, out: Path, provenance: Mapping[str, object]) -> None:
    """Write the table to `out`, or as CSV without provenance to standard output."""
    from saga.files.tables import write_table

    if out == STANDARD:
        sys.stdout.write(table.write_csv())
    else:
        write_table(table, out, provenance)


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


def note_left_out(problems: Sequence[Problem]) -> None:
    """Print how many persons are not forecast, and why."""
    if not problems:
        return
    rules: Counter[str] = Counter()
    for problem in problems:
        rules[problem.rule] += problem.count
    n_persons = count(rules.total(), "person")
    console.note(f"Left out, not forecast: {n_persons} ({format_counts(rules)}).")


def check_record(record: bool, database: str | None) -> None:
    """Raise UsageError if intervals are to be recorded and no ledger is named."""
    if record and database is None:
        raise UsageError(
            "--record records intervals in a ledger. Name it with --database or SAGA_DATABASE, or "
            "leave --record out."
        )


@dataclass(frozen=True)
class LedgerOptions:
    """The ledger whose state moves the intervals of a command.

    Args:
        database: URL of its database; None for no ledger.
        key: File of the pseudonym key.
        holder: Whose part of the ledger it is.
        record: Whether to enter the intervals in it. Raises UsageError without a ledger.
    """

    database: str | None
    key: Path | None
    holder: str
    record: bool

    def __post_init__(self) -> None:
        check_record(self.record, self.database)

    def open(self) -> Ledger | None:
        """The ledger, if there is one."""
        from saga.calibration.adaptive.ledger import open_ledger
        from saga.calibration.adaptive.tenancy import Actor

        if self.database is None:
            return None
        return open_ledger(self.database, self.key, Actor(self.holder))

    @staticmethod
    def in_force(forecaster: Forecaster, ledger: Ledger) -> AdaptedForecaster:
        """The forecaster under the present state of the ledger."""
        from saga.calibration.adaptive.issuance import AdaptedForecaster

        return AdaptedForecaster.of(forecaster, ledger.state(forecaster.bundle.digest))


def enter_issued(
    ledger: Ledger, forecaster: Forecaster, result: Result, what: str
) -> dict[str, object]:
    """Enter what a result has issued in the ledger; returns the numbers for `--json`."""
    from saga.calibration.adaptive.issuance import issued_of

    counts = ledger.record_issued(forecaster.bundle.digest, issued_of(result))
    return {"recorded": show_recorded(counts, what)}


def show_recorded(counts: RecordCounts, what: str) -> dict[str, int]:
    """Print how many intervals were entered in the ledger; return the numbers for `--json`."""
    console.note(
        f"Ledger: {counts.new:,} new {what}, {counts.repeated:,} known, "
        f"{counts.late:,} about years whose outcome is known."
    )
    return vars(counts).copy()


def options_on_command_line(ctx: typer.Context) -> set[str]:
    """Names of the parameters on the command line.

    A parameter that is set by the environment is for all commands, so it is not among them.
    """
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def command_line(ctx: typer.Context) -> str:
    """The command as it was typed, for provenance."""
    return shlex.join(["saga", *ctx.obj])


def format_counts(counts: Mapping[str, int]) -> str:
    """Rules or statuses with their numbers, as text."""
    return ", ".join(f"{rule} {number:,}" for rule, number in counts.items())


def reading_report(panel: Panel, left_out: Sequence[Problem]) -> dict[str, object]:
    """What reading set aside and which persons are left out, for `--json`."""
    meta = panel.meta
    return {
        "excluded": meta.excluded,
        "dropped": meta.dropped,
        "nulled": meta.nulled,
        "padded": meta.padded,
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
    size = f"{count(table['rows'], 'row')} for {count(table['persons'], 'person')}"
    if out == STANDARD:
        console.note(f"Wrote {size} ({made_with}).")
        return
    console.result(
        f"Wrote {size} to {out} ({made_with}).",
        {"out": out, **table, "provenance": provenance, **details},
        as_json=as_json,
    )
