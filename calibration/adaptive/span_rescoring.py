"""Scores of settled spans under the moves in force, as if they had been issued today.

Bands and present values follow their marginals, which move with each year's outcomes. So their
thresholds must correct only what the moves leave. Spans that were issued before the moves suggest
too large a correction: the moves correct a part of their errors by now. The log has their ranks in
the bundle's forecast. Here these are moved as today's forecasts are, and scored again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import (
    BAND,
    SPAN_KINDS,
    AdaptiveState,
    CellState,
    Counts,
    ExcessCounts,
    compute_states,
)
from saga.calibration.adaptive.issued_spans import (
    band_scores_of,
    cells_of_text,
    levels_of_span,
    moved,
    span_scores,
)
from saga.calibration.adaptive.ledger_tables import (
    BandScaleRow,
    SpanRow,
    SpanSettlementRow,
    unpack_thresholds,
)
from saga.calibration.adaptive.marginal_moves import moved_levels
from sqlalchemy import Connection, select

from saga.requests import COVERAGE

Scales = dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]


def read_scales(connection: Connection, stream_id: int) -> Scales:
    """The band scales of a stream, by horizon."""
    rows = connection.execute(
        select(BandScaleRow.__table__).where(BandScaleRow.stream_id == stream_id)
    )
    return {
        row.horizon: (unpack_thresholds(row.knots), unpack_thresholds(row.values)) for row in rows
    }


def span_states(
    connection: Connection,
    kind: str,
    streams: Collection[int],
    cells: Mapping[tuple[str, int, float], CellState],
    published: Mapping[tuple[int, int], ExcessCounts],
    last_span: int | None = None,
) -> dict[tuple[int, float], CellState]:
    """The states of bands or present values, from the log of `streams`.

    They are keyed (number of years, coverage). Experts see the scores under the moves of `cells`,
    the states of single years. The integral counts what the `published` spans missed. `last_span`
    is the last entry of the log to read.
    """
    if not published:
        return {}
    counts = _rescored(connection, kind, streams, cells, last_span)
    return compute_states(
        COVERAGE,
        {key: ExcessCounts(counts[key], of_key.missed) for key, of_key in published.items()},
    )


def _rescored(
    connection: Connection,
    kind: str,
    streams: Collection[int],
    cells: Mapping[tuple[str, int, float], CellState],
    last_span: int | None,
) -> dict[tuple[int, int], Counts]:
    """Spans by excess: (number of years, last outcome year) -> counts, as in `ExcessCounts`."""
    log = (
        select(
            SpanRow.stream_id,
            SpanRow.years,
            SpanRow.origin_year,
            SpanRow.base,
            SpanRow.cells,
            SpanSettlementRow.sign,
            SpanSettlementRow.ranks,
        )
        .join(SpanSettlementRow, SpanSettlementRow.span_id == SpanRow.id)
        .where(SpanRow.stream_id.in_(streams), SpanRow.kind == kind)
    )
    if last_span is not None:
        log = log.where(SpanSettlementRow.id <= last_span)
    alike: dict[tuple[Any, ...], list[bytes]] = {}
    for *cell, packed_ranks in connection.execute(log):
        alike.setdefault(tuple(cell), []).append(packed_ranks)
    levels = _LevelsInForce(cells)
    banded = {key[0] for key in alike} if kind == BAND else set()
    scales = {stream: read_scales(connection, stream) for stream in banded}
    total: dict[tuple[int, int], Counts] = {}
    for (stream, years, origin, thresholds, text, sign), packed in alike.items():
        ranks = np.frombuffer(b"".join(packed), dtype="<f8").reshape(len(packed), -1, 2)
        in_force = levels_of_span(kind, [levels.of(cell) for cell in cells_of_text(text)])
        ranks = moved(ranks, in_force)
        probability, p_zero = ranks[:, 0, 0], ranks[:, 0, 1]
        if kind == BAND:
            probability = band_scores_of(ranks, scales[stream])
        scores = span_scores(kind, probability, p_zero)
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
        self._known: dict[int, dict[str, NDArray[np.float64]]] = {}

    def of(self, cell: tuple[int, str] | None) -> NDArray[np.float64] | None:
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
