"""The worker of the job queue: takes jobs in turn and starts a process for each.

Several workers may share the queue and the folder. A worker that is killed loses its lock; another
one notices within seconds and returns its jobs to the queue. DBOS lets only one worker take a job,
and only one process can write to the folder of a job.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from asyncio.subprocess import Process
from contextlib import suppress
from datetime import datetime

from dbos import DBOS
from saga.api.jobs.child_process import receive_settings, start_child
from saga.api.jobs.job_folders import (
    INTERRUPTED,
    KILLED,
    OUT_OF_MEMORY,
    Job,
    JobFolder,
    JobFolders,
)
from saga.api.jobs.job_queue import APPLICATION, QUEUE, SERIALIZER, WORKFLOW, connecting
from saga.api.jobs.worker_locks import hold_worker_lock, is_worker_alive
from saga.api.logs import bridge_logs, error_location, make_logger
from saga.api.settings import Settings
from structlog.typing import FilteringBoundLogger

from saga.files.atomic import FolderInUseError, file_lock

# Version of the workflow, not of SAGA: a job that was queued by one version of SAGA can be computed
# by the next one.
_VERSION = "1"
_LOOK_SECONDS = 0.5  # between two looks whether a job was cancelled
_PAUSE_SECONDS = 2.0  # before a job whose process was killed is started again
_FAILURE_PAUSES = (2.0, 4.0, 8.0, 16.0, 32.0)  # before a job is tried again, if the disk is full
_IN_QUEUE = ("ENQUEUED", "PENDING", "DELAYED")  # status of a run that waits or is computed
_ADOPT_SECONDS = 2.0  # between two searches for workers that have ended
_SWEEP_SECONDS = 30.0  # between two deletions of what has expired
# An older folder without an order is of a job that was deleted; an older job without a run is of a
# process that ended before it reached the queue.
_ORPHAN_SECONDS = 600.0
_UPLOAD_SECONDS = 24 * 3600  # an older upload belongs to a process that was killed


class _WorkerContext:
    """What the workflow needs of this process; set before the queue starts.

    DBOS calls the workflow with nothing but the id of a job.
    """

    settings: Settings
    folders: JobFolders
    log: FilteringBoundLogger


@DBOS.workflow(name=WORKFLOW)
async def compute_job(job_id: str) -> None:
    """One job, from the persons to the result; whatever happens, its folder says how it ended.

    If not even that can be written, the run ends with an error, and `sweep_jobs` writes it later.
    """
    for pause in (*_FAILURE_PAUSES, None):
        try:
            return await _follow(_WorkerContext.folders.folder(job_id))
        except Exception as error:
            _WorkerContext.log.error("job_not_followed", job=job_id, **error_location(error))
            if pause is None:
                raise
            await asyncio.sleep(pause)


async def _follow(folder: JobFolder) -> None:
    """Start processes for a job until it has ended, and delete its persons."""
    while (job := folder.job()) is not None and job.outcome is None:
        if not folder.count_attempt():
            folder.finish("failed", problem=KILLED)
        else:
            code = await _run_process(folder)
            if code == -signal.SIGABRT:  # as native code ends that gets no memory
                folder.finish("failed", problem=OUT_OF_MEMORY)
            elif code != 0:
                await asyncio.sleep(_PAUSE_SECONDS)
    if job is None or job.state != "succeeded":
        folder.discard_data()
    folder.discard_persons()


async def _run_process(folder: JobFolder) -> int:
    """The exit code of a process that computes a job; it is killed if the job is cancelled."""
    process = await start_child(
        "saga.api.jobs.job_process", _WorkerContext.settings, str(folder.path)
    )
    ended = asyncio.create_task(process.wait())
    while not ended.done():
        await asyncio.wait([ended], timeout=_LOOK_SECONDS)
        job = folder.job()
        if process.returncode is None and (job is None or job.state == "cancelled"):
            _kill(process)
    return ended.result()


def _kill(process: Process) -> None:
    """End a process and those that it has started, so that none of them writes any more."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # `start_child` gives it a group
    else:
        process.kill()


def work_until_stopped(settings: Settings) -> None:
    """Compute jobs until the process is ended.

    Args:
        settings: Settings of the service; `jobs` is the folder of the jobs.
    """
    assert settings.jobs is not None
    log = make_logger(sys.__stderr__)
    bridge_logs(log, "dbos")
    folders = JobFolders(settings.jobs)
    folders.create()
    _WorkerContext.settings, _WorkerContext.folders, _WorkerContext.log = settings, folders, log
    with hold_worker_lock(folders.workers) as path:
        _launch(settings.job_queue_url, path.name)
        log.info("job_worker_ready", worker=path.name)
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        next_sweep = 0.0
        while not stop.wait(_ADOPT_SECONDS):
            try:
                adopt_jobs(folders)
                path.touch()  # a sign of life for `count_workers`
                if time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + _SWEEP_SECONDS
                    sweep_jobs(folders, settings.job_hours * 3600)
            except Exception as error:  # the database may be away for a while
                log.error("job_queue_unavailable", **error_location(error))
        log.info("job_worker_stops", worker=path.name)


def _launch(url: str, name: str) -> None:
    """Connect to the queue and take jobs from it.

    Raises QueueError if its database cannot be used.
    """
    DBOS(
        config={
            "name": APPLICATION,
            "system_database_url": url,
            "serializer": SERIALIZER,
            "executor_id": name,
            "application_version": _VERSION,
            "log_level": "WARNING",
        }
    )
    DBOS.listen_queues([QUEUE])
    with connecting():
        DBOS.launch()
    # Each holder of keys has a partition of the queue; partitions take turns.
    DBOS.register_queue(
        QUEUE, worker_concurrency=1, partition_worker_concurrency=1, polling_interval_sec=0.5
    )


def adopt_jobs(folders: JobFolders) -> None:
    """Return the jobs of workers that have ended to the queue.

    The lock keeps two workers from adopting the same job.
    """
    with file_lock(folders.queue_lock, wait=True):
        pending = DBOS.list_workflows(
            name=WORKFLOW, status="PENDING", load_input=False, load_output=False
        )
        names = {entry.executor_id for entry in pending}
        ended = {name for name in names if name and not is_worker_alive(folders.workers / name)}
        if runs := [entry.workflow_id for entry in pending if entry.executor_id in ended]:
            DBOS.resume_workflows(runs, queue_name=QUEUE)
    for path in folders.workers.iterdir():
        if not path.name.startswith(".") and path.name not in names and not is_worker_alive(path):
            path.unlink(missing_ok=True)


def sweep_jobs(folders: JobFolders, keep_seconds: float) -> None:
    """Delete expired jobs, their entries in the queue, and uploads that were cut off.

    A job whose run has ended without an outcome, or that has none, has failed.
    """
    entries = DBOS.list_workflows(name=WORKFLOW, load_input=False, load_output=False)
    status, now = {entry.workflow_id: entry.status for entry in entries}, time.time()
    present = set()
    for job in folders:
        with suppress(OSError):  # the disk is full: the next sweep will
            if _end_of(job, status.get(job.order.run), now) + keep_seconds < now:
                _remove(folders, job.folder)
                continue
        present.add(job.order.run)
    for run in status.keys() - present:  # their folders are gone
        DBOS.delete_workflow(run)
    leftovers = [
        *((folder, _ORPHAN_SECONDS) for folder in folders.orphans()),
        *((JobFolder(path), _UPLOAD_SECONDS) for path in folders.uploads()),
    ]
    for folder, seconds in leftovers:
        with suppress(FileNotFoundError):
            if now > folder.path.stat().st_mtime + seconds:
                _remove(folders, folder)


def _end_of(job: Job, status: str | None, now: float) -> float:
    """When a job has ended, whose run has this status in the queue; now if it goes on."""
    if job.outcome is not None:
        return job.outcome.finished
    created = datetime.fromisoformat(job.order.created).timestamp()
    is_on_its_way = status is None and now < created + _ORPHAN_SECONDS
    if status not in _IN_QUEUE and not is_on_its_way:  # its run failed, or it never had one
        job.folder.finish("failed", problem=INTERRUPTED)
        job.folder.discard_data()
    return now


def _remove(folders: JobFolders, folder: JobFolder) -> None:
    """Delete a folder unless a process writes to it: then the next sweep will."""
    with suppress(FolderInUseError):
        folders.remove(folder)


def main() -> None:
    """Work with the settings of the service that started this process."""
    work_until_stopped(receive_settings())


if __name__ == "__main__":
    main()
