"""Which figures need which mechanism: the register simulated again without each one, held against the same table of targets.

    python -m studies.register_mechanisms [--persons 40000] [--workers 2] [--seed 1] [--only NAME ...] [--out docs/register-mechanisms.md]

A target is lost when it holds with the mechanism and not without it. In brackets stands the change, in standard errors of the difference
of two independent registers: what changes by less than 3 was near the edge of its band and may be chance. A target that cannot be
measured without the mechanism is lost, too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import polars as pl

from saga.register import RegisterSettings, generate_register
from saga.register.simulation.mechanisms import MECHANISMS
from saga.register.validation.register_check import check_register, count_verdicts, format_number

HEAD = (
    "without",
    "enforced targets lost",
    "reported targets lost",
    "targets gained",
    "moves farthest",
)
SHOWN = 8  # targets named in a cell; the rest are counted


def main(persons: int, workers: int, seed: int, only: list[str], out: Path | None) -> None:
    """Prints the table, and writes it to `out` line by line."""
    chosen = only or list(MECHANISMS)
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn")
    ) as pool:  # polars' threads do not survive a fork
        worlds = pool.map(partial(measure, persons, seed), [None, *chosen])
        whole = next(worlds)
        table(persons, seed, only, out, whole, zip(chosen, worlds, strict=True))


def table(
    persons: int,
    seed: int,
    only: list[str],
    out: Path | None,
    whole: pl.DataFrame,
    worlds: Iterable[tuple[str, pl.DataFrame]],
) -> None:
    """The page, one line per mechanism as its world comes in."""
    lines = [
        "# What each mechanism of the register is needed for",
        "",
        f"`python -m studies.register_mechanisms --persons {persons} --seed {seed}{''.join(f' --only {name}' for name in only)}`",
        "",
        f"All mechanisms on: {count_verdicts(whole)}",
        "",
        "A target is lost if it holds with the mechanism and not without it. It is gained if it holds only",
        "without it. In brackets: the change in standard errors of a difference. A target that changes by less",
        "than 3 was near the edge of its band; this may be chance.",
        "What is unmeasured has no value in one of the two.",
        "",
        *(f"| {' | '.join(cells)} |" for cells in (HEAD, ("---",) * len(HEAD))),
    ]
    for name, less in worlds:
        print(name, file=sys.stderr)
        lines.append(f"| {' | '.join((f'`{name}`', *compare(whole, less)))} |")
        if out is not None:
            out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def measure(persons: int, seed: int, without: str | None) -> pl.DataFrame:
    """The table of targets of a register without the given mechanism."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "register"
        generate_register(
            folder,
            RegisterSettings(persons=persons, seed=seed, without=(without,) if without else ()),
        )
        return check_register(folder)


def compare(whole: pl.DataFrame, less: pl.DataFrame) -> tuple[str, str, str, str]:
    """The cells of a mechanism's line."""
    both = whole.join(
        less.select("key", value_less="value", se_less="se", holds_less="holds"),
        on="key",
        maintain_order="left",
    )
    error = (pl.col("se") ** 2 + pl.col("se_less") ** 2).sqrt()
    change = (pl.col("value_less") - pl.col("value")) / error
    moved = both.with_columns(pl.col("holds", "holds_less").fill_null(False), z=change).sort(
        pl.col("z").abs(), descending=True
    )
    lost = moved.filter(
        pl.col("holds"), ~pl.col("holds_less")
    )  # without a value it does not hold, and has no change
    gained = moved.filter(~pl.col("holds"), pl.col("holds_less"))
    far = moved.filter(pl.col("z").is_finite()).row(0, named=True)
    return (
        names(lost.filter("enforced")),
        names(lost.filter(~pl.col("enforced"))),
        names(gained),
        f"`{far['key']}` {format_number(far['value'])} to {format_number(far['value_less'])} ({far['z']:+.0f})",
    )


def names(rows: pl.DataFrame) -> str:
    """The keys with their changes, the unmeasured and then the largest first, and how many more there are."""
    keys = [
        f"`{key}` ({'unmeasured' if z is None else f'{z:+.0f}'})"
        for key, z in rows.select("key", "z").iter_rows()
    ]
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return (", ".join(keys[:SHOWN]) + more) or "none"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=40_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], choices=MECHANISMS)
    parser.add_argument("--out", type=Path, help="write the table as Markdown, too")
    given = parser.parse_args()
    main(given.persons, given.workers, given.seed, given.only, given.out)
