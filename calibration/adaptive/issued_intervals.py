"""The intervals that a forecast issued, stored so that they can be judged years later.

From the recalibrated distribution of a person and horizon the conformity scores of any outcome can
be computed: not only whether an interval missed it, but by how much. The distribution is deleted as
soon as the outcome is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibrator import Calibrator
from saga.conformal.prediction_sets import scores_of
from saga.distributions import Marginals

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class IssuedIntervals:
    """Issued intervals, r rows, one per person and horizon, for L coverages.

    `group` (r,) is the group of the cell that was used. `base` (r, L) are the split thresholds and
    `issued` (r, L) those in force, of each coverage by itself: before sets are nested. `marginals`
    are made by `pack_marginals`, one per row.
    """

    coverage: tuple[float, ...]
    person_id: NDArray[np.str_]
    origin_year: NDArray[np.int64]
    horizon: NDArray[np.int64]
    group: NDArray[np.str_]
    base: Array
    issued: Array
    marginals: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.person_id)


def collect_intervals(
    marginals: Marginals, split: Calibrator, adapted: Calibrator, horizons: Sequence[int]
) -> IssuedIntervals:
    """The intervals that the `adapted` calibrator issues for recalibrated `marginals`.

    A coverage has thresholds only if its cell has seen outcomes at that horizon; otherwise `base`
    and `issued` are NaN. Persons without any threshold are left out, as are years beyond age 64.
    Raises UsageError for raw marginals.
    """
    marginals.require_recalibrated()
    ascending = sorted(set(horizons))
    parts = [_collect_horizon(marginals, split, adapted, horizon) for horizon in ascending]
    names = ("person_id", "origin_year", "horizon", "group", "base", "issued")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    packed = tuple(blob for part in parts for blob in part.marginals)
    return IssuedIntervals(split.coverage, marginals=packed, **columns)


def _collect_horizon(
    marginals: Marginals, split: Calibrator, adapted: Calibrator, horizon: int
) -> IssuedIntervals:
    base = split.person_thresholds(marginals, horizon)
    in_force = adapted.person_thresholds(marginals, horizon)
    is_issued = base.guarantee == "assumption"
    rows = np.flatnonzero(is_issued.any(axis=1) & marginals.exists[:, horizon - 1])
    return IssuedIntervals(
        split.coverage,
        marginals.person_id[rows],
        marginals.origin_year[rows].astype(np.int64),
        np.full(len(rows), horizon),
        base.cell[rows],
        np.where(is_issued, base.separate, np.nan)[rows],
        np.where(is_issued, in_force.separate, np.nan)[rows],
        tuple(pack_marginals(marginals.at_horizon(horizon).take(rows))),
    )


def pack_marginals(marginals: Marginals) -> list[bytes]:
    """The distributions (n, 1) of one year as bytes, some 800 a person.

    The probability of zero is a float64, because zero outcomes tie; grid and CDF are float32.
    """
    table = np.empty(len(marginals), dtype=_packed(marginals.cdf.shape[2]))
    table["p_zero"] = marginals.p_zero[:, 0]
    table["grid"], table["cdf"] = marginals.grid[:, 0], marginals.cdf[:, 0]
    return [row.tobytes() for row in table]


def unpack_marginals(blobs: Sequence[bytes]) -> Iterator[tuple[NDArray[np.int64], Marginals]]:
    """The packed distributions (n, 1) by grid size, each part with its index in `blobs`."""
    sizes = np.array([len(blob) for blob in blobs])
    for size in np.unique(sizes).tolist():
        index = np.flatnonzero(sizes == size)
        packed = _packed((size - 8) // 8)
        table = np.frombuffer(b"".join(blobs[i] for i in index.tolist()), dtype=packed)
        unknown = np.zeros(len(index), dtype=np.int64)
        yield (
            index,
            Marginals(
                np.full(len(index), "", dtype=np.str_),
                unknown,
                unknown,
                table["grid"][:, None],
                table["cdf"][:, None],
                table["p_zero"][:, None],
                recalibrated=True,
            ),
        )


def _packed(points: int) -> np.dtype[np.void]:
    return np.dtype([("p_zero", "<f8"), ("grid", "<f4", points), ("cdf", "<f4", points)])


def conformity_scores(less: Array, p_zero: Array, coverage: Sequence[float]) -> Array:
    """Scores (r, L) of outcomes for each coverage, from their `probability_of_less` (r,)."""
    return np.stack([scores_of(less, p_zero, share) for share in coverage], axis=-1)
