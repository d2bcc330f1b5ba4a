"""saga serve, keys: the HTTP service and who may use it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console
from saga.cli.arguments import BundleOption, Json, PrecisionOption, RolloutOption, Threads
from saga.cli.inputs import note_precision


def serve(
    bundle: BundleOption = None,
    host: Annotated[
        str,
        typer.Option(
            envvar="SAGA_HOST", help="Address to listen on; beyond loopback it needs --keys."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="SAGA_PORT", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 8000,
    keys: Annotated[
        Path | None,
        typer.Option(
            envvar="SAGA_KEYS", help="File of hashed bearer keys, made by `saga keys new`."
        ),
    ] = None,
    rollout: RolloutOption = None,
    precision: PrecisionOption = None,
    threads: Threads = None,
) -> None:
    """Serve forecasts over HTTP until interrupted."""
    from api.server import serve as listen
    from saga.bundle import default_bundle

    note_precision(precision)
    try:
        listen(
            bundle=bundle or default_bundle(),
            host=host,
            port=port,
            keys=keys,
            threads=threads,
            rollout=rollout,
            precision=precision,
            say=lambda text: typer.echo(
                text, nl=False
            ),  # flushed, so that whoever reads a pipe sees the address
        )
    except KeyboardInterrupt:  # the way to end a service
        console.note("Stopped.")


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will hold the key.")],
    file: Annotated[Path | None, typer.Option(help="Append the key's hash to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Make a bearer key: it is shown once, only its hash is kept."""
    from api.security import new_key

    key, line = new_key(name)
    if file is not None:
        with os.fdopen(
            os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8"
        ) as handle:
            handle.write(line + "\n")
    kept = f"Its hash is in {file}." if file is not None else f"Line for the key file: {line}"
    console.result(
        f"Key of {name}, shown only now: {key}\n{kept}",
        {"name": name, "key": key, "line": line},
        as_json=as_json,
    )
