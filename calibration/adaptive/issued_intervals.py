"""The forecasts that were issued, stored so that they can be judged years later.

The distribution of a person and horizon is stored, from which the rank of any outcome can be
computed. What is judged are upper limits at LEVELS: 90 % of the outcomes should be below the limit
at level 0.9. The distribution is encrypted as soon as the outcome is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import YEAR, AdaptiveState
from saga.calibration.adaptive.ledger_tables import pack_thresholds
from saga.calibration.adaptive.marginal_moves import LEVELS, followed_groups, move_of, moved_levels

from saga.conformal.calibrator import Calibrator
from saga.distributions import Marginals
from saga.keyed_random import uniform_each

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class IssuedIntervals:
    """Issued limits, r rows, one per person and horizon, for L coverages.

    `group` (r,) is the group of the cell that was used. `base` (r, L) are the coverages as
    probabilities of the bundle's forecast, and `issued` (r, L) the moved probabilities; those of
    different coverages may cross. `marginals` are the moved distributions, made by
    `pack_marginals`, one per row.
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

    def entries(self, rows: range) -> list[dict[str, Any]]:
        """Columns of the table of issued intervals, for some of the rows."""
        return [
            {
                "origin_year": int(self.origin_year[row]),
                "family": YEAR,
                "horizon": int(self.horizon[row]),
                "group": str(self.group[row]),
                "base": pack_thresholds(self.base[row]),
                "issued": pack_thresholds(self.issued[row]),
                "distribution": self.marginals[row],
                "cells": None,
                "levels": None,
            }
            for row in rows
        ]


def collect_intervals(
    marginals: Marginals, adapted: Calibrator, horizons: Sequence[int], state: AdaptiveState
) -> IssuedIntervals:
    """The limits that the calibrator `adapted` by a state issues with recalibrated `marginals`.

    Left out are persons whose group has no threshold fitted on outcomes of this horizon, and years
    beyond age 64. Raises UsageError for raw marginals.
    """
    marginals.require_recalibrated()
    ascending = sorted(set(horizons))
    parts = [_collect_horizon(marginals, adapted, horizon, state) for horizon in ascending]
    names = ("person_id", "origin_year", "horizon", "group", "base", "issued")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    packed = tuple(blob for part in parts for blob in part.marginals)
    return IssuedIntervals(LEVELS, marginals=packed, **columns)


def _collect_horizon(
    marginals: Marginals, adapted: Calibrator, horizon: int, state: AdaptiveState
) -> IssuedIntervals:
    cell = np.full(len(marginals), "", dtype=object)
    for groups, members in adapted.fitted.candidate_cells(marginals):
        cell[members] = adapted.fitted.threshold_group(horizon, groups) or ""
    rows = np.flatnonzero((cell != "") & marginals.exists[:, horizon - 1])
    in_force = moved_levels(state, horizon, followed_groups(adapted, horizon))
    group = cell[rows].astype(np.str_)
    return IssuedIntervals(
        LEVELS,
        marginals.person_id[rows],
        marginals.origin_year[rows].astype(np.int64),
        np.full(len(rows), horizon),
        group,
        np.tile(LEVELS, (len(rows), 1)),
        np.array([in_force[name] for name in group.tolist()]).reshape(len(rows), len(LEVELS)),
        tuple(pack_marginals(marginals.at_horizon(horizon).take(rows))),
    )


def pack_marginals(marginals: Marginals) -> list[bytes]:
    """The distributions (n, 1) of one year as bytes, about 800 per person.

    The probability of zero is a float64, because zero outcomes tie; grid and CDF are float32.
    """
    table = np.empty(len(marginals), dtype=_packed_type(marginals.cdf.shape[2]))
    table["p_zero"] = marginals.p_zero[:, 0]
    table["grid"], table["cdf"] = marginals.grid[:, 0], marginals.cdf[:, 0]
    return [row.tobytes() for row in table]


def unpack_marginals(blobs: Sequence[bytes]) -> Iterator[tuple[NDArray[np.int64], Marginals]]:
    """The packed distributions (n, 1) by grid size, each part with its index in `blobs`."""
    sizes = np.array([len(blob) for blob in blobs])
    for size in np.unique(sizes).tolist():
        index = np.flatnonzero(sizes == size)
        packed = _packed_type((size - 8) // 8)
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


def _packed_type(points: int) -> np.dtype[np.void]:
    return np.dtype([("p_zero", "<f8"), ("grid", "<f4", points), ("cdf", "<f4", points)])


def ranks_of_outcomes(less: Array, p_zero: Array) -> Array:
    """Forecast probability of each outcome's rank (r,), from `probability_of_less` and `p_zero`.

    Zero outcomes have a random part of the probability of zero. The random number is a hash of
    that probability, so that the log alone gives the ranks again.
    """
    random = uniform_each([value.hex() for value in p_zero.tolist()], "rank-of-zero")
    return np.where(less > 0, less, random * p_zero)


def unmoved_ranks(ranks: Array, issued: Array) -> Array:
    """The ranks (r,) under the distributions before the moves that `issued` (r, L) describe."""
    unmoved = np.empty(len(ranks))
    levels, index = np.unique(issued, axis=0, return_inverse=True)
    for i, in_force in enumerate(levels):
        rows = index.ravel() == i
        knots, values = move_of(in_force)
        unmoved[rows] = np.interp(ranks[rows], values, knots)
    return unmoved
