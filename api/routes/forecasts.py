"""`POST /v1/forecasts`: the distribution of each person's earnings, year by year."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import anyio.to_thread
import polars as pl
from fastapi import APIRouter, Request, Response

from api import budget
from api.messages import ForecastOptions, ForecastRequest, ForecastResponse
from api.negotiation import answer, interval, quantiles, receive
from api.openapi import computing, no_ledger_problem, problems, request_body
from api.service import CurrentService, RequestPanel
from saga import requests
from saga.conformal.calibrator import reason

router = APIRouter(prefix="/v1", tags=["forecasts"])


@router.post(
    "/forecasts",
    summary="Forecast earnings 1 to 30 years ahead",
    response_model=ForecastResponse,
    responses=computing() | problems(404),
    openapi_extra=request_body("ForecastRequest"),
)
async def forecasts(request: Request, service: CurrentService) -> Response:
    """Persons in, one distribution a person and horizon out, until age 64; the origin is a person's last year.

    A Parquet or Arrow body holds the columns of a panel, and the options are query parameters then (`horizons=1,5,10`). `Accept` chooses
    the format of the answer; a table is one row a person and horizon, sorted by person.

    With `bands` = K each of the first K years (those of `horizons`) also has sets that hold the outcomes of all K years together, or of
    those until age 64. Where the service keeps a ledger, thresholds of single years follow the outcomes it was told, and `record` enters
    what is promised here.
    """
    chosen, wanted, people = await receive(
        request, service, ForecastRequest, ForecastOptions, to_request=ForecastOptions.to_request
    )
    draws, forecaster = chosen.draws(), service.forecaster
    persons, years = len(people.person_ids), wanted.n_years
    size = budget.check_work(persons, draws.n_paths, years, service.settings.max_work)
    forecaster.check_scenario(draws.scenario, people.panel, years)
    provenance = forecaster.provenance(draws) | people.account()
    ledger_access = service.ledger_access
    if ledger_access is None and chosen.record:
        raise no_ledger_problem()
    explain: Callable[..., str] = reason
    if ledger_access is None:
        table = await service.slot.run(
            request, lambda: forecaster.forecast(people.panel, wanted, draws), size=size
        )
    else:
        adapted = await anyio.to_thread.run_sync(ledger_access.current)
        table, recorded = await service.slot.run(
            request,
            lambda: ledger_access.forecast(
                adapted, people.panel, wanted, draws, record=chosen.record
            ),
            size=size,
        )
        provenance |= {"adaptive": adapted.identity()} | (
            {"recorded": asdict(recorded)} if recorded is not None else {}
        )
        explain = adapted.reason
    service.computed("forecasts", persons, draws.n_paths, years)
    return await answer(
        request, table, provenance, lambda: {"forecasts": _nested(table, people, wanted, explain)}
    )


def _nested(
    table: pl.DataFrame,
    people: RequestPanel,
    wanted: requests.ForecastRequest,
    explain: Callable[..., str],
) -> list[dict[str, Any]]:
    """The forecast table by person, in the order of the request. Who turns 65 before the first horizon has an origin but no horizon."""
    horizons: dict[str, list[dict[str, Any]]] = {person: [] for person in people.person_ids}
    years = wanted.bands
    for row in table.iter_rows(named=True):
        together = (
            [interval(row, level, reason, "band_") for level in wanted.coverage]
            if row["horizon"] <= (years or 0)
            else None
        )
        horizons[row["person_id"]].append(
            {
                "h": row["horizon"],
                "year": row["year"],
                "mean": row["mean"],
                "p_zero": row["p_zero"],
                "quantiles": quantiles(row, wanted.quantiles),
                "intervals": [interval(row, level, explain) for level in wanted.coverage],
                **({} if years is None else {"bands": together}),
            }
        )
    origin = dict(people.panel.frame.group_by("person_id").agg(pl.col("year").max()).iter_rows())
    return [
        {"person_id": person, "origin_year": origin[person], "horizons": horizons[person]}
        for person in people.person_ids
    ]
