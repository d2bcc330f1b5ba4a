"""saga serve: the HTTP service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import note_precision


def serve(
    bundle: options.Bundle = None,
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
            envvar="SAGA_KEYS", help="File of hashed bearer keys, made by `saga keys create`."
        ),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            envvar="SAGA_JOBS", help="Folder of jobs (/v1/jobs): their persons and results."
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(envvar="SAGA_WORKERS", min=1, help="Processes that answer calls."),
    ] = 1,
    rollout: options.Rollout = None,
    precision: options.Precision = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="Threads of one forecast.", show_default="all cores"),
    ] = None,
) -> None:
    """Serve forecasts over HTTP until interrupted."""
    from saga.api.server import serve as run_service
    from saga.api.settings import Settings
    from saga.bundle import default_bundle

    note_precision(precision)
    settings = Settings.of(
        bundle=bundle or default_bundle(),
        host=host,
        port=port,
        keys=keys,
        jobs=jobs,
        workers=workers,
        threads=threads,
        rollout=rollout,
        precision=precision,
    )
    try:
        run_service(settings)
    except KeyboardInterrupt:  # the way to end a service
        console.note("Stopped.")
