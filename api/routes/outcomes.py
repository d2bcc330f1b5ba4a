"""`POST /v1/outcomes` and its corrections: realised earnings move the thresholds of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import polars as pl
from fastapi import APIRouter, Request, Response
from saga.api.codecs import (
    JSON,
    check_no_flags,
    decode_json,
    read_query,
    validate,
    with_plain_names,
)
from saga.api.negotiation import check_body_type, json_response
from saga.api.openapi import json_body, problem_responses, request_body
from saga.api.problems import visible_problems
from saga.api.refusals import refused
from saga.api.request_models import (
    MAX_OUTCOMES,
    AmountOptions,
    CorrectedYear,
    CorrectionsRequest,
    OutcomesRequest,
    RealisedYear,
)
from saga.api.request_panel import PricesOption, check_prices, with_person_ids
from saga.api.response_models import CorrectionsResponse, OutcomesResponse
from saga.api.security import OutcomesCaller
from saga.api.service import CurrentService, ledger_of
from saga.api.table_reader import READER
from saga.calibration.adaptive.ledger import ROWS_PER_TRANSACTION, Ledger
from saga.calibration.adaptive.outcome_entries import (
    MAX_CONFLICTS,
    CorrectionReason,
    OutcomeInput,
    SettlementReport,
    check_amounts,
)

from saga.amount_warnings import require_outcome_unit
from saga.data.casting import in_groups, read_column
from saga.data.deflation import real_factors
from saga.errors import InputError, Problem
from saga.forecaster import Forecaster
from saga.schema import BY_NAME, MAX_AMOUNT

router = APIRouter(prefix="/v1", tags=["calibration"])

_COLUMNS = {"person_id": pl.String, "year": pl.Int64, "earnings": pl.Float64}


_PROBLEMS = problem_responses(401, 403, 404, 408, 413, 415, 422, 429, 503)


@router.post(
    "/outcomes",
    name="outcomes",
    summary="Send realised earnings, which move the thresholds",
    response_model=OutcomesResponse,
    responses=_PROBLEMS,
    openapi_extra=request_body("OutcomesRequest"),
)
async def post_outcomes(
    request: Request, service: CurrentService, caller: OutcomesCaller
) -> Response:
    """Realised earnings of years for which forecasts were recorded with a key of this holder.

    Each outcome counts once, however often it is sent. An outcome that contradicts an earlier one
    changes nothing and is listed in `problems`; the other outcomes of the call count.

    After five contradicting amounts for a person and year, each call with an outcome for them gets
    429 until a correction. Outcomes are entered in blocks of 5,000: of such a call only the blocks
    before this outcome count.

    A table (Parquet, Arrow, CSV) has the columns `person_id`, `year` and `earnings`; `prices` is
    then a query parameter.

    The ledger stores amounts encrypted, and the probabilities that the recorded forecasts gave to
    less earnings and to zero. Contradicting amounts are stored as keyed hashes.
    """
    kind, query = check_body_type(request)
    forecaster, ledger_access = service.forecaster, ledger_of(service)

    def decode(body: bytes) -> list[tuple[str, int, float]]:
        table, prices = _read_json(body) if kind == JSON else _read_table(body, kind, query)
        return _outcomes_of(forecaster, table, prices).rows()

    async with service.admit(request, caller) as ticket:
        outcomes = await service.parse(request, ticket, decode)
    check_amounts(outcomes)
    report = SettlementReport()
    for start in range(0, len(outcomes), ROWS_PER_TRANSACTION):  # others have a turn between blocks
        block = outcomes[start : start + ROWS_PER_TRANSACTION]
        enter = partial(Ledger.settle, outcomes=block, max_conflicts=MAX_CONFLICTS)
        report += await ledger_access.write(caller, enter)
    service.log.info("outcomes", **report.counts())
    problems = [problem.as_dict() for problem in visible_problems(report.problems)]
    return json_response(
        {**report.counts(), "problems": problems, "adaptive": ledger_access.identity(caller.holder)}
    )


@router.post(
    "/outcomes/corrections",
    name="corrections",
    summary="Correct or withdraw realised earnings",
    response_model=CorrectionsResponse,
    responses=_PROBLEMS,
    openapi_extra=json_body("CorrectionsRequest"),
)
async def post_corrections(
    request: Request, service: CurrentService, caller: OutcomesCaller
) -> Response:
    """Replace outcomes that were sent with a key of this holder; null withdraws one.

    The intervals that were compared with the earlier amounts are compared with the new ones; those
    of a withdrawn outcome wait again. The thresholds are then those of the corrected outcomes. The
    ledger keeps the time, the name of the key and the reason of each correction, and what the
    earlier outcomes had settled, from which it can compute every earlier state.
    """
    kind, _ = check_body_type(request)
    forecaster, ledger_access = service.forecaster, ledger_of(service)
    if kind != JSON:
        raise refused("corrections-type")

    def decode(body: bytes) -> tuple[list[OutcomeInput], CorrectionReason]:
        content = validate(CorrectionsRequest, decode_json(body))
        table = _table_of(content.corrections)
        return _outcomes_of(forecaster, table, content.prices).rows(), content.reason

    async with service.admit(request, caller) as ticket:
        corrections, why = await service.parse(request, ticket, decode)
    report = await ledger_access.write(caller, lambda ledger: ledger.correct(corrections, why))
    service.log.info("corrections", reason=why, **report.counts())
    return json_response({**report.counts(), "adaptive": ledger_access.identity(caller.holder)})


def _read_json(body: bytes) -> tuple[pl.DataFrame, PricesOption]:
    request = validate(OutcomesRequest, decode_json(body))
    return _table_of(request.outcomes), request.prices


def _table_of(years: Sequence[RealisedYear | CorrectedYear]) -> pl.DataFrame:
    rows = [(row.person_id, row.year, row.earnings) for row in years]
    return with_person_ids(pl.DataFrame(rows, schema=_COLUMNS, orient="row"))


def _read_table(
    body: bytes, kind: str, query: Sequence[tuple[str, str]]
) -> tuple[pl.DataFrame, PricesOption]:
    """Outcomes in a table body, and the prices of their amounts."""
    prices = validate(AmountOptions, read_query(query)).prices
    frame = with_plain_names(READER.read(body, kind, MAX_OUTCOMES))
    if set(frame.columns) != set(_COLUMNS):
        raise refused("outcome-columns", {"columns": ", ".join(_COLUMNS)})
    check_no_flags(frame)
    if frame["earnings"].dtype == pl.String and in_groups(frame["earnings"]):
        raise refused("outcome-dots", column="earnings")
    (years, is_no_year), (earnings, is_no_number) = (
        read_column(frame[name], BY_NAME[name]) for name in ("year", "earnings")
    )
    if is_no_year.any() or is_no_number.any():
        raise refused("outcome-types")
    table = pl.DataFrame([frame["person_id"], years.cast(pl.Int64), earnings])
    table = with_person_ids(table)
    invalid = table.filter(
        pl.any_horizontal(pl.all().is_null())
        | ~pl.col("earnings").is_between(0, MAX_AMOUNT)
        | ~pl.col("year").is_between(1900, 2200)
    )
    if invalid.height:
        person, year, _ = invalid.row(0)
        fix = f"Leave out unknown outcomes; earnings are 0 to {MAX_AMOUNT:,.0f}"
        raise InputError(
            "Some rows are not outcomes",
            [Problem("outcome", "Not an outcome", fix, None, person, year, invalid.height)],
        )
    return table, prices


def _outcomes_of(forecaster: Forecaster, table: pl.DataFrame, prices: PricesOption) -> pl.DataFrame:
    """Outcomes in the bundle's money. Raises InputError if many persons' are in another unit."""
    outcomes = _in_bundle_money(forecaster, table, prices)
    require_outcome_unit(outcomes, forecaster.transforms.reference)
    return outcomes


def _in_bundle_money(
    forecaster: Forecaster, table: pl.DataFrame, prices: PricesOption
) -> pl.DataFrame:
    """Amounts in the bundle's money: nominal SEK are deflated, as `read_panel` does.

    A year without a published price index is refused: an amount deflated by an assumed index would
    be contradicted when it is sent again with the published one.
    """
    transforms = forecaster.transforms
    check_prices(transforms, prices, forecaster.facts.published_prices)
    if transforms.currency != "SEK" or prices == transforms.price_year:
        return table
    index = forecaster.facts.published_prices
    if isinstance(prices, int):
        factor = real_factors([prices], index, transforms.price_year)[prices]
        return table.with_columns(pl.col("earnings") * factor)
    factors = real_factors(table["year"].to_list(), index, transforms.price_year)
    by_year = pl.col("year").replace_strict(factors, return_dtype=pl.Float64)
    return table.with_columns(pl.col("earnings") * by_year)
