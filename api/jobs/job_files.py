"""Files that a job may name instead of sending them, in a folder of the service.

A holder has the files in the folder of its name. Links that lead out of it are not followed.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from saga.api.problems import ProblemError

from saga.errors import Problem

SUFFIXES = (".parquet", ".arrow", ".csv")


def find_file(root: Path | None, holder: str | None, name: str) -> Path:
    """The file `name` of a holder under `root`; None for a service without keys: all files.

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
            return path
    except (OSError, ValueError, RuntimeError):  # absent, no name of a file, a circle of links
        pass
    fix = f"Name a file with the suffix {', '.join(SUFFIXES)}, relative to your folder"
    problem = Problem("file", "You have no such file", fix, "file")
    raise ProblemError(422, "file", "The file of the job cannot be read", [problem])


def copy_file(source: Path, target: Path) -> str:
    """Copy a file, so that the job does not change with it; returns the sha256 of the copy."""
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
