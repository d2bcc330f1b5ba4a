"""`POST /v1/populations`: tables of groups with 90 % bands, from the paths of the persons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import polars as pl
from fastapi import APIRouter, Request, Response
from saga.api import budget
from saga.api.compute_queue import Ticket, Work
from saga.api.negotiation import ComputeCall, Computed, answer_call
from saga.api.openapi import compute_responses, request_body
from saga.api.request_models import PopulationBody, PopulationOptions
from saga.api.response_models import PopulationResponse

from saga.data.panel import Panel
from saga.forecast_results import Result
from saga.plans.plan import PieceOutput
from saga.population.group_forecast import tabulate
from saga.population.inflow import max_careers
from saga.population.population_paths import check_groups

router = APIRouter(prefix="/v1", tags=["populations"])


@router.post(
    "/populations",
    name="populations",
    summary="Earnings of groups by year, with 90 % bands",
    response_model=PopulationResponse,
    responses=compute_responses(),
    openapi_extra=request_body("PopulationRequest"),
)
async def post_populations(request: Request) -> Response:
    """Statistics of groups of the persons of the call, by year and over lifetimes, up to `to_age`.

    Path k of every person has the same macro values, so each statistic is computed on every path;
    groups add up to the whole. `groups` has for each the mean over paths (of quantiles the median),
    the 90 % band and the parts of its spread. `compare` adds ratios and gaps of two groups,
    `events` chances. Totals are sums over these persons. With `weights`, an own column of the rows
    (`extra`), the persons are a sample, and totals and bands are those of the population. `inflow`
    adds persons who join later. With a `reference` each row has the effect of the scenario: the
    difference on each path.

    Groups with fewer than 10 persons are suppressed, and others that would reveal them. A table
    as the response has one row per year, group and statistic. Persons who cannot be forecast are
    in `left_out`.
    """

    async def compute_call(call: ComputeCall[PopulationOptions], ticket: Ticket) -> Computed:
        service, typed = call.service, call.options.request
        plan = service.plan(typed.of_paths, call.people.panel, call.options, call.caller)
        plans = [plan]
        if typed.reference is not None:
            draws = plan.forecaster.reference_draws(plan.draws, typed.reference)
            plans.append(replace(plan, draws=draws))
            plans[-1].check_scenario()
        n_persons, n_paths = plan.panel.n_persons, plan.draws.n_paths
        n_years = plan.years_ahead(typed.to_age)
        most = max_careers(n_persons, len(typed.inflow))
        # The bound is that of one scenario: two calls would do the same work.
        size = budget.check_work(n_persons + most, n_paths, n_years, service.settings.max_work)

        def check_cells(n_cells: int) -> None:
            budget.check_cells(n_cells, n_persons + most, n_paths, service.settings.max_work)

        check_groups(plan.panel, typed, check_cells)
        n_simulated = len(plans) * n_years
        computed: list[list[PieceOutput]] = []

        def tables() -> Iterator[object]:
            """The steps of the tables, and then the tables."""
            outputs = zip(*computed, strict=True)
            paths, *others = (p.result(list(o)) for p, o in zip(plans, outputs, strict=True))
            reference = others[0] if others else None
            yield (
                yield from tabulate(
                    plan.forecaster, paths, typed, call.weights, reference, check_cells
                )
            )

        steps = tables()

        def simulate(piece: Panel) -> None:
            computed.append([each.compute(piece) for each in plans])

        def tabulate_on() -> object:
            """The next step, after which comes another one, or the tables."""
            step = next(steps)
            if not isinstance(step, Result):
                pieces.append(tabulate_on)
            return step

        largest = budget.persons_of_piece(n_paths, n_simulated)
        pieces: list[Callable[[], object]] = [
            *(partial(simulate, piece) for piece in plan.pieces(largest)),
            tabulate_on,
        ]
        work = Work(pieces, lambda parts: [piece() for piece in parts], len(plans) * size)
        outputs = await service.queue.run(request, ticket, work)
        groups = next(each for each in outputs if isinstance(each, Result))
        service.count_computed("populations", n_persons, n_paths, n_simulated)
        return groups, lambda: _groups_json(groups.table)

    models = PopulationBody, PopulationOptions
    return await answer_call(request, models, compute_call)


def _groups_json(table: pl.DataFrame) -> Mapping[str, object]:
    """The rows of the table, and the chances of events apart."""
    groups = table.columns[1 : table.columns.index("statistic")]
    events = table.filter(statistic="chance").rename({"value": "chance"})
    rows = table.filter(pl.col("statistic") != "chance").drop("event", strict=False)
    return {
        "groups": [
            {"group": {name: row.pop(name) for name in groups}, **row}
            for row in rows.iter_rows(named=True)
        ],
        "events": events.select(pl.col("^event$"), "chance", "mc_error", "suppressed").to_dicts(),
    }
