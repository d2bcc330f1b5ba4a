"""saga lifetime: present values of working lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from saga.requests import PATHS, RATE, Draws, LifetimeRequest
from saga.schema import MAX_AGE
from saga.small_groups import MIN_PERSONS

if TYPE_CHECKING:
    from saga.forecast_results import Lifetimes

_PREVIEW = {
    "person_id": "person",
    "mean": "mean",
    "q50": "median",
    "lower_90": "90 % from",
    "upper_90": "90 % to",
}
_POPULATION = {
    "statistic": "statistic",
    "value": "expected value",
    "sd": "uncertainty of the future (standard deviation)",
    "mc_error": "error of simulation",
}


def lifetime(
    source: options.Input,
    out: options.OutTable,
    bundle: options.Bundle = None,
    rate: options.Rate = RATE,
    to_age: options.ToAge = MAX_AGE,
    from_age: options.FromAge = None,
    tax: options.Tax = "none",
    coverage: options.Coverage = options.LIFETIME_COVERAGE_TEXT,
    quantiles: options.Quantiles = options.QUANTILES_TEXT,
    paths: options.Paths = PATHS,
    seed: options.Seed = 0,
    scenario: options.Scenario = None,
    rollout: options.Rollout = None,
    precision: options.Precision = None,
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    origin: options.Origin = None,
    facts: options.Facts = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    unrounded: options.Unrounded = False,
    database: options.Database = None,
    database_key: options.DatabaseKey = None,
    holder: options.Holder = "common",
    record: options.Record = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Present value of each person's remaining (or whole) working life, and its distribution."""
    from saga.forecast_results import Lifetimes
    from saga.tax.tax_reform import tax_source

    request = LifetimeRequest(
        rate=rate,
        to_age=to_age,
        from_age=from_age,
        tax=tax_source(tax),
        coverage=options.parse_coverage(coverage),
        quantiles=options.parse_quantiles(quantiles),
        unrounded=unrounded,
    )
    draws = Draws(paths, seed, scenario)
    check_output(source, out, as_json=as_json)
    ledger_options = LedgerOptions(database, database_key, holder, record)
    forecaster = open_forecaster(bundle, threads, rollout, precision, facts)
    forecaster.tax_provenance(request)  # fails before any work
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
    with console.progress("Simulating lives", quiet=as_json) as progress:
        lifetimes = plan.result([plan.compute(plan.panel, progress)])
    assert isinstance(lifetimes, Lifetimes)
    table = lifetimes.table
    recorded: dict[str, object] = {}
    if record and ledger is not None:
        recorded = enter_issued(ledger, forecaster, lifetimes, "present values")
    provenance = {
        **lifetimes.provenance,
        "panel": plan.panel.meta.panel_id,
        "warnings": show_warnings(lifetimes.warnings),
    }
    write_output(table, out, provenance)
    if not as_json and out != STANDARD:
        _show(lifetimes, f"{provenance['currency']} of {provenance['price_year']}")
    details = {
        **reading_report(plan.panel, plan.left_out),
        **recorded,
        "population": lifetimes.population.to_dicts(),
        "warnings": provenance["warnings"],
    }
    size = {"rows": table.height, "persons": table.height}
    report_table(out, size, provenance, details, as_json=as_json)


def _show(lifetimes: Lifetimes, unit: str) -> None:
    """Print the present values of a few persons, or the distribution over many."""
    table = lifetimes.table
    if table.height < MIN_PERSONS:
        columns = [name for name in _PREVIEW if name in table.columns]
        console.table(table.select(columns), f"Present values, {unit}", _PREVIEW)
    else:
        title = f"Distribution of present values over {table.height:,} persons, {unit}"
        console.table(lifetimes.population.select(list(_POPULATION)), title, _POPULATION)
