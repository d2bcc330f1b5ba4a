"""Conversion of streams whose thresholds of prediction sets followed outcomes.

Their log has the forecast probability of less earnings and of zero for each outcome. These give the
rank of the outcome, so counts and states of the limits of LEVELS are computed from the log. Nothing
is lost: what the thresholds were does not matter for the ranks.
"""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection, Row, delete, select, update

from calibration.adaptive.ledger_tables import (
    ExcessCountsRow,
    IssuedIntervalRow,
    SettlementRow,
    StateRow,
    Stream,
    pack_thresholds,
)
from calibration.adaptive.marginal_moves import LEVELS
from calibration.adaptive.settlement_counts import (
    LogEntry,
    count_entries,
    insert_counts,
    store_states_of_bundle,
)


def convert_streams(connection: Connection) -> None:
    """Convert all open streams with other levels than LEVELS; their versions stay."""
    streams = connection.execute(select(Stream.__table__).where(Stream.closed.is_(None))).all()
    former = [stream for stream in streams if tuple(stream.levels) != LEVELS]
    for stream in former:
        _convert(connection, stream)
    for bundle in sorted({stream.bundle for stream in former}):
        store_states_of_bundle(connection, bundle)


def _convert(connection: Connection, stream: Row[tuple[int, ...]]) -> None:
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
        for (horizon, year), of_cell in counts.items():
            if of_cell.persons.any():
                insert_counts(connection, stream.id, group, horizon, year, of_cell)
