"""Replay: the adaptive state computed from the log of settled intervals alone."""

from __future__ import annotations

from typing import Any

from saga.calibration.adaptive.adaptive_state import (
    SPAN_KINDS,
    AdaptiveState,
    ExcessCounts,
    compute_states,
)
from saga.calibration.adaptive.holder_streams import state_of
from saga.calibration.adaptive.ledger_tables import (
    COMMON_ID,
    IssuedIntervalRow,
    SettlementRow,
    SpanRow,
    SpanSettlementRow,
    StateVersion,
    Stream,
)
from saga.calibration.adaptive.settlement_counts import (
    HorizonYear,
    LogEntry,
    add_counts,
    count_entries,
    levels_of,
)
from saga.calibration.adaptive.span_entries import SpanEntry, count_spans
from saga.calibration.adaptive.span_rescoring import span_states
from sqlalchemy import Connection, Row, select

_ROWS_IN_MEMORY = 5_000


def replay_state(
    connection: Connection, stream: Row[Any], version: int | None = None
) -> AdaptiveState:
    """The state of a stream, computed from the log: today's or that of an earlier `version`."""
    versions = select(StateVersion.__table__).where(StateVersion.stream_id == stream.id)
    if version is not None:
        versions = versions.where(StateVersion.version <= version)
    last = connection.execute(versions.order_by(StateVersion.version.desc())).first()
    if last is None:
        return state_of(0, {})
    streams_followed = select(Stream.id).where(
        Stream.bundle == stream.bundle, Stream.holder_id.in_((stream.holder_id, COMMON_ID))
    )
    log = (
        select(
            IssuedIntervalRow.__table__,
            SettlementRow.probability,
            SettlementRow.p_zero,
            SettlementRow.sign,
        )
        .join(SettlementRow, SettlementRow.interval_id == IssuedIntervalRow.id)
        .where(
            IssuedIntervalRow.stream_id.in_(streams_followed),
            SettlementRow.id <= last.last_settlement,
        )
        .order_by(SettlementRow.id)
    )
    rows = connection.execution_options(yield_per=_ROWS_IN_MEMORY).execute(log)
    total: dict[str, dict[HorizonYear, ExcessCounts]] = {}
    for batch in rows.partitions():
        entries = [LogEntry(row, row.probability, row.p_zero, row.sign) for row in batch]
        for group, counts in count_entries(entries, stream.levels).items():
            for key, new in counts.items():
                add_counts(total.setdefault(group, {}), key, new)
    span_log = (
        select(
            SpanRow.__table__,
            SpanSettlementRow.probability,
            SpanSettlementRow.p_zero,
            SpanSettlementRow.sign,
            SpanSettlementRow.ranks,
        )
        .join(SpanSettlementRow, SpanSettlementRow.span_id == SpanRow.id)
        .where(
            SpanRow.stream_id.in_(streams_followed),
            SpanSettlementRow.id <= last.last_span_settlement,
        )
        .order_by(SpanSettlementRow.id)
    )
    spans = connection.execution_options(yield_per=_ROWS_IN_MEMORY).execute(span_log)
    for part in spans.partitions():
        of_part = count_spans(
            [SpanEntry(row, row.probability, row.p_zero, row.sign, row.ranks) for row in part]
        )
        for kind, counts in of_part.items():
            for key, new in counts.items():
                add_counts(total.setdefault(kind, {}), key, new)
    known = {
        group: {key: of_cell for key, of_cell in counts.items() if of_cell.persons.any()}
        for group, counts in total.items()
    }
    cells = {
        (group, h, coverage): cell
        for group, counts in known.items()
        if group not in SPAN_KINDS
        for (h, coverage), cell in compute_states(levels_of(stream, group), counts).items()
    }
    ids = connection.scalars(streams_followed).all()
    spans_by_kind = {
        kind: span_states(
            connection, kind, ids, cells, known.get(kind, {}), last.last_span_settlement
        )
        for kind in SPAN_KINDS
    }
    of_spans = {
        (kind, years, coverage): cell
        for kind, states in spans_by_kind.items()
        for (years, coverage), cell in states.items()
    }
    return state_of(last.version, cells | of_spans)
