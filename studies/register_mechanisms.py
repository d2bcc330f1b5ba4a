"""Which published figures need which mechanism of the register?

    python -m studies.register_mechanisms [--persons 40000] [--workers 2] [--seed 1]
        [--only NAME ...] [--out docs/register-mechanisms.md]

The register is generated again without each mechanism and compared with the same targets. The page
explains the table (`EXPLANATION`).
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import polars as pl

from saga.files.markdown import markdown_table
from saga.register import RegisterSettings
from saga.register.simulation.mechanisms import MECHANISMS
from saga.register.validation.register_check import count_verdicts, format_number
from studies.register_targets import generate_and_check
from studies.study_page import command_line, publish_page, say, study_parser

HEADER = (
    *("without", "enforced targets lost", "reported targets lost"),
    *("targets gained", "largest change"),
)
MAX_NAMES = 3  # targets that a table cell names; the rest are counted
EXPLANATION = """A target is lost if it holds with the mechanism and not without it. It is gained if
it holds only without it. A target without a value does not hold; "unmeasured" says that it has no
value with or without the mechanism. In brackets: the change in standard errors of the difference of
two independent registers. A target that changes by less than 3 was near the edge of its band; this
may be chance."""


def main() -> None:
    """Print the page; write it to --out after each mechanism."""
    parser = study_parser(__doc__)
    parser.add_argument("--persons", type=int, default=40_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], choices=MECHANISMS)
    parser.add_argument("--out", type=Path, help="write the table as Markdown, too")
    args = parser.parse_args()
    mechanisms = args.only or list(MECHANISMS)
    whole = RegisterSettings(persons=args.persons, seed=args.seed)
    settings = [whole, *(replace(whole, without=(name,)) for name in mechanisms)]
    # spawn: threads of polars do not survive a fork
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        tables = pool.map(generate_and_check, settings)
        full, rows = next(tables), list[tuple[str, ...]]()
        for name, reduced in zip(mechanisms, tables, strict=True):
            say(name)
            rows.append((f"`{name}`", *compare(full, reduced)))
            if args.out is not None:
                args.out.write_text(page(full, rows) + "\n", encoding="utf-8")
        publish_page(page(full, rows))


def page(full: pl.DataFrame, rows: list[tuple[str, ...]]) -> str:
    """The page with one row per mechanism."""
    return f"""\
# What each mechanism of the register is needed for

`{command_line(__file__)}`

All mechanisms on: {count_verdicts(full)}

{EXPLANATION}

{markdown_table(HEADER, rows)}"""


def compare(full: pl.DataFrame, reduced: pl.DataFrame) -> tuple[str, str, str, str]:
    """The cells of a row: lost (enforced, reported), gained, largest change."""
    paired = full.join(
        reduced.select("key", value_less="value", se_less="se", holds_less="holds"),
        on="key",
        maintain_order="left",
    )
    error = (pl.col("se") ** 2 + pl.col("se_less") ** 2).sqrt()
    change = (pl.col("value_less") - pl.col("value")) / error
    changes = paired.with_columns(pl.col("holds", "holds_less").fill_null(False), z=change).sort(
        pl.col("z").abs(), descending=True
    )
    lost = changes.filter(pl.col("holds"), ~pl.col("holds_less"))
    gained = changes.filter(~pl.col("holds"), pl.col("holds_less"))
    largest = changes.filter(pl.col("z").is_finite()).row(0, named=True)
    return (
        target_list(lost.filter("enforced")),
        target_list(lost.filter(~pl.col("enforced"))),
        target_list(gained),
        f"`{largest['key']}` {format_number(largest['value'])} to "
        f"{format_number(largest['value_less'])} ({largest['z']:+.0f})",
    )


def target_list(rows: pl.DataFrame) -> str:
    """The first MAX_NAMES keys with their changes, and the number of the others."""
    keys = [
        f"`{key}` ({'unmeasured' if z is None else f'{z:+.0f}'})"
        for key, z in rows.select("key", "z").iter_rows()
    ]
    rest = f" and {len(keys) - MAX_NAMES} more" if len(keys) > MAX_NAMES else ""
    return (", ".join(keys[:MAX_NAMES]) + rest) or "none"


if __name__ == "__main__":
    main()
