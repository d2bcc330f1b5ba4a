"""`POST /v1/lifetimes`: present values of each person's remaining working life, and of the persons of a call together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from fastapi import APIRouter, Request, Response

from api import budget
from api.messages import LifetimeOptions, LifetimeRequest, LifetimeResponse
from api.negotiation import answer, interval, quantiles, receive
from api.openapi import computing, request_body
from api.service import CurrentService
from saga import requests
from saga.conformal.calibrator import REASONS
from saga.data.panel import Panel
from saga.forecaster import Lifetimes

router = APIRouter(prefix="/v1", tags=["lifetimes"])

_BINS = 24
_REASONS = REASONS | {
    "extrapolated": "No run of so many years has been observed, or not at this rate or in this scenario: the sum carries no guarantee."
}


@router.post(
    "/lifetimes",
    summary="Present value of the earnings of a working life",
    response_model=LifetimeResponse,
    responses=computing(),
    openapi_extra=request_body("LifetimeRequest"),
)
async def lifetimes(request: Request, service: CurrentService) -> Response:
    """Sum over the years after the origin, up to `to_age`, of earnings / (1 + rate)^(year - origin), for persons resident until then.

    `population` is over the persons of this call: each statistic is taken across persons future by future, since path k of every person
    lives in the same economy, then averaged; `mc_error` is the Monte-Carlo error of that average. A
    Parquet or Arrow answer is one row a person.
    """
    chosen, wanted, people = await receive(
        request, service, LifetimeRequest, LifetimeOptions, to_request=LifetimeOptions.to_request
    )
    draws, forecaster = chosen.draws(), service.forecaster
    persons, years = len(people.person_ids), _years(people.panel, wanted.to_age)
    size = budget.check_work(persons, draws.n_paths, years, service.settings.max_work)
    forecaster.check_scenario(draws.scenario, people.panel, years)
    result = await service.slot.run(
        request, lambda: forecaster.lifetime(people.panel, wanted, draws), size=size
    )
    service.computed("lifetimes", persons, draws.n_paths, years)
    provenance = forecaster.provenance(draws) | people.account()
    return await answer(
        request, result.table, provenance, lambda: _nested(result, people.person_ids, wanted)
    )


def _years(panel: Panel, to_age: int) -> int:
    """Years to simulate for the youngest person."""
    last = panel.frame.group_by("person_id").agg(age=(pl.col("year") - pl.col("birth_year")).max())
    return max(1, to_age - int(last["age"].to_numpy().min()))


def _nested(
    result: Lifetimes, person_ids: Sequence[str], wanted: requests.LifetimeRequest
) -> dict[str, Any]:
    rows = {
        row["person_id"]: (row, values)
        for row, values in zip(result.table.iter_rows(named=True), result.values, strict=True)
    }
    statistics = {row.pop("statistic"): row for row in result.population.iter_rows(named=True)}
    return {
        "lifetimes": [_person(*rows[person], wanted) for person in person_ids],
        "population": {"persons": len(person_ids), **statistics},
    }


def _person(
    row: dict[str, Any], values: np.ndarray[Any, Any], wanted: requests.LifetimeRequest
) -> dict[str, Any]:
    counts, edges = np.histogram(values, bins=_BINS)
    present_value = {
        "mean": row["mean"],
        "mc_error": float(values.std(ddof=1) / len(values) ** 0.5),
        "quantiles": quantiles(row, wanted.quantiles),
        "intervals": [interval(row, level, _REASONS.__getitem__) for level in wanted.coverage],
        "histogram": {"edges": edges.tolist(), "shares": (counts / len(values)).tolist()},
    }
    taxed = (
        {"rule": wanted.tax, "tax_mean": row["tax_mean"], "net_mean": row["net_mean"]}
        if wanted.tax != "none"
        else None
    )
    return {
        **{name: row[name] for name in ("person_id", "origin_year", "to_age", "rate")},
        "from_age": wanted.from_age,
        "present_value": present_value,
        "tax": taxed,
    }
