"""saga serve, saga work: the HTTP service, and processes that compute its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console
from saga.cli.inputs import Model
from saga.cli.options import Only


def serve(
    model: Model,
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
) -> None:
    """Serve forecasts over HTTP until interrupted.

    Examples:
        saga serve --port 9000  # on this machine
        saga serve --host 0.0.0.0 --keys keys.txt  # for others, with bearer keys
    """
    from saga.api.server import serve as run_service
    from saga.api.settings import Settings

    model.note_precision()
    settings = Settings.of(
        bundle=model.directory,
        host=host,
        port=port,
        keys=keys,
        jobs=jobs,
        workers=workers,
        threads=model.threads,
        rollout=model.rollout,
        precision=model.precision,
    )
    try:
        run_service(settings)
    except KeyboardInterrupt:  # the way to end a service
        console.note("Stopped.")


def work(
    jobs: Annotated[
        Path,
        typer.Argument(envvar="SAGA_JOBS", metavar="JOBS", help="Folder of jobs of the service."),
    ],
    model: Annotated[Model, Only("bundle", "rollout", "precision")],
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that compute one job.", show_default="1"),
    ] = None,
) -> None:
    """Compute jobs that services have accepted, until interrupted; any number may run."""
    from saga.api.jobs import require_libraries
    from saga.api.settings import Settings
    from saga.bundle import Bundle

    require_libraries()
    from saga.api.jobs.job_worker import work_until_stopped

    model.note_precision()
    settings = Settings.of(
        jobs=jobs,
        bundle=model.directory,
        rollout=model.rollout,
        precision=model.precision,
        job_processes=processes,
    )
    Bundle.load(settings.bundle)  # an error of the bundle is told now, not by the first job
    work_until_stopped(settings)
