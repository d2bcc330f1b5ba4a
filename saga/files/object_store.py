"""Folders and files of an object store: `s3://bucket/folder`, `gs://` and `az://`.

Access is set by the environment, as other tools read it: AWS_ACCESS_KEY_ID, AWS_REGION,
AWS_ENDPOINT_URL, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME and so on. A request that fails
is repeated for three minutes, so a store may be restarted during a run.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import from_url

from saga.errors import SagaError, UsageError

if TYPE_CHECKING:
    from obstore import ReadableFile
    from obstore.store import ObjectStore, RetryConfig

SCHEMES = ("s3", "gs", "az", "abfss")
_PATIENCE, _RETRIES = timedelta(minutes=3), 10_000  # the time ends the retries
_CHUNK = 32 * 2**20


class StoreLostError(SagaError):
    """An object store stopped to answer (exit code 3); the same command continues the run."""

    exit_code = 3
    title = "Interrupted"


def is_url(place: str | Path) -> bool:
    """Whether a place is named by a URL instead of a path."""
    return isinstance(place, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", place) is not None


def polars_options() -> dict[str, Any]:
    """Options of polars for reading objects, with as many attempts as this module makes."""
    milliseconds = round(_PATIENCE.total_seconds() * 1000)
    options: dict[str, Any] = {"max_retries": _RETRIES, "retry_timeout_ms": milliseconds}
    if endpoint := _endpoint():  # as an option, because polars keeps a connection per options
        options["aws_endpoint_url"] = endpoint
    return {**options, "aws_allow_http": "true"} if endpoint.startswith("http://") else options


def _endpoint() -> str:
    """The address of a store of S3 that is not at Amazon's, if the environment has one."""
    return os.environ.get("AWS_ENDPOINT_URL", "")


def _store(url: str, patience: timedelta | None = None) -> ObjectStore:
    return _connect(url, patience or _PATIENCE, _endpoint())


@cache
def _connect(url: str, patience: timedelta, endpoint: str) -> ObjectStore:
    scheme, _, place = url.partition("://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UsageError(f"{url} cannot be opened: give a path, or a URL with {known} or file://.")
    if {".", ".."} & set(place.split("/")) or "//" in place:
        raise UsageError(f"{url} has an empty name, . or .. in its path. Write it without them.")
    retries: RetryConfig = {
        "max_retries": _RETRIES,
        "retry_timeout": patience,
        "backoff": {"max_backoff": timedelta(seconds=5)},
    }
    try:
        return from_url(  # which reads %41 as A, and nothing behind # and ?; other tools do not
            f"{scheme}://{quote(place, safe='/@:')}",
            client_options={"allow_http": endpoint.startswith("http://")},
            retry_config=retries,
        )
    except (BaseError, ValueError) as error:
        raise UsageError(f"{url} is not the URL of an object store: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """The first line of the library's message, which has the answer of the server."""
    code = re.search(r"<Code>(\w+)</Code>", str(error))
    text = code.group(1) if code else str(error).partition("\n")[0]
    return text[:200].rstrip(".") + "."


@contextmanager
def _errors_of(url: str, *, opening: bool = False) -> Iterator[None]:
    """Replace errors of a store by UsageError, or StoreLostError if it may answer again later."""
    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"{url} does not exist: {_reason(error)} Check the bucket.") from None
    except AlreadyExistsError:
        raise
    except BaseError as error:
        if opening and " 404 " in str(error):  # so is the list of a bucket that is not there
            raise UsageError(f"{url} does not exist: {_reason(error)} Check the bucket.") from None
        refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        if refused or " 403 " in str(error):  # refused lists have no type of their own
            raise UsageError(
                f"{url}: the store refuses access ({_reason(error)}) Set the keys of the store in "
                "the environment, such as AWS_ACCESS_KEY_ID, with the right to list, read and "
                "write."
            ) from None
        if opening:
            raise UsageError(
                f"{url}: the store does not answer ({_reason(error)}) Check the URL, and the "
                "address of the store in the environment, such as AWS_ENDPOINT_URL."
            ) from None
        raise StoreLostError(
            f"{url}: the store does not answer ({_reason(error)}) Give the same command again to "
            "continue."
        ) from None


@dataclass(frozen=True)
class ObjectFolder:
    """The objects below a URL, as the folder of a run.

    An object is complete or absent. There are no locks: all processes of a run write the same
    bytes, and `create` lets only one run begin.
    """

    url: str
    has_locks = False

    @classmethod
    def open(cls, url: str) -> ObjectFolder:
        """The folder of a URL. Raises UsageError at once if it cannot be listed."""
        url = url.rstrip("/")
        with _errors_of(url, opening=True):
            next(iter(obstore.list(_store(url, timedelta(seconds=10)), chunk_size=1)), None)
        return cls(url)

    def __str__(self) -> str:
        return self.url

    def location(self, name: str) -> str:
        """The URL of an object, as polars reads it."""
        return f"{self.url}/{name}"

    @property
    def polars_options(self) -> dict[str, Any]:
        """What polars must know to read its objects."""
        return polars_options()

    def put(self, name: str, content: bytes) -> None:
        """Write an object in one step."""
        with _errors_of(self.url):
            obstore.put(_store(self.url), name, content, chunk_size=_CHUNK)

    def create(self, name: str, content: bytes) -> None:
        """Write an object unless there is one."""
        with _errors_of(self.url), suppress(AlreadyExistsError):
            obstore.put(_store(self.url), name, content, mode="create", use_multipart=False)

    def read(self, name: str) -> bytes | None:
        """The content of an object; None if there is none."""
        with _errors_of(self.url):
            try:
                return bytes(obstore.get(_store(self.url), name).bytes())
            except FileNotFoundError:
                return None

    def digest(self, name: str) -> str | None:
        """sha256 of an object, which is read in pieces; None if there is none."""
        with _errors_of(self.url):
            try:
                answer = obstore.get(_store(self.url), name)
            except FileNotFoundError:
                return None
            digest = hashlib.sha256()
            for piece in answer.stream(min_chunk_size=2**20):
                digest.update(piece)
            return digest.hexdigest()

    def names(self, folder: str = "") -> set[str]:
        """The names directly in a folder, of objects and of folders."""
        with _errors_of(self.url):
            listed = obstore.list_with_delimiter(_store(self.url), folder or None)
        paths = [*listed["common_prefixes"], *(entry["path"] for entry in listed["objects"])]
        return {PurePosixPath(path).name for path in paths}

    def remove(self, folder: str) -> None:
        """Delete all objects of a folder; "" is this one."""
        with _errors_of(self.url):
            for entries in obstore.list(_store(self.url), folder or None):
                paths = [entry["path"] for entry in entries]
                try:
                    obstore.delete(_store(self.url), paths)
                except FileNotFoundError:  # another process deletes them too
                    for path in paths:
                        with suppress(FileNotFoundError):
                            obstore.delete(_store(self.url), path)

    def sweep(self, folder: str = "") -> None:
        """Do nothing: an interrupted write leaves no object."""

    def lock(
        self,
        name: str,  # noqa: ARG002
        *,
        shared: bool = False,  # noqa: ARG002
        wait: bool = False,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def files(self) -> list[str]:
        """The names of all objects, also of those in folders of it, sorted."""
        with _errors_of(self.url):
            entries = obstore.list(_store(self.url)).collect()
        return sorted((entry["path"] for entry in entries), key=PurePosixPath)

    def is_file(self, name: str) -> bool:
        """Whether there is such an object."""
        with _errors_of(self.url):
            try:
                obstore.head(_store(self.url), name)
            except FileNotFoundError:
                return False
        return True

    def reader(self, name: str) -> ReadableFile:
        """The content of an object, read in pieces."""
        with _errors_of(self.url):
            return obstore.open_reader(_store(self.url), name, buffer_size=2**22)
