"""Conversion of ledgers of earlier versions, in which thresholds of prediction sets moved.

Today upper limits at LEVELS move. The log of an earlier version contains, for each outcome, the
forecast probabilities of lower earnings and of zero. They give the rank of the outcome, and ranks
are all that counts and states of the limits need. A *stream* is the part of a ledger that belongs
to one holder and one bundle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from saga.calibration.adaptive.ledger_tables import (
    ExcessCountsRow,
    IssuedIntervalRow,
    SettlementRow,
    StateRow,
    Stream,
    pack_thresholds,
)
from saga.calibration.adaptive.marginal_moves import LEVELS
from saga.calibration.adaptive.settlement_counts import (
    LogEntry,
    count_entries,
    insert_counts,
    store_states_of_bundle,
)
from sqlalchemy import Connection, Row, delete, select, update


def convert_streams(connection: Connection) -> None:
    """Convert all open streams with other levels than LEVELS; their versions stay."""
    streams = connection.execute(select(Stream.__table__).where(Stream.closed.is_(None))).all()
    earlier_streams = [stream for stream in streams if tuple(stream.levels) != LEVELS]
    for stream in earlier_streams:
        _convert(connection, stream)
    for bundle in sorted({stream.bundle for stream in earlier_streams}):
        store_states_of_bundle(connection, bundle)


def _convert(connection: Connection, stream: Row[Any]) -> None:
    unmoved = pack_thresholds(np.asarray(LEVELS))
    connection.execute(
        update(IssuedIntervalRow)
        .where(IssuedIntervalRow.stream_id == stream.id)
        .values(base=unmoved, issued=unmoved)
    )
    connection.execute(update(Stream).where(Stream.id == stream.id).values(levels=list(LEVELS)))
    for table in (ExcessCountsRow, StateRow):
        connection.execute(delete(table).where(table.stream_id == stream.id))
    log = connection.execute(
        select(
            IssuedIntervalRow.__table__,
            SettlementRow.probability,
            SettlementRow.p_zero,
            SettlementRow.sign,
        )
        .join(SettlementRow, SettlementRow.promise_id == IssuedIntervalRow.id)
        .where(IssuedIntervalRow.stream_id == stream.id)
        .order_by(SettlementRow.id)
    )
    entries = [LogEntry(row, row.probability, row.p_zero, row.sign) for row in log]
    for group, counts in count_entries(entries, LEVELS).items():
        for (horizon, year), cell_counts in counts.items():
            if cell_counts.persons.any():
                insert_counts(connection, stream.id, group, horizon, year, cell_counts)
