"""Folders and files, on a file system or in an object store, with the same operations."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from saga.errors import SagaError, UsageError
from saga.files.atomic import (
    commit,
    digest_file,
    file_lock,
    json_bytes,
    sweep,
    sync_folder,
    whole_folder,
)
from saga.files.object_store import ObjectFolder, is_url


@dataclass(frozen=True)
class LocalFolder:
    """A folder on a file system."""

    path: Path
    has_locks = True

    def __str__(self) -> str:
        return str(self.path)

    polars_options = None

    def location(self, name: str) -> Path:
        """The path of a file."""
        return self.path / name

    def put(self, name: str, content: bytes) -> None:
        """Write a file in one step, durable after a power failure.

        Folders of the name are made, but not above this folder: one that was deleted stays away.
        """
        path = self.path / name
        if not path.parent.is_dir():
            for parent in reversed(PurePath(name).parents):
                (self.path / parent).mkdir(exist_ok=True)
            sync_folder(path.parent.parent)
        commit(path, partial(Path.write_bytes, data=content))

    def create(self, name: str, content: bytes) -> None:
        """Write a file unless there is one; the caller holds the lock."""
        if not (self.path / name).exists():
            self.put(name, content)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        try:
            return (self.path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def digest(self, name: str) -> str | None:
        """sha256 of a file; None if there is none."""
        path = self.path / name
        return digest_file(path) if path.is_file() else None

    def names(self, folder: str = "") -> set[str]:
        """The names directly in a folder."""
        path = self.path / folder
        return {entry.name for entry in path.iterdir()} if path.is_dir() else set()

    def files(self) -> list[str]:
        """The names of all files, also of those in folders of it, sorted.

        Also of links that lead to no file, and of folders that cannot be listed.
        """
        return [
            path.relative_to(self.path).as_posix()
            for path in sorted(self.path.rglob("*"))
            if path.is_symlink() or not (path.is_dir() and os.access(path, os.R_OK | os.X_OK))
        ]

    def is_file(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self.path / name).is_file()

    def reader(self, name: str) -> BinaryIO:
        """The content of a file, read in pieces."""
        return (self.path / name).open("rb")

    def remove(self, folder: str) -> None:
        """Delete a folder with all its files."""
        shutil.rmtree(self.path / folder, ignore_errors=True)

    def sweep(self, folder: str = "") -> None:
        """Remove temporary files of interrupted writes."""
        sweep(self.path / folder)

    def lock(
        self, name: str, *, shared: bool = False, wait: bool = False
    ) -> AbstractContextManager[None]:
        """Hold the lock of a file, whose folder is made."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return file_lock(path, shared=shared, wait=wait)


Folder = LocalFolder | ObjectFolder
"""Files by their names relative to the folder; each is complete or absent."""


@dataclass(frozen=True)
class File:
    """A file to read: its folder, and its name in it."""

    folder: Folder
    name: str

    def __str__(self) -> str:
        return str(self.location)

    @property
    def location(self) -> Path | str:
        """Its path or URL."""
        return self.folder.location(self.name)

    @property
    def pure(self) -> PurePath:
        """The path, or the URL as one: its suffix, stem and the names of its folders."""
        return PurePath(str(self))

    @cached_property
    def suffix(self) -> str:
        """The suffix of its name, in lower case; of a packed CSV file (.csv.gz) .csv."""
        name = self.pure.name.lower()
        return PurePath(name.removesuffix(".gz") if name.endswith(".csv.gz") else name).suffix

    def lines(self) -> Iterator[bytes]:
        """The lines, read in pieces."""
        with closing(self.folder.reader(self.name)) as stream:
            while line := bytes(stream.readline()):
                yield line

    def start(self, size: int) -> bytes:
        """The first bytes."""
        with closing(self.folder.reader(self.name)) as stream:
            return bytes(stream.read(size))

    def read(self) -> bytes:
        """The whole content."""
        content = self.folder.read(self.name)
        if content is None:
            raise UsageError(f"There is no file {self}. Check its path or URL.")
        return content

    def digest(self) -> str | None:
        """sha256 of the content."""
        return self.folder.digest(self.name)


def open_place(place: str | Path) -> Path | str:
    """A path, or the URL of an object store; `file://` is a path."""
    if not str(place):  # such as a variable that is not set
        raise UsageError("The name of a file or folder is empty.")
    if not is_url(place):
        path = Path(place)
        # Polars reads `file:` before a path as the beginning of a URL.
        return path.absolute() if path.parts and path.parts[0].startswith("file:") else path
    if not str(place).lower().startswith("file://"):
        return str(place).rstrip("/")
    parts = urlsplit(str(place))
    if parts.netloc not in ("", "localhost") or re.search("[#?]|%00", str(place)):
        raise UsageError(
            f"{place} is not the URL of a file: it begins with file:/// and the whole path, with "
            "%23 for #, %3F for ? and %25 for %. Or give the path as it is."
        )
    return Path(unquote(parts.path))


def open_folder(place: str | Path) -> Folder:
    """The folder at a path or URL. Raises UsageError if an object store cannot be listed."""
    opened = open_place(place)
    return LocalFolder(opened) if isinstance(opened, Path) else ObjectFolder.open(opened)


def find_file(place: str | Path) -> File | None:
    """The file at a path or URL, if there is one."""
    opened = open_place(place)
    if isinstance(opened, Path):
        file = File(LocalFolder(opened.parent), opened.name)
    else:
        parent, _, name = opened.rpartition("/")
        file = File(ObjectFolder(parent), name)
    return file if file.folder.is_file(file.name) else None


def open_file(place: str | Path) -> File:
    """The file at a path or URL. Raises UsageError if there is none."""
    file = find_file(place)
    if file is None:
        raise UsageError(f"There is no file {place}. Check its path or URL.")
    return file


def check_new_folder(place: str | Path) -> None:
    """Raise UsageError unless the folder is absent or empty."""
    opened = open_place(place)
    if isinstance(opened, Path):
        taken = opened.exists() and (not opened.is_dir() or any(opened.iterdir()))
    else:
        taken = bool(ObjectFolder.open(opened).names())
    if taken:
        raise UsageError(f"{place} exists and is not empty. Name a new folder.")


@contextmanager
def new_folder(place: str | Path) -> Iterator[Folder]:
    """A new folder to put files in, which is absent or empty before.

    On a file system it is complete or absent. An object store cannot rename: the files put before a
    failure are deleted, and the file to put last says that the folder is complete.
    """
    check_new_folder(place)
    opened = open_place(place)
    if isinstance(opened, Path):
        with whole_folder(opened) as unfinished:
            yield LocalFolder(unfinished)
        return
    folder = ObjectFolder.open(opened)
    try:
        yield folder
    except BaseException:
        with suppress(SagaError):  # the error to report is the first one
            folder.remove("")
        raise


def put_json(folder: Folder, name: str, value: Mapping[str, Any]) -> None:
    """Write a value as JSON; equal values give equal bytes."""
    folder.put(name, json_bytes(value))


def read_json_of(folder: Folder, name: str) -> dict[str, Any] | None:
    """The object in a file of `put_json`; None if there is no file or it has no object."""
    try:
        value = json.loads(folder.read(name) or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
