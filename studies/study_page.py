"""Parts that studies share: options, the head of a page, publishing a page, progress."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path


def study_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser without options; `--help` shows the description as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def bundle_parser(
    description: str | None, *, n_persons: int | None, n_paths: int | None, report: bool = True
) -> argparse.ArgumentParser:
    """The parser of a study of a bundle.

    Args:
        description: The docstring of the study.
        n_persons: Default of `--persons`; None: all.
        n_paths: Default of `--paths`; None: there is no such option.
        report: Whether there is an option `--report`; the study must write the page.
    """
    parser = study_parser(description)
    parser.add_argument("--bundle", type=Path, default=Path("bundles/small"))
    parser.add_argument("--persons", type=int, default=n_persons)
    if n_paths is not None:
        parser.add_argument("--paths", type=int, default=n_paths)
    parser.add_argument("--seed", type=int, default=0)
    if report:
        parser.add_argument("--report", type=Path, help="Markdown file to write as well.")
    return parser


def command_line(script: str) -> str:
    """The command that runs the study in the file `script`, as it was typed."""
    return shlex.join(["python", "-m", f"studies.{Path(script).stem}", *sys.argv[1:]])


def code_commit() -> str:
    """The short commit of the working directory; "unknown" outside a repository."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def page_head(title: str, script: str, **facts: object) -> str:
    """Title, command, commit and the facts (name = value) that the results depend on."""
    listed = "".join(f", {name.replace('_', ' ')} `{value}`" for name, value in facts.items())
    return f"# {title}\n\n`{command_line(script)}`\n\nCommit {code_commit()}{listed}."


def publish_page(page: str, *files: Path | None) -> None:
    """Print the page, and write it to the files that are not None."""
    text = page.rstrip() + "\n"
    for file in files:
        if file is not None:
            file.write_text(text, encoding="utf-8")
    print(text, end="", flush=True)


def say(line: str) -> None:
    """Print a line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)


class StepLog:
    """Says when a step begins, and when it ends with its seconds."""

    def __init__(self) -> None:
        self.since = time.perf_counter()

    def __call__(self, step: str, done: int, total: int) -> None:
        """Report `done` of `total` parts of a step (`saga.evaluation.contest.Progress`)."""
        if done in (0, total):
            now = time.perf_counter()
            say(f"  {step}" + (f": {now - self.since:.0f} s" if done else ""))
            self.since = now
