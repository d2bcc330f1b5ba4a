r"""The scoreboard: which contests were announced, and every judgement of them, chained by hash.

One JSON object a line, in a file that is only appended to. A row has the hash of the row before it
and its own: SHA-256 of its other fields as JSON with sorted keys. So no row can be changed, removed
or put between others without breaking all rows after it, and the file of each earlier commit must
be the beginning of the present one.

    python -m saga.evaluation.scoreboard announce NAME --panel P --split S --question Q \
        "saga register generate --seed {seed} --out {out}/panel" \
        "saga evaluate bundles/small --panel {out}/panel --out {out}/results"
    python -m saga.evaluation.scoreboard judge NAME --out DIR
    python -m saga.evaluation.scoreboard verify

`announce` freezes the choice: the contest is that of the commit checked out, and its seed is the
SHA-256 of that commit, so nobody chooses it. `judge` runs the commands and appends the scores. It
appends a row before it starts, so a run that was aborted stays on the board, and so does each
further judgement, with its number.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from saga.evaluation.report.evaluation_results import Results

from saga.errors import SagaError, UsageError
from saga.files.atomic import digest_json

FILE = Path("docs/results/scoreboard.jsonl")
CONTEST, STARTED, JUDGED, ABORTED = "contest", "started", "judged", "aborted"
BACKFILLED = "backfilled"  # judged without the scoreboard; `source` says where it was written
SHOWN = "shown"  # tables that the page of results was given (`docs/results/write.py --take`)
ENDED = (JUDGED, ABORTED, BACKFILLED, SHOWN)
METRICS = ("crps_log", "logscore", "interval_90", "coverage_90")  # those a row holds
FIRST = "0" * 64  # what the first row names as the hash of the row before it
SEED_BITS = 31
_TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
Row = Mapping[str, Any]


def hash_row(row: Row) -> str:
    """SHA-256 of a row without its own hash."""
    text = json.dumps({k: v for k, v in row.items() if k != "hash"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def seed_of(commit: str) -> int:
    """The seed of a contest: the first 31 bits of the SHA-256 of the commit that froze it."""
    digest = hashlib.sha256(commit.encode()).digest()
    return int.from_bytes(digest[:4], "big") >> (32 - SEED_BITS)


@dataclass
class Scoreboard:
    """The rows of a file, verified."""

    file: Path = FILE
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path = FILE) -> Scoreboard:
        """The rows of `file`; none if it does not exist.

        Raises UsageError, which names the first row that is not as it was written.
        """
        board, before = cls(file), FIRST
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                row = json.loads(line)
                whole = row["previous"] == before and row["hash"] == hash_row(row)
            except (ValueError, KeyError, TypeError):
                whole = False
            if not whole:
                raise UsageError(
                    f"{file}: row {number} is not as it was written, or a row before it was "
                    "removed. Restore the file from the history of the repository, then append."
                )
            board.rows.append(row)
            before = row["hash"]
        return board

    def append(self, content: Row) -> Row:
        """Append a row with the date of today, unless `content` has one.

        Another judgement may have appended rows since this board was read: they are read first.
        """
        with self.file.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.rows = Scoreboard.read(self.file).rows
            before = self.rows[-1]["hash"] if self.rows else FIRST
            row = {"date": datetime.now(UTC).date().isoformat(), **content, "previous": before}
            row["hash"] = hash_row(row)
            file.write(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(row)
        return row

    def contest(self, name: str) -> Row:
        """The contest as it was announced; UsageError if it was not."""
        announced = [r for r in self.rows if r["kind"] == CONTEST and r["contest"] == name]
        if not announced:
            names = ", ".join(r["contest"] for r in self.rows if r["kind"] == CONTEST) or "none"
            raise UsageError(f"No contest {name} was announced. Those that were: {names}.")
        return announced[0]

    def judgements(self, name: str) -> list[Row]:
        """Every row that ended a judgement of a contest, the oldest first."""
        return [r for r in self.rows if r["kind"] in ENDED and r["contest"] == name]

    def result(self, name: str) -> Row:
        """The last judgement of a contest with a result; UsageError without one."""
        finished = [row for row in self.judgements(name) if row["kind"] != ABORTED]
        if not finished:
            raise UsageError(f"The contest {name} has no result.")
        return finished[-1]

    def attempts(self, name: str) -> int:
        """How often a contest was judged, runs that were aborted or never ended included."""
        kinds = (STARTED, BACKFILLED, SHOWN)
        return sum(row["kind"] in kinds and row["contest"] == name for row in self.rows)

    def announce(
        self, name: str, *, panel: str, split: str, question: str, commands: Sequence[str]
    ) -> Row:
        """Append a contest with the present commit and its seed.

        `commands` may contain {seed} and {out}; the last one writes results to {out}/results.
        Raises UsageError if the name is taken, or the working tree differs from its commit.
        """
        if any(r["kind"] == CONTEST and r["contest"] == name for r in self.rows):
            raise UsageError(f"A contest {name} was announced before. Choose another name.")
        commit = clean_commit(self.file)
        return self.append(
            {
                "kind": CONTEST,
                "contest": name,
                "panel": panel,
                "split": split,
                "question": question,
                "commands": list(commands),
                "commit": commit,
                "seed": seed_of(commit),
            }
        )

    def judge(self, name: str, out: Path) -> Row:
        """Run the commands of a contest and append what they judged, or that they failed.

        The row has the commands with the name of `out` alone: where it lies is this machine's.
        Raises UsageError if the contest is unknown, `out` exists, or the working tree differs from
        its commit in anything but this file.
        """
        contest = self.contest(name)
        commit = clean_commit(self.file)
        if out.exists():
            raise UsageError(f"{out} exists. A judgement starts from nothing: give a new folder.")
        commands, recorded = (
            [c.format(seed=contest["seed"], out=folder) for c in contest["commands"]]
            for folder in (out, out.name)
        )
        shared = {"contest": name, "attempt": self.attempts(name) + 1, "commit": commit}
        shared |= {"seed": contest["seed"], "command": " && ".join(recorded)}
        self.append({"kind": STARTED, **shared})
        out.mkdir(parents=True)
        here = Path(sys.executable).parent  # `saga` and `python` are those of this program
        env = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}"}
        for command, written in zip(commands, recorded, strict=True):
            status: int | str
            try:
                status = subprocess.run(shlex.split(command), check=False, env=env).returncode
            except (KeyboardInterrupt, OSError) as error:
                status = type(error).__name__
            is_no = status == 1 and command == commands[-1]  # the check says no: that is a result
            if status and not is_no:
                return self.append({"kind": ABORTED, **shared, "reason": f"{written}: {status}"})
        try:
            results = read_results(out)
        except UsageError as error:
            return self.append({"kind": ABORTED, **shared, "reason": str(error)})
        return self.append({"kind": JUDGED, **shared, **results})


def read_results(out: Path) -> dict[str, Any]:
    """What the commands of a contest left: tables of a contest in `results`, or a page with tables.

    Raises UsageError if there is neither.
    """
    if (out / "results").is_dir():
        return result_fields(Results.read(out / "results"))
    if (out / "results.md").is_file():
        return {"pages": tables_of((out / "results.md").read_text(encoding="utf-8"))}
    raise UsageError(f"{out} has neither results/metrics.parquet nor results.md.")


def tables_of(page: str) -> list[dict[str, Any]]:
    """The tables of a page in Markdown, each `head` and `rows` of texts."""
    tables = []
    for text in _TABLE.findall(page):
        lines = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            for line in text.strip().splitlines()
        ]
        tables.append({"head": lines[0], "rows": lines[2:]})
    return tables


def result_fields(results: Results) -> dict[str, Any]:
    """What a row holds of the results of a contest: bundle, scores, tests and digests of tables.

    `scores` is setting and horizon -> metric -> model -> [mean, standard error, n]; `tests` the
    same -> [difference from the bundle, standard error, p, test].
    """
    provenance, tests = results.provenance, dict[str, Any]()
    rows = results.metrics.filter(
        pl.col("group") == "all",
        pl.col("metric").is_in(METRICS),
        pl.col("n") > 0,
    )
    scores: dict[str, Any] = {}
    for row in rows.iter_rows(named=True):
        at = scores.setdefault(f"{row['setting']} {row['horizon']}", {})
        at.setdefault(row["metric"], {})[row["model"]] = [
            _rounded(row["value"]),
            _rounded(row["se"]),
            row["n"],
        ]
    if results.comparisons is not None:
        compared = results.comparisons.filter(
            pl.col("group") == "all", pl.col("metric").is_in(METRICS)
        )
        for row in compared.iter_rows(named=True):
            at = tests.setdefault(f"{row['setting']} {row['horizon']}", {})
            figures = [_rounded(row[key]) for key in ("difference", "se", "p")]
            at.setdefault(row["metric"], {}).setdefault(row["model"], []).append(
                [*figures, row["test"]]
            )
    digests = {
        name: digest_table(table)
        for name in ("metrics", "comparisons", "lifetimes", "variants")
        if isinstance(table := getattr(results, name), pl.DataFrame)
    }
    return {
        "bundle": provenance.get("bundle"),
        "calibration": provenance.get("calibration"),
        "scores": scores,
        "tests": tests,
        "tables": digests,
    }


def digest_table(table: pl.DataFrame) -> str:
    """A digest of the names of columns and all values, whatever wrote the file."""
    return digest_json([table.columns, [list(map(repr, row)) for row in table.rows()]])


def clean_commit(scoreboard: Path) -> str:
    """The commit that is checked out; UsageError if other files than `scoreboard` were changed."""
    changed = [
        line[3:]
        for line in git("status", "--porcelain", "--untracked-files=all").splitlines()
        if not line.endswith(scoreboard.name)
    ]
    if changed:
        raise UsageError(
            f"Files differ from the commit, {changed[0]} for one: the judgement could not be "
            "repeated. Commit them first."
        )
    return git("rev-parse", "HEAD").strip()


def check_history(file: Path) -> int:
    """The number of commits whose rows the file begins with; UsageError at the first other one."""
    commits = git("log", "--format=%H", "--", str(file)).split()
    now = file.read_text(encoding="utf-8")
    for commit in commits:
        if not now.startswith(git("show", f"{commit}:./{file}")):
            raise UsageError(f"{file} does not begin with the rows of commit {commit[:8]}.")
    return len(commits)


def git(*arguments: str) -> str:
    """What a command of git prints; UsageError if there is no repository or no such thing."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"git {arguments[0]} failed: {done.stderr.strip()}. Run this in a clone.")
    return done.stdout


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m saga.evaluation.scoreboard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--file", type=Path, default=FILE)
    commands = parser.add_subparsers(dest="action", required=True)
    commands.add_parser("verify", help="name the first row that was changed; exit code 2")
    announce = commands.add_parser("announce", help="announce a contest of the present commit")
    announce.add_argument("name")
    for option in ("--panel", "--split", "--question"):
        announce.add_argument(option, required=True)
    announce.add_argument("commands", nargs="+", help="with {seed} and {out}")
    judge = commands.add_parser("judge", help="run a contest and append its row")
    judge.add_argument("name")
    judge.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        board = Scoreboard.read(options.file)
        if options.action == "verify":
            commits = check_history(options.file)
            line = f"{len(board.rows)} rows are whole, and append to those of {commits} commits."
        elif options.action == "announce":
            row = board.announce(
                options.name,
                panel=options.panel,
                split=options.split,
                question=options.question,
                commands=options.commands,
            )
            line = f"Announced {options.name}: commit {row['commit'][:8]}, seed {row['seed']}."
        else:
            row = board.judge(options.name, options.out)
            line = f"Row {row['hash'][:12]}: {options.name}, {row['kind']}."
    except SagaError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
