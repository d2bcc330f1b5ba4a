"""What it costs the bundle that records lack columns or years, and whether it still beats baselines that know as little.

    python benchmarks/missing.py REGISTER --out DIR [--bundle bundles/small] [--baselines carry,groupq,gbt] [--persons N] [--paths 200]
        [--seed 0] [--cache DIR] [--workers 1] [--report FILE]

REGISTER is any panel; with `future/draw=k` (`saga register generate --future-to 2042 --future-draws 20`) also forward. Test persons are
judged, in-time and forward, at h = 1, 5, 10, 20, on the same origins and outcomes whatever is hidden. Scores and fitted baselines stay in
--cache (OUT/kept), so that the same command goes on where it stopped; the cache of `saga evaluate --cache` serves.
Exit 1 where the bundle is not better than a baseline with p < .01 (Holm over horizons).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import polars as pl

from evaluation.contest import PATHS, Contest, chosen
from evaluation.degradation import as_markdown, compare, score, shortfalls
from evaluation.missing import REDUCTIONS
from evaluation.scripts import code_commit, command_line, options
from saga.data.reading import read_panel
from saga.files.tables import write_table
from saga.forecaster import Forecaster

NOTE = """CRPS of log earnings, lower is better; ± is the standard error (in-time over persons, forward of the mean over drawn futures).
"loss" is what the bundle loses to itself with all columns and years. Baselines are fitted on, and asked from, what is left of the records;
"saga better by" is the share of the baseline's CRPS, from paired differences (clusters: persons in-time, persons and drawn futures
forward), p adjusted for the horizons (Holm). ? marks p of .01 and above, **!** a baseline that is as good or better. In-time, baselines
know the economy that came from the outcomes of these very years; "told" is the bundle that is told it, and is judged there."""


def main() -> int:
    """Scores every record, writes missing.parquet and missing.md (and the report), prints the table."""
    parser = options(__doc__, persons=None, paths=PATHS)
    parser.add_argument("register", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--baselines", default="carry,groupq,gbt")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle, workers=args.workers)
    baselines = args.baselines.split(",")
    chosen(baselines)  # an unknown name is found out before the panel is read
    folder = args.cache or args.out / "kept"
    contest = Contest(
        read_panel(args.register),
        paths=args.paths,
        seed=args.seed,
        persons=args.persons,
        until=forecaster.bundle.config.get("until"),
        cache=folder,
        progress=Progress(),
    )
    futures = args.register if any(args.register.glob("future/draw=*")) else None
    settings = list(contest.settings(futures))
    found = {}
    for reduction in REDUCTIONS:
        tell(f"{reduction.label}:")
        found[reduction.name] = score(
            contest, reduction, settings, forecaster, chosen(baselines), folder
        )
    table = compare(found, settings, contest.horizons)
    about = {
        **forecaster.provenance(paths=args.paths, seed=args.seed),
        **contest.provenance,
        "commit": code_commit(),
    }
    page = report(table, command_line(__file__), about)
    args.out.mkdir(parents=True, exist_ok=True)
    write_table(table, args.out / "missing.parquet", about)
    for file in (args.out / "missing.md", args.report):
        if file:
            file.write_text(page, encoding="utf-8")
    print(page)
    return int(bool(shortfalls(table)))


def report(table: pl.DataFrame, command: str, about: dict[str, object]) -> str:
    """The page: command, provenance, tables and what was not beaten."""
    origin = ", ".join(
        f"{name} `{about[name]}`"
        for name in ("panel", "bundle", "rollout", "commit", "seed", "paths")
    )
    missed = shortfalls(table)
    verdict = "\n".join(f"- {line}" for line in missed) or (
        "The bundle, in-time told the economy, is better than every baseline on every record at every horizon."
    )
    parts = [
        "# What poorer records cost",
        f"`{command}`",
        f"{origin}.",
        NOTE,
        as_markdown(table, {r.name: r.label for r in REDUCTIONS}),
    ]
    return "\n\n".join([*parts, "## Against baselines that know as little", verdict]) + "\n"


class Progress:
    """A line on standard error for each step that begins a fit or ends, with the seconds since the line before."""

    def __init__(self) -> None:
        self.since = time.perf_counter()

    def __call__(self, step: str, done: int, total: int) -> None:
        """`evaluation.contest.Progress`."""
        if done in (0, total):
            now = time.perf_counter()
            tell(f"  {step}" + (f": {now - self.since:.0f} s" if done else ""))
            self.since = now


def tell(line: str) -> None:
    """To the person who waits."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
