"""saga init, saga register: a mapping and what it does, the synthetic register."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saga.cli import console, options
from saga.cli.inputs import opened, show_warnings
from saga.errors import UsageError
from saga.files.atomic import commit
from saga.requests import Draws, Option

if TYPE_CHECKING:
    from saga.data.mapping_proposal import Proposal
    from saga.data.reading import MappingPreview


_ROWS = 10  # that are shown before and after


def init(
    source: options.Input,
    mapping: Annotated[
        str | None,
        typer.Option(
            "--mapping",
            help="A YAML file, or a shipped name (lisa, nlsy79).",
            show_default="one is proposed",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Without --mapping: the file for the proposal.", show_default="none"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Propose a mapping for your data, or show what a mapping does, with rows before and after.

    A proposal has questions where names and contents of columns leave a doubt; --out writes it as a
    file, to be completed. The rows are shown on your screen only.

    Examples:
        saga init panel.csv --out our-register.yaml  # which column is which?
        saga init extract/ --mapping our-register.yaml
    """
    from saga.data.files import find_encoding
    from saga.data.mapping import SourceMapping
    from saga.data.mapping_proposal import propose_mapping
    from saga.data.panel_files import locate_files
    from saga.data.reading import Source

    if out is not None and (mapping is not None or out.exists()):
        is_there = f"{out} is there already. Name a new file"
        why = is_there if mapping is None else "is for a proposal. Leave --mapping out"
        raise UsageError(f"--out {why}.")
    with opened(source) as path, tempfile.TemporaryDirectory(prefix="saga-") as folder:
        if mapping is not None:
            _show(Source(path, mapping).preview(), None, as_json=as_json)
            return
        encoding = find_encoding(locate_files(path).files)
        of_columns, of_names = (
            SourceMapping(encoding=encoding, year_in_filename=in_name) for in_name in (False, True)
        )
        read = Source(path, of_columns)
        proposal = propose_mapping(read.sample(), of_columns, read.labels)
        if not proposal.has_years:
            with_year = propose_mapping(Source(path, of_names).sample(), of_names)
            proposal = with_year if with_year.has_years else proposal
        file = out or Path(folder, "proposal.yaml")
        commit(file, partial(Path.write_text, data=proposal.text, encoding="utf-8"))
        _show(Source(path, file).preview(), proposal, as_json=as_json)
    if out is not None and not as_json:
        console.note(f"Wrote {out}. Answer its questions, then: saga init {source} --mapping {out}")


def _show(preview: MappingPreview, proposal: Proposal | None, *, as_json: bool) -> None:
    """Print a proposal, the effects of a mapping, and rows before and after."""
    import polars as pl

    from saga.amount_warnings import about_growth

    warnings = show_warnings(list(about_growth(preview.panel) if preview.panel else ()))
    before, after = preview.before.head(_ROWS), preview.after.head(_ROWS)
    entries = [
        {
            "entry": effect.entry,
            "columns": list(effect.columns),
            "cells": effect.matched,
            "made_unknown": effect.unknown,
            "own": effect.is_own,
        }
        for effect in preview.effects
    ]
    unmatched = [e.entry for e in preview.effects if e.is_own and not e.matched]
    if as_json:
        value: dict[str, object] = {
            "rows": preview.before.height,
            "entries": entries,
            "unmatched": unmatched,
            "problems": [problem.as_dict() for problem in preview.problems],
            "warnings": warnings,
            "not_used": preview.unread,
            "before": before.to_dicts(),
            "after": after.to_dicts(),
        }
        if proposal is not None:
            value |= {"mapping": proposal.text, "questions": proposal.questions}
        console.result("", value, as_json=True)
        return
    if proposal is not None:
        console.result(proposal.text, {}, as_json=False)
    if entries:
        columns = pl.Series("columns", [", ".join(effect.columns) for effect in preview.effects])
        by_entry = pl.DataFrame(entries).drop("own").with_columns(columns)
        console.table(by_entry, "Entries of the mapping")
    as_written = pl.all().cast(pl.String)  # a year or an id has no separators of thousands
    console.table(before.select(as_written), "The first rows of the source")
    console.table(after.select(as_written), "The same rows as the panel gets them")
    for problem in preview.problems:
        console.note(f"Error: {problem}")
    for heading, names in (("Match nothing", unmatched), ("Columns not used", preview.unread)):
        if names:
            console.note(f"{heading}: {', '.join(names)}")
    for question in () if proposal is None else proposal.questions:
        console.note(f"? {question}")


_Persons = Annotated[int, typer.Option(min=1, help="Persons in the register.")]
_Draws = Annotated[Draws, "seed"]
_Years = Annotated[
    Sequence[int], Option("First and last year of the panel.", least=1900, most=2200)
]
_YEARS = tuple(range(1990, 2023))
_FutureTo = Annotated[
    int | None,
    typer.Option(min=2023, help="Also simulate the same people's future up to this year."),
]
_FutureDraws = Annotated[
    int | None,
    typer.Option(min=1, help="Macro futures to draw.", show_default="1 with --future-to"),
]


def generate(
    persons: _Persons,
    out: Annotated[Path, typer.Option(help="Directory to write.")],
    draws: _Draws,
    years: _Years = _YEARS,
    future_to: _FutureTo = None,
    future_draws: _FutureDraws = None,
    future_records: Annotated[
        bool,
        typer.Option(
            "--future-records",
            help="Futures have all columns of the panel, not only earnings and exits.",
        ),
    ] = False,
    history: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default="Sweden as published",
            help="Number of a drawn economy up to 2022, the same for every seed.",
        ),
    ] = None,
    latent_years: Annotated[
        Sequence[int] | None,
        Option(
            "Years at whose end the hidden state is saved, beside the last: 2002,2012.",
            least=1900,
            most=2200,
        ),
    ] = None,
    process: Annotated[
        Literal["full", "gaussian", "gkos", "gkos-few-zeros"],
        typer.Option(
            help="The full simulation, or a textbook process whose best forecast is known."
        ),
    ] = "full",
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MECHANISM",
            help="Switch a mechanism off (a wrong name lists them all). Repeatable.",
        ),
    ] = None,
    data_set: Annotated[
        bool,
        typer.Option(
            "--data-set",
            help="Also what others need: persons by split, a sample of 10,000 persons for "
            "statistics programs, codebook, moments, data sheet and checksums.",
        ),
    ] = False,
    workers: options.Workers = 1,
    as_json: options.Json = False,
) -> None:
    """Simulate a register of working lives: the same seed gives the same bytes."""
    from saga.register import RegisterSettings, generate_register
    from saga.register.release import release_register

    simulated = None
    if process != "full":
        from saga.evaluation.textbook import PROCESSES

        simulated = PROCESSES[process]
    settings = RegisterSettings(
        persons=persons,
        seed=draws.seed,
        first_year=years[0],
        last_year=years[-1],
        future_to=future_to,
        future_draws=future_draws or int(future_to is not None),
        latent_years=tuple(latent_years or ()),
        process=simulated,
        without=tuple(without or ()),
        future_records=future_records,
        history=history,
    )
    with console.progress("Simulating", quiet=as_json) as progress:
        if data_set:
            metadata = release_register(out, settings, workers=workers, progress=progress)
        else:
            metadata = generate_register(out, settings, workers=workers, progress=progress)
    console.result(
        f"Wrote a register of {persons:,} persons to {out} (seed {draws.seed}).",
        {"out": out, **{key: value for key, value in metadata.items() if key != "parameters"}},
        as_json=as_json,
    )


def check(
    register: Annotated[
        Path, typer.Argument(metavar="DIR", help="A register that `saga register generate` wrote.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these targets, by key or beginning of it: level.women. Repeatable."
        ),
    ] = None,
    sample: Annotated[
        Literal["all", "paper"],
        typer.Option(help="paper: also the figures of the paper's selected sample."),
    ] = "all",
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
    as_json: options.Json = False,
) -> None:
    """Compare a register with published figures: exit 1 if an enforced target misses its band."""
    from saga.pages.layout import check_page, write_page
    from saga.register.validation.register_check import (
        check_register,
        format_markdown,
        format_text,
        passed,
    )

    if markdown is not None:
        check_page(markdown, "table", (".md",))
    table = check_register(register, only=only or (), paper=sample == "paper")
    if markdown is not None:
        write_page(markdown, format_markdown(table))
    good = passed(table)
    console.result(
        format_text(table),
        {"register": register, "passed": good, "targets": table.to_dicts()},
        as_json=as_json,
    )
    if not good:
        raise typer.Exit(1)
