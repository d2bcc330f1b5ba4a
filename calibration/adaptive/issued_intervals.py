"""The intervals that a forecast issued, stored so that they can be judged years later.

From the nested prediction sets of a person and horizon the conformity score of any outcome can be
computed: not only whether an interval missed it, but by how much. The sets are deleted as soon as
the outcome is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibrator import Calibrator
from saga.conformal.prediction_sets import NestedSets, grow
from saga.paths import Paths

Array = NDArray[np.float64]
_N_HEADER = 4  # numbers before the edges in packed sets: start, mass, zero_score, scale


@dataclass(frozen=True, eq=False)
class IssuedIntervals:
    """Issued intervals, r rows, one per person and horizon, for L coverages.

    `group` (r,) is the group of the cell that was used. `base` (r, L) are the split thresholds and
    `issued` (r, L) those in force. `nested_sets` are made by `pack_sets`, one per row.
    """

    coverage: tuple[float, ...]
    person_id: NDArray[np.str_]
    origin_year: NDArray[np.int64]
    horizon: NDArray[np.int64]
    group: NDArray[np.str_]
    base: Array
    issued: Array
    nested_sets: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.person_id)


def collect_intervals(
    paths: Paths, split: Calibrator, adapted: Calibrator, horizons: Sequence[int]
) -> IssuedIntervals:
    """The intervals that the `adapted` calibrator issues for recalibrated `paths`.

    A coverage has thresholds only if its cell has seen outcomes at that horizon; otherwise `base`
    and `issued` are NaN. Persons without any threshold are left out, as are years beyond age 64.
    Raises UsageError for raw paths.
    """
    paths.require_recalibrated()
    parts = [_collect_horizon(paths, split, adapted, horizon) for horizon in sorted(set(horizons))]
    names = ("person_id", "origin_year", "horizon", "group", "base", "issued")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    nested_sets = tuple(packed for part in parts for packed in part.nested_sets)
    return IssuedIntervals(split.coverage, nested_sets=nested_sets, **columns)


def _collect_horizon(
    paths: Paths, split: Calibrator, adapted: Calibrator, horizon: int
) -> IssuedIntervals:
    base = split.person_thresholds(paths, horizon)
    in_force = adapted.person_thresholds(paths, horizon)
    samples = paths.earnings[:, horizon - 1]
    is_issued = base.guarantee == "assumption"
    rows = np.flatnonzero(is_issued.any(axis=1) & ~np.isnan(samples).any(axis=1))
    nested_sets: list[bytes] = []
    if len(rows):
        sets = grow(np.sort(samples[rows], axis=1), split.scale)
        nested_sets = pack_sets(sets.with_atom(base.atom_width[rows]))
    return IssuedIntervals(
        split.coverage,
        paths.person_id[rows],
        paths.origin_year[rows].astype(np.int64),
        np.full(len(rows), horizon),
        base.cell[rows],
        np.where(is_issued, base.q, np.nan)[rows],
        np.where(is_issued, in_force.q, np.nan)[rows],
        tuple(nested_sets),
    )


def pack_sets(sets: NestedSets) -> list[bytes]:
    """The nested sets of each row as bytes: little-endian float64, about 600 bytes.

    They are not rounded, because the score of zero can be equal to a threshold.
    """
    header = np.stack(
        [sets.start, sets.mass, sets.zero_score, np.full(len(sets.start), sets.scale)], 1
    )
    table = np.concatenate([header, sets.edges, sets.mass_before_bin], axis=1).astype("<f8")
    return [row.tobytes() for row in table]


def conformity_scores(nested_sets: Sequence[bytes], outcomes: Array) -> Array:
    """The conformity score of each outcome (r,) in its packed sets; see `NestedSets.score`."""
    scores = np.empty(len(nested_sets))
    sizes = np.array([len(blob) for blob in nested_sets])
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        blobs = b"".join(nested_sets[int(row)] for row in rows)
        sets = _unpack_sets(np.frombuffer(blobs, dtype="<f8").reshape(len(rows), -1))
        scores[rows] = sets.score(outcomes[rows])
    return scores


def _unpack_sets(table: Array) -> NestedSets:
    n_intervals = (table.shape[1] - _N_HEADER - 1) // 2
    start, mass, zero_score, scale = table[:, :_N_HEADER].T
    edges = table[:, _N_HEADER : _N_HEADER + n_intervals + 1]
    mass_before_bin = table[:, _N_HEADER + n_intervals + 1 :]
    return NestedSets(
        edges, mass_before_bin, start.astype(np.int64), mass, zero_score, float(scale[0])
    )
