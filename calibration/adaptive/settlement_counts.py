"""Counts of the log of settled intervals, and the adaptive state that follows from them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, delete, insert, select, update

from calibration.adaptive.adaptive_state import ExcessCounts, compute_states
from calibration.adaptive.database import key_batches
from calibration.adaptive.issued_intervals import conformity_scores
from calibration.adaptive.ledger_tables import (
    ExcessCountsRow,
    IssuedIntervalRow,
    SettlementRow,
    StateRow,
    Stream,
    unpack_thresholds,
)

IssuedRow = Row[Any]  # a row of the table of issued intervals
HorizonYear = tuple[int, int]  # (horizon, outcome year)


def log_settlements(connection: Connection, settled: Sequence[tuple[IssuedRow, float]]) -> None:
    """Log the scores of intervals, given with their outcomes, and update counts and state.

    The nested sets of settled intervals are deleted.
    """
    by_stream: dict[int, list[tuple[IssuedRow, float]]] = {}
    for row, amount in settled:
        by_stream.setdefault(row.stream_id, []).append((row, amount))
    for stream_id, pairs in sorted(by_stream.items()):
        rows = [row for row, _ in pairs]
        version = connection.execute(
            update(Stream)
            .where(Stream.id == stream_id)
            .values(version=Stream.version + 1)
            .returning(Stream.version)
        ).scalar_one()
        scores = conformity_scores(
            [row.family for row in rows], np.array([amount for _, amount in pairs])
        )
        scored = [(row, float(score)) for row, score in zip(rows, scores, strict=True)]
        connection.execute(
            insert(SettlementRow),
            [{"promise_id": row.id, "version": version, "score": score} for row, score in scored],
        )
        for ids in key_batches([row.id for row in rows]):
            connection.execute(
                update(IssuedIntervalRow).where(IssuedIntervalRow.id.in_(ids)).values(family=None)
            )
        for group, counts in count_settled(scored).items():
            for (horizon, year), cell_counts in counts.items():
                _add_counts(connection, stream_id, group, horizon, year, cell_counts)
            _update_state(connection, stream_id, group)


def count_settled(
    scored: Iterable[tuple[IssuedRow, float]],
) -> dict[str, dict[HorizonYear, ExcessCounts]]:
    """Count settled intervals with their scores: group -> (horizon, outcome year) -> counts."""
    cells: dict[tuple[str, HorizonYear], list[tuple[IssuedRow, float]]] = {}
    for row, score in scored:
        key = row.group, (row.horizon, row.origin_year + row.horizon)
        cells.setdefault(key, []).append((row, score))
    counts: dict[str, dict[HorizonYear, ExcessCounts]] = {}
    for (group, horizon_year), pairs in cells.items():
        base = np.stack([unpack_thresholds(row.base) for row, _ in pairs])
        issued = np.stack([unpack_thresholds(row.issued) for row, _ in pairs])
        scores = np.array([score for _, score in pairs])
        counts.setdefault(group, {})[horizon_year] = ExcessCounts.of(scores, base, issued)
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
