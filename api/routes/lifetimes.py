"""`POST /v1/lifetimes`: present values of each person, and of all persons of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from saga.api import budget
from saga.api.callers import Caller
from saga.api.compute_queue import Ticket, Work
from saga.api.negotiation import (
    ComputeCall,
    Notes,
    TableRow,
    interval_json,
    quantiles_json,
    read_call,
    respond,
)
from saga.api.openapi import compute_responses, request_body
from saga.api.panel_batches import split_persons
from saga.api.request_models import LifetimeBody, LifetimeOptions
from saga.api.response_models import LifetimeResponse
from saga.api.security import ForecastCaller
from saga.api.service import CurrentService, Service, check_recording, record_issued
from saga.calibration.adaptive.issuance import (
    AdaptedForecaster,
    lifetimes_and_issue,
    recording_warnings,
)
from saga.calibration.adaptive.ledger import Issued

from saga.conformal.calibrator import REASONS
from saga.data.panel import Panel
from saga.forecast_checks import check_scenario
from saga.forecast_results import Lifetimes
from saga.forecast_tables import round_population
from saga.forecast_warnings import ForecastWarning
from saga.lifetime import population
from saga.requests import LifetimeRequest

router = APIRouter(prefix="/v1", tags=["lifetimes"])

_N_BINS = 24  # of a histogram
_PART_SIZE = 100_000  # path-years that are computed in some tenths of a second
_REASONS = REASONS | {
    "extrapolated": "Not guaranteed: no present value over so many years was observed, or none "
    "at this rate or in this scenario, or the origin is after the calibration years."
}


@router.post(
    "/lifetimes",
    name="lifetimes",
    summary="Present value of the earnings of a working life",
    response_model=LifetimeResponse,
    responses=compute_responses(),
    openapi_extra=request_body("LifetimeRequest"),
)
async def post_lifetimes(
    request: Request, service: CurrentService, caller: ForecastCaller
) -> Response:
    """Present values of the earnings after the origin, up to `to_age`.

    The present value is the sum of earnings / (1 + rate)^(year - origin), for persons who stay
    resident until then. Persons who cannot be forecast are in `left_out`, with the reason.

    `population` describes the persons of this call together. Path k of every person has the same
    macro values, so each statistic is computed across persons for each path and then averaged over
    paths; `mc_error` is the Monte-Carlo error of that average. A Parquet or Arrow response has one
    row per person. If the service has a ledger, `record` enters the present values in it; they are
    judged when the earnings of all years are known.
    """
    async with service.admit(request, caller) as ticket:
        call = await read_call(
            request, service, ticket, LifetimeBody, LifetimeOptions, LifetimeOptions.to_request
        )
        if call.options.record:
            check_recording(service, caller)
        computed = await _compute(request, service, ticket, caller, call)
        if not call.options.record:
            return await _answer(request, call, computed)
    # The ledger is written after the call has left the queue, so that no other call waits for it.
    recorded = await record_issued(service, caller, computed.issued)
    computed.provenance["recorded"] = asdict(recorded)
    warnings = recording_warnings(recorded, call.n_persons)
    return await _answer(request, call, computed, warnings)


@dataclass(frozen=True)
class _Computed:
    """What a call has computed; `issued` is for the ledger."""

    lifetimes: Lifetimes
    issued: tuple[Issued, ...]
    decimals: int | None
    provenance: dict[str, object]


async def _compute(
    request: Request,
    service: Service,
    ticket: Ticket,
    caller: Caller,
    call: ComputeCall[LifetimeOptions, LifetimeRequest],
) -> _Computed:
    panel = call.people.panel
    adapted, known = AdaptedForecaster.of(service.forecaster, None), tuple[ForecastWarning, ...]()
    adaptive = dict[str, object]()
    if (access := service.ledger_access) is not None:
        adapted, known = access.current(caller.holder), access.warnings()
        adaptive = {"adaptive": access.identity(caller.holder)}
    forecaster = adapted.forecaster
    n_paths, n_years = call.draws.n_paths, _years_ahead(panel, call.request.to_age)
    size = budget.check_work(call.n_persons, n_paths, n_years, service.settings.max_work)
    check_scenario(forecaster.scenario(call.draws.scenario), panel, to_age=call.request.to_age)

    def compute(panels: list[Panel]) -> list[tuple[Lifetimes, list[Issued]]]:
        if call.options.record:
            return [lifetimes_and_issue(adapted, part, call.request, call.draws) for part in panels]
        return [(forecaster.lifetime(part, call.request, call.draws), []) for part in panels]

    parts = split_persons(panel, max(1, _PART_SIZE // (n_paths * n_years)))
    results = await service.queue.run(request, ticket, Work(parts, compute, size))
    lifetimes = _joined(
        [part for part, _ in results],
        forecaster.decimals(call.request),
        (*forecaster.warnings(panel, call.request, call.draws), *known),
    )
    service.count_computed("lifetimes", call.n_persons, n_paths, n_years)
    provenance = forecaster.provenance(call.draws) | call.people.provenance()
    provenance |= forecaster.tax_provenance(call.request) | adaptive
    issued = tuple(part for _, parts_issued in results for part in parts_issued)
    return _Computed(lifetimes, issued, forecaster.decimals(call.request), provenance)


async def _answer(
    request: Request,
    call: ComputeCall[LifetimeOptions, LifetimeRequest],
    computed: _Computed,
    warnings: tuple[ForecastWarning, ...] = (),
) -> Response:
    lifetimes, decimals = computed.lifetimes, computed.decimals
    return await respond(
        request,
        lifetimes.table,
        computed.provenance,
        Notes((*lifetimes.warnings, *warnings), call.people.left_out),
        lambda: _lifetimes_json(lifetimes, call.people.person_ids, call.request, decimals),
    )


def _joined(
    parts: Sequence[Lifetimes], decimals: int | None, warnings: tuple[ForecastWarning, ...]
) -> Lifetimes:
    """The lifetimes of all parts, whose numbers do not depend on how persons are divided."""
    values = np.concatenate([part.values for part in parts])
    taxes = [part.taxes for part in parts if part.taxes is not None]
    return Lifetimes(
        pl.concat([part.table for part in parts]),
        values,
        round_population(population(values), decimals),
        warnings,
        np.concatenate(taxes) if taxes else None,
    )


def _years_ahead(panel: Panel, to_age: int) -> int:
    """Years to simulate for the youngest person."""
    age = panel.frame.group_by("person_id").agg(age=(pl.col("year") - pl.col("birth_year")).max())
    return max(1, to_age - int(age["age"].to_numpy().min()))


def _lifetimes_json(
    lifetimes: Lifetimes,
    person_ids: Sequence[str],
    request: LifetimeRequest,
    decimals: int | None,
) -> Mapping[str, object]:
    taxes = [None] * len(lifetimes.values) if lifetimes.taxes is None else lifetimes.taxes
    rows = lifetimes.table.iter_rows(named=True)
    persons = {
        row["person_id"]: _person_json(row, values, of_person, request, decimals)
        for row, values, of_person in zip(rows, lifetimes.values, taxes, strict=True)
    }
    statistics = {row.pop("statistic"): row for row in lifetimes.population.iter_rows(named=True)}
    return {
        "lifetimes": [persons[person_id] for person_id in person_ids],
        "population": {"persons": len(person_ids), **statistics},
    }


def _histogram_json(values: NDArray[np.float64], decimals: int | None) -> dict[str, object]:
    """The shares of the paths between edges of equal distance."""
    counts, edges = np.histogram(values, bins=_N_BINS)
    # Rounding must not make edges equal.
    if decimals is not None and edges[-1] - edges[0] > 2 * _N_BINS:
        edges = edges.round(decimals)
    return {"edges": edges.tolist(), "shares": (counts / len(values)).tolist()}


def _person_json(
    row: TableRow,
    values: NDArray[np.float64],
    taxes: NDArray[np.float64] | None,
    request: LifetimeRequest,
    decimals: int | None,
) -> Mapping[str, object]:
    mc_error = float(values.std(ddof=1) / len(values) ** 0.5)
    if decimals is not None:
        mc_error = round(mc_error, decimals)
    present_value = {
        "mean": row["mean"],
        "mc_error": mc_error,
        "quantiles": quantiles_json(row, request.quantiles),
        "intervals": [interval_json(row, c, _explain) for c in request.coverage],
        "histogram": _histogram_json(values, decimals),
    }
    tax = None
    if taxes is not None:
        name = request.tax if isinstance(request.tax, str) else request.tax.name
        tax = {
            "rule": name,
            "tax_mean": row["tax_mean"],
            "net_mean": row["net_mean"],
            "tax_histogram": _histogram_json(taxes, decimals),
            "net_histogram": _histogram_json(values - taxes, decimals),
        }
    return {
        **{name: row[name] for name in ("person_id", "origin_year", "to_age", "rate")},
        "from_age": request.from_age,
        "present_value": present_value,
        "tax": tax,
    }


def _explain(guarantee: str, _: str) -> str:
    return _REASONS[guarantee]
