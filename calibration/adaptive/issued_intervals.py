"""What a forecast promised, in the form in which it can be judged years later: thresholds, and the sets that they pick from.

The family of nested sets of one person and horizon is what the model said about that year. With it any outcome gets its score; without it
a miss could be counted, but nobody could say by how much. It is forgotten as soon as the outcome is in.
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
_HEAD = 4  # numbers before the edges: start, mass, atom, scale


@dataclass(frozen=True, eq=False)
class IssuedIntervals:
    """Published sets, one row a person and horizon.

    `person_id`, `origin_year`, `horizon`, `group` (the cell that served): (r,); `base` the split thresholds and `issued`
    those in force, (r, L) for L `levels`; `family`: r packed families of sets.
    """

    levels: tuple[float, ...]
    person_id: NDArray[np.str_]
    origin_year: NDArray[np.int64]
    horizon: NDArray[np.int64]
    group: NDArray[np.str_]
    base: Array
    issued: Array
    family: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.person_id)


def collect_intervals(
    paths: Paths, split: Calibrator, adapted: Calibrator, horizons: Sequence[int]
) -> IssuedIntervals:
    """What recalibrated `paths` (n, H, M) promise at `horizons` under the `adapted` thresholds of the `split` calibrator.

    Only thresholds of cells that have seen outcomes at that horizon are promises: elsewhere `base` and `issued` are NaN. Persons without
    any are left out, as are years beyond age 64.
    """
    parts = [_at(paths, split, adapted, horizon) for horizon in sorted(set(horizons))]
    rows = np.concatenate([alive for alive, *_ in parts])
    return IssuedIntervals(
        split.coverage,
        paths.person_id[rows],
        paths.origin_year[rows].astype(np.int64),
        np.repeat(sorted(set(horizons)), [len(alive) for alive, *_ in parts]),
        np.concatenate([group for _, group, *_ in parts]),
        np.concatenate([base for _, _, base, _, _ in parts]),
        np.concatenate([issued for *_, issued, _ in parts]),
        tuple(blob for *_, families in parts for blob in families),
    )


def _at(
    paths: Paths, split: Calibrator, adapted: Calibrator, horizon: int
) -> tuple[NDArray[np.int64], NDArray[np.str_], Array, Array, list[bytes]]:
    base, issued = (
        split.person_thresholds(paths, horizon),
        adapted.person_thresholds(paths, horizon),
    )
    samples = paths.earnings[:, horizon - 1]
    given = base.guarantee == "assumption"
    alive = np.flatnonzero(given.any(axis=1) & ~np.isnan(samples).any(axis=1))
    family = (
        pack_sets(
            grow(np.sort(samples[alive], axis=1), split.scale).with_atom(base.atom_width[alive])
        )
        if len(alive)
        else []
    )
    q, now = (np.where(given, served.q, np.nan)[alive] for served in (base, issued))
    return alive, base.cell[alive], q, now, family


def pack_sets(family: NestedSets) -> list[bytes]:
    """Each row of a family as bytes: little-endian float64, some 600 bytes; exact, since outcomes of zero tie with thresholds."""
    head = np.stack(
        [family.start, family.mass, family.atom, np.full(len(family.start), family.scale)], axis=1
    )
    table = np.concatenate([head, family.edges, family.entered], axis=1).astype("<f8")
    return [row.tobytes() for row in table]


def conformity_scores(families: Sequence[bytes], outcomes: Array) -> Array:
    """The score of each outcome (r,) in its own packed family; see `NestedSets.score`."""
    scores = np.empty(len(families))
    sizes = np.array([len(blob) for blob in families])
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        table = np.frombuffer(b"".join(families[int(row)] for row in rows), dtype="<f8").reshape(
            len(rows), -1
        )
        cells = (table.shape[1] - _HEAD - 1) // 2
        start, mass, atom, scale = (
            table[:, 0].astype(np.int64),
            table[:, 1],
            table[:, 2],
            float(table[0, 3]),
        )
        edges, entered = table[:, _HEAD : _HEAD + cells + 1], table[:, _HEAD + cells + 1 :]
        scores[rows] = NestedSets(edges, entered, start, mass, atom, scale).score(outcomes[rows])
    return scores
