"""Jobs of one service: accept, follow, cancel, and keep workers running."""

from __future__ import annotations

import asyncio
import errno
import json
import uuid
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TypeVar

import anyio
import anyio.to_thread
from saga.api.jobs import QueueError
from saga.api.jobs.child_process import end_child, start_child
from saga.api.jobs.job_folders import Job, JobFolders, JobOrder
from saga.api.jobs.job_queue import UNAVAILABLE, JobQueue
from saga.api.jobs.job_uploads import Upload, Uploads
from saga.api.jobs.worker_locks import count_workers
from saga.api.refusals import refused
from saga.api.request_models import JobOptions
from saga.api.service_metrics import JobMetrics
from saga.api.settings import Settings
from structlog.typing import FilteringBoundLogger

from saga.errors import Problem, UsageError
from saga.files.atomic import FolderInUseError, file_lock

_CONNECT_SECONDS = 5.0  # between two attempts to reach the queue
_QUEUE_SECONDS = 10.0  # longest wait for an answer of the queue
_END_SECONDS = 5.0  # that a worker has to end before it is killed
_MEASURE_SECONDS = 5.0  # between two readings of the metrics of jobs
_FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk, or what a user may take of it
_ENDED_JOBS = 100  # jobs of a holder that have ended, for each one that may wait or run
Result = TypeVar("Result")


class JobService:
    """The jobs of a service; several services may share the folder and the queue.

    Args:
        settings: Settings of the service.
        log: Log of the service.
        metrics: The metrics of jobs, which it keeps up to date.
        shared: Folder that the processes of this service share; None if there is one process.

    Raises:
        UsageError: If the folder of jobs cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        log: FilteringBoundLogger,
        metrics: JobMetrics,
        shared: Path | None = None,
    ) -> None:
        assert settings.jobs is not None
        self._settings, self._log = settings, log
        self._metrics, self._shared = metrics, shared
        self.folders = JobFolders(settings.jobs)
        try:
            self.folders.create()
        except OSError as error:
            fix = "Give a folder that the service can write to"
            problem = Problem("jobs", f"The system reports: {error.strerror}", fix, "jobs")
            raise UsageError("The folder of jobs cannot be used", [problem]) from None
        self.uploads = Uploads(settings, self.folders)
        self._queue: JobQueue | None = None
        self._threads = anyio.CapacityLimiter(4)  # connections of the queue
        self._tasks: list[asyncio.Task[None]] = []
        self._withdrawals: set[asyncio.Task[None]] = set()  # of jobs whose calls were cancelled

    def start(self) -> None:
        """Connect to the queue in the background, and then start the workers."""
        self._tasks = [asyncio.create_task(self._connect())]

    async def _connect(self) -> None:
        while self._queue is None:
            try:
                self._queue = await anyio.to_thread.run_sync(JobQueue, self._settings.job_queue_url)
            except QueueError as error:
                self._log.error("job_queue_unavailable", wrong=error.args[0])
                await asyncio.sleep(_CONNECT_SECONDS)
        count = self._settings.job_workers
        self._tasks.append(asyncio.create_task(self._measure()))
        self._tasks += [asyncio.create_task(self._keep_worker(i)) for i in range(count)]

    async def stop(self) -> None:
        """End the workers; their jobs continue with the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._withdrawals, return_exceptions=True)
        if self._queue is not None:
            await anyio.to_thread.run_sync(self._queue.close)

    async def _measure(self) -> None:
        """Keep the metrics of jobs up to date."""
        while True:
            counts = await anyio.to_thread.run_sync(self.folders.counts)
            try:
                await self._ask(JobQueue.probe)
                is_up = True
            except QueueError:
                is_up = False
            self._metrics.update(*counts, count_workers(self.folders.workers), is_up=is_up)
            await asyncio.sleep(_MEASURE_SECONDS)

    async def _keep_worker(self, number: int) -> NoReturn:
        """Keep worker `number` of the service running, in one of its processes only."""
        if self._shared is None:
            await self._run_workers()
        while True:
            try:
                with file_lock(self._shared / f"job-worker-{number}.lock"):
                    await self._run_workers()
            except FolderInUseError:  # another process keeps it running
                await asyncio.sleep(1.0)

    async def _run_workers(self) -> NoReturn:
        """Run a worker, and another one when it ends, until cancelled."""
        while True:
            process: Process | None = None
            try:
                process = await start_child("saga.api.jobs.job_worker", self._settings)
                code = await process.wait()
            except asyncio.CancelledError:
                if process is not None:
                    await end_child(process, seconds=_END_SECONDS)
                raise
            self._log.warning("job_worker_ended", code=code)
            await asyncio.sleep(1.0)

    async def _ask(self, question: Callable[[JobQueue], Result]) -> Result:
        """Ask the queue in a thread. Raises QueueError if its database does not answer."""
        queue = self._queue
        if queue is None:
            raise QueueError("The job queue is not connected yet. Try again in a few seconds.")
        try:
            with anyio.fail_after(_QUEUE_SECONDS):
                return await anyio.to_thread.run_sync(
                    question, queue, limiter=self._threads, abandon_on_cancel=True
                )
        except (*UNAVAILABLE, TimeoutError) as error:
            self._log.error("job_queue_unavailable", error=type(error).__name__)
            message = "The database of the jobs does not answer. Try again in a minute."
            raise QueueError(message) from None

    async def submit(
        self, upload: Upload, options: JobOptions, holder: str, key: str | None
    ) -> tuple[Job, bool]:
        """Place a complete upload in the queue; returns the job and whether it is new.

        Raises:
            ProblemError: Status 422 if the Idempotency-Key belongs to another request, 429 if the
                holder has too many jobs.
            QueueError: The queue fails; a new job is then gone with its persons.
        """
        stated = options.model_dump(mode="json", exclude_unset=True, exclude={"persons", "file"})
        upload.digest.update(json.dumps([upload.path.suffix, stated], sort_keys=True).encode())
        order = JobOrder(
            id=self.folders.new_id(holder, key),
            run=uuid.uuid4().hex,
            holder=holder,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            digest=upload.digest.hexdigest(),
            persons_file=upload.path.name,
            options=stated,
        )
        placing = asyncio.create_task(self._enter(upload, order))
        try:
            return await asyncio.shield(placing)
        except asyncio.CancelledError:  # the caller does not learn the name of the job
            task = asyncio.create_task(self._take_back(placing, order))
            self._withdrawals.add(task)
            task.add_done_callback(self._withdrawals.discard)
            raise

    async def _enter(self, upload: Upload, order: JobOrder) -> tuple[Job, bool]:
        """Place an upload and queue it, unless there is a job of this name."""
        job, is_new = await anyio.to_thread.run_sync(self._place, upload, order)
        if not is_new:
            upload.discard()
            if job.order.digest != order.digest:
                raise refused("idempotency-key")
        try:
            await self._ask(lambda queue: queue.submit(job.order))
        except QueueError:
            if is_new:  # nobody knows its name, and it would count as one of the holder
                await self._remove(order)
            raise
        return job, is_new

    async def _take_back(self, placing: asyncio.Task[tuple[Job, bool]], order: JobOrder) -> None:
        """Remove the job of a call that was cancelled, unless it runs already or is older."""
        await asyncio.wait([placing])
        if placing.exception() is None and placing.result()[1]:
            with suppress(FolderInUseError):
                await self._remove(order)

    async def _remove(self, order: JobOrder) -> None:
        await anyio.to_thread.run_sync(self.folders.remove, self.folders.folder(order.id))

    def _place(self, upload: Upload, order: JobOrder) -> tuple[Job, bool]:
        """Give an upload its name, unless there is a job of this name: the job, whether it is new.

        The job is that of this moment, so deleting it at once does not change the answer. The lock
        lets no two calls take the last place of a holder. Raises ProblemError 429 if there is none
        left, or many jobs have ended, 507 if the jobs of the holder take its whole disk.
        """
        limit = self._settings.max_jobs
        with file_lock(self.folders.queue_lock, wait=True):
            folder = self.folders.folder(order.id)
            if (earlier := folder.job()) is not None:
                return earlier, False
            jobs = self.folders.of_holder(order.holder)
            if jobs.unfinished >= limit:
                raise refused("max-jobs", {"limit": limit})
            if jobs.ended >= _ENDED_JOBS * limit:
                raise refused("ended-jobs", {"limit": _ENDED_JOBS * limit})
            if jobs.n_bytes > self._settings.holder_bytes:
                raise refused("holder-disk", {"limit": self._settings.holder_bytes})
            self.folders.place(upload.folder, order)
            return Job(folder, order, attempts=None, progress=None, outcome=None), True

    def find(self, identifier: str, holder: str) -> Job:
        """A job of this holder. Raises ProblemError 404 if there is none."""
        job = self.folders.folder(identifier).job()
        if job is None or job.order.holder != holder:
            raise refused("job")
        return job

    async def cancel_or_remove(self, job: Job) -> None:
        """Cancel a job that waits or runs; remove one that has ended, with its result.

        If the disk is full, a cancelled job is removed, too: that needs no room.
        """
        if job.outcome is None:
            try:
                job.folder.finish("cancelled")  # the worker of a running job deletes the data
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                job.folder.discard_order()
                with suppress(OSError, FolderInUseError):  # else a worker will, after a while
                    await anyio.to_thread.run_sync(self.folders.remove, job.folder)
                return
            if job.state == "queued":
                await anyio.to_thread.run_sync(job.folder.discard_data)
            now = job.folder.job()
            if now is not None and now.state == "cancelled":
                return
        try:
            await anyio.to_thread.run_sync(self.folders.remove, job.folder)
        except FolderInUseError:
            raise refused("job-ends") from None
