"""What the log of settled promises adds up to: tallies in the ledger's tables, and the state folded from them anew."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy import Connection, delete, insert, select, update

from calibration.adaptive.adaptive_state import Tally, fold
from calibration.adaptive.database import few
from calibration.adaptive.issued_intervals import score
from calibration.adaptive.ledger_tables import Event, Promise, StateRow, Stream, TallyRow, unpacked

Key = tuple[int, int]  # (horizon, outcome year)


def learn(connection: Connection, promised: Sequence[tuple[Any, float]]) -> None:
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
        scores = score([row.family for row, _ in rows], np.array([amount for _, amount in rows]))
        logged = [
            {"promise_id": row.id, "version": version, "score": float(s)}
            for (row, _), s in zip(rows, scores, strict=True)
        ]
        connection.execute(insert(Event), logged)
        for some in few([row.id for row, _ in rows]):
            connection.execute(update(Promise).where(Promise.id.in_(some)).values(family=None))
        more = tallied((row, s) for (row, _), s in zip(rows, scores, strict=True))
        for group, tallies in more.items():
            for (horizon, year), tally in tallies.items():
                _add(connection, stream, group, horizon, year, tally)
            _refold(connection, stream, group)


def tallied(settled: Iterable[tuple[Any, float]]) -> dict[str, dict[Key, Tally]]:
    """Settled promises with their scores, counted: group -> (horizon, outcome year) -> tally."""
    cells: dict[tuple[str, Key], list[tuple[Any, float]]] = {}
    for row, own in settled:
        cells.setdefault((row.group, (row.horizon, row.origin_year + row.horizon)), []).append(
            (row, own)
        )
    result: dict[str, dict[Key, Tally]] = {}
    for (group, key), members in cells.items():
        base, issued = (
            np.stack([unpacked(getattr(row, name)) for row, _ in members])
            for name in ("base", "issued")
        )
        result.setdefault(group, {})[key] = Tally.of(
            np.array([own for _, own in members]), base, issued
        )
    return result


def _add(
    connection: Connection, stream: int, group: str, horizon: int, year: int, more: Tally
) -> None:
    here = (
        TallyRow.stream_id == stream,
        TallyRow.group == group,
        TallyRow.horizon == horizon,
        TallyRow.year == year,
    )
    before = connection.execute(select(TallyRow.counts, TallyRow.missed).where(*here)).one_or_none()
    if before is not None:
        connection.execute(update(TallyRow).where(*here).values(**_stored(_tally(*before) + more)))
    else:
        place = {"stream_id": stream, "group": group, "horizon": horizon, "year": year}
        connection.execute(insert(TallyRow).values(**place, **_stored(more)))


def _refold(connection: Connection, stream: int, group: str) -> None:
    levels = connection.execute(select(Stream.levels).where(Stream.id == stream)).scalar_one()
    rows = connection.execute(
        select(TallyRow.__table__).where(TallyRow.stream_id == stream, TallyRow.group == group)
    )
    tallies = {(row.horizon, row.year): _tally(row.counts, row.missed) for row in rows}
    connection.execute(
        delete(StateRow).where(StateRow.stream_id == stream, StateRow.group == group)
    )
    place = {"stream_id": stream, "group": group}
    cells = [
        {**place, "horizon": h, "level": level, **asdict(cell)}
        for (h, level), cell in fold(levels, tallies).items()
    ]
    connection.execute(insert(StateRow), cells)


def _stored(tally: Tally) -> dict[str, bytes]:
    return {
        "counts": zlib.compress(tally.counts.astype("<i8").tobytes(), 1),
        "missed": tally.missed.astype("<i8").tobytes(),
    }


def _tally(counts: bytes, missed: bytes) -> Tally:
    levels = np.frombuffer(missed, dtype="<i8").astype(np.int64)
    return Tally(
        np.frombuffer(zlib.decompress(counts), dtype="<i8")
        .astype(np.int64)
        .reshape(len(levels), -1),
        levels,
    )
