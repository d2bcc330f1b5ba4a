"""`POST /v1/outcomes`: realised earnings move the thresholds of later intervals."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread
import polars as pl
from fastapi import APIRouter, Depends, Request, Response

from api.codecs import JSON, check_no_flags, decode_json, read_query, validate
from api.negotiation import check_body_type, json_response
from api.openapi import problem_responses, request_body
from api.problems import no_ledger_problem, visible_problems
from api.request_models import MAX_OUTCOMES, OutcomesBody, OutcomesOptions
from api.request_panel import PricesOption, check_prices
from api.response_models import OutcomesResponse
from api.security import CurrentCaller, require_scope
from api.service import CurrentService
from api.table_reader import READER
from saga.data import validation
from saga.data.casting import read_column
from saga.data.prices import CPI_SWEDEN, real_factors
from saga.errors import InputError, Problem
from saga.features.transforms import Transforms
from saga.schema import BY_NAME

router = APIRouter(prefix="/v1", tags=["calibration"])

_COLUMNS = {"person_id": pl.String, "year": pl.Int64, "earnings": pl.Float64}


@router.post(
    "/outcomes",
    name="outcomes",
    summary="Send realised earnings, which move the thresholds",
    response_model=OutcomesResponse,
    responses=problem_responses(401, 403, 404, 408, 413, 415, 422, 429, 503),
    dependencies=[Depends(require_scope("outcomes"))],
    openapi_extra=request_body("OutcomesRequest"),
)
async def post_outcomes(
    request: Request, service: CurrentService, caller: CurrentCaller
) -> Response:
    """Realised earnings of years for which forecasts were recorded.

    Each outcome counts once, however often it is sent. An outcome that contradicts an earlier one
    changes nothing and is listed in `problems`; the other outcomes of the call count. A Parquet or
    Arrow body has the columns `person_id`, `year` and `earnings`; `prices` is then a query
    parameter. No amount is stored, only a keyed hash of it and its conformity scores.
    """
    kind, query = check_body_type(request)
    transforms = service.forecaster.transforms
    ledger_access = service.ledger_access
    if ledger_access is None:
        raise no_ledger_problem()

    def decode(body: bytes) -> tuple[pl.DataFrame, PricesOption]:
        return _read_json(body) if kind == JSON else _read_table(body, kind, query)

    async with service.admit(request, caller) as ticket:
        table, prices = await service.parse(request, ticket, decode)

    def settle() -> dict[str, object]:
        report = ledger_access.ledger.settle(
            _in_bundle_money(transforms, table, prices).iter_rows()
        )
        problems = [problem.as_dict() for problem in visible_problems(report.problems)]
        adaptive = ledger_access.current().state.identity()
        return {**report.counts(), "problems": problems, "adaptive": adaptive}

    return json_response(await anyio.to_thread.run_sync(settle))


def _read_json(body: bytes) -> tuple[pl.DataFrame, PricesOption]:
    request = validate(OutcomesBody, decode_json(body))
    rows = [(row.person_id, row.year, row.earnings) for row in request.outcomes]
    return _with_person_ids(pl.DataFrame(rows, schema=_COLUMNS, orient="row")), request.prices


def _read_table(
    body: bytes, kind: str, query: Sequence[tuple[str, str]]
) -> tuple[pl.DataFrame, PricesOption]:
    prices = validate(OutcomesOptions, read_query(query)).prices
    frame = READER.read(body, kind, MAX_OUTCOMES)
    if set(frame.columns) != set(_COLUMNS):
        fix = f"Send the columns {', '.join(_COLUMNS)}"
        raise InputError(
            "The table has other columns", [Problem("columns", "Not the columns of outcomes", fix)]
        )
    check_no_flags(frame)
    try:
        table = frame.select(
            "person_id", pl.col("year").cast(pl.Int64), pl.col("earnings").cast(pl.Float64)
        )
    except pl.exceptions.PolarsError:
        fix = "Send text, whole numbers and numbers"
        raise InputError(
            "A column has another type", [Problem("column-type", "Not the types of outcomes", fix)]
        ) from None
    table = _with_person_ids(table)
    invalid = table.filter(
        pl.any_horizontal(pl.all().is_null())
        | ~pl.col("earnings").is_finite()
        | (pl.col("earnings") < 0)
        | ~pl.col("year").is_between(1900, 2200)
    )
    if invalid.height:
        person, year, _ = invalid.row(0)
        fix = "Leave out unknown outcomes; earnings are 0 or more"
        raise InputError(
            "Some rows are not outcomes",
            [Problem("outcome", "Not an outcome", fix, None, person, year, invalid.height)],
        )
    return table, prices


def _with_person_ids(table: pl.DataFrame) -> pl.DataFrame:
    """The rows with person ids as `read_panel` reads them, because recorded forecasts have those.

    Raises InputError with the same message as `read_panel`.
    """
    person_ids, is_not_text = read_column(table["person_id"], BY_NAME["person_id"])
    rows = table.with_columns(person_ids).with_row_index("row")
    rule = is_not_text.replace_strict(
        {True: "not-text", False: "missing-value"}, return_dtype=pl.String
    )
    broken = rows.select("row", rule=rule, column=pl.lit("person_id")).filter(person_ids.is_null())
    if broken.height:
        raise InputError("Some rows are not outcomes", validation.describe_violations(broken, rows))
    return rows.drop("row")


def _in_bundle_money(
    transforms: Transforms, table: pl.DataFrame, prices: PricesOption
) -> pl.DataFrame:
    """Amounts in the bundle's money: nominal SEK are deflated, as `read_panel` does."""
    check_prices(transforms, prices)
    if transforms.currency != "SEK" or prices == transforms.price_year:
        return table
    factors = real_factors(table["year"].to_list(), CPI_SWEDEN, transforms.price_year)
    factor = pl.col("year").replace_strict(factors, return_dtype=pl.Float64)
    return table.with_columns(pl.col("earnings") * factor)
