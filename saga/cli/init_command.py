"""saga init: what a mapping does to a source, before anything is computed."""

from __future__ import annotations

from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import opened

_ROWS = 10  # that are shown before and after


def init(
    source: options.Input,
    mapping: Annotated[
        str,
        typer.Option("--mapping", help="A YAML file, or a shipped name (lisa, nlsy79)."),
    ],
    as_json: options.Json = False,
) -> None:
    """Show what each entry of a mapping does to your data, with ten rows before and after.

    Nothing is computed or stored. The rows are shown on your screen only.

    Examples:
        saga init extract/ --mapping our-register.yaml
    """
    import polars as pl

    from saga.data.reading import Source
    from saga.schema import REQUIRED

    with opened(source) as path:
        preview = Source(path, mapping).preview()
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
        value = {
            "rows": preview.before.height,
            "entries": entries,
            "unmatched": unmatched,
            "problems": [problem.as_dict() for problem in preview.problems],
            "not_used": preview.unread,
            "before": before.to_dicts(),
            "after": after.to_dicts(),
        }
        console.result("", value, as_json=True)
        return
    if entries:
        columns = pl.Series("columns", [", ".join(effect.columns) for effect in preview.effects])
        by_entry = pl.DataFrame(entries).drop("own").with_columns(columns)
        console.table(by_entry, "Entries of the mapping")
    console.table(before, "The first rows of the source")
    console.table(after, "The same rows as the panel gets them")
    for problem in preview.problems:
        console.note(f"Error: {problem}")
    lacking = [name for name in REQUIRED if name not in after.columns]
    for heading, names in (
        ("Match nothing", unmatched),
        ("Required, but without a column", lacking),
        ("Columns not used", preview.unread),
    ):
        if names:
            console.note(f"{heading}: {', '.join(names)}")
