"""What the studies share: options, the head of a page, progress, publishing a page."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path


def study_parser(
    description: str | None, *, n_persons: int | None, n_paths: int
) -> argparse.ArgumentParser:
    """A parser with --bundle, --persons, --paths, --seed and --report.

    Args:
        description: shown by --help as it is written.
        n_persons: default of --persons; None means everybody.
        n_paths: default of --paths.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, default=Path("bundles/small"))
    parser.add_argument("--persons", type=int, default=n_persons)
    parser.add_argument("--paths", type=int, default=n_paths)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, help="Markdown file to write as well.")
    return parser


def command_line(script: str) -> str:
    """The command that runs the study in the file `script`, as it was typed."""
    return shlex.join(["python", "-m", f"studies.{Path(script).stem}", *sys.argv[1:]])


def code_commit() -> str:
    """The short commit of the working directory; "unknown" outside a repository."""
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"


def page_head(title: str, script: str, **facts: object) -> str:
    """Title, command, commit and the facts (name = value) that the results depend on."""
    origin = ", ".join(f"{name.replace('_', ' ')} `{value}`" for name, value in facts.items())
    return (
        f"# {title}\n\n`{command_line(script)}`\n\nCommit {code_commit()}{origin and ', '}{origin}."
    )


def publish_page(page: str, *files: Path | None) -> None:
    """Print the page and write it to each file that is not None."""
    text = page.rstrip() + "\n"
    for file in files:
        if file is not None:
            file.write_text(text, encoding="utf-8")
    print(text, end="", flush=True)


def say(line: str) -> None:
    """A line on standard error for the person who waits."""
    print(line, file=sys.stderr, flush=True)


class StepLog:
    """A line on standard error for each step that begins or ends, with its seconds."""

    def __init__(self) -> None:
        self.since = time.perf_counter()

    def __call__(self, step: str, done: int, total: int) -> None:
        """A callback (`evaluation.contest.Progress`): `done` of `total` parts of a step."""
        if done in (0, total):
            now = time.perf_counter()
            say(f"  {step}" + (f": {now - self.since:.0f} s" if done else ""))
            self.since = now
