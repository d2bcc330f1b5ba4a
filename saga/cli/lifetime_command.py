"""saga lifetime: present values of working lives."""

from __future__ import annotations

from saga.cli import console
from saga.cli.inputs import (
    keep_forecastable,
    open_forecaster,
    read_persons,
    reading_report,
    report_table,
)
from saga.cli.options import (
    LIFETIME_COVERAGE_TEXT,
    QUANTILES_TEXT,
    BundleOption,
    CoverageOption,
    FromAgeOption,
    InputArgument,
    JsonOption,
    MappingOption,
    OnErrorOption,
    OutTableOption,
    PathsOption,
    PrecisionOption,
    PricesOption,
    QuantilesOption,
    RateOption,
    RejectedOption,
    RolloutOption,
    ScenarioOption,
    SeedOption,
    TaxOption,
    ThreadsOption,
    ToAgeOption,
    parse_coverage,
    parse_quantiles,
)
from saga.requests import PATHS, RATE, Draws, LifetimeRequest
from saga.schema import MAX_AGE


def lifetime(
    source: InputArgument,
    out: OutTableOption,
    bundle: BundleOption = None,
    rate: RateOption = RATE,
    to_age: ToAgeOption = MAX_AGE,
    from_age: FromAgeOption = None,
    tax: TaxOption = "none",
    coverage: CoverageOption = LIFETIME_COVERAGE_TEXT,
    quantiles: QuantilesOption = QUANTILES_TEXT,
    paths: PathsOption = PATHS,
    seed: SeedOption = 0,
    scenario: ScenarioOption = None,
    rollout: RolloutOption = None,
    precision: PrecisionOption = None,
    mapping: MappingOption = None,
    prices: PricesOption = None,
    on_error: OnErrorOption = "fail",
    rejected: RejectedOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Present value of each person's remaining (or whole) working life, and its distribution."""
    from saga.data.files import require_output_outside_input
    from saga.files.tables import check_out, write_table
    from saga.forecast_checks import check_scenario

    request = LifetimeRequest(
        rate=rate,
        to_age=to_age,
        from_age=from_age,
        tax=tax,
        coverage=parse_coverage(coverage),
        quantiles=parse_quantiles(quantiles),
    )
    draws = Draws(paths, seed, scenario)
    require_output_outside_input(source, out, "--out")
    check_out(out)
    forecaster = open_forecaster(bundle, threads, rollout, precision)
    panel = read_persons(source, mapping, prices, on_error, rejected)
    panel, problems = keep_forecastable(panel, on_error, to_age)
    check_scenario(forecaster.scenario(scenario), panel)
    with console.progress("Simulating lives", quiet=as_json) as progress:
        lifetimes = forecaster.lifetime(panel, request, draws, progress=progress)
    table, population = lifetimes.table, lifetimes.population
    provenance = {
        **forecaster.provenance(draws),
        "product": "lifetimes",
        "panel": panel.meta.panel_id,
        "rate": request.rate,
        "to_age": request.to_age,
        "from_age": request.from_age,
        "tax": request.tax,
    }
    write_table(table, out, provenance)
    if not as_json:
        console.table(population, f"Distribution of present values over {table.height:,} persons")
    details = {**reading_report(panel, problems), "population": population.to_dicts()}
    size = {"rows": table.height, "persons": table.height}
    report_table(out, size, provenance, details, as_json=as_json)
