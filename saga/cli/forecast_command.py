"""saga forecast: a table of yearly earnings with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import (
    STANDARD,
    LedgerOptions,
    check_output,
    keep_forecastable,
    open_forecaster,
    read_persons,
    reading_report,
    report_table,
    show_recorded,
    show_warnings,
    write_output,
)
from saga.errors import Problem
from saga.requests import MAX_HORIZON, PATHS, Draws, ForecastRequest
from saga.schema import MAX_AGE
from saga.summaries import count

if TYPE_CHECKING:
    import polars as pl

    from saga.data.panel import Panel

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
    from saga.forecast_checks import check_scenario

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
    panel, problems = keep_forecastable(panel)
    panel, too_old = _keep_within_age(panel, request.horizons[0])
    check_scenario(forecaster.scenario(scenario), panel, years=request.horizons[-1])
    details = reading_report(panel, [*problems, *too_old])
    provenance = {**forecaster.provenance(draws), "product": "forecasts"}
    provenance["panel"] = panel.meta.panel_id
    with console.progress("Forecasting", quiet=as_json) as progress:
        ledger_forecaster = ledger_options.open_adapted(forecaster)
        if ledger_forecaster is None:
            forecasts = forecaster.forecast(panel, request, draws, progress=progress)
            table, warnings = forecasts.table, forecasts.warnings
        else:
            from saga.calibration.adaptive.issuance import forecast_and_record

            adapted, ledger = ledger_forecaster
            provenance["adaptive"] = adapted.state.identity()
            warnings = adapted.forecaster.warnings(panel, request, draws)
            if record:
                table, counts = forecast_and_record(
                    adapted, panel, ledger, request, draws, progress=progress
                )
                details["recorded"] = show_recorded(counts, "intervals")
            else:
                table = adapted.forecaster.forecast(panel, request, draws, progress=progress).table
    _note_missing_intervals(table)
    details["warnings"] = show_warnings(warnings)
    provenance["warnings"] = details["warnings"]
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


def _keep_within_age(panel: Panel, first_horizon: int) -> tuple[Panel, list[Problem]]:
    """The persons who are at most 64 at the first horizon, and the problems of the others."""
    from saga.data.rules import find_ineligible, keep_eligible

    too_old = find_ineligible(panel, ahead=first_horizon)
    panel = keep_eligible(panel, too_old)
    if too_old:
        console.note(
            f"Left out, above {MAX_AGE} at every horizon: {count(len(too_old), 'person')}."
        )
    return panel, list(too_old.values())


def _note_missing_intervals(table: pl.DataFrame) -> None:
    import polars as pl

    from saga.conformal.calibrator import reason

    rows = table.filter(pl.any_horizontal(pl.col(r"^guarantee_[0-9.]+$") == "none")).height
    if rows:
        console.note(
            f"{rows:,} of {table.height:,} rows lack an interval at some coverage. {reason('none')}"
        )
