"""Counts of the log of settled intervals, and the adaptive state that follows from them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, delete, insert, select, update

from calibration.adaptive.adaptive_state import ExcessCounts, compute_states
from calibration.adaptive.database import key_batches
from calibration.adaptive.issued_intervals import conformity_scores, unpack_marginals
from calibration.adaptive.ledger_tables import (
    ExcessCountsRow,
    IssuedIntervalRow,
    SettlementRow,
    StateRow,
    Stream,
    unpack_thresholds,
)
from saga.conformal.prediction_sets import probability_of_less

IssuedRow = Row[Any]  # a row of the table of issued intervals
HorizonYear = tuple[int, int]  # (horizon, outcome year)


def log_settlements(connection: Connection, settled: Sequence[tuple[IssuedRow, float]]) -> None:
    """Log intervals, given with their outcomes, and update counts and state.

    The forecast distributions of settled intervals are deleted.
    """
    by_stream: dict[int, list[tuple[IssuedRow, float]]] = {}
    for row, amount in settled:
        by_stream.setdefault(row.stream_id, []).append((row, amount))
    for stream_id, pairs in sorted(by_stream.items()):
        rows = [row for row, _ in pairs]
        version, coverage = connection.execute(
            update(Stream)
            .where(Stream.id == stream_id)
            .values(version=Stream.version + 1)
            .returning(Stream.version, Stream.levels)
        ).one()
        less, p_zero = np.empty(len(rows)), np.empty(len(rows))
        amounts = np.array([amount for _, amount in pairs])
        for index, marginals in unpack_marginals([row.family for row in rows]):
            less[index] = probability_of_less(marginals, amounts[index, None])[:, 0]
            p_zero[index] = marginals.p_zero[:, 0]
        connection.execute(
            insert(SettlementRow),
            [
                {"promise_id": row.id, "version": version, "probability": p, "p_zero": zero}
                for row, p, zero in zip(rows, less.tolist(), p_zero.tolist(), strict=True)
            ],
        )
        for ids in key_batches([row.id for row in rows]):
            connection.execute(
                update(IssuedIntervalRow).where(IssuedIntervalRow.id.in_(ids)).values(family=None)
            )
        scores = conformity_scores(less, p_zero, coverage)
        for group, counts in count_settled(rows, scores).items():
            for (horizon, year), cell_counts in counts.items():
                _add_counts(connection, stream_id, group, horizon, year, cell_counts)
            _update_state(connection, stream_id, group)


def count_settled(
    rows: Sequence[IssuedRow], scores: NDArray[np.float64]
) -> dict[str, dict[HorizonYear, ExcessCounts]]:
    """Count settled intervals with scores (n, L): group -> (horizon, outcome year) -> counts."""
    cells: dict[tuple[str, HorizonYear], list[int]] = {}
    for i, row in enumerate(rows):
        key = row.group, (row.horizon, row.origin_year + row.horizon)
        cells.setdefault(key, []).append(i)
    counts: dict[str, dict[HorizonYear, ExcessCounts]] = {}
    for (group, horizon_year), index in cells.items():
        base = np.stack([unpack_thresholds(rows[i].base) for i in index])
        issued = np.stack([unpack_thresholds(rows[i].issued) for i in index])
        counts.setdefault(group, {})[horizon_year] = ExcessCounts.of(scores[index], base, issued)
    return counts


def _add_counts(
    connection: Connection, stream_id: int, group: str, horizon: int, year: int, new: ExcessCounts
) -> None:
    cell = {"stream_id": stream_id, "group": group, "horizon": horizon, "year": year}
    is_cell = [getattr(ExcessCountsRow, column) == value for column, value in cell.items()]
    before = connection.execute(
        select(ExcessCountsRow.counts, ExcessCountsRow.missed).where(*is_cell)
    ).one_or_none()
    if before is not None:
        total = _unpack_counts(*before) + new
        connection.execute(update(ExcessCountsRow).where(*is_cell).values(**_pack_counts(total)))
    else:
        connection.execute(insert(ExcessCountsRow).values(**cell, **_pack_counts(new)))


def _update_state(connection: Connection, stream_id: int, group: str) -> None:
    coverage = connection.execute(select(Stream.levels).where(Stream.id == stream_id)).scalar_one()
    rows = connection.execute(
        select(ExcessCountsRow.__table__).where(
            ExcessCountsRow.stream_id == stream_id, ExcessCountsRow.group == group
        )
    )
    counts = {(row.horizon, row.year): _unpack_counts(row.counts, row.missed) for row in rows}
    connection.execute(
        delete(StateRow).where(StateRow.stream_id == stream_id, StateRow.group == group)
    )
    states = [
        {"stream_id": stream_id, "group": group, "horizon": h, "level": c, **asdict(cell)}
        for (h, c), cell in compute_states(coverage, counts).items()
    ]
    connection.execute(insert(StateRow), states)


def _pack_counts(counts: ExcessCounts) -> dict[str, bytes]:
    return {
        "counts": zlib.compress(counts.counts.astype("<i8").tobytes(), 1),
        "missed": counts.missed.astype("<i8").tobytes(),
    }


def _unpack_counts(counts: bytes, missed: bytes) -> ExcessCounts:
    by_coverage = np.frombuffer(missed, dtype="<i8").astype(np.int64)
    by_excess = np.frombuffer(zlib.decompress(counts), dtype="<i8").astype(np.int64)
    return ExcessCounts(by_excess.reshape(len(by_coverage), -1), by_coverage)
