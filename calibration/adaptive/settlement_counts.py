"""What the log of settled promises adds up to: tallies in the ledger's tables, and the state folded from them anew."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy import Connection, delete, insert, select, update

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

Key = tuple[int, int]  # (horizon, outcome year)


def log_settlements(connection: Connection, promised: Sequence[tuple[Any, float]]) -> None:
    """Log the scores, forget the families, add to the tallies and work out the state anew, stream by stream."""
    by_stream: dict[int, list[tuple[Any, float]]] = {}
    for row, amount in promised:
        by_stream.setdefault(row.stream_id, []).append((row, amount))
    for stream, rows in sorted(by_stream.items()):
        found = connection.execute(
            update(Stream)
            .where(Stream.id == stream)
            .values(version=Stream.version + 1)
            .returning(Stream.version)
        )
        version = found.scalar_one()
        scores = conformity_scores(
            [row.family for row, _ in rows], np.array([amount for _, amount in rows])
        )
        logged = [
            {"promise_id": row.id, "version": version, "score": float(s)}
            for (row, _), s in zip(rows, scores, strict=True)
        ]
        connection.execute(insert(SettlementRow), logged)
        for some in key_batches([row.id for row, _ in rows]):
            connection.execute(
                update(IssuedIntervalRow).where(IssuedIntervalRow.id.in_(some)).values(family=None)
            )
        more = count_settled((row, s) for (row, _), s in zip(rows, scores, strict=True))
        for group, tallies in more.items():
            for (horizon, year), tally in tallies.items():
                _add(connection, stream, group, horizon, year, tally)
            _refold(connection, stream, group)


def count_settled(settled: Iterable[tuple[Any, float]]) -> dict[str, dict[Key, ExcessCounts]]:
    """Settled promises with their scores, counted: group -> (horizon, outcome year) -> tally."""
    cells: dict[tuple[str, Key], list[tuple[Any, float]]] = {}
    for row, own in settled:
        cells.setdefault((row.group, (row.horizon, row.origin_year + row.horizon)), []).append(
            (row, own)
        )
    result: dict[str, dict[Key, ExcessCounts]] = {}
    for (group, key), members in cells.items():
        base, issued = (
            np.stack([unpack_thresholds(getattr(row, name)) for row, _ in members])
            for name in ("base", "issued")
        )
        result.setdefault(group, {})[key] = ExcessCounts.of(
            np.array([own for _, own in members]), base, issued
        )
    return result


def _add(
    connection: Connection, stream: int, group: str, horizon: int, year: int, more: ExcessCounts
) -> None:
    here = (
        ExcessCountsRow.stream_id == stream,
        ExcessCountsRow.group == group,
        ExcessCountsRow.horizon == horizon,
        ExcessCountsRow.year == year,
    )
    before = connection.execute(
        select(ExcessCountsRow.counts, ExcessCountsRow.missed).where(*here)
    ).one_or_none()
    if before is not None:
        connection.execute(
            update(ExcessCountsRow).where(*here).values(**_stored(_tally(*before) + more))
        )
    else:
        place = {"stream_id": stream, "group": group, "horizon": horizon, "year": year}
        connection.execute(insert(ExcessCountsRow).values(**place, **_stored(more)))


def _refold(connection: Connection, stream: int, group: str) -> None:
    levels = connection.execute(select(Stream.levels).where(Stream.id == stream)).scalar_one()
    rows = connection.execute(
        select(ExcessCountsRow.__table__).where(
            ExcessCountsRow.stream_id == stream, ExcessCountsRow.group == group
        )
    )
    tallies = {(row.horizon, row.year): _tally(row.counts, row.missed) for row in rows}
    connection.execute(
        delete(StateRow).where(StateRow.stream_id == stream, StateRow.group == group)
    )
    place = {"stream_id": stream, "group": group}
    cells = [
        {**place, "horizon": h, "level": level, **asdict(cell)}
        for (h, level), cell in compute_states(levels, tallies).items()
    ]
    connection.execute(insert(StateRow), cells)


def _stored(tally: ExcessCounts) -> dict[str, bytes]:
    return {
        "counts": zlib.compress(tally.counts.astype("<i8").tobytes(), 1),
        "missed": tally.missed.astype("<i8").tobytes(),
    }


def _tally(counts: bytes, missed: bytes) -> ExcessCounts:
    levels = np.frombuffer(missed, dtype="<i8").astype(np.int64)
    return ExcessCounts(
        np.frombuffer(zlib.decompress(counts), dtype="<i8")
        .astype(np.int64)
        .reshape(len(levels), -1),
        levels,
    )
