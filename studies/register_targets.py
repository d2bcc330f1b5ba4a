"""How close do registers of several seeds come to published figures?

    python -m studies.register_targets [--persons 100000] [--seeds 11 12 13] [--workers 2]
        --out docs/register-check.md

Writes a page of headlines and the full table as `targets.csv` in a folder of the page's name.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl

from saga.pages.format import markdown_table
from saga.register import RegisterSettings, check_register, generate_register
from saga.register.validation.register_check import format_number
from studies.study_page import command_line, publish_page, study_parser

DESCRIPTION = (
    "key", "topic", "concept", "population", "statistic", "target", "low", "high", "enforced",
    "mark", "source",
)  # fmt: skip


def main() -> None:
    """Generate the registers, compare them, write page and table."""
    parser = study_parser(__doc__)
    parser.add_argument("--persons", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tables = {
        seed: generate_and_check(RegisterSettings(persons=args.persons, seed=seed), args.workers)
        for seed in args.seeds
    }
    write(join(tables), args.seeds, args.persons, args.out)


def generate_and_check(settings: RegisterSettings, workers: int = 1) -> pl.DataFrame:
    """The table of targets of a temporary register."""
    with tempfile.TemporaryDirectory() as scratch:
        register = Path(scratch) / "register"
        generate_register(register, settings, workers=workers)
        return check_register(register)


def join(tables: dict[int, pl.DataFrame]) -> pl.DataFrame:
    """One row per target: band of the first seed, value and `holds` of each seed."""
    table = next(iter(tables.values())).select(DESCRIPTION)
    for seed, part in tables.items():
        values = part.select(
            "key", pl.col("value").alias(f"value_{seed}"), pl.col("holds").alias(f"holds_{seed}")
        )
        table = table.join(values, on="key", how="left", maintain_order="left")
    return table.with_columns(pl.col(pl.Float64).map_elements(round_as_printed, pl.Float64))


def round_as_printed(value: float) -> float:
    """The number that the page shows."""
    return float(format_number(value).replace(",", ""))


def write(table: pl.DataFrame, seeds: list[int], persons: int, out: Path) -> None:
    """Write the page to `out`, and the full table to a folder of the same name."""
    folder = out.with_suffix("")
    folder.mkdir(exist_ok=True)
    table.write_csv(folder / "targets.csv")
    publish_page(page(table, seeds, persons, f"{folder.name}/targets.csv"), out)


def page(table: pl.DataFrame, seeds: list[int], persons: int, full_table: str) -> str:
    """The page; `full_table` is the path of the full table, relative to the page."""
    head = (
        *("seed", "enforced: inside", "outside", "not measured"),
        *("reported: inside", "outside", "no band or value"),
    )
    return f"""\
# Registers compared with published figures

Registers of {persons:,} persons with seeds {", ".join(map(str, seeds))}, with which no parameter
was set. Written by

    {command_line(__file__)}

All {table.height} targets, with their sources: [{full_table}]({full_table}); of one register:
`saga register check`. A band is the published figure plus and minus a fixed margin and 3 standard
errors of the simulated value (here of seed {seeds[0]}). Enforced targets (read in a public source,
or derived from such values) must lie inside.

## Verdicts

{markdown_table(head, (verdicts(table, seed) for seed in seeds))}

## Targets outside their band

Enforced: {missed_keys(table.filter("enforced"), seeds)}.

Reported, with the number of registers: {missed_keys(table.filter(~pl.col("enforced")), seeds)}.
What is known of the reasons: [known misfits](register.md#known-misfits).
"""


def verdicts(table: pl.DataFrame, seed: int) -> tuple[str, ...]:
    """A row of counts: enforced, then reported targets."""
    holds = pl.col(f"holds_{seed}")
    counts = (
        table.filter(pl.col("enforced") == enforced, condition).height
        for enforced in (True, False)
        for condition in (holds.eq(True), holds.eq(False), holds.is_null())
    )
    return (str(seed), *map(str, counts))


def missed_keys(table: pl.DataFrame, seeds: list[int]) -> str:
    """The targets that lie outside their band, with the number of seeds; or "none"."""
    outside = pl.sum_horizontal(pl.col(f"holds_{seed}").eq(False) for seed in seeds)
    missed = table.select("key", outside=outside).filter(pl.col("outside") > 0)
    return ", ".join(f"`{key}` ({count})" for key, count in missed.iter_rows()) or "none"


if __name__ == "__main__":
    main()
