"""`POST /v1/forecasts`: the distribution of each person's earnings, year by year."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from operator import attrgetter

import polars as pl
from fastapi import APIRouter, Request, Response
from saga.api import budget
from saga.api.callers import Caller
from saga.api.compute_queue import Ticket, Work
from saga.api.negotiation import (
    ComputeCall,
    Explain,
    Notes,
    interval_json,
    quantiles_json,
    read_call,
    respond,
)
from saga.api.openapi import compute_responses, problem_responses, request_body
from saga.api.panel_batches import MAX_TOGETHER, forecast_parts, parts_of
from saga.api.request_models import ForecastBody, ForecastOptions
from saga.api.request_panel import RequestPanel
from saga.api.response_models import ForecastResponse
from saga.api.security import ForecastCaller
from saga.api.service import CurrentService, Service, check_recording, record_issued
from saga.calibration.adaptive.issuance import (
    AdaptedForecaster,
    forecast_and_issue,
    recording_warnings,
)
from saga.calibration.adaptive.ledger import Issued, RecordCounts

from saga.conformal.calibrator import reason
from saga.data.panel import Panel
from saga.forecast_checks import check_scenario
from saga.forecast_warnings import ForecastWarning
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
async def post_forecasts(
    request: Request, service: CurrentService, caller: ForecastCaller
) -> Response:
    """One distribution per person and horizon, until age 64; the origin is a person's last year.

    Persons who cannot be forecast are in `left_out`, with the reason; faulty records refuse the
    call. A Parquet or Arrow body has the columns of a panel, and the options are query parameters
    (`horizons=1,5,10`). `Accept` chooses the format of the response; a table has one row per person
    and horizon, sorted by person.

    With `bands` = K, each year of `horizons` up to K also has sets. Together, the sets of all K
    years, or of the years until age 64, contain all outcomes with the stated coverage. If the
    service has a ledger, the thresholds of single years follow its outcomes, and `record` enters
    the intervals in it, with the bands of the persons who are at most 64 in all K years.
    """
    async with service.admit(request, caller) as ticket:
        call = await read_call(
            request, service, ticket, ForecastBody, ForecastOptions, ForecastOptions.to_request
        )
        if call.options.record:
            check_recording(service, caller)
        computed = await _compute(request, service, ticket, caller, call)
        if not call.options.record:
            return await _answer(request, call, computed)
    # The ledger is written after the call has left the queue, so that no other call waits for it.
    recorded = await record_issued(service, caller, computed.issued)
    n_bands = 0 if call.request.bands is None else call.n_persons
    return await _answer(request, call, computed.with_recorded(recorded, n_bands))


@dataclass(frozen=True)
class _Computed:
    """What a call has computed, with what a reader must know; `issued` is for the ledger."""

    table: pl.DataFrame
    issued: tuple[Issued, ...]
    explain: Explain
    provenance: Mapping[str, object]
    warnings: tuple[ForecastWarning, ...]

    def with_recorded(self, recorded: RecordCounts, n_bands: int) -> _Computed:
        provenance = {**self.provenance, "recorded": asdict(recorded)}
        warnings = self.warnings + recording_warnings(recorded, self.table.height + n_bands)
        return replace(self, provenance=provenance, warnings=warnings)


async def _compute(
    request: Request,
    service: Service,
    ticket: Ticket,
    caller: Caller,
    call: ComputeCall[ForecastOptions, ForecastRequest],
) -> _Computed:
    forecaster, panel = service.forecaster, call.people.panel
    # The work is estimated for all horizons, each with a fixed number of macro futures.
    n_futures, n_years = N_NODES, MAX_HORIZON
    size = budget.check_work(call.n_persons, n_futures, n_years, service.settings.max_work)
    check_scenario(forecaster.scenario(call.draws.scenario), panel, years=call.request.horizons[-1])
    provenance = forecaster.provenance(call.draws) | call.people.provenance()
    adapted, explain = AdaptedForecaster.of(forecaster, None), reason
    warnings: tuple[ForecastWarning, ...] = ()
    if (access := service.ledger_access) is not None:
        adapted, warnings = access.current(caller.holder), access.warnings()
        forecaster, explain = adapted.forecaster, adapted.reason
        provenance["adaptive"] = access.identity(caller.holder)
    issued: tuple[Issued, ...] = ()
    if call.options.record:

        def issue(panels: list[Panel]) -> list[list[tuple[pl.DataFrame, list[Issued]]]]:
            return [
                list(forecast_and_issue(adapted, panel, call.request, call.draws))
                for panel in panels
            ]

        (blocks,) = await service.queue.run(request, ticket, Work([panel], issue, size))
        tables, issued = (
            [table for table, _ in blocks],
            tuple(part for _, parts in blocks for part in parts),
        )
    else:
        parts = parts_of(panel, call.request, call.draws, forecaster)
        tables = await service.queue.run(
            request,
            ticket,
            Work(
                parts,
                forecast_parts,
                size,
                parts[0].batch_key,
                MAX_TOGETHER,
                attrgetter("n_persons"),
            ),
        )
    service.count_computed("forecasts", call.n_persons, n_futures, n_years)
    about = forecaster.warnings(panel, call.request, call.draws, compared=call.people.compared)
    warnings = (*about, *warnings)
    return _Computed(pl.concat(tables), issued, explain, provenance, warnings)


async def _answer(
    request: Request, call: ComputeCall[ForecastOptions, ForecastRequest], computed: _Computed
) -> Response:
    table, explain = computed.table, computed.explain
    return await respond(
        request,
        table,
        computed.provenance,
        Notes(computed.warnings, call.people.left_out),
        lambda: {"forecasts": _forecasts_json(table, call.people, call.request, explain)},
    )


def _forecasts_json(
    table: pl.DataFrame, people: RequestPanel, request: ForecastRequest, explain: Explain
) -> list[dict[str, object]]:
    """The forecast table by person, in the order of the request."""
    horizons: dict[str, list[dict[str, object]]] = {person: [] for person in people.person_ids}
    origin_year: dict[str, int] = {}
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
        origin_year[row["person_id"]] = row["origin_year"]
    return [
        {"person_id": person, "origin_year": origin_year[person], "horizons": horizons[person]}
        for person in people.person_ids
    ]
