"""Atomic files: complete or absent, even after a power failure.

A file is written under a temporary name, synced and renamed; then its folder is synced.
"""

from __future__ import annotations

import errno
import getpass
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from saga.errors import UsageError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = "_lock"


def commit(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a temporary file, then rename it to `path` in one step.

    If the process is killed, `path` is either unchanged or complete; `sweep` removes a temporary
    file that remains.
    """
    # Processes of several machines may write to one folder, so a process id is not enough.
    # Polars takes a path that begins with `file:` for a URL.
    temporary = path.absolute().with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def whole_folder(out: Path, *, retired: Path | None = None) -> Iterator[Path]:
    """A new folder: renamed to `out` on success, removed on failure.

    `out` is absent or empty before, or is renamed to `retired`: then for a moment there is no
    folder at `out`, and if the process is killed in it, the old one is `retired`.
    """
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    os.umask(mask := os.umask(0o077))  # the only way to read it
    unfinished.chmod(0o777 & ~mask)
    try:
        yield unfinished
        if out.exists() and retired is not None:
            shutil.rmtree(retired, ignore_errors=True)
            out.rename(retired)
        elif out.exists():
            out.rmdir()
        unfinished.rename(out)
        sync_folder(out.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        if retired is not None and retired.exists() and not out.exists():
            retired.rename(out)
        raise
    if retired is not None:
        shutil.rmtree(retired, ignore_errors=True)


@contextmanager
def new_files(out: Path, earlier: Iterable[str] = ()) -> Iterator[Path]:
    """A folder whose files all replace those of `out` in the end, or none if the disk is full.

    Old and new files never stand together, nor new ones with the `earlier` that have no successor:
    if the process is killed while they are replaced, some are missing.
    """
    out.mkdir(parents=True, exist_ok=True)
    sweep(out)
    with tempfile.TemporaryDirectory(prefix=".", suffix=".tmp", dir=out.absolute()) as folder:
        yield Path(folder)
        files = list(Path(folder).iterdir())
        for name in {*earlier, *(file.name for file in files)}:
            (out / name).unlink(missing_ok=True)
        for file in files:
            file.replace(out / file.name)
    sync_folder(out)


def commit_json(path: Path, value: Mapping[str, Any]) -> None:
    """`commit` of `value` as JSON; equal values give equal bytes."""
    commit(path, partial(Path.write_bytes, data=json_bytes(value)))


def new_secret(path: Path, content: bytes) -> None:
    """Make a file that only its owner can read, unless it exists.

    Of several processes that make it together, the file of the first is that of all, and whole.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # mode 600
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(file.name, path)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8; equal values give equal bytes.

    Raises ValueError or TypeError for values that JSON cannot represent.
    """
    return (
        json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    ).encode("utf-8")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file of `commit_json`; None if there is no file or it has no object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def sweep(folder: Path) -> None:
    """Remove temporary files and folders of interrupted commits from `folder`."""
    for leftover in folder.glob(".*.tmp"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable; does nothing on Windows, which cannot open folders."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_beneath(root: Path, *names: str) -> BinaryIO:
    """The regular file `root/name/.../name`, opened for reading; no link on the way is followed.

    Each folder is opened in the one before, so that nobody can swap a part of the path for a link
    between a check and the opening. A file that has a second name (a hard link) may be another
    user's and is refused, also if its name here is gone as soon as it is opened. A count and a name
    cannot be read at once, so only the system (Linux: `fs.protected_hardlinks`) refuses all such
    names. POSIX only.

    Raises OSError if there is no such file, ValueError for names that lead elsewhere.
    """
    if not names or any(not name or name in (".", "..") or "/" in name for name in names):
        raise ValueError("not the name of a file")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a pipe would wait
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for depth, name in enumerate(names, start=1):
            kind = os.O_DIRECTORY if depth < len(names) else 0
            named = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            inner = os.open(name, flags | kind, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        status = os.fstat(descriptor)
        if (
            not stat.S_ISREG(status.st_mode)
            or not os.path.samestat(named, status)
            or not named.st_nlink == status.st_nlink == 1
        ):
            raise OSError(errno.EINVAL, "not a regular file with one name")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: Path) -> None:
    """Raise OSError for a pipe or a device, which may have no end, a folder, or no file."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "Not a regular file")


def digest_file(path: Path) -> str:
    """sha256 of a file, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_json(value: Any) -> str:
    """sha256 of a JSON value; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


class FolderInUseError(UsageError):
    """Another process holds the lock of a folder."""


def sole_writer(folder: Path) -> AbstractContextManager[None]:
    """Lock `folder` against other processes; the lock ends with the process.

    Raises `FolderInUseError` if another process writes to it.
    """
    return file_lock(folder / LOCK)


@contextmanager
def sole_output(out: str | Path) -> Iterator[None]:
    """Lock an output, a file or a folder, against other processes of this user and machine.

    The lock is a file in the folder of temporary files: the output may be absent, and is replaced.
    Without such a folder there is no lock. Raises `FolderInUseError` if another process writes it.
    """
    if "LOCAL_RANK" in os.environ:  # one of the processes of a training on several devices
        yield
        return
    name = hashlib.sha256(str(out if "://" in str(out) else Path(out).resolve()).encode())
    # A user of a container need not have a name.
    user = getpass.getuser() if sys.platform == "win32" else os.getuid()
    folder = Path(tempfile.gettempdir(), f"saga-outputs-{user}")
    with ExitStack() as lock:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            if sys.platform != "win32" and folder.lstat().st_uid != user:
                raise PermissionError("another user made the folder, to hold locks or plant links")
            lock.enter_context(file_lock(folder / name.hexdigest()))
        except FolderInUseError:
            raise FolderInUseError(
                f"Another process is writing {out}. Wait for it, or name another output."
            ) from None
        except OSError:
            pass
        yield


@contextmanager
def file_lock(path: Path, *, shared: bool = False, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a file, alone or shared with others that share it.

    Raises `FolderInUseError` instead of waiting, unless `wait`, and `UsageError` if the file system
    has no locks. Windows has no shared locks: there a shared lock is held alone.
    """
    with path.open("a+b") as file:
        try:
            if sys.platform == "win32":
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            else:
                kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
                fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise UsageError(
                    f"The file system of {path.parent} has no locks, which protect the output. "
                    "Mount it with locks (NFS 4, Lustre with -o flock), or use another folder."
                ) from None
            raise FolderInUseError(
                f"Another process is writing to {path.parent}. Wait for it, or use another folder."
            ) from None
        yield
