"""`POST /v1/forecasts`: the distribution of each person's earnings, year by year."""

from __future__ import annotations

from dataclasses import asdict
from operator import attrgetter

import anyio.to_thread
import polars as pl
from fastapi import APIRouter, Depends, Request, Response

from api import budget
from api.compute_queue import Ticket, Work
from api.negotiation import (
    ComputeCall,
    Explain,
    interval_json,
    quantiles_json,
    read_call,
    respond,
)
from api.openapi import compute_responses, problem_responses, request_body
from api.panel_batches import MAX_TOGETHER, forecast_parts, parts_of
from api.problems import no_ledger_problem
from api.request_models import ForecastBody, ForecastOptions
from api.request_panel import RequestPanel
from api.response_models import ForecastResponse
from api.security import CurrentCaller, check_scope, require_scope
from api.service import CurrentService, Service
from calibration.adaptive.issuance import forecast_and_record
from calibration.adaptive.ledger import RecordCounts
from saga.conformal.calibrator import reason
from saga.data.panel import Panel
from saga.forecast_checks import check_scenario
from saga.requests import MAX_HORIZON, ForecastRequest
from saga.simulation.marginals import N_NODES

router = APIRouter(prefix="/v1", tags=["forecasts"])


@router.post(
    "/forecasts",
    name="forecasts",
    summary="Forecast earnings 1 to 30 years ahead",
    response_model=ForecastResponse,
    responses=compute_responses() | problem_responses(404),
    dependencies=[Depends(require_scope("forecast"))],
    openapi_extra=request_body("ForecastRequest"),
)
async def post_forecasts(
    request: Request, service: CurrentService, caller: CurrentCaller
) -> Response:
    """One distribution per person and horizon, until age 64; the origin is a person's last year.

    A Parquet or Arrow body has the columns of a panel, and the options are query parameters
    (`horizons=1,5,10`). `Accept` chooses the format of the response; a table has one row per person
    and horizon, sorted by person.

    With `bands` = K, each year of `horizons` up to K also has sets. Together, the sets of all K
    years, or of the years until age 64, contain all outcomes with the stated coverage. If the
    service has a ledger, the thresholds of single years follow its outcomes, and `record` enters
    the intervals in it.
    """
    async with service.admit(request, caller) as ticket:
        call = await read_call(
            request, service, ticket, ForecastBody, ForecastOptions, ForecastOptions.to_request
        )
        if call.options.record:
            check_scope(caller, "record")
        return await _answer(request, service, ticket, call)


async def _answer(
    request: Request,
    service: Service,
    ticket: Ticket,
    call: ComputeCall[ForecastOptions, ForecastRequest],
) -> Response:
    forecaster, panel = service.forecaster, call.people.panel
    # All horizons are computed, each for a fixed number of macro futures instead of paths.
    n_futures, n_years = N_NODES, MAX_HORIZON
    size = budget.check_work(call.n_persons, n_futures, n_years, service.settings.max_work)
    check_scenario(forecaster.scenario(call.draws.scenario), panel, years=call.request.horizons[-1])
    provenance = forecaster.provenance(call.draws) | call.people.provenance()
    explain: Explain = reason
    if (ledger_access := service.ledger_access) is not None:
        adapted = await anyio.to_thread.run_sync(ledger_access.current)
        forecaster, explain = adapted.forecaster, adapted.reason
        provenance["adaptive"] = adapted.state.identity()
    if not call.options.record:
        parts = parts_of(panel, call.request, call.draws, forecaster)
        tables = await service.queue.run(
            request,
            ticket,
            Work(parts, forecast_parts, size, parts[0].like, MAX_TOGETHER, attrgetter("n_persons")),
        )
        table = pl.concat(tables)
    elif ledger_access is None:
        raise no_ledger_problem()
    else:
        ledger = ledger_access.ledger

        def record(panels: list[Panel]) -> list[tuple[pl.DataFrame, RecordCounts]]:
            return [
                forecast_and_record(adapted, panel, ledger, call.request, call.draws)
                for panel in panels
            ]

        ((table, recorded),) = await service.queue.run(request, ticket, Work([panel], record, size))
        provenance["recorded"] = asdict(recorded)
    warnings = forecaster.warnings(panel, call.request, call.draws)
    service.count_computed("forecasts", call.n_persons, n_futures, n_years)
    return await respond(
        request,
        table,
        provenance,
        warnings,
        lambda: {"forecasts": _forecasts_json(table, call.people, call.request, explain)},
    )


def _forecasts_json(
    table: pl.DataFrame, people: RequestPanel, request: ForecastRequest, explain: Explain
) -> list[dict[str, object]]:
    """The forecast table by person, in the order of the request.

    A person who turns 65 before the first horizon has an origin year but no horizon.
    """
    horizons: dict[str, list[dict[str, object]]] = {person: [] for person in people.person_ids}
    for row in table.iter_rows(named=True):
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
        horizons[row["person_id"]].append(horizon)
    last_year = people.panel.frame.group_by("person_id").agg(pl.col("year").max())
    origin_year = dict(last_year.iter_rows())
    return [
        {"person_id": person, "origin_year": origin_year[person], "horizons": horizons[person]}
        for person in people.person_ids
    ]
