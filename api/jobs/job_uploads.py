"""Tables of jobs on their way to disk: sent, or copied from the folder of a holder.

A holder names files in the folder of its name. Links that lead out of it are refused.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread
import polars as pl
from fastapi import Request
from saga.api.jobs.job_folders import JobFolder, JobFolders
from saga.api.problems import ProblemError, client_gone
from saga.api.settings import Settings
from starlette.requests import ClientDisconnect

from saga.errors import Problem

SUFFIXES = (".parquet", ".arrow", ".csv")
_MAX_UPLOADS = 8  # bodies that may arrive at the same time
_CHUNK_BYTES = 2**20  # of a file that are copied at a time
_FREE_SPACE = 3  # a job needs this multiple of its body on disk


class Upload:
    """Persons of a job on their way to disk; `digest` is the sha256 of what has arrived."""

    def __init__(self, folder: JobFolder, name: str) -> None:
        self.folder, self.path = folder, folder.path / name
        self.digest = hashlib.sha256()

    def discard(self) -> None:
        """Delete what has arrived."""
        shutil.rmtree(self.folder.path, ignore_errors=True)

    @contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        """Delete what has arrived if an error ends the block; status 507 if the disk is full."""
        try:
            yield
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise _no_space() from None
            raise


class Uploads:
    """The uploads of one service, and their limits."""

    def __init__(self, settings: Settings, folders: JobFolders) -> None:
        self._settings, self._folders = settings, folders
        self._copying = anyio.CapacityLimiter(2)  # files that are copied at a time
        self._n_arriving = 0

    def new(self, suffix: str) -> Upload:
        """An upload whose file of persons is still to be written."""
        return Upload(self._folders.new_upload(), f"persons{suffix}")

    async def receive(self, request: Request, suffix: str) -> Upload:
        """Stream the body of a call to disk.

        Raises:
            ProblemError: Status 413 if the body is too large, 408 if it stops arriving, 503 if many
                bodies arrive, 507 if the disk is full, 499 if the client leaves.
        """
        if self._n_arriving >= _MAX_UPLOADS:
            problem = Problem("uploads", f"{_MAX_UPLOADS} tables are arriving", "Try again soon")
            headers = {"Connection": "close", "Retry-After": "5"}
            raise ProblemError(503, "busy", "The service is busy", [problem], headers=headers)
        self._check_size(int(request.headers.get("content-length") or 0))
        self._n_arriving += 1
        upload = self.new(suffix)
        try:
            with upload.discarded_on_error():
                await self._write_body(request, upload)
            return upload
        except ClientDisconnect:
            raise client_gone() from None
        finally:
            self._n_arriving -= 1

    async def store(self, persons: pl.DataFrame, digest: bytes) -> Upload:
        """Write persons whose body has this digest. Raises ProblemError 507 if the disk is full."""
        upload = self.new(".parquet")
        upload.digest.update(digest)
        with upload.discarded_on_error():
            await anyio.to_thread.run_sync(persons.write_parquet, upload.path)
        return upload

    async def copy(self, name: str, holder: str | None) -> Upload:
        """Copy the file that a job names; see `open_file`, whose errors it raises.

        Raises ProblemError as `receive`.
        """
        path, file = await anyio.to_thread.run_sync(
            open_file, self._settings.job_files, holder, name, limiter=self._copying
        )
        upload = self.new(path.suffix)
        with file, upload.discarded_on_error():
            await anyio.to_thread.run_sync(self._copy, file, upload, limiter=self._copying)
        return upload

    def _copy(self, source: BinaryIO, upload: Upload) -> None:
        """Copy a file, which may grow meanwhile, up to the limit."""
        n_bytes = 0
        with upload.path.open("wb") as target:
            while chunk := source.read(_CHUNK_BYTES):
                n_bytes += len(chunk)
                self._check_size(n_bytes)
                upload.digest.update(chunk)
                target.write(chunk)

    async def _write_body(self, request: Request, upload: Upload) -> None:
        n_bytes, chunks = 0, request.stream().__aiter__()
        async with await anyio.open_file(upload.path, "wb") as file:
            while True:
                try:
                    async with asyncio.timeout(self._settings.body_seconds):
                        chunk = await anext(chunks, None)
                except TimeoutError:
                    fix = "Send it again"
                    problem = Problem("body-seconds", "The table stopped arriving", fix)
                    title = "The request body did not arrive in time"
                    headers = {"Connection": "close"}
                    raise ProblemError(
                        408, "body-slow", title, [problem], headers=headers
                    ) from None
                if chunk is None:
                    return
                n_bytes += len(chunk)
                self._check_size(n_bytes)
                upload.digest.update(chunk)
                await file.write(chunk)

    def _check_size(self, n_bytes: int) -> None:
        limit = self._settings.max_job_bytes
        if n_bytes > limit:
            fix = "Send Parquet, or divide the persons into several jobs"
            problem = Problem("max-job-bytes", f"A table may have {limit} bytes", fix)
            headers = {"Connection": "close"}
            raise ProblemError(
                413, "body-size", "The request body is too large", [problem], headers=headers
            )
        if _FREE_SPACE * n_bytes > shutil.disk_usage(self._folders.root).free:
            raise _no_space()


def open_file(root: Path | None, holder: str | None, name: str) -> tuple[Path, BinaryIO]:
    """The file `name` of a holder under `root`, opened; `holder` None: a service without keys.

    A folder may become a link meanwhile: what was opened must be what was judged.
    Raises ProblemError 404 if files cannot be named, 422 without such a file. The answer does not
    tell what exists elsewhere.
    """
    if root is None:
        fix = "Start the service with SAGA_JOB_FILES, a folder; or send the table"
        problem = Problem("job-files", "No folder of files is configured", fix)
        raise ProblemError(404, "no-job-files", "This service reads no files", [problem])
    try:
        base = root.resolve()
        folder = base if holder is None else (base / holder).resolve()
        path = (folder / name).resolve(strict=True)
        is_own = holder is None or folder.parent == base
        if is_own and path.is_relative_to(folder) and path.is_file() and path.suffix in SUFFIXES:
            file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 # the caller closes it
            link = Path(f"/proc/self/fd/{file.fileno()}")
            if not link.exists() or link.readlink() == path:
                return path, file
            file.close()
    except (OSError, ValueError, RuntimeError):  # absent, no name of a file, a circle of links
        pass
    fix = f"Name a file with the suffix {', '.join(SUFFIXES)}, relative to your folder"
    problem = Problem("file", "You have no such file", fix, "file")
    raise ProblemError(422, "file", "The file of the job cannot be read", [problem])


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for another process, as a pipe would."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _no_space() -> ProblemError:
    problem = Problem("disk", "There is no space for the table", "Ask the operator for space")
    headers = {"Connection": "close"}
    title = "The service has no space for this job"
    return ProblemError(507, "no-space", title, [problem], headers=headers)
