"""The command line, and the one place where all parts meet.

Every command imports what it needs when it runs: `saga forecast` loads no training code, and `saga --help` answers at once.
Exit codes: 0 done, 1 a check said no, 2 wrong use or bad input, 3 interrupted (the same command goes on), 70 internal error.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from saga.cli import (
    calibrate_command,
    console,
    forecast_command,
    register_command,
    report_command,
    serve_command,
)


class _Guarded(TyperGroup):
    """Turns whatever a command raises into one readable message and the exit code that belongs to it."""

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
            if hasattr(error, "format_message") and not as_json:
                raise  # wrong use: the parser shows it together with the usage of the command
            raise typer.Exit(console.report(error, as_json=as_json, debug=debug)) from None


app = typer.Typer(
    cls=_Guarded,
    name="saga",
    help="Forecasts of what people will earn over their working lives, as full distributions with calibrated intervals.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _group(name: str, about: str, *commands: Callable[..., None]) -> None:
    group = typer.Typer(help=about, no_args_is_help=True)
    for command in commands:
        group.command()(command)
    app.add_typer(group, name=name)


for command in (
    calibrate_command.train,
    calibrate_command.calibrate,
    calibrate_command.circumstances,
    report_command.evaluate,
    forecast_command.forecast,
    forecast_command.lifetime,
    forecast_command.score,
    serve_command.serve,
    report_command.report,
    report_command.explain,
):
    app.command()(command)
_group(
    "register",
    "The synthetic register that models are trained on.",
    register_command.generate,
    register_command.check,
    register_command.release,
)
_group(
    "bundle",
    "Look at a bundle, or check it byte by byte.",
    calibrate_command.inspect,
    calibrate_command.verify,
)
_group("keys", "Bearer keys of the serve_command.", serve_command.new)


def main() -> None:
    """Entry point of the console script `saga`."""
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # a container that is stopped is interrupted, not broken
    app()


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="SAGA_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Options of all commands; `debug` is read where errors are reported."""
    if version:
        from saga.version import current_version

        typer.echo(current_version())
        raise typer.Exit
