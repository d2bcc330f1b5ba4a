"""saga forecast, lifetime, pensions, plot: tables and pages of persons of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import (
    STANDARD,
    Model,
    ReadingUntil,
    Recording,
    check_output,
    show_warnings,
    write_output,
)
from saga.requests import (
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PensionRequest,
    middle_quantiles,
)
from saga.summaries import count

if TYPE_CHECKING:
    import polars as pl

    from saga.calibration.adaptive.ledger import Ledger
    from saga.forecast_results import Forecasts, Lifetimes, Pensions, Result


_Out = Annotated[
    Path,
    typer.Option(
        "--out", help="Table to write: .parquet .csv .dta .xlsx; or - for CSV on standard output."
    ),
]
_PREVIEW = {"person_id": "person", "year": "year", "p_zero": "no earnings"}
_PREVIEW |= {"mean": "mean", "q50": "median"}
_PREVIEW_SETS = ("90", "80", "50")  # the first that has values
_PREVIEW_HORIZONS, _PREVIEW_ROWS = (1, 5, 10), 6
_POPULATION = {
    "statistic": "statistic",
    "value": "expected value",
    "sd": "uncertainty of the future (standard deviation)",
    "mc_error": "error of simulation",
}


def forecast(
    source: options.Input,
    out: _Out,
    model: Model,
    request: ForecastRequest,
    draws: Draws,
    reading: ReadingUntil,
    ledger: Recording,
    as_json: options.Json = False,
) -> None:
    """Forecast each person's earnings 1 to 30 years ahead, with intervals.

    Examples:
        saga forecast people.csv --out forecast.csv  # with the shipped bundle
        saga forecast lisa/ --mapping lisa --out forecast.parquet  # a folder of LISA tables
        saga forecast people.csv --origin 2015 --out test.csv  # as if made in 2015
        saga forecast - --out - --horizons 1,5,10  # from and to a pipe, as CSV
    """
    _make(request, draws, source, out, model, reading, ledger, as_json=as_json)


def lifetime(
    source: options.Input,
    out: _Out,
    model: Model,
    request: LifetimeRequest,
    draws: Draws,
    reading: ReadingUntil,
    ledger: Recording,
    as_json: options.Json = False,
) -> None:
    """Present value of each person's remaining (or whole) working life, and its distribution.

    Examples:
        saga lifetime people.csv --tax se-2022 --out lifetimes.xlsx  # after tax, for Excel
        saga lifetime people.csv --from-age 20 --rate 0.03 --out whole.csv  # whole working lives
    """
    _make(request, draws, source, out, model, reading, ledger, as_json=as_json)


def pensions(
    source: options.Input,
    out: _Out,
    model: Model,
    request: PensionRequest,
    draws: Draws,
    reading: ReadingUntil,
    as_json: options.Json = False,
) -> None:
    """Pension rights of each person's career, from earnings only, and what a reform changes.

    Examples:
        saga pensions people.csv --unknown-years zero --out rights.csv  # Sweden, ages 60 to 64
        saga pensions people.csv --reform reform.yaml --out changed.csv  # what it changes
    """
    _make(request, draws, source, out, model, reading, None, as_json=as_json)


def plot(
    source: options.Input,
    out: Annotated[Path, typer.Option(help="Page (.html) or picture (.svg, .png) to write.")],
    model: Annotated[Model, "bundle", "threads"],
    reading: ReadingUntil,
    draws: Annotated[Draws, "scenario"],
    request: Annotated[ForecastRequest, "horizons", "coverage"] = ForecastRequest(
        coverage=(0.5, 0.8, 0.9)
    ),
    person: Annotated[
        str | None,
        typer.Option(help="Id of the person.", show_default="the only person of the input"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Draw one person's record and forecast: quantiles, the set of a year, chance of no earnings.

    Examples:
        saga plot people.csv --person 0001 --out forecast.svg  # a picture
        saga plot people.csv --person 0001 --horizons 1-10 --out forecast.html  # a page
    """
    from saga.data.panel_files import require_output_outside_input
    from saga.pages.layout import check_page
    from saga.pages.person import SUFFIXES, choose_person

    require_output_outside_input(source, out, "--out")
    check_page(out, "picture", SUFFIXES)
    forecaster = model.open(reading.open_facts())
    panel = reading.read_until_origin(source)
    panel = panel.only([choose_person(panel.frame["person_id"], person)])
    fan = (level for share in request.coverage for level in middle_quantiles(share))
    request = replace(request, quantiles=(0.5, *fan))
    picture = forecaster.forecast(panel, request, draws).plot()
    picture.save(out)
    report = {
        "out": out,
        "sentence": picture.sentence,
        "warnings": show_warnings(picture.warnings),
        "provenance": picture.provenance,
    }
    console.result(f"{picture.sentence}\nWrote the picture to {out}.", report, as_json=as_json)


def _make(
    request: ForecastRequest | LifetimeRequest | PensionRequest,
    draws: Draws,
    source: Path,
    out: Path,
    model: Model,
    reading: ReadingUntil,
    ledger_options: Recording | None,
    *,
    as_json: bool,
) -> None:
    """Compute a product for the persons of a source, write its table and report it."""
    from saga.forecast_results import Forecasts, Lifetimes, Pensions, count_left_out

    check_output(source, out, as_json=as_json)
    forecaster = model.open(reading.open_facts())
    forecaster.check(request)  # before any work
    panel = reading.read_until_origin(source)
    ledger, record = None, False
    if ledger_options is not None:
        ledger, record = ledger_options.open(), ledger_options.record
    in_force = None
    if ledger is not None:  # imported late: its database takes long to load
        from saga.calibration.adaptive.issuance import AdaptedForecaster

        in_force = AdaptedForecaster.of(forecaster, ledger.state(forecaster.bundle.digest))
    plan = forecaster.plan(request, panel, draws, in_force, record=record)
    plan.check_scenario()
    if plan.left_out:
        console.note(f"Left out, not forecast: {count_left_out(plan.left_out)}.")
    with console.progress(f"Computing {request.product}", quiet=as_json) as progress:
        result = plan.result([plan.compute(plan.panel, progress)])
    assert isinstance(result, Forecasts | Lifetimes | Pensions)
    meta = plan.panel.meta
    details = {
        "excluded": meta.excluded,
        "dropped": meta.dropped,
        "nulled": meta.nulled,
        "unmatched": meta.unmatched,
        "padded": meta.padded,
        "ignored": meta.ignored,
        "unread": meta.unread,
        "left_out": [problem.as_dict() for problem in plan.left_out],
    }
    if ledger is not None and record:
        details["recorded"] = _record(ledger, forecaster.bundle.digest, result)
    if isinstance(result, Lifetimes):
        details["population"] = result.population.to_dicts()
    elif isinstance(result, Pensions):
        if result.groups is not None:
            details["groups"] = result.groups.to_dicts()
    else:
        _note_missing_intervals(result)
    details["warnings"] = show_warnings(result.warnings)
    provenance = {
        **result.provenance,
        "panel": meta.panel_id,
        "panel_digest": panel.digest,
        "warnings": details["warnings"],
    }
    write_output(result.table, out, provenance)
    unit = f"{provenance['currency']} of {provenance['price_year']}"
    if basis := provenance.get("basis"):
        unit += f", {basis}"
    n_persons = result.table["person_id"].n_unique()
    text = (
        f"Wrote {count(result.table.height, 'row')} for {count(n_persons, 'person')}"
        f"{{}} ({unit}, bundle {forecaster.bundle.digest[:12]}, seed {draws.seed})."
    )
    if out == STANDARD:
        console.note(text.format(""))
        return
    if not as_json:
        _show(result, unit)
    size = {"rows": result.table.height, "persons": n_persons}
    report = {"out": out, **size, "provenance": provenance, **details}
    console.result(text.format(f" to {out}"), report, as_json=as_json)


def _record(ledger: Ledger, bundle: str, result: Result) -> dict[str, int]:
    """Enter what a result has issued in the ledger; returns the numbers for `--json`."""
    counts = ledger.record(bundle, result.issued)
    console.note(
        f"Ledger: {counts.new:,} new intervals, {counts.repeated:,} known, "
        f"{counts.late:,} about years whose outcome is known."
    )
    return vars(counts).copy()


def _show(result: Forecasts | Lifetimes | Pensions, unit: str) -> None:
    """Print a few rows in the main columns; of many lifetimes or a reform, those of groups."""
    import polars as pl

    from saga.forecast_results import Lifetimes, Pensions
    from saga.small_groups import MIN_PERSONS
    from saga.training_records import TESTED

    table = result.table
    if isinstance(result, Lifetimes) and table.height >= MIN_PERSONS:
        title = f"Distribution of present values over {table.height:,} persons, {unit}"
        console.table(result.population.select(list(_POPULATION)), title, _POPULATION)
        return
    if isinstance(result, Pensions):
        measure, groups = "rights", result.groups
        if groups is not None:
            measure = "difference_rights"
            title = f"Groups by lifetime earnings at age {table['age'][-1]}, {unit}"
            if (shown := groups.drop_nulls("persons")).height:
                console.table(shown, title)
        table = table.filter(measure=measure).head(_PREVIEW_ROWS)
    columns = headings_of(table)
    title = f"Present values, {unit}"
    if isinstance(result, Pensions):
        title = f"First persons, {measure.replace('_', ' ')}, {unit}"
    if "horizon" in table.columns:
        title = f"First persons, {unit} a year"
        early = table.filter(pl.col("horizon").is_in(_PREVIEW_HORIZONS))
        table = (early if len(early) else table).head(_PREVIEW_ROWS)
    tested = pl.selectors.starts_with("guarantee_").is_in(TESTED)
    console.table(table.select(list(columns)).with_columns(tested), title, columns)


def headings_of(table: pl.DataFrame) -> dict[str, str]:
    """The columns of a table that the screen has, with the widest of its sets, and their names.

    Also whether their coverage was tested, if that of some was not.
    """
    sets = [x for x in _PREVIEW_SETS if f"lower_{x}" in table.columns]
    known = [x for x in sets if table[f"lower_{x}"].count()]
    label = (known or sets or [""])[0]
    ends = {f"lower_{label}": f"{label} % from", f"upper_{label}": f"{label} % to"}
    guarantee = f"guarantee_{label}"
    if guarantee in table.columns and "extrapolated" in table[guarantee]:
        ends[guarantee] = "tested"
    return {name: text for name, text in {**_PREVIEW, **ends}.items() if name in table.columns}


def _note_missing_intervals(forecasts: Forecasts) -> None:
    import polars as pl

    from saga.conformal.calibrator import reason

    table = forecasts.table
    rows = table.filter(pl.any_horizontal(pl.col(r"^guarantee_[0-9.]+$") == "none")).height
    if rows:
        console.note(
            f"{rows:,} of {table.height:,} rows lack an interval at some coverage. {reason('none')}"
        )
