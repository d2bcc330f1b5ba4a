"""Counts of the log of settled intervals, and the adaptive state that follows from them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import (
    SPAN_KINDS,
    CellState,
    ExcessCounts,
    compute_states,
)
from saga.calibration.adaptive.database import damaged_error
from saga.calibration.adaptive.holder_streams import read_state
from saga.calibration.adaptive.issued_intervals import (
    ranks_of_outcomes,
    unmoved_ranks,
    unpack_marginals,
)
from saga.calibration.adaptive.ledger_tables import (
    COMMON_ID,
    ExcessCountsRow,
    SettlementRow,
    SpanSettlementRow,
    StateRow,
    StateVersion,
    Stream,
    unpack_thresholds,
)
from saga.calibration.adaptive.span_rescoring import span_states
from sqlalchemy import Connection, Row, delete, func, insert, select, true, update

from saga.conformal.calibration_table import ALL
from saga.conformal.families.set_family import probability_of_less
from saga.requests import COVERAGE

IssuedRow = Row[Any]  # a row of the table of issued intervals
HorizonYear = tuple[int, int]  # (horizon, outcome year)


@dataclass(frozen=True)
class LogEntry:
    """An issued interval and the forecast probabilities of its outcome.

    `sign` is 1 for a settlement and -1 to take an earlier one back.
    """

    row: IssuedRow
    probability: float
    p_zero: float
    sign: int = 1


def judge(settled: Sequence[tuple[IssuedRow, bytes, float]]) -> list[LogEntry]:
    """The log entries of issued intervals, given with their distribution and their outcome."""
    less, p_zero = np.empty(len(settled)), np.empty(len(settled))
    amounts = np.array([amount for _, _, amount in settled])
    for index, marginals in unpack_marginals([distribution for _, distribution, _ in settled]):
        less[index] = probability_of_less(marginals, amounts[index, None])[:, 0]
        p_zero[index] = marginals.p_zero[:, 0]
    return [
        LogEntry(row, probability, zero)
        for (row, _, _), probability, zero in zip(
            settled, less.tolist(), p_zero.tolist(), strict=True
        )
    ]


def write_log(
    connection: Connection,
    entries: Sequence[LogEntry],
    audit_id: int,
    spans: Mapping[int, set[str]] | None = None,
) -> None:
    """Add entries to the log, and update counts and states.

    `spans` are the kinds of bands and present values, by stream, whose counts have changed in the
    same transaction.
    """
    spans = spans or {}
    by_stream: dict[int, list[LogEntry]] = {}
    for entry in entries:
        by_stream.setdefault(entry.row.stream_id, []).append(entry)
    for stream_id in sorted({*by_stream, *spans}):
        stream_entries = by_stream.get(stream_id, [])
        stream = connection.execute(select(Stream.__table__).where(Stream.id == stream_id)).one()
        if stream_entries:
            connection.execute(
                insert(SettlementRow),
                [
                    {
                        "interval_id": entry.row.id,
                        "version": stream.version + 1,
                        "probability": entry.probability,
                        "p_zero": entry.p_zero,
                        "sign": entry.sign,
                        "audit_id": audit_id,
                    }
                    for entry in stream_entries
                ],
            )
        groups = count_entries(stream_entries, stream.levels)
        for group, counts in groups.items():
            for (horizon, year), cell_counts in counts.items():
                add_new_counts(connection, stream_id, group, horizon, year, cell_counts)
        _update_states(connection, stream, sorted({*groups, *spans.get(stream_id, ())}))


def count_entries(
    entries: Sequence[LogEntry], coverage: Sequence[float]
) -> dict[str, dict[HorizonYear, ExcessCounts]]:
    """Counts of log entries: group -> (horizon, outcome year) -> counts."""
    total: dict[str, dict[HorizonYear, ExcessCounts]] = {}
    for sign in (1, -1):
        signed_entries = [entry for entry in entries if entry.sign == sign]
        if not signed_entries:
            continue
        less, p_zero = np.array([(entry.probability, entry.p_zero) for entry in signed_entries]).T
        rows, ranks = [entry.row for entry in signed_entries], ranks_of_outcomes(less, p_zero)
        for group, counts in count_settled(rows, ranks, len(coverage)).items():
            for key, new in counts.items():
                add_counts(total.setdefault(group, {}), key, new if sign == 1 else -new)
    return total


def add_counts(total: dict[HorizonYear, ExcessCounts], key: HorizonYear, new: ExcessCounts) -> None:
    """Add the counts of one cell and year to those in `total`."""
    total[key] = total[key] + new if key in total else new


def count_settled(
    rows: Sequence[IssuedRow], ranks: NDArray[np.float64], n_coverages: int
) -> dict[str, dict[HorizonYear, ExcessCounts]]:
    """Count outcomes with ranks (n,): group -> (horizon, outcome year) -> counts.

    The ranks are those under the moved distributions. A person counts in the group of the cell and
    among all persons.
    """
    cells: dict[tuple[str, HorizonYear], list[int]] = {}
    for i, row in enumerate(rows):
        horizon_year = row.horizon, row.origin_year + row.horizon
        for group in {row.group, ALL}:
            cells.setdefault((group, horizon_year), []).append(i)
    base = np.stack([unpack_thresholds(row.base) for row in rows])
    issued = np.stack([unpack_thresholds(row.issued) for row in rows])
    scores = np.tile(unmoved_ranks(ranks, issued)[:, None], n_coverages)
    counts: dict[str, dict[HorizonYear, ExcessCounts]] = {}
    for (group, horizon_year), index in cells.items():
        cell_counts = ExcessCounts.of(scores[index], base[index], issued[index])
        counts.setdefault(group, {})[horizon_year] = cell_counts
    return counts


def levels_of(stream: Row[Any], group: str) -> Sequence[float]:
    """The coverages that a cell follows: those of the sets for bands and present values."""
    return COVERAGE if group in SPAN_KINDS else stream.levels


def add_new_counts(
    connection: Connection, stream_id: int, group: str, horizon: int, year: int, new: ExcessCounts
) -> None:
    """Add the counts of new log entries to the stored ones of a cell and year."""
    cell = {"stream_id": stream_id, "group": group, "horizon": horizon, "year": year}
    is_cell = [getattr(ExcessCountsRow, column) == value for column, value in cell.items()]
    before = connection.execute(
        select(ExcessCountsRow.counts, ExcessCountsRow.missed).where(*is_cell)
    ).one_or_none()
    if before is None:
        insert_counts(connection, stream_id, group, horizon, year, new)
        return
    total = unpack_counts(*before) + new
    if total.persons.any():
        connection.execute(update(ExcessCountsRow).where(*is_cell).values(**_pack_counts(total)))
    else:  # every settlement was taken back
        connection.execute(delete(ExcessCountsRow).where(*is_cell))


def insert_counts(
    connection: Connection, stream_id: int, group: str, horizon: int, year: int, new: ExcessCounts
) -> None:
    """Store the counts of a cell and year that has none yet."""
    cell = {"stream_id": stream_id, "group": group, "horizon": horizon, "year": year}
    connection.execute(insert(ExcessCountsRow).values(**cell, **_pack_counts(new)))


def store_states_of_bundle(connection: Connection, bundle: str) -> None:
    """Compute the states of all streams of a bundle from their counts; versions stay."""
    streams = connection.execute(select(Stream.__table__).where(Stream.bundle == bundle)).all()
    groups = connection.scalars(
        select(ExcessCountsRow.group)
        .where(ExcessCountsRow.stream_id.in_([stream.id for stream in streams]))
        .distinct()
    ).all()
    _compute_states(connection, bundle, streams, sorted(groups))


def _update_states(connection: Connection, changed: Row[Any], groups: Sequence[str]) -> None:
    """Compute the state of a changed stream, and of those that follow it, and number them.

    All streams of a bundle follow its stream of the common holder.
    """
    streams = connection.execute(
        select(Stream.__table__).where(
            Stream.bundle == changed.bundle,
            true() if changed.holder_id == COMMON_ID else Stream.id == changed.id,
        )
    ).all()
    _compute_states(connection, changed.bundle, streams, groups)
    last = {
        "last_settlement": connection.scalar(select(func.max(SettlementRow.id))) or 0,
        "last_span_settlement": connection.scalar(select(func.max(SpanSettlementRow.id))) or 0,
    }
    for stream in streams:
        version = stream.version + 1
        connection.execute(update(Stream).where(Stream.id == stream.id).values(version=version))
        connection.execute(
            insert(StateVersion).values(stream_id=stream.id, version=version, **last)
        )


def _compute_states(
    connection: Connection, bundle: str, streams: Sequence[Row[Any]], groups: Sequence[str]
) -> None:
    """Compute and store the states of `groups` of these streams of a bundle."""
    common = connection.scalar(
        select(Stream.id).where(Stream.bundle == bundle, Stream.holder_id == COMMON_ID)
    )
    ids = [common, *(stream.id for stream in streams)]
    for group in groups:
        if group in SPAN_KINDS:
            continue
        totals = _totals(connection, ids, group)
        common_counts = totals.get(common, {})
        levels = levels_of(streams[0], group)
        common_states = compute_states(levels, common_counts)
        for stream in streams:
            holder_totals = totals.get(stream.id, {}) if stream.id != common else {}
            total = dict(common_counts)
            for key, counts in holder_totals.items():
                add_counts(total, key, counts)
            states = compute_states(levels, total) if holder_totals else common_states
            _store_states(connection, stream.id, group, states)
    for kind in SPAN_KINDS:
        _compute_span_states(connection, kind, common, [stream.id for stream in streams])


def _compute_span_states(
    connection: Connection, kind: str, common: int | None, streams: Sequence[int]
) -> None:
    """Compute and store the states of spans, which depend on those of single years too."""
    totals = _totals(connection, [common, *streams], kind)
    counted = select(ExcessCountsRow.stream_id).where(ExcessCountsRow.stream_id.in_(streams))
    with_counts = set(connection.scalars(counted.distinct()))
    states_of_common: dict[tuple[int, float], CellState] | None = None
    for stream in streams:
        is_own = stream in with_counts and stream != common
        if is_own or states_of_common is None:
            total = dict(totals.get(common, {}))
            for key, counts in totals.get(stream, {}).items() if is_own else ():
                add_counts(total, key, counts)
            cells = read_state(connection, stream).cells if total else {}
            followed = {stream} if common is None else {stream, common}
            states = span_states(connection, kind, followed, cells, total)
            if not is_own:
                states_of_common = states
        else:
            states = states_of_common
        _store_states(connection, stream, kind, states)


def _totals(
    connection: Connection, stream_ids: Sequence[int | None], group: str
) -> dict[int | None, dict[HorizonYear, ExcessCounts]]:
    """The counts of a group by stream."""
    totals: dict[int | None, dict[HorizonYear, ExcessCounts]] = {}
    cells = connection.execute(
        select(ExcessCountsRow.__table__).where(
            ExcessCountsRow.stream_id.in_(stream_ids), ExcessCountsRow.group == group
        )
    )
    for cell in cells:
        counts = unpack_counts(cell.counts, cell.missed)
        totals.setdefault(cell.stream_id, {})[cell.horizon, cell.year] = counts
    return totals


def _store_states(
    connection: Connection,
    stream_id: int,
    group: str,
    states: Mapping[tuple[int, float], CellState],
) -> None:
    connection.execute(
        delete(StateRow).where(StateRow.stream_id == stream_id, StateRow.group == group)
    )
    if states:
        rows = [
            {"stream_id": stream_id, "group": group, "horizon": h, "level": c, **asdict(state)}
            for (h, c), state in states.items()
        ]
        connection.execute(insert(StateRow), rows)


def _pack_counts(counts: ExcessCounts) -> dict[str, bytes]:
    return {
        "counts": zlib.compress(counts.counts.astype("<i8").tobytes(), 1),
        "missed": counts.missed.astype("<i8").tobytes(),
    }


def unpack_counts(counts: bytes, missed: bytes) -> ExcessCounts:
    """The counts that a row stores."""
    try:
        by_coverage = np.frombuffer(missed, dtype="<i8").astype(np.int64)
        by_excess = np.frombuffer(zlib.decompress(counts), dtype="<i8").astype(np.int64)
        return ExcessCounts(by_excess.reshape(len(by_coverage), -1), by_coverage)
    except (zlib.error, ValueError):
        raise damaged_error() from None
