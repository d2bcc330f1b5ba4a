"""saga work: computes the jobs of a service in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga.cli import options
from saga.cli.inputs import note_precision


def work(
    jobs: Annotated[
        Path,
        typer.Argument(envvar="SAGA_JOBS", metavar="JOBS", help="Folder of jobs of the service."),
    ],
    bundle: options.Bundle = None,
    rollout: options.Rollout = None,
    precision: options.Precision = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that compute one job.", show_default="1"),
    ] = None,
) -> None:
    """Compute jobs that services have accepted, until interrupted; any number may run."""
    from saga.api.jobs import require_libraries
    from saga.api.settings import Settings
    from saga.bundle import Bundle, default_bundle

    require_libraries()
    from saga.api.jobs.job_worker import work_until_stopped

    note_precision(precision)
    settings = Settings.of(
        jobs=jobs,
        bundle=bundle or default_bundle(),
        rollout=rollout,
        precision=precision,
        job_processes=processes,
    )
    Bundle.load(settings.bundle)  # an error of the bundle is told now, not by the first job
    work_until_stopped(settings)
