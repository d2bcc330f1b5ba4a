"""The log of settlements, its counts, and the adaptive state that follows from them.

Intervals of single years, path bands and present values are families of one log. Their scores
follow from the forecast probabilities of the outcomes, which are all that the log has of them.
Replay computes the state from the log alone.

Bands and present values follow their marginals, which move with each year's outcomes. So their
thresholds must correct only what the moves leave. Those that were issued before the moves suggest
too large a correction: the moves correct a part of their errors by now. Their ranks in the bundle's
forecast are therefore moved as today's forecasts are, and scored again.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import (
    BAND,
    PRESENT_VALUE,
    SPAN_KINDS,
    YEAR,
    AdaptiveState,
    CellState,
    Counts,
    ExcessCounts,
    compute_states,
)
from saga.calibration.adaptive.database import damaged_error
from saga.calibration.adaptive.holder_streams import read_state, state_of
from saga.calibration.adaptive.issued_intervals import (
    ranks_of_outcomes,
    unmoved_ranks,
    unpack_marginals,
)
from saga.calibration.adaptive.issued_spans import (
    band_scores_of,
    cells_of_text,
    judge_band,
    judge_value,
    levels_of_span,
    moved,
    span_scores,
    unmoved,
)
from saga.calibration.adaptive.ledger_tables import (
    COMMON_ID,
    BandScaleRow,
    ExcessCountsRow,
    IssuedIntervalRow,
    SettlementRow,
    StateRow,
    StateVersion,
    Stream,
    pack_thresholds,
    unpack_thresholds,
)
from saga.calibration.adaptive.marginal_moves import LEVELS, moved_levels
from sqlalchemy import Connection, Row, delete, func, insert, select, true, update

from saga.conformal.calibration_table import ALL
from saga.conformal.families.set_family import probability_of_less
from saga.requests import COVERAGE

Array = NDArray[np.float64]
IssuedRow = Row[Any]  # a row of the table of issued intervals
HorizonYear = tuple[int, int]  # (horizon or number of years, last outcome year)
CountsByGroup = dict[str, dict[HorizonYear, ExcessCounts]]
Scales = Mapping[int, tuple[Array, Array]]  # of bands, by horizon

_ROWS_IN_MEMORY = 5_000


@dataclass(frozen=True)
class LogEntry:
    """An issued interval and the packed ranks of its outcomes, see `SettlementRow`.

    `sign` is 1 for a settlement and -1 to take an earlier one back.
    """

    row: IssuedRow
    ranks: bytes
    sign: int = 1


def judge(rows: Sequence[IssuedRow], amounts: Sequence[Array]) -> list[LogEntry]:
    """The log entries of waiting intervals and the outcomes (K,) of their years."""
    ranks = [b""] * len(rows)
    single = [i for i, row in enumerate(rows) if row.family == YEAR]
    outcomes = np.array([amounts[i][0] for i in single])
    for index, marginals in unpack_marginals([rows[i].distribution for i in single]):
        less = probability_of_less(marginals, outcomes[index, None])[:, 0]
        pairs = np.stack([less, marginals.p_zero[:, 0]], axis=1)
        for i, pair in zip(index.tolist(), pairs, strict=True):
            ranks[single[i]] = pack_thresholds(pair)
    of_span = {BAND: judge_band, PRESENT_VALUE: judge_value}
    for i, row in enumerate(rows):
        if row.family != YEAR:
            ranks[i] = pack_thresholds(of_span[row.family](row.distribution, amounts[i]))
    return [LogEntry(row, packed) for row, packed in zip(rows, ranks, strict=True)]


def write_log(connection: Connection, entries: Sequence[LogEntry], audit_id: int) -> None:
    """Add entries to the log, and update counts and states."""
    by_stream: dict[int, list[LogEntry]] = {}
    for entry in entries:
        by_stream.setdefault(entry.row.stream_id, []).append(entry)
    for stream_id, of_stream in sorted(by_stream.items()):
        connection.execute(
            insert(SettlementRow),
            [
                {
                    "interval_id": entry.row.id,
                    "ranks": entry.ranks,
                    "sign": entry.sign,
                    "audit_id": audit_id,
                }
                for entry in of_stream
            ],
        )
        groups = count_entries(of_stream, read_scales(connection, [stream_id]))
        for group, counts in groups.items():
            for (horizon, year), cell_counts in counts.items():
                _add_new_counts(connection, stream_id, group, horizon, year, cell_counts)
        stream = connection.execute(select(Stream.__table__).where(Stream.id == stream_id)).one()
        _update_states(connection, stream, sorted(groups))


def count_entries(entries: Iterable[LogEntry], scales: Mapping[int, Scales]) -> CountsByGroup:
    """Counts of log entries: group -> (horizon, last outcome year) -> counts.

    A single year counts in the group of its cell and among all persons, a band or present value in
    the cell of its family. `scales` are those of bands, by stream.
    """
    alike: dict[tuple[str, int, int], list[LogEntry]] = {}
    for entry in entries:
        row = entry.row
        alike.setdefault((row.family, row.horizon, row.stream_id), []).append(entry)
    total: CountsByGroup = {}
    for (family, _, stream_id), same in alike.items():
        base, issued = (
            np.stack([unpack_thresholds(getattr(entry.row, name)) for entry in same])
            for name in ("base", "issued")
        )
        ranks = _unpack_ranks([entry.ranks for entry in same])
        if family == YEAR:
            of_outcomes = ranks_of_outcomes(*ranks[:, 0].T)
            scores = np.tile(unmoved_ranks(of_outcomes, issued)[:, None], len(LEVELS))
        else:
            scores = _scores(family, ranks, scales.get(stream_id, {}))
        cells: dict[tuple[str, HorizonYear, int], list[int]] = {}
        for i, entry in enumerate(same):
            key = entry.row.horizon, entry.row.origin_year + entry.row.horizon
            for group in {entry.row.group, ALL} if family == YEAR else {family}:
                cells.setdefault((group, key, entry.sign), []).append(i)
        for (group, key, sign), index in cells.items():
            new = ExcessCounts.of(scores[index], base[index], issued[index])
            _add_counts(total.setdefault(group, {}), key, new if sign == 1 else -new)
    return total


def _unpack_ranks(packed: Sequence[bytes]) -> Array:
    return np.frombuffer(b"".join(packed), dtype="<f8").reshape(len(packed), -1, 2)


def _scores(family: str, ranks: Array, scales: Scales) -> Array:
    """Scores (n, L) of bands or present values with `ranks` (n, K, 2)."""
    if family == BAND:
        scores = band_scores_of(ranks, scales)
        return span_scores(family, scores, np.zeros(len(scores)))
    return span_scores(family, ranks[:, 0, 0], ranks[:, 0, 1])


def _add_counts(
    total: dict[HorizonYear, ExcessCounts], key: HorizonYear, new: ExcessCounts
) -> None:
    total[key] = total[key] + new if key in total else new


def read_scales(connection: Connection, streams: Collection[int | None]) -> dict[int, Scales]:
    """The scales of bands, stream -> horizon -> knots and values."""
    rows = connection.execute(
        select(BandScaleRow.__table__).where(BandScaleRow.stream_id.in_(streams))
    )
    scales: dict[int, dict[int, tuple[Array, Array]]] = {}
    for row in rows:
        knots, values = unpack_thresholds(row.knots), unpack_thresholds(row.values)
        scales.setdefault(row.stream_id, {})[row.horizon] = knots, values
    return dict(scales)


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
    followed = connection.scalars(
        select(Stream.id).where(
            Stream.bundle == stream.bundle, Stream.holder_id.in_((stream.holder_id, COMMON_ID))
        )
    ).all()
    scales = read_scales(connection, followed)
    log = (
        select(IssuedIntervalRow.__table__, SettlementRow.ranks, SettlementRow.sign)
        .join(SettlementRow, SettlementRow.interval_id == IssuedIntervalRow.id)
        .where(IssuedIntervalRow.stream_id.in_(followed), SettlementRow.id <= last.last_settlement)
        .order_by(SettlementRow.id)
    )
    rows = connection.execution_options(yield_per=_ROWS_IN_MEMORY).execute(log)
    total: CountsByGroup = {}
    for batch in rows.partitions():
        entries = [LogEntry(row, row.ranks, row.sign) for row in batch]
        for group, counts in count_entries(entries, scales).items():
            for key, new in counts.items():
                _add_counts(total.setdefault(group, {}), key, new)
    known = {
        group: {key: of_cell for key, of_cell in counts.items() if of_cell.persons.any()}
        for group, counts in total.items()
    }
    cells = {
        (group, h, level): cell
        for group, counts in known.items()
        if group not in SPAN_KINDS
        for (h, level), cell in compute_states(LEVELS, counts).items()
    }
    of_spans = {
        (family, years, share): cell
        for family in SPAN_KINDS
        for (years, share), cell in _span_states(
            connection, family, followed, cells, known.get(family, {}), last.last_settlement
        ).items()
    }
    return state_of(last.version, cells | of_spans)


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
    common = connection.scalar(
        select(Stream.id).where(Stream.bundle == changed.bundle, Stream.holder_id == COMMON_ID)
    )
    ids = [stream.id for stream in streams]
    for group in groups:
        if group not in SPAN_KINDS:
            _compute_states(connection, group, common, ids)
    for family in SPAN_KINDS:  # they depend on the states of single years
        _compute_span_states(connection, family, common, ids)
    last = connection.scalar(select(func.max(SettlementRow.id))) or 0
    for stream in streams:
        version = stream.version + 1
        connection.execute(update(Stream).where(Stream.id == stream.id).values(version=version))
        connection.execute(
            insert(StateVersion).values(stream_id=stream.id, version=version, last_settlement=last)
        )


def _compute_states(
    connection: Connection, group: str, common: int | None, streams: Sequence[int]
) -> None:
    """Compute and store the states of a group of single years."""
    totals = _totals(connection, [common, *streams], group)
    common_counts = totals.get(common, {})
    common_states = compute_states(LEVELS, common_counts)
    for stream in streams:
        of_holder = totals.get(stream, {}) if stream != common else {}
        states = (
            compute_states(LEVELS, _pooled(common_counts, of_holder))
            if of_holder
            else common_states
        )
        _store_states(connection, stream, group, states)


def _compute_span_states(
    connection: Connection, family: str, common: int | None, streams: Sequence[int]
) -> None:
    """Compute and store the states of bands or present values."""
    totals = _totals(connection, [common, *streams], family)
    counted = select(ExcessCountsRow.stream_id).where(ExcessCountsRow.stream_id.in_(streams))
    with_counts = set(connection.scalars(counted.distinct()))
    states_of_common: dict[tuple[int, float], CellState] | None = None
    for stream in streams:
        is_own = stream in with_counts and stream != common
        states = states_of_common
        if is_own or states is None:
            of_holder = totals.get(stream, {}) if is_own else {}
            total = _pooled(totals.get(common, {}), of_holder)
            cells = read_state(connection, stream).cells if total else {}
            followed = {stream} if common is None else {stream, common}
            states = _span_states(connection, family, followed, cells, total)
            states_of_common = states_of_common if is_own else states
        _store_states(connection, stream, family, states)


def _pooled(
    common: Mapping[HorizonYear, ExcessCounts], of_holder: Mapping[HorizonYear, ExcessCounts]
) -> dict[HorizonYear, ExcessCounts]:
    total = dict(common)
    for key, counts in of_holder.items():
        _add_counts(total, key, counts)
    return total


def _span_states(
    connection: Connection,
    family: str,
    streams: Collection[int],
    cells: Mapping[tuple[str, int, float], CellState],
    published: Mapping[HorizonYear, ExcessCounts],
    last: int | None = None,
) -> dict[tuple[int, float], CellState]:
    """The states of bands or present values, from the log of `streams`.

    They are keyed (number of years, coverage). Experts see the scores under the moves of `cells`,
    the states of single years. The integral counts what the `published` ones missed. `last` is the
    last entry of the log to read.
    """
    if not published:
        return {}
    counts = _rescored(connection, family, streams, cells, last)
    return compute_states(
        COVERAGE,
        {key: ExcessCounts(counts[key], of_key.missed) for key, of_key in published.items()},
    )


def _rescored(
    connection: Connection,
    family: str,
    streams: Collection[int],
    cells: Mapping[tuple[str, int, float], CellState],
    last: int | None,
) -> dict[HorizonYear, Counts]:
    """Bands or present values by excess under the moves in force, as in `ExcessCounts`."""
    interval = IssuedIntervalRow
    log = (
        select(
            interval.stream_id,
            interval.horizon,
            interval.origin_year,
            interval.base,
            interval.cells,
            interval.levels,
            SettlementRow.sign,
            SettlementRow.ranks,
        )
        .join(SettlementRow, SettlementRow.interval_id == interval.id)
        .where(interval.stream_id.in_(streams), interval.family == family)
    )
    if last is not None:
        log = log.where(SettlementRow.id <= last)
    alike: dict[tuple[Any, ...], list[bytes]] = {}
    for *cell, packed in connection.execute(log):
        alike.setdefault(tuple(cell), []).append(packed)
    in_force, scales = _LevelsInForce(cells), read_scales(connection, streams)
    total: dict[HorizonYear, Counts] = {}
    for (stream, years, origin, thresholds, text, levels, sign), same in alike.items():
        before = unmoved(_unpack_ranks(same), unpack_thresholds(levels).reshape(-1, len(LEVELS)))
        today = levels_of_span(family, [in_force.of(cell) for cell in cells_of_text(text)])
        scores = _scores(family, moved(before, today), scales.get(stream, {}))
        base = np.tile(unpack_thresholds(thresholds), (len(scores), 1))
        counts = ExcessCounts.of(scores, base, base).counts
        ended = years, origin + years
        total[ended] = total.get(ended, np.zeros_like(counts)) + sign * counts
    return total


class _LevelsInForce:
    """The probabilities in force of each cell under the states of single years."""

    def __init__(self, cells: Mapping[tuple[str, int, float], CellState]) -> None:
        self._state = AdaptiveState(0, None, cells)
        self._groups = sorted({group for group, _, _ in cells if group not in SPAN_KINDS})
        self._known: dict[int, dict[str, Array]] = {}

    def of(self, cell: tuple[int, str] | None) -> Array | None:
        """Those of a cell, None without a move."""
        if cell is None:
            return None
        horizon, group = cell
        if horizon not in self._known:
            self._known[horizon] = moved_levels(self._state, horizon, self._groups)
        of_horizon = self._known[horizon]
        if group not in of_horizon:
            of_horizon |= moved_levels(self._state, horizon, [group])
        return of_horizon[group]


def _add_new_counts(
    connection: Connection, stream_id: int, group: str, horizon: int, year: int, new: ExcessCounts
) -> None:
    """Add the counts of new log entries to the stored ones of a cell and year."""
    cell = {"stream_id": stream_id, "group": group, "horizon": horizon, "year": year}
    is_cell = [getattr(ExcessCountsRow, column) == value for column, value in cell.items()]
    before = connection.execute(
        select(ExcessCountsRow.counts, ExcessCountsRow.missed).where(*is_cell)
    ).one_or_none()
    if before is None:
        connection.execute(insert(ExcessCountsRow).values(**cell, **_pack_counts(new)))
        return
    total = unpack_counts(*before) + new
    if total.persons.any():
        connection.execute(update(ExcessCountsRow).where(*is_cell).values(**_pack_counts(total)))
    else:  # every settlement was taken back
        connection.execute(delete(ExcessCountsRow).where(*is_cell))


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
            {"stream_id": stream_id, "group": group, "horizon": h, "coverage": c, **asdict(state)}
            for (h, c), state in states.items()
        ]
        connection.execute(insert(StateRow), rows)


def _pack_counts(counts: ExcessCounts) -> dict[str, bytes]:
    return {
        "counts": zlib.compress(counts.counts.astype("<i8").tobytes(), 1),
        "missed": counts.missed.astype("<i8").tobytes(),
    }


def unpack_counts(counts: bytes, missed: bytes) -> ExcessCounts:
    """The counts that a row stores. Raises LedgerError if it is damaged."""
    try:
        by_coverage = np.frombuffer(missed, dtype="<i8").astype(np.int64)
        by_excess = np.frombuffer(zlib.decompress(counts), dtype="<i8").astype(np.int64)
        return ExcessCounts(by_excess.reshape(len(by_coverage), -1), by_coverage)
    except (zlib.error, ValueError):
        raise damaged_error() from None
