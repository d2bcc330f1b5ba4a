"""`POST /v1/lifetimes`: present values of each person, and of all persons of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from saga.api import budget
from saga.api.compute_queue import Ticket, Work
from saga.api.negotiation import (
    ComputeCall,
    Computed,
    TableRow,
    answer_call,
    interval_json,
    quantiles_json,
)
from saga.api.openapi import compute_responses, request_body
from saga.api.request_models import LifetimeBody, LifetimeOptions
from saga.api.response_models import LifetimeResponse

from saga.conformal.calibrator import REASONS
from saga.forecast_results import Lifetimes
from saga.requests import LifetimeRequest

router = APIRouter(prefix="/v1", tags=["lifetimes"])

_N_BINS = 24  # of a histogram
_REASONS = REASONS | {
    "extrapolated": "Not guaranteed: present values over so many years were observed from one "
    "origin year or none, or none at this rate or in this scenario, or years lie beyond the span "
    "of the records.",
    "none": f"{REASONS['none']} Or earnings of the past are unknown.",
}


@router.post(
    "/lifetimes",
    name="lifetimes",
    summary="Present value of the earnings of a working life",
    response_model=LifetimeResponse,
    responses=compute_responses(),
    openapi_extra=request_body("LifetimeRequest"),
)
async def post_lifetimes(request: Request) -> Response:
    """Present values of the earnings after the origin, up to `to_age`.

    The present value is the sum of earnings / (1 + rate)^(year - origin), for persons who stay
    resident until then. Persons who cannot be forecast are in `left_out`, with the reason.

    `population` describes the persons of this call together. Path k of every person has the same
    macro values, so each statistic is computed across persons for each path and then averaged over
    paths; `mc_error` is the Monte-Carlo error of that average. A table as the response has one row
    per person. If the service has a ledger, `record` enters the present values in it; they are
    judged when the earnings of all years are known.
    """

    async def compute(call: ComputeCall[LifetimeOptions], ticket: Ticket) -> Computed:
        service, typed = call.service, call.options.request
        plan = service.plan(typed, call.people.panel, call.options, call.caller)
        n_persons, n_paths = plan.panel.n_persons, plan.draws.n_paths
        n_years = plan.years_ahead(typed.to_age)
        size = budget.check_work(n_persons, n_paths, n_years, service.settings.max_work)
        pieces = plan.pieces(budget.persons_of_piece(n_paths, n_years))
        work = Work(pieces, lambda parts: list(map(plan.compute, parts)), size)
        outputs = await service.queue.run(request, ticket, work)
        service.count_computed("lifetimes", n_persons, n_paths, n_years)
        lifetimes = plan.result(outputs, call.people.compared)
        assert isinstance(lifetimes, Lifetimes)
        ids, decimals = call.people.person_ids, plan.decimals
        return lifetimes, lambda: _lifetimes_json(lifetimes, ids, typed, decimals)

    return await answer_call(request, (LifetimeBody, LifetimeOptions), compute)


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
    n_known = len(lifetimes.table) - lifetimes.table["mean"].null_count()
    statistics = {row.pop("statistic"): row for row in lifetimes.population.iter_rows(named=True)}
    return {
        "lifetimes": [persons[person_id] for person_id in person_ids if person_id in persons],
        "population": {"persons": n_known, **statistics},
    }


def _histogram_json(values: NDArray[np.float64], decimals: int | None) -> dict[str, object] | None:
    """The shares of the paths between edges of equal distance; None if values are unknown."""
    if np.isnan(values).any():
        return None
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
    mc_error = None
    if row["mean"] is not None:
        mc_error = float(values.std(ddof=1) / len(values) ** 0.5)
        mc_error = mc_error if decimals is None else round(mc_error, decimals)
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
        "unknown_years": row.get("unknown_years"),
        "present_value": present_value,
        "tax": tax,
    }


def _explain(guarantee: str, _: str) -> str:
    return _REASONS[guarantee]
