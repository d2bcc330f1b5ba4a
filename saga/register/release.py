"""The synthetic equivalent data set: a register as a directory to hand over, that says by itself what it is and how true it is.

To what `generate_register` writes it adds the person split, the moments computed on this very register beside published figures, a data
sheet and checksums. No file holds a date or the name of a machine: the same seed gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl

from saga import schema
from saga.data.split import SHARES, assign_parts
from saga.errors import UsageError
from saga.files.atomic import digest_file, whole_folder
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from saga.register.validation.register_check import (
    MIN_PERSONS,
    check_register,
    count_verdicts,
    format_markdown,
)
from saga.version import current_version

SUMS = "SHA256SUMS"
_KINDS = {
    "id": "text",
    "year": "integer",
    "label": "label",
    "money": "amount",
    "number": "number",
    "category": "code",
}


def release_register(
    out: Path,
    *,
    persons: int,
    seed: int,
    first_year: int,
    last_year: int,
    future_to: int | None = None,
    future_draws: int = 0,
    workers: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Simulate a register and write it to the new directory `out` as a data set; returns its name, its counts and the verdict of the check.

    Beside the files of `generate_register`: `split/PART.parquet` (the persons of each part), `moments.parquet` and `moments.md` (the table
    of `check_register`, with the paper's sample and the rows that only describe), `README.md` (the data sheet) and `SHA256SUMS`. Written
    beside `out` and renamed when whole: what is interrupted leaves nothing, and the same command starts anew. `progress(done, total, step)`
    counts persons.
    Raises UsageError for arguments out of range and when `out` exists and is not empty.
    """
    if persons < MIN_PERSONS:
        raise UsageError(
            f"A release needs at least {MIN_PERSONS:,} persons: with fewer its moments cannot be computed"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; give a new directory")

    def step(name: str, done: int = persons, total: int = persons) -> None:
        if progress is not None:
            progress(done, total, name)

    with whole_folder(out) as folder:
        about = generate_register(
            folder,
            RegisterSettings(
                persons=persons,
                seed=seed,
                first_year=first_year,
                last_year=last_year,
                future_to=future_to,
                future_draws=future_draws,
            ),
            workers=workers,
            progress=partial(step, "Simulating"),
        )
        step("Splitting")
        counted = _count(folder / "panel")
        parts = _split(folder, str(about["register_id"]), counted.pop("persons"))
        step("Measuring")
        moments = check_register(folder, paper=True, descriptive=True)
        moments.write_parquet(folder / "moments.parquet", compression="zstd")
        (folder / "moments.md").write_text(
            f"# Moments of {about['register_id']}\n\n{count_verdicts(moments)}\n\n{format_markdown(moments)}"
        )
        (folder / "README.md").write_text("\n".join(_sheet(about, counted, parts, moments)) + "\n")
        step("Summing")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        (folder / SUMS).write_text(
            "".join(
                f"{digest_file(path)}  {path.relative_to(folder).as_posix()}\n" for path in files
            )
        )
    about_rows = {key: about[key] for key in ("register_id", "persons", "rows", "seed", "years")}
    return {
        **about_rows,
        "split": parts,
        "files": len(files) + 1,
        "verdict": count_verdicts(moments),
    }


def _count(panel: Path) -> dict[str, Any]:
    """One look at every file: the persons in order, and by column how many cells are missing."""
    persons, missing = [], pl.DataFrame()
    for file in sorted(panel.glob("birth_year=*/*.parquet")):
        rows = pl.read_parquet(file, hive_partitioning=False)
        persons.append(rows["person_id"].unique())
        nulls = rows.null_count()
        missing = pl.concat([missing, nulls]).sum() if missing.width else nulls
    return {"persons": pl.concat(persons).sort(), "missing": missing.row(0, named=True)}


def _split(folder: Path, register_id: str, persons: pl.Series) -> dict[str, int]:
    """Write the persons of each part, sorted; returns how many there are."""
    part = pl.Series(assign_parts(register_id, persons))
    (folder / "split").mkdir()
    sizes: dict[str, int] = {}
    for name in SHARES:
        chosen = persons.filter(part == name)
        chosen.to_frame().write_parquet(folder / "split" / f"{name}.parquet", compression="zstd")
        sizes[name] = len(chosen)
    return sizes


def _sheet(
    about: dict[str, Any], counted: dict[str, Any], parts: dict[str, int], moments: pl.DataFrame
) -> Iterator[str]:
    """The data sheet, in lines of Markdown."""
    first, last = about["years"]
    futures = (
        f" --future-to {about['future_to']} --future-draws {about['future_draws']}"
        if about["future_to"]
        else ""
    )
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    yield f"# {about['register_id']}: a synthetic register of working lives"
    yield ""
    yield "**Nobody in it exists.** Every person, year and amount was simulated; no cell of a real register was used, directly or as a"
    yield "sample, a fit or a copy. It has the columns, codes and units of a Swedish register of income and work, and resembles it in the"
    yield "moments listed in `moments.md`: those inside their bands. It is not evidence about Sweden or about anybody who lives there."
    yield ""
    yield from _table(
        ("", ""),
        [
            ("persons", f"{about['persons']:,}"),
            ("person-years", f"{about['rows']:,}"),
            (
                "years",
                f"{first}-{last}, ages {schema.MIN_AGE}-{schema.MAX_AGE}, residents on 31 December",
            ),
            ("amounts", "SEK of each row's own year, rounded to hundreds"),
            ("made with", f"saga {current_version()}, {versions}"),
            (
                "command",
                f"`saga register release OUT --persons {about['persons']} --seed {about['seed']} --years {first}-{last}{futures}`",
            ),
            ("check", count_verdicts(moments)),
        ],
    )
    yield ""
    yield "The command gives the same bytes again with the same versions, whatever the number of workers. All parameters of the simulation"
    yield "stand in `register.json`; the documentation of saga (`docs/register.md`) gives its equations, and the sources of the parameters."
    yield ""
    yield "## Files"
    yield from _table(("file", "content"), _files(about, parts))
    yield ""
    yield f"Whole and unchanged? `sha256sum -c {SUMS}` (macOS: `shasum -a 256 -c {SUMS}`) in this directory."
    yield ""
    yield "## Columns"
    yield "One row is a person-year, unique by `person_id` and `year`. Missing is the share of empty cells."
    yield ""
    rows = about["rows"]
    yield from _table(
        ("column", "meaning", "kind", "unit", "values", "missing"),
        (
            (
                f"`{c.name}`",
                c.description,
                _KINDS[c.kind],
                c.unit or "-",
                _values(c),
                f"{counted['missing'][c.name] / rows:.2%}",
            )
            for c in schema.COLUMNS
        ),
    )
    yield ""
    yield "Cells are missing for reasons: no occupation before 2001 or without a job, no partner, no exit, statements that never came,"
    yield "workplaces not found, schooling of new arrivals unknown, late deliveries in the last year. Rows are missing for years abroad."
    yield ""
    yield from misfits(moments)
    yield ""
    yield "## Use and misuse"
    yield "Meant for: developing and teaching methods where real registers cannot be shared; testing software; comparing forecasts where"
    yield "the process, and with it the best forecast, is known. Report the name above and the part of the split that was used."
    yield ""
    yield "Not meant for: statistics about Sweden, its groups, employers or policies (quote the publishers named in `moments.md` instead);"
    yield "decisions about people; showing that a model works on real records. A model trained on it knows the simulated world only."
    yield "There is no privacy to protect and none to test: nothing can be learnt from it about whether anybody is in a real register."
    yield ""
    yield "## Licence"
    yield f"{_licence()}, as the program that made it. No warranty."


def _files(about: dict[str, Any], parts: dict[str, int]) -> Iterator[tuple[str, str]]:
    yield "`panel/birth_year=YYYY/part-*.parquet`", "the person-years"
    named = ", ".join(f"{name} {size:,}" for name, size in parts.items())
    yield (
        "`split/PART.parquet`",
        f"person_id of each part, by a hash of the register's name and the person ({named}); judge on `test` only",
    )
    yield (
        "`moments.parquet`, `moments.md`",
        "moments of this register beside published figures: bands, standard errors, verdicts, sources",
    )
    yield (
        "`latent/year=YYYY/birth_year=YYYY/part-*.parquet`",
        "hidden state of those still there at the end: knowledge that no record contains",
    )
    if about["future_to"]:
        what = f"the same people's later years to {about['future_to']}, by draw of the economy (SEK of {about['future_prices']})"
        yield "`future/draw=K/birth_year=YYYY/part-*.parquet`", what
        yield "`future/macro.parquet`", "the drawn economies"
    yield "`register.json`", "name, seed, versions, all parameters"
    yield f"`{SUMS}`", "checksums of all other files"


def _values(column: schema.Column) -> str:
    """The codes or the range that a column may hold."""
    if column.codes:
        return ", ".join(column.codes)
    if column.pattern:
        return f"`{column.pattern}`"
    if column.minimum is None and column.maximum is None:
        return "any"
    low, high = (
        f"{bound:g}" if bound is not None else "" for bound in (column.minimum, column.maximum)
    )
    return f"{low} to {high}" if low and high else f"from {low}" if low else f"to {high}"


def misfits(moments: pl.DataFrame) -> Iterator[str]:
    """What a register gets wrong by its table of `moments`, in lines of Markdown."""
    outside = moments.filter(pl.col("verdict") == "outside")
    missed = moments.filter(~pl.col("enforced"), pl.col("holds").eq(False))
    unmeasured = moments.filter("enforced", pl.col("verdict") == "unmeasured")
    yield "## Known misfits"
    yield "From `moments.md`, where the sources stand. Published figures that this register misses:"
    yield ""
    yield format_markdown(outside) if outside.height else "None.\n"
    yield "Figures reported but not enforced (recalled, or of a sample that nobody outside can read) that it misses:"
    yield ""
    yield format_markdown(missed) if missed.height else "None.\n"
    if unmeasured.height:
        yield f"Not measured, for want of the years or ages: {unmeasured.height} published figures."
    yield "What was left out of the simulation on purpose: families are not linked (a partner is a process, not a person of the register),"
    yield "employers are a fixed pool, rules of benefits are outlines."


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _licence() -> str:
    """The licence of the distribution; it is declared in pyproject.toml."""
    try:
        return metadata.metadata("saga-forecast")["License-Expression"]
    except (metadata.PackageNotFoundError, KeyError):
        return "The licence of saga"
