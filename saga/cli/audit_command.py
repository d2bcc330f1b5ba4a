"""saga audit: what a bundle tells of the persons on whom it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import SplitReading
from saga.cli.options import Only
from saga.requests import Draws


def audit(
    bundle: options.Bundle,
    panel: options.Panel,
    reading: SplitReading,
    draws: Annotated[Draws, Only("seed")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of audit.html and audit.json.", show_default="BUNDLE.audit"),
    ] = None,
    shadows: Annotated[
        int, typer.Option(min=4, help="Shadow models to train; finished ones are kept.")
    ] = 16,
    persons: Annotated[
        int | None, typer.Option(min=1, help="Largest number of persons of the panel to use.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Bundle that training started from.", show_default="bundles/prior"
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Attack a bundle as others might: who was trained on, and what of them can be learnt.

    The verdict becomes part of the bundle and of its card; `saga bundle release` needs it. Exit
    code 1 for a leak, or if planted leaks were missed.

    Examples:
        saga audit bundles/ours --panel panel.csv  # in the secure room; continues after a stop
    """
    from saga.bundle import Bundle
    from saga.evaluation.audit.bundle_audit import AuditOptions, audit_bundle, store_audit

    people = reading.read(panel)
    opened, folder = Bundle.load(bundle), out or Path(f"{bundle}.audit")
    outcome = audit_bundle(
        opened,
        people,
        Path(f"{folder}.run"),
        AuditOptions(shadows, persons, source, draws.seed),
        report=(lambda _: None) if as_json else console.note,
    )
    stored = store_audit(opened, outcome, folder)
    word = outcome["verdict"]["word"]
    console.result(
        f"Verdict: {word}. {outcome['verdict']['advice']} Wrote {folder / 'audit.html'}; digest of "
        f"the bundle with its audit: {stored.digest[:12]}.",
        {"out": folder, "bundle": stored.digest, **outcome},
        as_json=as_json,
    )
    if word in ("leak", "no power"):
        raise typer.Exit(1)
