"""Settled outcomes of the ledger as arrays, for the diagnosis by year."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import SPAN_KINDS, YEAR
from saga.calibration.adaptive.issued_intervals import ranks_of_outcomes, unmoved_ranks
from saga.calibration.adaptive.ledger_tables import (
    ExcessCountsRow,
    Holder,
    IssuedIntervalRow,
    SettlementRow,
    Stream,
    unpack_thresholds,
)
from saga.calibration.adaptive.settlement_counts import unpack_counts
from sqlalchemy import Connection, select

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SettledOutcomes:
    """Outcomes of issued forecasts, n rows, one per person, origin year and horizon; no persons.

    `rank` (n,) is the probability that the published forecast gave to less earnings, and
    `bundle_rank` that of the bundle's forecast before it was moved; within the probability of zero
    they are random. `p_zero` is the published probability of zero, `zero` whether earnings were 0.
    """

    year: NDArray[np.int64]
    horizon: NDArray[np.int64]
    group: NDArray[np.str_]
    rank: Array
    bundle_rank: Array
    p_zero: Array
    zero: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.year)


def read_settled(
    connection: Connection, bundle: str, holder: str, horizons: Sequence[int]
) -> SettledOutcomes:
    """The settled outcomes of a holder's forecasts with the bundle of this digest.

    What a correction has taken back is left out.
    """
    is_stream = (Stream.bundle == bundle, Holder.name == holder)
    stream = connection.execute(select(Stream.__table__).join(Holder).where(*is_stream)).first()
    if stream is None:
        return _settled([])
    log = (
        select(
            SettlementRow.interval_id,
            SettlementRow.sign,
            SettlementRow.ranks,
            IssuedIntervalRow.origin_year,
            IssuedIntervalRow.horizon,
            IssuedIntervalRow.group,
            IssuedIntervalRow.issued,
        )
        .join(IssuedIntervalRow, SettlementRow.interval_id == IssuedIntervalRow.id)
        .where(
            IssuedIntervalRow.stream_id == stream.id,
            IssuedIntervalRow.family == YEAR,
            IssuedIntervalRow.horizon.in_(horizons),
        )
        .order_by(SettlementRow.id)
    )
    last = {row.interval_id: row for row in connection.execute(log)}
    return _settled([row for row in last.values() if row.sign == 1])


def _settled(rows: Sequence[Any]) -> SettledOutcomes:
    probability, p_zero = np.array([unpack_thresholds(row.ranks) for row in rows]).reshape(-1, 2).T
    horizon = np.array([row.horizon for row in rows], dtype=np.int64)
    rank = ranks_of_outcomes(probability, p_zero)
    issued = [unpack_thresholds(row.issued) for row in rows]
    return SettledOutcomes(
        np.array([row.origin_year for row in rows], dtype=np.int64) + horizon,
        horizon,
        np.array([row.group for row in rows], dtype=np.str_),
        rank,
        unmoved_ranks(rank, np.stack(issued)) if issued else rank,
        p_zero,
        probability == 0,
    )


@dataclass(frozen=True)
class SpanCoverage:
    """Settled bands or present values of one outcome year: persons, and share inside by coverage.

    Shares are None for coverages without thresholds.
    """

    kind: str
    years: int
    year: int
    persons: int
    inside: tuple[float | None, ...]


def read_span_coverage(connection: Connection, bundle: str, holder: str) -> list[SpanCoverage]:
    """The coverage of a holder's settled bands and present values, from their counts."""
    rows = connection.execute(
        select(ExcessCountsRow.__table__)
        .join(Stream, Stream.id == ExcessCountsRow.stream_id)
        .join(Holder)
        .where(
            Stream.bundle == bundle, Holder.name == holder, ExcessCountsRow.group.in_(SPAN_KINDS)
        )
        .order_by(ExcessCountsRow.group, ExcessCountsRow.horizon, ExcessCountsRow.year)
    )
    table = []
    for row in rows:
        counts = unpack_counts(row.counts, row.missed)
        persons = counts.persons
        inside = tuple(
            1 - missed / n if n else None
            for missed, n in zip(counts.missed.tolist(), persons.tolist(), strict=True)
        )
        table.append(SpanCoverage(row.group, row.horizon, row.year, int(persons.max()), inside))
    return table
