"""Decode the body of a call, and respond in the format that the client accepts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

import anyio.to_thread
import polars as pl
from fastapi import Request, Response
from saga.api.codecs import (
    CSV,
    JSON,
    TABLES,
    Call,
    encode_json,
    encode_table,
    media_type,
    parse_json,
    parse_table,
)
from saga.api.compute_queue import Ticket
from saga.api.key_file import Caller
from saga.api.panel_batches import SentFrame
from saga.api.refusals import refused
from saga.api.request_models import CallOptions
from saga.api.request_panel import RequestPanel
from saga.api.security import caller_of
from saga.api.service import Service, check_recording, record_issued, service_of
from saga.calibration.adaptive.issuance import recording_warnings

from saga.conformal.calibration_table import ALL
from saga.errors import SagaError
from saga.forecast_results import Result
from saga.forecast_warnings import warning_dicts
from saga.pages.format import begins_above_zero
from saga.requests import percent_label
from saga.schema import EXTRA_PREFIX

OptionsT = TypeVar("OptionsT", bound=CallOptions)

TableRow = Mapping[str, Any]
NOTES_HEADER = "Saga-Notes"
_SMALL_TABLE = 32  # rows of which JSON is written without another thread
Explain = Callable[[str, str], str]  # from guarantee and cell to the reason text


@dataclass(frozen=True)
class ComputeCall(Generic[OptionsT]):
    """A decoded call: who calls which service, the options, the persons and their weights."""

    service: Service
    caller: Caller
    options: OptionsT
    people: RequestPanel
    weights: pl.DataFrame | None = None


# What a call has computed, and how its rows are written as JSON.
Computed = tuple[Result, Callable[[], Mapping[str, Any]]]


def check_body_type(request: Request) -> tuple[str, list[tuple[str, str]]]:
    """The media type of the body, which is JSON or a table, and the query parameters.

    Raises:
        ProblemError: Status 415 for another type or a compressed body, 422 for query parameters
            together with a JSON body.
    """
    kind = media_type(request.headers.get("content-type"))
    accepted = (JSON, *TABLES)
    if kind not in accepted:
        raise refused("content-type", {"accepted": ", ".join(accepted)})
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise refused("content-encoding")
    query = request.query_params.multi_items()
    if kind == JSON and query:
        raise refused("query")
    return kind, query


def accepted_type(request: Request) -> str:
    """The type of the answer that the client likes best. Raises ProblemError 406 if there is none.

    `Accept` is a list of types and patterns with weights. The more exact entry counts for a type;
    of several best types, the first that is named, else JSON.
    """
    best = _best_type(",".join(request.headers.getlist("accept")) or "*/*")
    if best is None:
        raise refused("accept", {"accepted": ", ".join((JSON, *TABLES))})
    return best


@lru_cache(maxsize=32)  # the libraries of most callers send the same
def _best_type(accept: str) -> str | None:
    weights = dict[str, float]()
    for entry in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        stated = [text[2:] for text in parameters if text.startswith("q=")]
        try:
            quality = float(stated[0]) if stated else 1.0
        except ValueError:
            quality = 0.0
        weights.setdefault(kind or "*/*", quality if quality > 0 else 0.0)

    def weight(kind: str) -> float:
        patterns = (kind, f"{kind.partition('/')[0]}/*", "*/*")
        return next((weights[pattern] for pattern in patterns if pattern in weights), 0.0)

    served = (JSON, *TABLES)
    best = max((*(kind for kind in weights if kind in served), *served), key=weight)
    return best if weight(best) else None


async def answer_call(
    request: Request,
    models: tuple[type[OptionsT], type[OptionsT]],
    compute: Callable[[ComputeCall[OptionsT], Ticket], Awaitable[Computed]],
) -> Response:
    """Read a call, compute it, enter in the ledger what it records, and answer.

    The service and the caller, whose key needs the scope `forecast`, are found here: FastAPI would
    need a sixth of its time for a small call to solve a dependency for each.

    Args:
        request: The HTTP request.
        models: Model of a JSON body, and of the query parameters beside a table.
        compute: Computes the call.
    """
    service, caller = await service_of(request), caller_of(request, "forecast")
    async with service.admit(request, caller) as ticket:
        accepted = accepted_type(request)  # refused before the work
        call = await _read_call(request, service, caller, ticket, models)
        if call.options.records:
            check_recording(service, caller)
        computed, to_json = await compute(call, ticket)
        result = service.with_ledger_notes(computed, caller)
        if not call.options.records:
            return await respond(accepted, call.people, result, to_json)
    # The ledger is written after the call has left the queue, so that no other call waits for it.
    recorded = await record_issued(service, caller, result.issued)
    n_bands = 0 if getattr(call.options, "bands", None) is None else result.panel.n_persons
    result = replace(
        result,
        provenance={**result.provenance, "recorded": asdict(recorded)},
        warnings=(*result.warnings, *recording_warnings(recorded, len(result.table) + n_bands)),
    )
    return await respond(accepted, call.people, result, to_json)


async def _read_call(
    request: Request,
    service: Service,
    caller: Caller,
    ticket: Ticket,
    models: tuple[type[OptionsT], type[OptionsT]],
) -> ComputeCall[OptionsT]:
    """Read and decode a call; its options are checked before its panel is read."""
    kind, query = check_body_type(request)
    max_persons = service.settings.max_persons

    def decode(body: bytes) -> Call[OptionsT]:
        if kind == JSON:
            call = parse_json(body, models[0], max_persons)
        else:
            call = parse_table(body, kind, query, models[1], max_persons)
        _ = call.options.request
        return call

    call = await service.parse(request, ticket, decode)
    frame, weights = split_weights(call.frame, call.options.own_column)
    ticket.stage = "panel"
    people = await service.panels.submit(SentFrame(frame, call.options.prices, call.options.origin))
    ticket.stage = "compute"
    if isinstance(people, SagaError):
        raise people
    return ComputeCall(service, caller, call.options, people, weights)


def split_weights(
    frame: pl.DataFrame, column: str | None
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """The person-years without their own column of weights, and the weight of each person.

    Raises InputError if the column is missing, or differs between the years of a person.
    """
    if column is None:
        return frame, None
    name = column if column.startswith(EXTRA_PREFIX) else f"{EXTRA_PREFIX}{column}"
    if name not in frame.columns or "person_id" not in frame.columns:
        raise refused("no-weights", {"name": name}, column=name)
    known = frame.select(
        pl.col("person_id").cast(pl.String).str.strip_chars(), weight=pl.col(name)
    ).unique()
    if known["person_id"].is_duplicated().any():
        raise refused("two-weights", column=name)
    return frame.drop(name), known


async def respond(
    accepted: str,
    people: RequestPanel,
    result: Result,
    to_json: Callable[[], Mapping[str, Any]],
) -> Response:
    """The response of the `accepted` type: the table as Parquet, Arrow or CSV, or JSON.

    Provenance, warnings and who is left out are in the metadata of a table. CSV has none, so a
    header has the provenance, the codes of the warnings and the number of those left out, and no
    value of a person. `to_json` builds the other entries of JSON.
    """
    provenance = {**result.provenance, **people.provenance()}
    notes = {
        "warnings": warning_dicts(result.warnings),
        "left_out": [problem.as_dict() for problem in people.all_left_out(result)],
    }
    if accepted in TABLES:
        content = await anyio.to_thread.run_sync(
            encode_table, result.table, accepted, {**provenance, **notes}
        )
        headers = {}
        if accepted == CSV:
            codes = sorted({warning.code for warning in result.warnings})
            short = {"warnings": codes, "left_out": len(notes["left_out"])}
            headers[NOTES_HEADER] = json.dumps(provenance | short)
        return Response(content, media_type=accepted, headers=headers)

    def encode() -> Response:
        return json_response({"provenance": provenance, **notes, **to_json()})

    if result.table.height <= _SMALL_TABLE:
        return encode()
    return await anyio.to_thread.run_sync(encode)


def json_response(content: Mapping[str, Any]) -> Response:
    """A JSON response; see `encode_json`."""
    return Response(encode_json(content), media_type=JSON)


def quantiles_json(row: TableRow, quantiles: Sequence[float]) -> dict[str, Any]:
    """The quantile columns of a row, by quantile: {"0.05": ...}."""
    return {f"{quantile:g}": row[f"q{percent_label(quantile)}"] for quantile in quantiles}


def limits_json(row: TableRow, coverage: float, explain: Explain) -> dict[str, Any]:
    """The one-sided limits of a row at one coverage."""
    name = percent_label(coverage)
    guarantee = row[f"guarantee_limits_{name}"]
    return {
        "coverage": coverage,
        **{end: row[f"{end}_{name}"] for end in ("at_least", "at_most")},
        "guarantee": guarantee,
        "reason": explain(guarantee, ALL),
    }


def interval_json(
    row: TableRow, coverage: float, explain: Explain, prefix: str = ""
) -> dict[str, Any]:
    """The interval columns of a row at one coverage; `prefix`: "band_", "positive_" for others.

    `lower` is null if the set begins above 0: the smallest amount of the table is no limit.
    """
    name = percent_label(coverage)
    guarantee, lower = row[f"guarantee_{prefix}{name}"], row[f"{prefix}lower_{name}"]
    interval = {
        "coverage": coverage,
        "lower": None if lower is not None and begins_above_zero(lower) else lower,
        "upper": row[f"{prefix}upper_{name}"],
    }
    zero_column = f"{prefix}includes_zero_{name}"
    if zero_column in row:  # those of present values and of positive earnings have no such column
        interval["includes_zero"] = row[zero_column]
    cell = row["cell"] if "cell" in row and not prefix else ALL
    return interval | {"guarantee": guarantee, "reason": explain(guarantee, cell)}
