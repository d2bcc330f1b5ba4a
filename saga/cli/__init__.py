"""The command line. It may import all packages, and each command does so only when it runs.

Exit codes: 0 done, 1 a check failed, 2 wrong use or bad input, 3 interrupted (docs/how-to says
which commands continue), 70 internal error.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from saga.cli import console
from saga.cli.bundle_commands import audit, inspect, release, report, verify
from saga.cli.calibrate_commands import calibrate, deliver
from saga.cli.data_commands import check, generate, init
from saga.cli.evaluate_commands import evaluate, pasts, score_, vintages
from saga.cli.options import with_options
from saga.cli.population_commands import align, tables
from saga.cli.product_commands import forecast, lifetime, pensions, plot
from saga.cli.score_command import score
from saga.cli.service_commands import create, list_, revoke, serve, work
from saga.cli.train_commands import circumstances, train


class _Guarded(TyperGroup):
    """Turns any error of a command into one readable message and its exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, SystemExit, GeneratorExit, BrokenPipeError):
            raise
        except BaseException as error:
            as_json, debug = "--json" in ctx.obj, bool(ctx.params.get("debug"))
            if hasattr(error, "format_message") and hasattr(error, "message"):  # wrong use
                # Typer converts values by pydantic, which puts these words before the message.
                error.message = str(error.message).removeprefix("Value error, ")
                if getattr(error, "option_name", None) == "--bundle":
                    error.message += ". The bundle is the first word: saga COMMAND BUNDLE ..."
                elif (
                    hasattr(error, "ctx")
                    and "unexpected extra argument" in error.message
                    and _takes_bundle(error.ctx)
                ):
                    error.message += ". A bundle is an option: --bundle DIRECTORY"
                elif error.message.endswith("unable to parse string as a number"):
                    error.message += ". Write it with a decimal point: 0.03"
                if not as_json:
                    raise  # the parser shows it together with the usage of the command
            raise typer.Exit(console.report(error, as_json=as_json, debug=debug)) from None


def _takes_bundle(ctx: Any) -> bool:
    """Whether the command of the context has the option --bundle."""
    return any("--bundle" in parameter.opts for parameter in ctx.command.params)


app = typer.Typer(
    cls=_Guarded,
    name="saga",
    help="""Forecasts of life-cycle earnings as full distributions with calibrated intervals.

    Examples:
        saga forecast examples/people.csv --out forecast.csv  # yearly earnings, 1 to 30 years ahead
        saga report --out report.html  # whether the forecasts can be trusted
        saga serve  # the same over HTTP, with a page for the browser
    """,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _add(heading: str, *commands: Callable[..., None]) -> None:
    for command in commands:
        app.command(rich_help_panel=heading)(with_options(command))


def _add_group(heading: str, name: str, about: str, *commands: Callable[..., None]) -> None:
    group = typer.Typer(help=about, no_args_is_help=True)
    for command in commands:
        group.command(command.__name__.rstrip("_"))(with_options(command))
    app.add_typer(group, name=name, rich_help_panel=heading)


_add("Forecast", forecast, lifetime, pensions, plot, score, tables, align)
_add("Judge", report, evaluate, vintages, audit)
_add_group(
    "Judge", "benchmark", "A benchmark that any method can enter: rounds and scores.", pasts, score_
)
_add("Make a bundle", train, calibrate, circumstances, deliver)
_add("Service", serve, work)
_add("Data", init)
_add_group(
    "Data",
    "register",
    "The synthetic register that models are trained on.",
    generate,
    check,
)
_add_group("Make a bundle", "bundle", "Show, check or release a bundle.", inspect, verify, release)
_add_group("Service", "keys", "Bearer keys of the service.", create, list_, revoke)


def main() -> None:
    """Entry point of the console script `saga`."""
    # A container that is stopped counts as interrupted, not as an error.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console.protect_streams()
    # Nearly all objects of a short command belong to imported modules, and stay. Looking through
    # them for garbage, again and again and at the end, took a fifth of its processor time.
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
    app()


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[
        bool, typer.Option("--version", metavar="", help="Print the version and stop.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", metavar="", envvar="SAGA_DEBUG", help="Show the traceback of an error."
        ),
    ] = False,
) -> None:
    """Options of all commands."""
    del debug  # `_Guarded.invoke` reads it from the context
    if any(name.upper().startswith("SAGA_") for name in os.environ) and find_spec(
        "pydantic_settings"
    ):
        from saga.api.settings import unread_variables

        unread_variables()
    if version:
        from saga.version import current_version

        typer.echo(current_version())
        raise typer.Exit
