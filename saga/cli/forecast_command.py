"""saga forecast: a table of yearly earnings with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import (
    STANDARD,
    LedgerOptions,
    check_output,
    enter_issued,
    note_left_out,
    open_forecaster,
    read_persons,
    reading_report,
    report_table,
    show_warnings,
    write_output,
)
from saga.requests import MAX_HORIZON, PATHS, Draws, ForecastRequest

if TYPE_CHECKING:
    import polars as pl

_PREVIEW = {
    "person_id": "person",
    "year": "year",
    "p_zero": "no earnings",
    "mean": "mean",
    "q50": "median",
    "lower_90": "90 % from",
    "upper_90": "90 % to",
}
_PREVIEW_HORIZONS, _PREVIEW_ROWS = (1, 5, 10), 6


def forecast(
    source: options.Input,
    out: options.OutTable,
    bundle: options.Bundle = None,
    horizons: options.Horizons = options.HORIZONS_TEXT,
    coverage: options.Coverage = options.COVERAGE_TEXT,
    quantiles: options.Quantiles = options.QUANTILES_TEXT,
    paths: options.UnusedPaths = PATHS,
    seed: options.UnusedSeed = 0,
    scenario: options.Scenario = None,
    rollout: options.UnusedRollout = None,
    precision: options.Precision = None,
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    origin: options.Origin = None,
    facts: options.Facts = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    unrounded: options.Unrounded = False,
    limits: Annotated[
        bool,
        typer.Option(
            "--limits", help="Also one-sided limits, and intervals given positive earnings."
        ),
    ] = False,
    bands: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_HORIZON, help="Also bands for the next K years together."),
    ] = None,
    database: options.Database = None,
    database_key: options.DatabaseKey = None,
    holder: options.Holder = "common",
    record: options.Record = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Forecast each person's earnings 1 to 30 years ahead, with intervals."""
    request = ForecastRequest(
        horizons=options.parse_horizons(horizons),
        coverage=options.parse_coverage(coverage),
        quantiles=options.parse_quantiles(quantiles),
        limits=limits,
        bands=bands,
        unrounded=unrounded,
    )
    draws = Draws(paths, seed, scenario)
    check_output(source, out, as_json=as_json)
    ledger_options = LedgerOptions(database, database_key, holder, record)
    forecaster = open_forecaster(bundle, threads, rollout, precision, facts)
    forecaster.calibrator.coverage_columns(request.coverage)  # before any work
    panel = read_persons(
        source,
        mapping,
        prices,
        on_error,
        rejected,
        facts=forecaster.facts,
        origin=origin,
    )
    ledger = ledger_options.open()
    in_force = None if ledger is None else ledger_options.in_force(forecaster, ledger)
    plan = forecaster.plan(request, panel, draws, in_force, record=record)
    plan.check_scenario()
    note_left_out(plan.left_out)
    with console.progress("Forecasting", quiet=as_json) as progress:
        result = plan.result([plan.compute(plan.panel, progress)])
    table = result.table
    details = reading_report(plan.panel, plan.left_out)
    if record and ledger is not None:
        details |= enter_issued(ledger, forecaster, result, "intervals")
    _note_missing_intervals(table)
    details["warnings"] = show_warnings(result.warnings)
    provenance = {
        **result.provenance,
        "panel": plan.panel.meta.panel_id,
        "warnings": details["warnings"],
    }
    write_output(table, out, provenance)
    if not as_json and out != STANDARD:
        unit = f"{provenance['currency']} of {provenance['price_year']}"
        console.table(_preview(table), f"First persons, {unit} a year", _PREVIEW)
    size = {"rows": table.height, "persons": table["person_id"].n_unique()}
    report_table(out, size, provenance, details, as_json=as_json)


def _preview(table: pl.DataFrame) -> pl.DataFrame:
    """A few rows of the first persons, in the main columns."""
    import polars as pl

    preview_rows = table.filter(pl.col("horizon").is_in(_PREVIEW_HORIZONS))
    columns = [name for name in _PREVIEW if name in table.columns]
    return (preview_rows if len(preview_rows) else table).select(columns).head(_PREVIEW_ROWS)


def _note_missing_intervals(table: pl.DataFrame) -> None:
    import polars as pl

    from saga.conformal.calibrator import reason

    rows = table.filter(pl.any_horizontal(pl.col(r"^guarantee_[0-9.]+$") == "none")).height
    if rows:
        console.note(
            f"{rows:,} of {table.height:,} rows lack an interval at some coverage. {reason('none')}"
        )
