"""What commands share: persons and how they are read, the forecaster, the ledger, the output.

The fields of the dataclasses are options of the commands that take them (`saga.cli.options`).
"""

import shlex
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from saga.cli import console
from saga.cli.options import read_prices
from saga.errors import InputError, UsageError
from saga.requests import MAX_HORIZON, OnError, Option, RolloutName

if TYPE_CHECKING:
    import polars as pl

    from saga.calibration.adaptive.ledger import Ledger
    from saga.data.facts import Facts
    from saga.data.panel import Panel
    from saga.forecast_warnings import ForecastWarning
    from saga.forecaster import Forecaster

STANDARD = Path("-")  # standard input or output
_NAMED_PERSONS = 3  # of one warning on standard error


@dataclass(frozen=True)
class Reading:
    """How a panel is read from its source."""

    heading: ClassVar[str] = "Persons"

    mapping: Annotated[
        str | None,
        typer.Option(
            "--mapping",
            help="Names and codes of the source: a YAML file or a shipped name (lisa, nlsy79).",
        ),
    ] = None
    prices: Annotated[
        int | None,
        typer.Option(
            "--prices",
            parser=read_prices,
            metavar="<year>",
            help="'nominal', or the year in whose prices all amounts are.",
            show_default="nominal",
        ),
    ] = None
    facts: Annotated[
        Path | None,
        typer.Option(
            "--facts",
            help="Your own prices, macro series and tax parameters: a .csv file, or a folder.",
            show_default="shipped",
        ),
    ] = None
    on_error: Annotated[
        OnError,
        typer.Option("--on-error", help="At rows that break a rule: fail, or drop and count them."),
    ] = "fail"
    rejected: Annotated[
        Path | None,
        typer.Option("--rejected", help="File for the rows that break a rule (.parquet or .csv)."),
    ] = None

    def read(self, source: Path, origin: int | None = None) -> "Panel":
        """The panel of a source, with a note of the rows and columns that are not used.

        Records after the year `origin` are left out.

        Raises:
            InputError: If rows break a rule; the message names the options that help.
        """
        from saga.data.reading import read_panel

        try:
            with opened(source) as path:
                panel = read_panel(
                    path,
                    mapping=self.mapping,
                    prices=self.prices,
                    on_error=self.on_error,
                    rejected=self.rejected,
                    facts=self.open_facts(),
                    origin=origin,
                )
        except InputError as error:
            raise InputError(f"{error.args[0]}{self._help_with(error)}", error.problems) from None
        for heading, remark in panel.meta.remarks().items():
            console.note(f"{heading}: {remark}")
        return panel

    def open_facts(self) -> "Facts":
        """The facts in force: the shipped ones, some replaced by those of `--facts`."""
        from saga.data.facts import open_facts

        return open_facts(self.facts)

    def _help_with(self, error: InputError) -> str:
        """Which options help against an error."""
        from saga.data.rules import RULES

        rules = {problem.rule for problem in error.problems}
        if "no-price-index" in rules:
            return (
                ". `--prices YEAR` says in which year's prices all amounts are, `--facts DIR` "
                "gives SAGA your own index of SEK, and `deflator` in a mapping the index of "
                "another currency."
            )
        if not rules & RULES.keys() or self.on_error == "drop":
            return ""
        written = (
            f"The broken rows are in {self.rejected}"
            if self.rejected
            else "`--rejected FILE` writes the broken rows"
        )
        return f". {written}, `--on-error drop` continues without them."


@dataclass(frozen=True)
class SplitReading(Reading):
    """How a panel is read whose persons are split as for a bundle."""

    split_salt: Annotated[
        Path | None,
        typer.Option(
            "--split-salt",
            help="File with the secret salt of the split of real persons.",
            show_default="BUNDLE.salt, which `saga train` writes",
        ),
    ] = None

    def read(self, source: Path, origin: int | None = None) -> "Panel":
        """The panel of a source with the salt of the split."""
        from saga.data.split import with_salt

        panel = super().read(source, origin)
        return panel if self.split_salt is None else with_salt(panel, self.split_salt)


@dataclass(frozen=True)
class ReadingUntil(Reading):
    """How a panel is read up to an origin."""

    origin: Annotated[
        int | None,
        typer.Option(
            "--origin",
            min=1900,
            max=2200,
            help="For backtests: records and exits after this year are not read.",
            show_default="the last year of each person",
        ),
    ] = None

    def read_until_origin(self, source: Path) -> "Panel":
        """The panel of a source until the origin; a note says if this leaves nothing out."""
        from saga.data.origins import last_year

        panel = self.read(source, self.origin)
        if self.origin is not None and self.origin > last_year(panel):
            console.note(
                f"--origin {self.origin} changes nothing: no record is after {last_year(panel)}."
            )
        return panel


@contextmanager
def opened(source: Path) -> Iterator[Path]:
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


@dataclass(frozen=True)
class Model:
    """Which bundle computes, and how."""

    heading: ClassVar[str] = "Model"

    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", help="Directory of a bundle.", show_default="bundles/small"),
    ] = None
    rollout: Annotated[
        RolloutName | None,
        typer.Option(
            "--rollout",
            help="exact: simulate with the decoder; light: with the small recurrent cell, faster.",
            show_default="as calibrated",
        ),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            help="Threads, or processes to simulate futures of many persons.",
            show_default="all cores",
        ),
    ] = None

    @property
    def directory(self) -> Path:
        """The bundle, by default the shipped one."""
        from saga.bundle import default_bundle

        return self.bundle or default_bundle()

    @property
    def workers(self) -> int:
        """Number of processes: `threads`, or one per core."""
        from saga.machine import cpu_count

        return self.threads or cpu_count()

    def open(self, facts: "Facts | None" = None) -> "Forecaster":
        """The forecaster of the bundle, with these dated facts or the shipped ones."""
        from saga.forecaster import Forecaster

        return Forecaster.load(
            self.directory,
            threads=self.threads,
            workers=self.workers,
            rollout=self.rollout,
            facts=facts,
        )


@dataclass(frozen=True)
class LedgerOptions:
    """The ledger whose state moves the intervals of a command."""

    heading: ClassVar[str] = "Ledger of intervals"

    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            envvar="SAGA_DATABASE",
            help="Ledger of thresholds that follow outcomes: sqlite:///FILE or postgresql://...",
            show_default="none; of a delivery BUNDLE.ledger.sqlite",
        ),
    ] = None
    database_key: Annotated[
        Path | None,
        typer.Option(
            "--database-key",
            envvar="SAGA_DATABASE_KEY",
            help="File of the ledger's secret key.",
            show_default="FILE.key, created if missing",
        ),
    ] = None
    holder: Annotated[
        str,
        typer.Option(
            "--holder",
            envvar="SAGA_HOLDER",
            help="Whose part of the ledger is used; `common` moves all persons' thresholds.",
        ),
    ] = "common"

    def open(self) -> "Ledger | None":
        """The ledger, if one is named."""
        return None if self.database is None else self._open(self.database)

    def _open(self, url: str) -> "Ledger":
        from saga.calibration.adaptive.ledger import Actor, open_ledger

        return open_ledger(url, self.database_key, Actor(self.holder))


@dataclass(frozen=True)
class Recording(LedgerOptions):
    """A ledger, and whether the intervals of a command are entered in it.

    Raises:
        UsageError: If intervals are to be recorded, and there is no ledger.
    """

    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Record intervals of every fitted coverage in the ledger.",
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.record and self.database is None:
            raise UsageError(
                "--record records intervals in a ledger. Name it with --database or SAGA_DATABASE, "
                "or leave --record out."
            )


@dataclass(frozen=True)
class Delivery(LedgerOptions):
    """The ledger that a yearly delivery updates, and what is forecast from the new year."""

    heading: ClassVar[str] = "Delivery"

    since: Annotated[
        int | None,
        typer.Option(
            "--since",
            help="First origin year to forecast from.",
            show_default="the next",
        ),
    ] = None
    persons: Annotated[
        int,
        typer.Option("--persons", min=1, help="Calibration persons to forecast each year."),
    ] = 2_000
    spans: Annotated[
        Sequence[int],
        Option(
            "Record path bands and present values over so many years.",
            least=1,
            most=MAX_HORIZON,
        ),
    ] = (2, 5)

    def open_beside(self, bundle: Path) -> "Ledger":
        """The ledger, by default a file beside the bundle."""
        from saga.calibration.adaptive.database import sqlite_url

        return self._open(self.database or sqlite_url(Path(f"{bundle.resolve()}.ledger.sqlite")))


def check_output(source: Path, out: Path, *, as_json: bool) -> None:
    """Check before any work that the result can be written to `out`.

    Raises:
        UsageError: If it cannot.
    """
    from saga.data.panel_files import require_output_outside_input
    from saga.files.tables import check_out, check_path

    if out == STANDARD:
        if as_json:
            raise UsageError("--json and --out - both write to standard output. Leave one out.")
        return
    if source != STANDARD:
        require_output_outside_input(source, out, "--out")
    check_path(out)
    check_out(out)


def write_output(table: "pl.DataFrame", out: Path, provenance: Mapping[str, object]) -> None:
    """Write the table to `out`, or as CSV without provenance to standard output."""
    from saga.files.tables import write_table

    if out == STANDARD:
        with console.standard_output() as output:
            output.write(table.write_csv())
    else:
        write_table(table, out, provenance)


def options_on_command_line(ctx: typer.Context) -> set[str]:
    """Names of the parameters on the command line.

    A parameter that is set by the environment is for all commands, so it is not among them.
    """
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def refuse_options(ctx: typer.Context, names: Collection[str], message: str) -> None:
    """Raise UsageError if a parameter of `names` is on the command line; `{}` is its option."""
    refused = options_on_command_line(ctx).intersection(names)
    for parameter in ctx.command.params:
        if parameter.name in refused:
            raise UsageError(message.format(parameter.opts[0]))


def command_line(ctx: typer.Context) -> str:
    """The command as it was typed, for provenance."""
    return shlex.join(["saga", *ctx.obj])


def _with_persons(warning: "ForecastWarning", names: Sequence[str]) -> str:
    """The text of a merged warning, with some of the persons it is about, if they are named."""
    match names:
        case []:
            return str(warning)
        case [name]:
            return str(replace(warning, person_id=name))
    such_as = "such as " if len(names) > _NAMED_PERSONS else ""
    persons = ", ".join(names[:_NAMED_PERSONS])
    return f"{str(warning).removesuffix(')')}: {such_as}{persons})"


def show_warnings(warnings: "Sequence[ForecastWarning]") -> list[dict[str, object]]:
    """Print warnings on standard error, with up to three persons; return them for `--json`.

    What a mapping did, and rows that are set aside, are noted when the panel is read.
    """
    from saga.forecast_warnings import merge_warnings, warning_dicts

    for warning in merge_warnings(warnings, max_persons=0):
        if warning.code not in ("made-unknown", "unmatched", "outside-ages"):
            same = (each.person_id for each in warnings if each.message == warning.message)
            console.note(f"Warning: {_with_persons(warning, [name for name in same if name])}")
    return warning_dicts(warnings)
