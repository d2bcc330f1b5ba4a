"""The log of settlements, its counts, and the adaptive state that follows from them.

Single years, path bands and present values are families of one log. Their scores follow from the
forecast probabilities of the outcomes, which are all that the log has of them. Replay computes the
state from the log alone.

Bands and present values follow their marginals, which move with each year's outcomes. So their
thresholds must correct only what the moves leave. Those that were issued before the moves suggest
too large a correction: the moves correct a part of their errors by now. Their ranks in the bundle's
forecast are therefore moved as today's forecasts are, and scored again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from saga.calibration.adaptive.adaptive_state import (
    BAND,
    SPAN_KINDS,
    YEAR,
    AdaptiveState,
    CellKey,
    CellState,
    ExcessCounts,
    compute_states,
)
from saga.calibration.adaptive.database import damaged_error
from saga.calibration.adaptive.issued_intervals import (
    MovedCell,
    Scales,
    cells_of_text,
    ranks_of_outcomes,
    rows_alike,
)
from saga.calibration.adaptive.ledger_tables import (
    COMMON,
    EXCESS_COUNTS,
    ISSUED,
    SETTLEMENT,
    STREAM,
    unpack_numbers,
)
from saga.calibration.adaptive.marginal_moves import (
    LEVELS,
    levels_of_span,
    moved,
    moved_levels,
    unmoved,
)
from sqlalchemy import ColumnElement, Connection, Row, Select, delete, insert, select, update

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.families import PRESENT_VALUE
from saga.conformal.families.path_band import PathBand
from saga.requests import COVERAGE

CellCounts = dict[tuple[str, int, int], ExcessCounts]  # of a group at a horizon, in an outcome year
LevelsOfCell = Callable[[MovedCell], Floats | None]

_ROWS_IN_MEMORY = 5_000


class _Alike(NamedTuple):
    """What entries of the log have in common that were issued alike, see `IssuedInterval`."""

    family: str
    horizon: int
    origin_year: int
    group: str
    base: bytes
    issued: bytes
    in_force: bytes
    cells: str
    sign: int


def update_states(connection: Connection, audit_id: int) -> None:
    """Bring counts and states up to the log, to which a transaction has added."""
    log = connection.execute(_log(ISSUED.c.stream_id, where=[SETTLEMENT.c.audit_id == audit_id]))
    by_stream: dict[int, list[Row[Any]]] = {}
    for row in log:
        by_stream.setdefault(row.stream_id, []).append(row)
    for stream_id, entries in sorted(by_stream.items()):
        stream = connection.execute(select(STREAM).where(STREAM.c.id == stream_id)).one()
        counts = _count(entries, _scales([stream]))
        for (group, horizon, year), new in counts.items():
            cell = {"stream_id": stream_id, "group": group, "horizon": horizon, "year": year}
            _add_to_stored(connection, cell, new)
        _update_followers(connection, stream, {group for group, _, _ in counts})


def _update_followers(connection: Connection, changed: Row[Any], groups: set[str]) -> None:
    """Compute the state of a changed stream, and of those that follow it, and number them.

    All streams of a bundle follow its stream of the common holder. `groups` have new counts.
    """
    is_follower = STREAM.c.bundle == changed.bundle
    if changed.holder != COMMON:
        is_follower &= STREAM.c.holder.in_((COMMON, changed.holder))
    streams = connection.execute(select(STREAM).where(is_follower)).all()
    counted = select(EXCESS_COUNTS.c.stream_id).distinct()
    with_counts = set(connection.scalars(counted))
    computed: dict[tuple[int, ...], dict[CellKey, CellState]] = {}
    for stream in streams:
        if changed.holder not in (COMMON, stream.holder):
            continue
        followed = [s for s in streams if s.holder in (COMMON, stream.holder)]
        ids = tuple(s.id for s in followed if s.id in with_counts)
        if ids not in computed:
            known = read_state(stream).cells
            others = {key: known[key] for key in known if key[0] not in {*groups, *SPAN_KINDS}}
            counts = _read_counts(connection, ids, {*groups, *SPAN_KINDS})
            entries = [ISSUED.c.stream_id.in_(ids)]
            computed[ids] = _cells(connection, counts, others, entries, _scales(followed))
        state = [[*key, *vars(cell).values()] for key, cell in computed[ids].items()]
        values = {"version": stream.version + 1, "state": state}
        connection.execute(update(STREAM).where(STREAM.c.id == stream.id).values(values))


def read_state(stream: Row[Any]) -> AdaptiveState:
    """The state that a stream stores."""
    cells = {
        (group, horizon, coverage): CellState(*[*values, tuple(experts)])
        for group, horizon, coverage, *values, experts in stream.state
    }
    return AdaptiveState(stream.version, cells)


def replay_state(
    connection: Connection, stream: Row[Any], version: int | None = None
) -> AdaptiveState:
    """The state of a stream, computed from the log: today's or that of an earlier `version`.

    Each transaction that added to the log of the stream, or of the common one, made a version.
    """
    is_followed = STREAM.c.bundle == stream.bundle, STREAM.c.holder.in_((stream.holder, COMMON))
    followed = connection.execute(select(STREAM).where(*is_followed)).all()
    entries = [ISSUED.c.stream_id.in_([row.id for row in followed])]
    audit_id = SETTLEMENT.c.audit_id
    versions = select(audit_id).join(ISSUED).where(*entries).distinct().order_by(audit_id)
    reached = connection.scalars(versions).all()[:version]
    if not reached:
        return AdaptiveState(0, {})
    entries.append(audit_id <= reached[-1])
    scales, total = _scales(followed), CellCounts()
    log = connection.execution_options(yield_per=_ROWS_IN_MEMORY).execute(_log(where=entries))
    for batch in log.partitions():
        for cell, new in _count(batch, scales).items():
            _add(total, cell, new)
    known = {cell: new for cell, new in total.items() if new.persons.any()}
    return AdaptiveState(len(reached), _cells(connection, known, {}, entries, scales))


def _cells(
    connection: Connection,
    counts: CellCounts,
    others: Mapping[CellKey, CellState],
    entries: Sequence[ColumnElement[bool]],
    scales: Scales,
) -> dict[CellKey, CellState]:
    """The states of all cells: those of `counts`, and `others` of single years as they are.

    Experts of bands and present values see the scores of the log's `entries` under the moves of the
    single years. The integral counts what the published ones missed.
    """
    cells = dict(others)
    for group in sorted({group for group, _, _ in counts}.difference(SPAN_KINDS)):
        cells |= _states(group, LEVELS, counts)
    of_spans: dict[CellKey, CellState] = {}
    for family in SPAN_KINDS:
        published = {cell: of_cell for cell, of_cell in counts.items() if cell[0] == family}
        if published:
            log = connection.execute(_log(where=[*entries, ISSUED.c.family == family]))
            rescored = _count(log, scales, _levels_in_force(cells))
            seen = {
                cell: ExcessCounts(rescored[cell].counts, of_cell.missed)
                for cell, of_cell in published.items()
            }
            of_spans |= _states(family, COVERAGE, seen)
    return cells | of_spans


def _states(group: str, levels: Sequence[float], counts: CellCounts) -> dict[CellKey, CellState]:
    """The states of the cells of one group."""
    of_group = {(h, year): new for (name, h, year), new in counts.items() if name == group}
    return {(group, *key): cell for key, cell in compute_states(levels, of_group).items()}


def _levels_in_force(cells: Mapping[CellKey, CellState]) -> LevelsOfCell:
    """The probabilities in force of a cell under the states of single years; None without one."""
    state = AdaptiveState(0, cells)
    groups = sorted({group for group, _, _ in cells})

    @cache
    def levels(cell: MovedCell) -> Floats | None:
        if cell is None:
            return None
        horizon, group = cell
        return moved_levels(state, horizon, [*groups, group])[group]

    return levels


def _log(
    *columns: ColumnElement[Any], where: Sequence[ColumnElement[bool]]
) -> Select[tuple[Any, ...]]:
    """Entries of the log in their order: the fields of `_Alike` and the ranks, then `columns`."""
    alike = [ISSUED.c[name] for name in _Alike._fields if name != "sign"]
    query = select(*alike, SETTLEMENT.c.sign, SETTLEMENT.c.ranks, *columns).join_from(
        SETTLEMENT, ISSUED
    )
    return query.where(*where).order_by(SETTLEMENT.c.id)


def _count(
    log: Iterable[Row[Any]], scales: Scales, in_force: LevelsOfCell | None = None
) -> CellCounts:
    """Counts of log entries by cell and last outcome year.

    A single year counts in the group of its cell and among all persons, a band or present value in
    the cell of its family. With `in_force` these are scored as if they had been issued under it.
    """
    ranks_of: dict[_Alike, list[bytes]] = {}
    for row in log:
        ranks_of.setdefault(_Alike(*row[: len(_Alike._fields)]), []).append(row.ranks)
    cells: dict[tuple[str, int, int, int], list[tuple[Floats, Floats, Floats]]] = {}
    for alike, packed in ranks_of.items():
        ranks = unpack_numbers(b"".join(packed), len(packed), -1, 2)
        scores = _scores(alike, ranks, scales, in_force)
        base, issued = (
            np.broadcast_to(unpack_numbers(thresholds), scores.shape)
            for thresholds in (alike.base, alike.issued)
        )
        ended = alike.horizon, alike.origin_year + alike.horizon
        for group in {alike.group, ALL} if alike.family == YEAR else {alike.group}:
            cells.setdefault((group, *ended, alike.sign), []).append((scores, base, issued))
    total: CellCounts = {}
    for (group, horizon, year, sign), parts in cells.items():
        new = ExcessCounts.of(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        _add(total, (group, horizon, year), new if sign == 1 else -new)
    return total


def _scores(alike: _Alike, ranks: Floats, scales: Scales, in_force: LevelsOfCell | None) -> Floats:
    """Scores (n, L) of outcomes with published `ranks` (n, K, 2)."""
    levels = unpack_numbers(alike.in_force, -1, len(LEVELS))
    if alike.family == YEAR:
        of_outcomes = ranks_of_outcomes(*ranks[:, 0].T)
        return np.tile(unmoved(of_outcomes[:, None], levels), len(LEVELS))
    if in_force is not None:
        today = [in_force(cell) for cell in cells_of_text(alike.cells)]
        ranks = moved(unmoved(ranks, levels), levels_of_span(alike.family, today))
    sets = PathBand(scales) if alike.family == BAND else PRESENT_VALUE
    less, p_zero = ranks[..., 0], ranks[..., 1]
    of_years = (sets.joined(sets.rank_scores(less, p_zero, share)) for share in COVERAGE)
    return np.stack([scores[:, -1] for scores in of_years], axis=1)


def _scales(streams: Iterable[Row[Any]]) -> Scales:
    """The scales of bands that streams of one bundle store."""
    return {
        int(horizon): (np.array(knots), np.array(values))
        for stream in streams
        for horizon, (knots, values) in stream.scales.items()
    }


def _add(total: CellCounts, cell: tuple[str, int, int], new: ExcessCounts) -> None:
    total[cell] = total[cell] + new if cell in total else new


def _add_to_stored(connection: Connection, cell: Mapping[str, object], new: ExcessCounts) -> None:
    """Add the counts of new log entries to the stored ones of a cell and year."""
    is_cell = [EXCESS_COUNTS.c[name] == value for name, value in cell.items()]
    stored = connection.execute(select(EXCESS_COUNTS).where(*is_cell)).one_or_none()
    total = new if stored is None else _unpack_counts(stored) + new
    connection.execute(delete(EXCESS_COUNTS).where(*is_cell))
    if total.persons.any():  # otherwise every settlement was taken back
        counts = zlib.compress(total.counts.astype("<i8").tobytes(), 1)
        missed = total.missed.astype("<i8").tobytes()
        connection.execute(insert(EXCESS_COUNTS).values(**cell, counts=counts, missed=missed))


def _read_counts(connection: Connection, stream_ids: Sequence[int], groups: set[str]) -> CellCounts:
    """The counts of groups in streams, added up."""
    is_counted = EXCESS_COUNTS.c.stream_id.in_(stream_ids), EXCESS_COUNTS.c.group.in_(groups)
    total: CellCounts = {}
    for row in connection.execute(select(EXCESS_COUNTS).where(*is_counted)):
        _add(total, (row.group, row.horizon, row.year), _unpack_counts(row))
    return total


def _unpack_counts(row: Row[Any]) -> ExcessCounts:
    """The counts that a row stores. Raises LedgerError if it is damaged."""
    try:
        missed = np.frombuffer(row.missed, dtype="<i8").astype(np.int64)
        counts = np.frombuffer(zlib.decompress(row.counts), dtype="<i8").astype(np.int64)
        return ExcessCounts(counts.reshape(len(missed), -1), missed)
    except (zlib.error, ValueError):
        raise damaged_error() from None


def read_settled(
    connection: Connection, bundle: str, holder: str, horizons: Sequence[int]
) -> pl.DataFrame:
    """The settled outcomes of a holder's forecasts with the bundle of this digest; no persons.

    A row per person, origin year and horizon; what a correction has taken back is left out. Columns
    `year` of the outcome, `horizon`, `group`; `rank`, the probability that the published forecast
    gave to less earnings, and `bundle_rank`, that of the bundle's forecast before it was moved,
    both random within the probability of zero; `p_zero`, the published probability of zero; `zero`,
    whether earnings were 0.
    """
    is_wanted = [
        ISSUED.c.stream_id.in_(_stream_ids(bundle, holder)),
        ISSUED.c.family == YEAR,
        ISSUED.c.horizon.in_(horizons),
    ]
    log = connection.execute(_log(SETTLEMENT.c.interval_id, where=is_wanted))
    last = {row.interval_id: row for row in log}
    rows = [row for row in last.values() if row.sign == 1]
    probability, p_zero = unpack_numbers(b"".join(row.ranks for row in rows), -1, 2).T
    rank = ranks_of_outcomes(probability, p_zero)
    bundle_rank = np.empty(len(rows))
    for in_force, index in rows_alike(row.in_force for row in rows).items():
        levels = unpack_numbers(in_force, 1, -1)
        bundle_rank[index] = unmoved(rank[index, None], levels)[:, 0]
    known = [(row.origin_year + row.horizon, row.horizon, row.group) for row in rows]
    schema = {"year": pl.Int64, "horizon": pl.Int64, "group": pl.String}
    return pl.DataFrame(known, schema, orient="row").with_columns(
        rank=rank, bundle_rank=bundle_rank, p_zero=p_zero, zero=probability == 0
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
    of_spans = EXCESS_COUNTS.c.group.in_(SPAN_KINDS)
    of_holder = EXCESS_COUNTS.c.stream_id.in_(_stream_ids(bundle, holder))
    query = select(EXCESS_COUNTS).where(of_spans, of_holder)
    order = EXCESS_COUNTS.c.group, EXCESS_COUNTS.c.horizon, EXCESS_COUNTS.c.year
    table = []
    for row in connection.execute(query.order_by(*order)):
        counts = _unpack_counts(row)
        persons = counts.persons
        inside = tuple(
            1 - missed / n if n else None
            for missed, n in zip(counts.missed.tolist(), persons.tolist(), strict=True)
        )
        table.append(SpanCoverage(row.group, row.horizon, row.year, int(persons.max()), inside))
    return table


def _stream_ids(bundle: str, holder: str) -> Select[tuple[int]]:
    return select(STREAM.c.id).where(STREAM.c.bundle == bundle, STREAM.c.holder == holder)
