"""What benchmark programs share: the options of a bundle and a sample, and the command and commit that made a result."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path


def options(about: str | None, *, persons: int | None, paths: int) -> argparse.ArgumentParser:
    """A parser that knows --bundle, --persons, --paths and --seed, with these defaults for the sizes; `about` is shown as it is written."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, default=Path("bundles/small"))
    parser.add_argument("--persons", type=int, default=persons)
    parser.add_argument("--paths", type=int, default=paths)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def command_line(script: str) -> str:
    """The command that runs the benchmark in the file `script` as it was run."""
    return shlex.join(["python", "-m", f"studies.{Path(script).stem}", *sys.argv[1:]])


def code_commit() -> str:
    """The commit of the working directory, short; "unknown" outside a repository."""
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
