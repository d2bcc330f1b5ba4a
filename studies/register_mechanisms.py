"""Which published figures need which mechanism of the register?

    python -m studies.register_mechanisms [--persons 40000] [--workers 2] [--seed 1]
        [--only NAME ...] [--out build/mechanisms.md]

The register is generated again without each mechanism and compared with the same targets. The page
explains the table (`EXPLANATION`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import polars as pl

from saga.pages.format import markdown_table
from saga.register import RegisterSettings
from saga.register.simulation.parameters import MECHANISMS
from saga.register.validation.register_check import count_verdicts, format_number
from studies.register_targets import generate_and_check
from studies.study_page import command_line, publish_page, say, study_parser

HEADER = (
    *("without", "enforced figures lost", "others lost", "gained"),
    *("the figure that changes most", "with", "without", "change, s.e."),
)
EXPLANATION = """The register is generated again without each mechanism (in commands `--without`
with underscores for blanks). A figure is lost if it lies in its allowed range with the mechanism
and not without it, and gained if it lies there only without it. "Enforced" figures decide whether
`saga register check` passes; the others are only reported. The change is counted in
standard errors of the difference between two independent registers. A figure that changes by less
than 3 was near the edge of its range: chance may explain it. Figures have the keys
of the check."""


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
        full, compared = next(tables), list[tuple[str, ...]]()
        for name, reduced in zip(mechanisms, tables, strict=True):
            say(name)
            compared.append(compare(name, full, reduced))
            if args.out is not None:
                args.out.write_text(page(count_verdicts(full), compared) + "\n", encoding="utf-8")
        publish_page(page(count_verdicts(full), compared))


def page(verdicts: str, compared: Sequence[tuple[str, ...]]) -> str:
    """The page: one row per mechanism."""
    return f"""\
# What each mechanism of the register is needed for

`{command_line(__file__)}`

All mechanisms on: {verdicts}

{EXPLANATION}

{markdown_table(HEADER, compared)}"""


def compare(name: str, full: pl.DataFrame, reduced: pl.DataFrame) -> tuple[str, ...]:
    """The row of a mechanism, from the tables of figures with all and without this one.

    A figure that is unmeasured with or without it counts as lost or gained, but not as changed.
    """
    paired = full.join(
        reduced.select("key", value_less="value", se_less="se", holds_less="holds"),
        on="key",
        maintain_order="left",
    )
    error = (pl.col("se") ** 2 + pl.col("se_less") ** 2).sqrt()
    changes = paired.with_columns(
        pl.col("holds", "holds_less").fill_null(False),
        z=(pl.col("value_less") - pl.col("value")) / error,
    ).sort(pl.col("z").abs(), descending=True)
    lost = changes.filter(pl.col("holds"), ~pl.col("holds_less"))
    most = changes.filter(pl.col("z").is_finite()).row(0, named=True)
    return (
        name.replace("_", " "),
        str(lost.filter("enforced").height),
        str(lost.filter(~pl.col("enforced")).height),
        str(changes.filter(~pl.col("holds"), pl.col("holds_less")).height),
        f"`{most['key']}`",
        format_number(most["value"]),
        format_number(most["value_less"]),
        f"{most['z']:+.0f}",
    )


if __name__ == "__main__":
    main()
