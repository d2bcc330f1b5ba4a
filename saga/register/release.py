"""The synthetic data set: a register as a directory that describes and checks itself.

Its files are those of `generate_register`, the persons of each part of the split, a sample for
statistics programs, a codebook, a comparison of the register's moments with published figures,
statistics of changes, the impossibilities that were checked, a data sheet and checksums. No file
contains a date or the name of a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl

from saga import schema
from saga.data.split import SPLIT_SHARES, assign_parts
from saga.errors import UsageError
from saga.files.atomic import digest_file, whole_folder
from saga.keyed_random import sample_persons
from saga.pages.format import markdown_table
from saga.register.codebook import (
    DataSet,
    write_croissant,
    write_ddi,
    write_labelled,
    write_mapping,
)
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from saga.register.validation.grid_statistics import (
    PUBLISHED_SOURCE,
    changes_of_register,
    compare_with_sweden,
)
from saga.register.validation.impossibilities import check_impossibilities
from saga.register.validation.register_check import (
    MIN_PERSONS,
    check_register,
    count_verdicts,
    format_markdown,
)
from saga.version import current_version

CHECKSUMS = "SHA256SUMS"
SAMPLE_PERSONS = 10_000
KIND_NAMES = {
    "id": "text",
    "year": "integer",
    "label": "label",
    "money": "amount",
    "number": "number",
    "category": "code",
}

SHEET = """\
# {register_id}: a synthetic register of working life

**No person in it exists.** Every person, year and amount was simulated; no cell of a real register
was used, directly or as a sample, a fit or a copy. It has the columns, codes and units of a Swedish
register of income and work, and resembles it in the moments of `moments.md` that are inside their
bands. It is not evidence about Sweden or about any person there.

{summary}

The command gives the same rows again with the same versions, for any number of workers. All
parameters of the simulation are in `register.json`; the documentation of saga (`docs/register.md`)
gives its equations and the sources of the parameters.

## Files

{files}

To verify that all files are complete and unchanged, run `sha256sum -c {checksums}`
(macOS: `shasum -a 256 -c {checksums}`) in this directory.

## Columns

One row is a person-year, unique by `person_id` and `year`. Missing is the share of empty cells.

{columns}

Cells are missing for reasons: no occupation before 2001 or without a job, no partner, no exit,
income statements not received, unknown workplaces, unknown schooling of new arrivals, late
deliveries in the last year. Rows are missing for years abroad.

{misfits}

## Changes of earnings beside Sweden

{changes}

## Impossibilities

{impossible}

## Use and misuse

Meant for: developing and teaching methods when real registers cannot be shared; testing software;
comparing forecasts when the process, and with it the best forecast, is known. Report the name above
and the part of the split that was used.

Not meant for: statistics about Sweden, its groups, employers or policies (quote the publishers
named in `moments.md` instead); decisions about people; showing that a model works on real records.
A model trained on it has only seen the simulated world. The data hold no private information:
nothing in them shows whether a person is in a real register.

## Licence

{licence}, as the program that generated it. No warranty.
"""


def release_register(
    out: Path,
    settings: RegisterSettings,
    *,
    workers: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Simulate a register and write it to the new directory `out` as a data set.

    In addition to the files of `generate_register` it writes `split/PART.parquet` (the persons of
    each part), `sample/` (10,000 persons as CSV, Stata and SPSS files), `codebook.xml` and
    `croissant.json`, `moments.parquet` and `moments.md` (the table of `check_register`, with the
    paper's sample), `changes.parquet` (`changes_of_register`), `impossibilities.parquet`,
    `README.md` (the data sheet) and `SHA256SUMS`. The directory is renamed to `out` when complete,
    so an interrupted release leaves nothing.

    Args:
        out: Directory to write; it must not exist or be empty.
        settings: Definition of the register.
        workers: Number of processes.
        progress: Called with the number of persons done, of all persons, and the step.

    Returns:
        Name, counts and verdict of the check.

    Raises:
        UsageError: If a setting is out of range, or `out` is not empty.
    """
    if settings.persons < MIN_PERSONS:
        raise UsageError(
            f"A release needs at least {MIN_PERSONS:,} persons: with fewer persons its moments "
            "cannot be computed"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; give a new directory")

    def report(step: str, done: int = settings.persons, total: int = settings.persons) -> None:
        if progress is not None:
            progress(done, total, step)

    with whole_folder(out) as folder:
        description = generate_register(
            folder, settings, workers=workers, progress=partial(report, "Simulating")
        )
        report("Splitting")
        persons, missing = _count(folder / "panel")
        part_sizes = _split(folder, str(description["register_id"]), persons)
        report("Sampling")
        data = DataSet(
            str(description["register_id"]),
            (settings.first_year, settings.last_year),
            settings.persons,
            int(description["rows"]),  # type: ignore[call-overload]
            missing,
            current_version(),
            _command(description),
        )
        _write_sample(folder, data, persons)
        report("Measuring")
        changes = changes_of_register(folder)
        changes.write_parquet(folder / "changes.parquet", compression="zstd")
        impossible = check_impossibilities(_panel_files(folder))
        impossible.write_parquet(folder / "impossibilities.parquet", compression="zstd")
        moments = check_register(folder, paper=True)
        moments.write_parquet(folder / "moments.parquet", compression="zstd")
        verdict = count_verdicts(moments)
        title = f"# Moments of {description['register_id']}"
        text = f"{title}\n\n{verdict}\n\n{format_markdown(moments)}"
        (folder / "moments.md").write_text(text, encoding="utf-8", newline="\n")
        sheet = _data_sheet(description, missing, part_sizes, moments, changes, impossible)
        (folder / "README.md").write_text(sheet, encoding="utf-8", newline="\n")
        report("Summing")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        checksums = "".join(
            f"{digest_file(path)}  {path.relative_to(folder).as_posix()}\n" for path in files
        )
        (folder / CHECKSUMS).write_text(checksums, encoding="utf-8", newline="\n")
    names = ("register_id", "persons", "rows", "seed", "years")
    return {
        **{name: description[name] for name in names},
        "split": part_sizes,
        "files": len(files) + 1,
        "verdict": verdict,
    }


def _count(panel: Path) -> tuple[pl.Series, dict[str, int]]:
    """Persons of a panel in order, and the number of missing cells by column."""
    persons, missing = [], []
    for file in _panel_files(panel.parent):
        rows = pl.read_parquet(file, glob=False, hive_partitioning=False)
        persons.append(rows["person_id"].unique())
        missing.append(rows.null_count())
    return pl.concat(persons).sort(), pl.concat(missing).sum().row(0, named=True)


def _panel_files(folder: Path) -> list[Path]:
    return sorted((folder / "panel").glob("birth_year=*/*.parquet"))


def _write_sample(folder: Path, data: DataSet, persons: pl.Series) -> None:
    """Write a sample of persons for statistics programs, and the codebook that describes it."""
    chosen = sample_persons(persons.to_list(), SAMPLE_PERSONS, "release", data.register_id)
    panel = pl.scan_parquet(_panel_files(folder), glob=False, hive_partitioning=False)
    rows = panel.filter(pl.col("person_id").is_in(chosen)).sort("person_id", "year").collect()
    (folder / "sample").mkdir()
    sample = folder / "sample" / "panel.csv"
    rows.write_csv(sample)
    for suffix in (".dta", ".sav"):
        write_labelled(rows, sample.with_suffix(suffix))
    write_mapping(folder / "sample" / "mapping.yaml")
    nulls = rows.null_count().row(0, named=True)
    described = replace(data, persons=len(chosen), rows=rows.height, missing=nulls)
    write_ddi(described, sample, folder / "codebook.xml")
    write_croissant(described, sample, folder / "croissant.json")


def _split(folder: Path, register_id: str, persons: pl.Series) -> dict[str, int]:
    """Write the persons of each part, sorted; returns the sizes of the parts."""
    part = pl.Series(assign_parts(register_id, persons))
    (folder / "split").mkdir()
    sizes: dict[str, int] = {}
    for name in SPLIT_SHARES:
        in_part = persons.filter(part == name)
        in_part.to_frame().write_parquet(folder / "split" / f"{name}.parquet", compression="zstd")
        sizes[name] = len(in_part)
    return sizes


def _data_sheet(
    description: dict[str, Any],
    missing: dict[str, int],
    part_sizes: dict[str, int],
    moments: pl.DataFrame,
    changes: pl.DataFrame,
    impossible: pl.DataFrame,
) -> str:
    columns = (
        (
            *(f"`{column.name}`", column.description, KIND_NAMES[column.kind], column.unit or "-"),
            *(_valid_values(column), f"{missing[column.name] / description['rows']:.2%}"),
        )
        for column in schema.COLUMNS
    )
    head = ("column", "meaning", "kind", "unit", "values", "missing")
    return SHEET.format(
        register_id=description["register_id"],
        summary=markdown_table(("", ""), _summary(description, moments)),
        files=markdown_table(("file", "content"), _files(description, part_sizes)),
        checksums=CHECKSUMS,
        columns=markdown_table(head, columns),
        misfits=describe_misfits(moments),
        changes=_describe_changes(changes),
        impossible=describe_impossible(impossible),
        licence=_licence(),
    )


def _summary(description: dict[str, Any], moments: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Name and text of each line that describes the register."""
    first, last = description["years"]
    versions = ", ".join(f"{name} {version}" for name, version in description["versions"].items())
    ages = f"ages {schema.MIN_AGE}-{schema.MAX_AGE}"
    yield "persons", f"{description['persons']:,}"
    yield "person-years", f"{description['rows']:,}"
    yield "years", f"{first}-{last}, {ages}, residents on 31 December"
    yield "amounts", "SEK of each row's own year, rounded to hundreds"
    yield "made with", f"saga {current_version()}, {versions}"
    yield "command", f"`{_command(description)}`"
    yield "check", count_verdicts(moments)


def _command(description: dict[str, Any]) -> str:
    """The command that makes the data set again."""
    first, last = description["years"]
    command = (
        f"saga register generate --data-set --persons {description['persons']} "
        f"--seed {description['seed']} --years {first}-{last} --out OUT"
    )
    if description["future_to"]:
        command += (
            f" --future-to {description['future_to']} --future-draws {description['future_draws']}"
        )
    return command


def _describe_changes(changes: pl.DataFrame) -> str:
    """1-year changes of residual earnings beside the published ones, as Markdown."""
    compared = compare_with_sweden(changes)
    if compared.is_empty():
        return "The register has too few persons or years to be compared."
    rows = (
        (name, sex, f"{first}-{last}", f"{simulated:.3f}", f"{published:.3f}")
        for name, sex, first, last, simulated, published in compared.iter_rows()
    )
    table = markdown_table(("1-year change", "sex", "from", "register", "Sweden"), rows)
    return (
        f"{table}\n\nResidual log earnings, ages 25-55, means over the years; Kelley's skewness "
        "and excess Crow-Siddiqui kurtosis, which is too low in registers of fewer than 100,000 "
        f"persons, whose means by age are noisy. Sweden: {PUBLISHED_SOURCE}; its minimum "
        "earnings are one and a half monthly minimum wages of retail trade, here half a price base "
        "amount."
    )


def describe_impossible(table: pl.DataFrame) -> str:
    """The section of the data sheet on the table of `check_impossibilities`, as Markdown."""
    broken = table.filter(pl.col("rows") > 0).select("impossible", "rows")
    unbroken = ", ".join(table.filter(pl.col("rows") == 0)["impossible"])
    counts = [(rule, f"{rows:,}") for rule, rows in broken.iter_rows()]
    violations = markdown_table(("what should not be", "rows"), counts)
    return (
        f"{table.height} rules were checked on every row.\n\n"
        f"{violations if counts else 'No row breaks any.'}\n\nNo row has {unbroken}."
    )


def _files(description: dict[str, Any], part_sizes: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Name and content of each file of the release."""
    sizes = ", ".join(f"{name} {size:,}" for name, size in part_sizes.items())
    yield "`panel/birth_year=YYYY/part-*.parquet`", "the person-years"
    yield (
        "`split/PART.parquet`",
        f"person_id of each part, by a hash of the register's name and the person ({sizes}); "
        "evaluate on `test` only",
    )
    yield (
        "`moments.parquet`, `moments.md`",
        "moments of this register and published figures: bands, standard errors, verdicts, sources",
    )
    yield (
        "`sample/panel.csv`, `.dta`, `.sav`",
        f"all years of {SAMPLE_PERSONS:,} persons at random (fewer if the register is smaller); "
        "codes are numbers with labels in Stata and SPSS, which saga reads with "
        "`--mapping sample/mapping.yaml`",
    )
    yield "`codebook.xml`, `croissant.json`", "the sample as DDI-Codebook 2.5 and Croissant 1.1"
    yield (
        "`changes.parquet`",
        "1- and 5-year changes of log, residual and arc-percent earnings by sex, age, permanent "
        "income and year, as the Global Repository of Income Dynamics defines them",
    )
    yield "`impossibilities.parquet`", "rows that break each rule of what cannot be"
    yield (
        "`latent/year=YYYY/birth_year=YYYY/part-*.parquet`",
        "hidden state of persons still present at the end of the year: no record contains it",
    )
    if description["future_to"]:
        yield (
            "`future/draw=K/birth_year=YYYY/part-*.parquet`",
            f"the same persons' later years to {description['future_to']}, by macro draw "
            f"(SEK of {description['future_prices']})",
        )
        yield "`future/macro.parquet`", "the drawn macro futures"
    yield "`register.json`", "name, seed, versions, all parameters"
    yield f"`{CHECKSUMS}`", "checksums of all other files"


def _valid_values(column: schema.Column) -> str:
    """The codes or the range of a column."""
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


def describe_misfits(moments: pl.DataFrame) -> str:
    """The section of the data sheet on figures that a register misses, as Markdown."""
    outside = moments.filter(pl.col("verdict") == "outside")
    reported = moments.filter(~pl.col("enforced"), pl.col("holds").eq(False))
    n_unmeasured = moments.filter("enforced", pl.col("verdict") == "unmeasured").height
    sections = [
        "## Known misfits",
        "From `moments.md`, which names the sources. Published figures that this register misses:",
        format_markdown(outside) if outside.height else "None.",
        "Figures that it misses and that are reported but not enforced (recalled, or of a sample "
        "that is not public):",
        format_markdown(reported) if reported.height else "None.",
    ]
    if n_unmeasured:
        sections.append(f"Not measured, for lack of the years or ages: {n_unmeasured} figures.")
    sections.append(
        "Left out of the simulation on purpose: families are not linked (a partner is a process, "
        "not a person of the register), employers are a fixed pool, and rules of benefits are "
        "outlines."
    )
    return "\n\n".join(section.rstrip("\n") for section in sections)


def _licence() -> str:
    """The licence of the distribution, from pyproject.toml."""
    try:
        return metadata.metadata("saga-forecast")["License-Expression"]
    except (metadata.PackageNotFoundError, KeyError):
        return "The licence of saga"
