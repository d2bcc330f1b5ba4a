"""saga bundle, audit, report: what a bundle is, tells of its persons, and whether to trust it."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import Model, SplitReading, command_line
from saga.errors import BundleError, UsageError
from saga.requests import Draws, ForecastRequest
from saga.summaries import format_counts


def inspect(directory: options.Bundle, as_json: options.Json = False) -> None:
    """Show what a bundle is and where it comes from."""
    from saga.bundle import PROMISE, Bundle
    from saga.conformal.calibration_table import calibration_method

    bundle = Bundle.load(directory)
    report = {
        "path": bundle.path,
        "digest": bundle.digest,
        "model": bundle.model_digest,
        "calibration": bundle.calibration_digest,
        "method": calibration_method(bundle.calibration),
        "parameters": bundle.parameters,
        "weights": {name: list(tensor.shape) for name, tensor in bundle.weights.items()},
        **{
            key: bundle.manifest[key]
            for key in ("code_version", "seed", "command", "parents", "files")
        },
        "config": bundle.config,
        "split": bundle.split,
        "metrics": bundle.metrics,
        "audit": bundle.audit,
    }
    promise = bundle.config.get(PROMISE)
    verdict = None if bundle.audit is None else bundle.audit["verdict"]["word"]
    lines = [bundle.card.strip(), ""]
    lines += [
        f"{key:<12} {report[key]}"
        for key in (
            "digest",
            "model",
            "calibration",
            "method",
            "parameters",
            "code_version",
            "seed",
            "command",
        )
    ]
    lines += [
        f"{'parents':<12} {', '.join(bundle.manifest['parents']) or 'none'}",
        f"{'privacy':<12} "
        + (
            "none: see saga train --privacy"
            if promise is None
            else f"epsilon {promise['epsilon']:g}, delta {promise['delta']:g}, by person, "
            f"{promise['covers']}"
        ),
        f"{'audit':<12} {verdict or 'none: see saga audit'}",
        f"{'files':<12} {', '.join(sorted(bundle.manifest['files']))}",
    ]
    console.result("\n".join(lines), report, as_json=as_json)


def verify(
    directory: options.Bundle,
    digest: Annotated[
        str | None,
        typer.Option(metavar="SHA", help="The digest that whoever made the bundle told you."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check every byte of a bundle; exit code 2 if a file is missing, unknown or changed.

    The seal has no key: with --digest a bundle that somebody else sealed is refused, too.
    """
    from saga.bundle import Bundle

    bundle = Bundle.load(directory)
    if digest is not None and digest != bundle.digest:
        raise BundleError(
            f"{directory} is another bundle: its digest is {bundle.digest}. Get it from its source "
            "again, and the digest by another way."
        )
    report = {
        "path": bundle.path,
        "intact": True,
        "digest": bundle.digest,
        "as_stated": digest is not None,
        "files": len(bundle.manifest["files"]),
    }
    console.result(
        f"{directory} is intact: {report['files']} files, digest {bundle.digest}"
        + (", as stated." if digest else ". Who made it, only --digest shows."),
        report,
        as_json=as_json,
    )


def audit(
    bundle: options.Bundle,
    panel: options.Panel,
    reading: SplitReading,
    draws: Annotated[Draws, "seed"],
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
    from saga.evaluation.audit.bundle_audit import PAGE, AuditOptions, audit_bundle, store_audit
    from saga.pages.layout import check_page

    opened, folder = Bundle.load(bundle), out or Path(f"{bundle}.audit")
    check_page(folder / PAGE, "page", (".html",))
    people = reading.read(panel)
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
        f"Verdict: {word}. {outcome['verdict']['advice']} Wrote {folder / PAGE}; digest of "
        f"the bundle with its audit: {stored.digest[:12]}.",
        {"out": folder, "bundle": stored.digest, **outcome},
        as_json=as_json,
    )
    if word in ("leak", "no power"):
        raise typer.Exit(1)


def release(
    directory: options.Bundle,
    audit: Annotated[Path, typer.Option(help="Folder that `saga audit` wrote for this bundle.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    accept_risk: Annotated[
        str | None,
        typer.Option(
            help="Who accepts which risk, and why: needed unless the audit found no leak.",
            show_default="none",
        ),
    ] = None,
    workers: options.Workers = 1,
    as_json: options.Json = False,
) -> None:
    """Put an audited bundle, its card, tables and software list into a folder for output checking.

    A simulated register stands in place of the agency's persons.
    """
    from saga.bundle import Bundle
    from saga.evaluation.release.bundle_release import release_bundle

    bundle = Bundle.load(directory)
    written = release_bundle(bundle, audit, out, accepted_risk=accept_risk, workers=workers)
    console.result(
        f"Wrote {written['files']:,} files to {out}. Begin with index.html. Audit: "
        f"{written['verdict']}.",
        {"out": out, **written},
        as_json=as_json,
    )


def report(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option(help="Page to write: .html.")],
    reading: SplitReading,
    model: Annotated[Model, "rollout", "threads"],
    bundle: Annotated[
        Path | None,
        typer.Argument(
            metavar="BUNDLE", help="Directory of a bundle.", show_default="bundles/small"
        ),
    ] = None,
    panel: Annotated[
        Path | None,
        typer.Option(
            "--panel",
            help="Evaluate the bundle again on this panel.",
            show_default="the results in the bundle",
        ),
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="Store the results of --panel in the bundle.")
    ] = False,
    request: Annotated[ForecastRequest, "horizons"] = ForecastRequest((1, 5, 10, 20, 30)),
    draws: Annotated[Draws, "n_paths", "seed"] = Draws(200),
    persons: options.TestPersons = None,
    min_cell: Annotated[
        int, typer.Option(min=1, help="Figures of fewer persons are not shown.")
    ] = 10,
    brief: Annotated[
        Path | None, typer.Option(help="Also write the report on one page: .pdf or .docx.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write the calibration report: whether forecasts can be trusted, for whom, how far ahead.

    Examples:
        saga report --out report.html  # the results in the shipped bundle
        saga report bundles/ours --panel register/ --out report.html  # judge it on a panel
        saga report --out report.html --brief brief.pdf  # also on one page
    """
    from saga.bundle import Bundle, default_bundle, replace_parts
    from saga.calibration.diagnostics.diagnosis import diagnose
    from saga.diagnostics_tables import Diagnostics
    from saga.files.bundle_folder import JUDGED_TABLES
    from saga.files.stored_values import faults_of
    from saga.pages.brief import SUFFIXES as BRIEF_SUFFIXES
    from saga.pages.layout import check_page, write_page
    from saga.pages.report import STATUS_WORDS, SUFFIXES, make_brief, render_report

    check_page(out, "report", SUFFIXES)
    if brief is not None:
        check_page(brief, "brief", BRIEF_SUFFIXES)
    path = bundle or default_bundle()
    if panel is None:
        if store:
            raise UsageError(
                "--store writes the results of --panel to the bundle. Give --panel, or leave "
                "--store out."
            )
        opened = Bundle.load(path)
        diagnostics = Diagnostics.of_bundle(opened)
    else:
        test_panel = reading.read(panel)
        forecaster = replace(model, bundle=path).open(reading.open_facts())
        with console.progress("One of two passes of the evaluation", quiet=as_json) as progress:
            diagnostics = diagnose(
                forecaster,
                test_panel,
                horizons=request.horizons,
                draws=draws,
                persons=persons,
                min_persons=min_cell,
                progress=progress,
            )
        opened = forecaster.bundle
        if store:
            opened = replace_parts(
                opened, path, command=command_line(ctx), diagnostics=diagnostics.to_table()
            )
    with faults_of(JUDGED_TABLES) if panel is None else nullcontext():
        page = render_report(diagnostics, bundle=opened.digest, vintages=opened.vintages)
        short = make_brief(diagnostics, bundle=opened.digest) if brief else None
    write_page(out, page)
    if brief and short:
        short.write(brief)
    verdicts = Counter(diagnostics["verdicts"]["status"].to_list())
    report_facts = {
        "out": out,
        "bundle": opened.digest,
        "stored": store,
        "verdicts": dict(verdicts),
        "provenance": diagnostics.provenance,
    }
    console.result(
        f"Wrote {out}{f' and {brief}' if brief else ''}: of {verdicts.total()} verdicts, "
        f"{format_counts({STATUS_WORDS[status][1]: n for status, n in verdicts.items()})}.",
        report_facts,
        as_json=as_json,
    )
