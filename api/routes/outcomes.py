"""`POST /v1/outcomes`: what came true moves the thresholds; `GET /v1/calibration`: the thresholds in force."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import anyio.to_thread
import polars as pl
from fastapi import APIRouter, Request, Response
from pydantic_core import from_json

from api import budget
from api.codecs import JSON, from_query, read_table, shaped
from api.ledger_access import LedgerAccess
from api.messages import (
    MAX_OUTCOMES,
    CalibrationTables,
    OutcomesOptions,
    OutcomesRequest,
    OutcomesResponse,
)
from api.negotiation import admit
from api.openapi import json_response, no_ledger_problem, problems, request_body
from api.problems import HTTPProblem, shown
from api.service import CurrentService, check_prices
from calibration.adaptive.adaptive_state import EXPERTS
from saga.data import validation
from saga.data.casting import read_column
from saga.data.prices import CPI_SWEDEN, real_factors
from saga.errors import BudgetError, InputError, Problem
from saga.forecaster import Forecaster
from saga.schema import BY_NAME

router = APIRouter(prefix="/v1", tags=["calibration"])

_FEWEST = 10  # settled promises below which a cell is not shown
_COLUMNS = {"person_id": pl.String, "year": pl.Int64, "earnings": pl.Float64}


@router.post(
    "/outcomes",
    summary="Realised earnings move the thresholds",
    response_model=OutcomesResponse,
    responses=problems(401, 404, 408, 413, 415, 422, 503),
    openapi_extra=request_body("OutcomesRequest"),
)
async def outcomes(request: Request, service: CurrentService) -> Response:
    """Earnings of years that recorded forecasts were about; each counts once, however often it is sent.

    An outcome that contradicts an earlier one changes nothing and is named in `problems`; the others of the call count. A Parquet or
    Arrow body has the columns `person_id`, `year` and `earnings`, and `prices` is a query parameter then. Of the amounts only a keyed
    seal and the score of each promise are kept.
    """
    kind, query = admit(request)
    settings, forecaster, ledger_access = (
        service.settings,
        service.forecaster,
        service.ledger_access,
    )
    if ledger_access is None:
        raise no_ledger_problem()
    body = await budget.read_body(
        request, max_bytes=settings.max_body_bytes, seconds=settings.body_seconds
    )

    def settle() -> dict[str, Any]:
        table, options = _from_json(body) if kind == JSON else _from_table(body, kind, query)
        report = ledger_access.ledger.settle(_real(forecaster, table, options).iter_rows())
        problems = [problem.as_dict() for problem in shown(report.problems)]
        return report.counts() | {
            "problems": problems,
            "adaptive": ledger_access.current().identity(),
        }

    return json_response(await anyio.to_thread.run_sync(settle))


@router.get(
    "/calibration",
    summary="The thresholds in force",
    response_model=CalibrationTables,
    responses=problems(401, 503),
)
async def calibration(service: CurrentService) -> Response:
    """The thresholds of the split layer by horizon, group, coverage and number of paths; and, where the service keeps a ledger, what
    outcomes add to them."""
    forecaster, ledger_access = service.forecaster, service.ledger_access
    cells = [
        {
            "horizon": h,
            "group": group,
            "coverage": level,
            "paths": paths,
            "threshold": q,
            "persons": cell.n,
        }
        for (h, group), cell in sorted(forecaster.calibrator.cells.items())
        for (paths, level), q in sorted(cell.thresholds.items())
    ]
    table = (
        None
        if ledger_access is None
        else await anyio.to_thread.run_sync(_adaptive, ledger_access, forecaster)
    )
    bundle = forecaster.bundle
    return json_response(
        {
            "bundle": bundle.digest,
            "calibration": bundle.calibration_digest,
            "cells": cells,
            "adaptive": table,
        }
    )


def _adaptive(ledger_access: LedgerAccess, forecaster: Forecaster) -> dict[str, Any]:
    now = ledger_access.current()
    cells = [
        {
            "horizon": h,
            "group": group,
            "coverage": level,
            "offset": cell.offset,
            "persons": cell.persons,
            "missed": cell.missed,
            "through": cell.last_year,
            "experts": dict(zip(EXPERTS, cell.experts, strict=True)),
        }
        for (group, h, level), cell in sorted(now.state.cells.items())
        if cell.persons >= _FEWEST
    ]
    return now.identity() | ledger_access.ledger.counts(forecaster.bundle.digest) | {"cells": cells}


def _from_json(body: bytes) -> tuple[pl.DataFrame, OutcomesOptions]:
    try:
        content = from_json(body)
    except ValueError:
        problem = Problem("json", "The body is not JSON", "Send one JSON object in UTF-8")
        raise HTTPProblem(422, "json", "The request body is not valid JSON", [problem]) from None
    request = shaped(OutcomesRequest, content)
    rows = [(row.person_id, row.year, row.earnings) for row in request.outcomes]
    return _named(pl.DataFrame(rows, schema=_COLUMNS, orient="row")), request


def _from_table(
    body: bytes, kind: str, query: Sequence[tuple[str, str]]
) -> tuple[pl.DataFrame, OutcomesOptions]:
    options = shaped(OutcomesOptions, from_query(query))
    frame = read_table(io.BytesIO(body), kind, MAX_OUTCOMES + 1)
    if frame.height > MAX_OUTCOMES:
        fix = f"Send at most {MAX_OUTCOMES} a call"
        raise BudgetError(
            "Too many outcomes for one call",
            [Problem("max-outcomes", f"More than {MAX_OUTCOMES} rows", fix)],
        )
    if set(frame.columns) != set(_COLUMNS):
        fix = f"Send the columns {', '.join(_COLUMNS)}"
        raise InputError(
            "The table has other columns", [Problem("columns", "Not the columns of outcomes", fix)]
        )
    try:
        table = frame.select(
            "person_id", pl.col("year").cast(pl.Int64), pl.col("earnings").cast(pl.Float64)
        )
    except pl.exceptions.PolarsError:
        fix = "Send text, whole numbers and numbers"
        raise InputError(
            "A column has another type", [Problem("column-type", "Not the types of outcomes", fix)]
        ) from None
    table = _named(table)
    wrong = table.filter(
        pl.any_horizontal(pl.all().is_null())
        | ~pl.col("earnings").is_finite()
        | (pl.col("earnings") < 0)
        | ~pl.col("year").is_between(1900, 2200)
    )
    if wrong.height:
        person, year, _ = wrong.row(0)
        fix = "Leave out what is not known; earnings are 0 or more"
        raise InputError(
            "Some rows are no outcomes",
            [Problem("outcome", "Not an outcome", fix, None, person, year, wrong.height)],
        )
    return table, options


def _named(table: pl.DataFrame) -> pl.DataFrame:
    """The rows under the names that `read_panel` reads, since forecasts were recorded under those; refused in its words."""
    names, unreadable = read_column(table["person_id"], BY_NAME["person_id"])
    named = table.with_columns(names).with_row_index("row")
    rule = unreadable.replace_strict(
        {True: "not-text", False: "missing-value"}, return_dtype=pl.String
    )
    broken = named.select("row", rule=rule, column=pl.lit("person_id")).filter(names.is_null())
    if broken.height:
        raise InputError("Some rows are no outcomes", validation.problems(broken, named))
    return named.drop("row")


def _real(forecaster: Forecaster, table: pl.DataFrame, options: OutcomesOptions) -> pl.DataFrame:
    """Amounts in the bundle's money, as `read_panel` makes them: nominal SEK are deflated, anything else is as it should be."""
    check_prices(forecaster, options.prices)
    currency, base = forecaster.transforms.currency, forecaster.transforms.price_year
    if currency != "SEK" or options.prices == base:
        return table
    factors = real_factors(table["year"].to_list(), CPI_SWEDEN, base)
    return table.with_columns(
        pl.col("earnings") * pl.col("year").replace_strict(factors, return_dtype=pl.Float64)
    )
