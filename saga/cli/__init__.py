"""The command line. It may import all packages, and each command does so only when it runs.

Exit codes: 0 done, 1 a check failed, 2 wrong use or bad input, 3 interrupted (docs/how-to says
which commands continue), 70 internal error.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Annotated, Any

import typer

from saga.cli import console
from saga.cli.align_command import align
from saga.cli.bundle_command import inspect, verify
from saga.cli.calibrate_command import calibrate
from saga.cli.deliver_command import deliver
from saga.cli.evaluate_command import evaluate
from saga.cli.explain_command import explain
from saga.cli.facts_command import check_ as check_facts
from saga.cli.facts_command import show
from saga.cli.forecast_command import forecast
from saga.cli.help_pages import HelpfulCommand, HelpfulGroup
from saga.cli.keys_command import create, list_, revoke
from saga.cli.lifetime_command import lifetime
from saga.cli.plot_command import plot
from saga.cli.register_command import check, generate, release
from saga.cli.report_command import report
from saga.cli.score_command import score
from saga.cli.serve_command import serve
from saga.cli.states_command import circumstances
from saga.cli.tables_command import tables
from saga.cli.train_command import train
from saga.cli.work_command import work


class _Guarded(HelpfulGroup):
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
                if not as_json:
                    raise  # the parser shows it together with the usage of the command
            raise typer.Exit(console.report(error, as_json=as_json, debug=debug)) from None


app = typer.Typer(
    cls=_Guarded,
    name="saga",
    help="Forecasts of life-cycle earnings as full distributions with calibrated intervals.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _group(name: str, help_text: str, *commands: Callable[..., None]) -> None:
    group = typer.Typer(cls=HelpfulGroup, help=help_text, no_args_is_help=True)
    for command in commands:
        group.command(command.__name__.rstrip("_"), cls=HelpfulCommand)(command)
    app.add_typer(group, name=name)


for command in (
    forecast,
    lifetime,
    plot,
    score,
    tables,
    align,
    explain,
    report,
    evaluate,
    train,
    calibrate,
    circumstances,
    deliver,
    serve,
    work,
):
    app.command(cls=HelpfulCommand)(command)
_group("register", "The synthetic register that models are trained on.", generate, check, release)
_group("bundle", "Show a bundle, or check every byte of it.", inspect, verify)
_group("facts", "Dated facts: prices, the economy and tax parameters by year.", show, check_facts)
_group("keys", "Bearer keys of the service.", create, list_, revoke)


def main() -> None:
    """Entry point of the console script `saga`."""
    # A container that is stopped counts as interrupted, not as an error.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="SAGA_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Options of all commands."""
    del debug  # `_Guarded.invoke` reads it from the context
    if version:
        from saga.version import current_version

        typer.echo(current_version())
        raise typer.Exit
