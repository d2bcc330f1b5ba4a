"""The table of targets on several registers side by side, as printed in docs/register-check.md.

python -m studies.register_targets --persons 100000 --seeds 11 12 13 --out docs/register-check.md
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import polars as pl

from saga.register import RegisterSettings, check_register, generate_register
from saga.register.validation.register_check import count_verdicts, format_number, passed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    tables = {seed: measured(args.persons, seed, args.workers) for seed in args.seeds}
    text = page(tables, args.persons)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


def measured(persons: int, seed: int, workers: int) -> pl.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        generate_register(
            Path(folder) / "register", RegisterSettings(persons=persons, seed=seed), workers=workers
        )
        return check_register(Path(folder) / "register")


def page(tables: dict[int, pl.DataFrame], persons: int) -> str:
    seeds = list(tables)
    lines = [
        "# The register held against published figures",
        "",
        f"Registers of {persons:,} persons, seeds {', '.join(map(str, seeds))}, none of them used to set a parameter. Written by",
        f"`python -m studies.register_targets --persons {persons} --seeds {' '.join(map(str, seeds))} --out docs/register-check.md`.",
        "Band: of the first seed (it holds 3 standard errors of the simulated value). Marks: V read in a public source, D derived from V,",
        "M from memory. Enforced targets must lie inside; the others are reported, with * where a value lies outside the band.",
        "",
        *(
            f"- seed {seed}: {count_verdicts(table)} {'Passed.' if passed(table) else 'Not passed.'}"
            for seed, table in tables.items()
        ),
    ]
    first = tables[seeds[0]]
    for topic in first["topic"].unique(maintain_order=True):
        lines += [
            "",
            f"## {topic}",
            "",
            f"| figure | population | target | mark | band | {' | '.join(f'seed {s}' for s in seeds)} | |",
        ]
        lines += ["|---|---|---|---|---|" + "---|" * len(seeds) + "---|"]
        lines += [line(row, tables) for row in first.filter(pl.col("topic") == topic).to_dicts()]
    return "\n".join(lines)


def line(row: dict[str, object], tables: dict[int, pl.DataFrame]) -> str:
    values = []
    for table in tables.values():
        found = table.row(by_predicate=pl.col("key") == row["key"], named=True)
        values.append(format_number(found["value"]) + ("*" if found["holds"] is False else ""))
    band = f"{format_number(row['low'])} to {format_number(row['high'])}"  # type: ignore[arg-type]
    about = [
        f"{row['statistic']}: {row['concept']}",
        str(row["population"]),
        format_number(row["target"]),
        str(row["mark"]),
        band,
    ]  # type: ignore[arg-type]
    cells = [
        cell.replace("|", "/") for cell in [*about, *values, "enforced" if row["enforced"] else ""]
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
