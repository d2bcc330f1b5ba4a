"""`POST /v1/forecasts`: the distribution of each person's earnings, year by year."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from fastapi import APIRouter, Request, Response
from saga.api import budget
from saga.api.compute_queue import Ticket, Work
from saga.api.negotiation import (
    ComputeCall,
    Computed,
    Explain,
    answer_call,
    interval_json,
    limits_json,
    quantiles_json,
)
from saga.api.openapi import compute_responses, problem_responses, request_body
from saga.api.panel_batches import MAX_TOGETHER, forecast_parts, parts_of
from saga.api.request_models import ForecastBody, ForecastOptions
from saga.api.response_models import ForecastResponse

from saga.conformal.calibrator import reason
from saga.requests import MAX_HORIZON, ForecastRequest
from saga.simulation.marginals import N_NODES

router = APIRouter(prefix="/v1", tags=["forecasts"])


@router.post(
    "/forecasts",
    name="forecasts",
    summary="Forecast earnings 1 to 30 years ahead",
    response_model=ForecastResponse,
    responses=compute_responses() | problem_responses(404),
    openapi_extra=request_body("ForecastRequest"),
)
async def post_forecasts(request: Request) -> Response:
    """One distribution per person and horizon, until age 64; the origin is a person's last year.

    Persons who cannot be forecast are in `left_out`, with the reason; faulty records refuse the
    call. A table (Parquet, Arrow, CSV) has the columns of a panel, and the options are query
    parameters (`horizons=1,5,10`). `Accept` chooses the format of the response; a table has one row
    per person and horizon, sorted by person. In JSON `lower` is null if a set begins above 0.

    With `bands` = K, each year of `horizons` up to K also has sets. Together, the sets of all K
    years, or of the years until age 64, contain all outcomes with the stated coverage. With
    `limits`, each year also has one-sided limits and intervals given positive earnings. If the
    service has a ledger, the thresholds of single years follow its outcomes, and `record` enters
    the intervals in it, with the bands of the persons who are at most 64 in all K years.
    """

    async def compute(call: ComputeCall[ForecastOptions], ticket: Ticket) -> Computed:
        service, typed = call.service, call.options.request
        plan = service.plan(typed, call.people.panel, call.options, call.caller)
        # The work is estimated for all horizons, each with a fixed number of macro futures.
        n_persons, n_futures, n_years = plan.panel.n_persons, N_NODES, MAX_HORIZON
        size = budget.check_work(n_persons, n_futures, n_years, service.settings.max_work)
        parts = parts_of(plan)
        work = Work(
            parts,
            forecast_parts,
            size,
            parts[0].batch_key,
            MAX_TOGETHER,
            lambda part: part.panel.n_persons,
        )
        outputs = await service.queue.run(request, ticket, work)
        service.count_computed("forecasts", n_persons, n_futures, n_years)
        result = plan.result(outputs, call.people.compared)
        explain = reason if plan.in_force is None else plan.in_force.reason
        ids = call.people.person_ids
        return (result, lambda: {"forecasts": _forecasts_json(result.table, ids, typed, explain)})

    return await answer_call(request, (ForecastBody, ForecastOptions), compute)


def _forecasts_json(
    table: pl.DataFrame, person_ids: Sequence[str], request: ForecastRequest, explain: Explain
) -> list[dict[str, object]]:
    """The forecast table by person, in the order of the request."""
    horizons: dict[str, list[dict[str, object]]] = {person: [] for person in person_ids}
    origin_year: dict[str, int] = {}
    for row in table.to_dicts():
        horizon = {
            "h": row["horizon"],
            "year": row["year"],
            "mean": row["mean"],
            "p_zero": row["p_zero"],
            "quantiles": quantiles_json(row, request.quantiles),
            "intervals": [interval_json(row, c, explain) for c in request.coverage],
        }
        if request.bands is not None:
            horizon["bands"] = None
            if row["horizon"] <= request.bands:
                bands = [interval_json(row, c, reason, "band_") for c in request.coverage]
                horizon["bands"] = bands
        if request.limits:
            horizon["limits"] = [limits_json(row, c, reason) for c in request.coverage]
            positive = [interval_json(row, c, reason, "positive_") for c in request.coverage]
            horizon["positive_intervals"] = positive
        horizons[row["person_id"]].append(horizon)
        origin_year[row["person_id"]] = row["origin_year"]
    return [
        {"person_id": person, "origin_year": origin_year[person], "horizons": horizons[person]}
        for person in person_ids
        if person in origin_year
    ]
