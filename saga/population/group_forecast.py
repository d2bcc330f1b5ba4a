"""Group tables of the persons whose paths a forecaster simulates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from saga.data.panel import Panel
from saga.files.data_frames import Rows
from saga.forecast_results import GroupForecasts, Result
from saga.forecaster import Forecaster
from saga.population.disclosure import DisclosureRules
from saga.population.policy_tables import TableSteps, last_of, table_steps
from saga.population.population_paths import check_groups, grid_of, population_of
from saga.population.scored_paths import PathRows
from saga.requests import Draws, PopulationRequest


def forecast_groups(
    forecaster: Forecaster,
    source: Panel | Rows,
    request: PopulationRequest = PopulationRequest(),
    draws: Draws = Draws(),
    *,
    weights: Rows | None = None,
    id: str | None = None,
    time: str | None = None,
    target: str | None = None,
    birth_year: str | None = None,
) -> GroupForecasts:
    """Statistics of groups by year with 90 % bands, as `saga score` and `saga tables` give them.

    The result's table is that of `saga.population.policy_tables.PolicyTables.statistics`. All paths
    are in memory: persons x years x paths x 40 bytes, and some ten times one year of it.

    Args:
        forecaster: The bundle.
        source: A panel, or what `read_panel` reads; the origin of each person is the last year of
            the record. Groups are those last known.
        request: Groups, comparisons, events, rate and tax; with a reference, its paths are
            simulated, too.
        draws: Number of paths, seed and scenario.
        weights: A table of person_id and weight, for persons who are a sample.
        id: Column of the person, as for `read_panel`; and so `time`, `target`, `birth_year`.
        time: Column of the year.
        target: Column of the earnings.
        birth_year: Column of the year of birth.

    Raises:
        InputError: If nobody can be forecast, or a person has no weight.
        UsageError: If a group, level or year is not one of the persons'.
    """
    people = forecaster.panel(source, id=id, time=time, target=target, birth_year=birth_year)
    check_groups(people, request)
    reference = None
    if request.reference is not None:
        plan = forecaster.plan(
            request.of_paths, people, forecaster.reference_draws(draws, request.reference)
        )
        plan.check_scenario()
        reference = plan.result([plan.compute(plan.panel)])
    paths = forecaster.run(request.of_paths, people, draws)
    return last_of(tabulate(forecaster, paths, request, weights, reference))


def tabulate(
    forecaster: Forecaster,
    paths: Result,
    request: PopulationRequest,
    weights: Rows | None = None,
    reference: Result | None = None,
    check_cells: Callable[[int], object] = lambda _: None,
) -> TableSteps[GroupForecasts]:
    """The table of a result with the paths of the request, in steps of a year or less.

    Arguments as in `forecast_groups`. `reference` has the paths of the request's reference.
    `check_cells` is called with the number of cells and comparisons of a year, and may raise.
    """
    rules = DisclosureRules()
    rows, *others = (
        PathRows(result.table.lazy(), result.provenance)
        for result in (paths, reference)
        if result is not None
    )
    population = population_of(rows, paths.panel, request, weights, forecaster.facts, *others)
    check_cells(grid_of(population, request).n_shown * (1 + len(others)))
    tables = yield from table_steps(population, request, rules, transition_years=None)
    of_groups = replace(
        paths,
        table=tables.statistics,
        warnings=(*paths.warnings, *tables.warnings),
        provenance=population.provenance(request, rules),
    )
    return GroupForecasts(**vars(of_groups))
