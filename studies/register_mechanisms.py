"""Which published figures need which mechanism of the register?

    python -m studies.register_mechanisms [--persons 40000] [--workers 2] [--seed 1]
        [--only NAME ...] [--out docs/register-mechanisms.md]

The register is generated again without each mechanism and compared with the same targets. The page
explains the table (`EXPLANATION`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl

from saga.pages.format import markdown_table
from saga.register import RegisterSettings
from saga.register.simulation.parameters import MECHANISMS
from saga.register.validation.register_check import count_verdicts, format_number
from studies.register_targets import generate_and_check
from studies.study_page import command_line, publish_page, say, study_parser

Change = tuple[str, float | None]  # key of a figure, and its change in standard errors
HEADER = (
    *("without", "enforced figures lost", "others lost", "gained"),
    *("the figure that changes most", "with", "without", "change, s.e."),
)
MAX_NAMES = 3  # figures that a line names; the rest are counted
LONG = 80  # letters of a concept that is shown whole
EXPLANATION = """The register is generated again without each mechanism (in commands `--without`
with underscores for blanks). A figure is lost if it lies in its allowed range with the mechanism
and not without it, and gained if it lies there only without it. "Enforced" figures decide whether
the [check](register-check.md) passes; the others are only reported. The change is counted in
standard errors of the difference between two independent registers. A figure that changes by less
than 3 was near the edge of its range: chance may explain it."""


@dataclass(frozen=True)
class Comparison:
    """What the register loses and gains without a mechanism.

    Args:
        name: The mechanism.
        lost: Keys and changes of the enforced figures that are lost, the largest change first.
        reported: The same of the others.
        gained: The same of figures that lie in their range only without the mechanism.
        largest: The row of the figure that changes most: key, concept, population, statistic,
            value, value_less, z.
    """

    name: str
    lost: tuple[Change, ...]
    reported: tuple[Change, ...]
    gained: tuple[Change, ...]
    largest: Mapping[str, Any]


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
        full, compared = next(tables), list[Comparison]()
        for name, reduced in zip(mechanisms, tables, strict=True):
            say(name)
            compared.append(compare(name, full, reduced))
            if args.out is not None:
                args.out.write_text(page(count_verdicts(full), compared) + "\n", encoding="utf-8")
        publish_page(page(count_verdicts(full), compared))


def page(verdicts: str, compared: Sequence[Comparison]) -> str:
    """The page: one row per mechanism, then the names of the figures."""
    return f"""\
# What each mechanism of the register is needed for

`{command_line(__file__)}`

All mechanisms on: {verdicts}

{EXPLANATION}

{markdown_table(HEADER, [table_row(one) for one in compared])}

## Which figures

At most {MAX_NAMES} of a kind, by their keys in [the check](register-check.md). In brackets: the
change in standard errors; "unmeasured": the figure has no value with or without the mechanism.

{chr(10).join(line for one in compared if (line := figures_line(one)))}"""


def compare(name: str, full: pl.DataFrame, reduced: pl.DataFrame) -> Comparison:
    """The tables of figures with all mechanisms and without the one called `name`."""
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
    return Comparison(
        name,
        lost=_changes(lost.filter("enforced")),
        reported=_changes(lost.filter(~pl.col("enforced"))),
        gained=_changes(gained),
        largest=changes.filter(pl.col("z").is_finite()).row(0, named=True),
    )


def _changes(rows: pl.DataFrame) -> tuple[Change, ...]:
    return tuple(zip(rows["key"], rows["z"], strict=True))


def table_row(one: Comparison) -> tuple[str, ...]:
    """Counts, and the figure that changes most in words."""
    most = one.largest
    return (
        one.name.replace("_", " "),
        *(str(len(changes)) for changes in (one.lost, one.reported, one.gained)),
        describe_figure(most),
        format_number(most["value"]),
        format_number(most["value_less"]),
        f"{most['z']:+.0f}",
    )


def describe_figure(row: Mapping[str, Any]) -> str:
    """Concept, statistic and persons of a figure; of long descriptions, the first part."""
    concept, persons = row["concept"], row["population"].split(";")
    concept = concept if len(concept) <= LONG else concept.split(":")[0]
    groups = [persons[0].split(",")[0], *(part.strip() for part in persons[1:])]
    return f"{concept}: {row['statistic']} ({'; '.join(groups)})"


def figures_line(one: Comparison) -> str:
    """The names of the figures lost as an item of a list; empty without any."""
    kinds = {"lost": one.lost, "lost, not enforced": one.reported}
    parts = [f"{kind}: {target_list(changes)}" for kind, changes in kinds.items() if changes]
    return f"- **{one.name.replace('_', ' ')}**: {'; '.join(parts)}" if parts else ""


def target_list(changes: Sequence[Change]) -> str:
    """The first MAX_NAMES keys with their changes, and the number of the others."""
    keys = [f"`{key}` ({'unmeasured' if z is None else f'{z:+.0f}'})" for key, z in changes]
    rest = f" and {len(keys) - MAX_NAMES} more" if len(keys) > MAX_NAMES else ""
    return ", ".join(keys[:MAX_NAMES]) + rest


if __name__ == "__main__":
    main()
