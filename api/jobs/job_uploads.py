"""Tables of jobs on their way to disk: sent, or copied from the folder of a holder.

A holder names files in the folder of its name, which are opened once, without following a link.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
import polars as pl
from fastapi import Request
from saga.api.jobs.job_folders import JobFolder, JobFolders
from saga.api.key_file import OPERATOR
from saga.api.problems import client_gone
from saga.api.refusals import refused
from saga.api.settings import Settings
from starlette.requests import ClientDisconnect

from saga.files.atomic import open_beneath

if TYPE_CHECKING:
    from hashlib import _Hash

Arguments = TypeVarTuple("Arguments")
Answer = TypeVar("Answer")
SUFFIXES = (".parquet", ".arrow", ".csv")
_MAX_UPLOADS = 16  # tables that may arrive or be copied at the same time
_HOLDER_UPLOADS = 4  # of them of one holder
_UPLOAD_RATE = 2**18  # bytes a second that a body must reach after `body_seconds`
_CHUNK_BYTES = 2**20  # of a file that are copied at a time; then the next file has its turn
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
                raise refused("disk") from None
            raise


class Uploads:
    """The uploads of one service, and their limits."""

    def __init__(self, settings: Settings, folders: JobFolders) -> None:
        self._settings, self._folders = settings, folders
        self._copying = anyio.CapacityLimiter(2)  # files that are copied at a time
        self._arriving: Counter[str] = Counter()  # tables by holder
        self._closed = False

    def close(self) -> None:
        """Refuse tables, also the rest of those that arrive or are copied: the service stops."""
        self._closed = True

    def new(self, suffix: str) -> Upload:
        """An upload whose file of persons is still to be written."""
        return Upload(self._folders.new_upload(), f"persons{suffix}")

    async def receive(self, request: Request, suffix: str, holder: str) -> Upload:
        """Stream the body of a holder's call to disk.

        Raises:
            ProblemError: Status 413 if the body is too large, 408 if it arrives too slowly, 503 if
                many tables arrive or the service stops, 507 if the disk is full, 499 if the client
                leaves.
        """
        with self._place(holder):
            self._check_table(int(request.headers.get("content-length") or 0))
            upload = self.new(suffix)
            try:
                with upload.discarded_on_error():
                    await self._write_body(request, upload)
            except ClientDisconnect:
                raise client_gone() from None
        return upload

    async def store(self, persons: pl.DataFrame, digest: bytes) -> Upload:
        """Write persons whose body has this digest. Raises ProblemError as `receive`."""
        self._check_table(int(persons.estimated_size()))  # polars has no number for a full disk
        upload = self.new(".parquet")
        upload.digest.update(digest)
        with upload.discarded_on_error():
            await anyio.to_thread.run_sync(persons.write_parquet, upload.path)
        return upload

    async def copy(self, request: Request, name: str, holder: str | None) -> Upload:
        """Copy the file that a job names; see `open_file`, whose errors it raises.

        Files are copied a piece at a time in turn, so nobody waits for another's file to end.
        Raises ProblemError as `receive`, too.
        """
        with self._place(holder or OPERATOR.holder):
            file = await self._in_turn(open_file, self._settings.job_files, holder, name)
            with file:
                self._check_table(os.fstat(file.fileno()).st_size)
                upload = self.new(PurePosixPath(name).suffix)
                with upload.discarded_on_error(), upload.path.open("wb") as target:
                    n_bytes = 0
                    while piece := await self._in_turn(_copy_piece, file, target, upload.digest):
                        n_bytes += piece  # the file may grow meanwhile
                        self._check_table(n_bytes)
                        if await request.is_disconnected():
                            raise client_gone()
        return upload

    async def _in_turn(
        self, step: Callable[[*Arguments], Answer], *arguments: *Arguments
    ) -> Answer:
        """The answer of a step in a thread; steps of all copies are done in the order of asking."""
        return await anyio.to_thread.run_sync(step, *arguments, limiter=self._copying)

    @contextmanager
    def _place(self, holder: str) -> Iterator[None]:
        """A place for a table of a holder. Raises ProblemError 503 if there is none."""
        if self._arriving[holder] >= _HOLDER_UPLOADS or self._arriving.total() >= _MAX_UPLOADS:
            raise refused("uploads", {"limit": _HOLDER_UPLOADS, "total": _MAX_UPLOADS})
        self._arriving[holder] += 1
        try:
            yield
        finally:
            self._arriving[holder] -= 1

    async def _write_body(self, request: Request, upload: Upload) -> None:
        """Write what arrives, which must keep to a rate: `body_seconds` are allowed in all besides.

        A time between two pieces would let a client send a byte now and then for ever.
        """
        n_bytes, chunks = 0, request.stream().__aiter__()
        start = asyncio.get_running_loop().time() + self._settings.body_seconds
        async with await anyio.open_file(upload.path, "wb") as file:
            while True:
                try:
                    async with asyncio.timeout_at(start + n_bytes / _UPLOAD_RATE):
                        chunk = await anext(chunks, None)
                except TimeoutError:
                    raise refused("upload-seconds", {"rate": _UPLOAD_RATE // 2**10}) from None
                if chunk is None:
                    return
                n_bytes += len(chunk)
                self._check_table(n_bytes)
                upload.digest.update(chunk)
                await file.write(chunk)

    def _check_table(self, n_bytes: int) -> None:
        if self._closed:
            raise refused("stopping")
        limit = self._settings.max_job_bytes
        if n_bytes > limit:
            raise refused("max-job-bytes", {"limit": limit})
        if _FREE_SPACE * n_bytes > shutil.disk_usage(self._folders.root).free:
            raise refused("disk")


def _copy_piece(source: BinaryIO, target: BinaryIO, digest: _Hash) -> int:
    """Copy the next bytes; returns how many, 0 at the end."""
    chunk = source.read(_CHUNK_BYTES)
    digest.update(chunk)
    return target.write(chunk)


def open_file(root: Path | None, holder: str | None, name: str) -> BinaryIO:
    """The file `name` of a holder under `root`, opened; `holder` None: a service without keys.

    What is opened is judged, not a path, which may lead elsewhere a moment later.
    Raises ProblemError 404 if files cannot be named, 422 without such a file. The answer does not
    tell what exists elsewhere.
    """
    if root is None:
        raise refused("job-files")
    try:
        path = PurePosixPath(name)
        if path.suffix in SUFFIXES:
            folders = [] if holder is None else [holder]
            return open_beneath(root, *folders, *path.parts)
    except (OSError, ValueError):  # absent, a link, not a name of a file
        pass
    raise refused("file", {"suffixes": ", ".join(SUFFIXES)})
