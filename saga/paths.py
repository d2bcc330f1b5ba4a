"""Simulated futures of persons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from saga.errors import UsageError
from saga.schema import MAX_AGE


@dataclass(frozen=True, eq=False)
class Paths:
    """M simulated futures of n persons over horizons 1..H.

    Path k of all persons shares one macro future, so sums over persons are taken path by path.

    Args:
        person_id: Text, shape (n,).
        birth_year: Shape (n,).
        origin_year: Last observed year, shape (n,).
        earnings: Real SEK a year, shape (n, H, M), NaN beyond age 64.
        groups: Name of a grouping -> labels (n,) at the origin, as in `saga.data.groups`.
        conditioned: Whether the macro series follow a scenario instead of the bundle's process.
        recalibrated: Whether a calibrator's maps have been applied. Raw paths serve to fit a
            calibrator; prediction sets, limits, bands and tables need recalibrated paths.

    Raises:
        ValueError: If the shapes do not agree.
    """

    person_id: NDArray[np.str_]
    birth_year: NDArray[np.int64]
    origin_year: NDArray[np.int64]
    earnings: NDArray[np.float32]
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    conditioned: bool = False
    recalibrated: bool = False

    def __post_init__(self) -> None:
        n = len(self.person_id)
        lengths = {len(self.earnings), len(self.birth_year), len(self.origin_year)}
        if self.earnings.ndim != 3 or lengths != {n}:
            raise ValueError(
                f"paths of {n} persons need birth and origin years of shape ({n},) and earnings "
                f"of shape ({n}, horizons, paths); got {self.birth_year.shape}, "
                f"{self.origin_year.shape} and {self.earnings.shape}"
            )

    def __len__(self) -> int:
        return len(self.person_id)

    @property
    def n_horizons(self) -> int:
        """H, the last horizon."""
        return int(self.earnings.shape[1])

    @property
    def n_paths(self) -> int:
        """M, the number of paths per person."""
        return int(self.earnings.shape[2])

    @property
    def years(self) -> NDArray[np.int64]:
        """Calendar years of the horizons, shape (n, H)."""
        return self.origin_year[:, None].astype(np.int64) + np.arange(1, self.n_horizons + 1)

    @property
    def within_age(self) -> NDArray[np.bool_]:
        """Whether the person is at most 64 in that year, shape (n, H)."""
        return self.years - self.birth_year[:, None] <= MAX_AGE

    def take(self, rows: NDArray[np.generic] | slice) -> Paths:
        """The paths of a subset of persons: an index, mask or slice over the first axis."""
        return replace(
            self,
            person_id=self.person_id[rows],
            birth_year=self.birth_year[rows],
            origin_year=self.origin_year[rows],
            earnings=self.earnings[rows],
            groups={name: labels[rows] for name, labels in self.groups.items()},
        )

    @classmethod
    def joined(cls, parts: Sequence[Paths]) -> Paths:
        """Consecutive blocks of persons as one; all with the same horizons, paths and groupings.

        Raises:
            ValueError: If raw and recalibrated paths are mixed.
        """
        if len({part.recalibrated for part in parts}) > 1:
            raise ValueError("raw and recalibrated paths cannot be joined")
        return cls(
            np.concatenate([part.person_id for part in parts]),
            np.concatenate([part.birth_year for part in parts]),
            np.concatenate([part.origin_year for part in parts]),
            np.concatenate([part.earnings for part in parts]),
            {
                name: np.concatenate([part.groups[name] for part in parts])
                for name in parts[0].groups
            },
            conditioned=any(part.conditioned for part in parts),
            recalibrated=parts[0].recalibrated,
        )

    def with_earnings(self, earnings: NDArray[np.float32]) -> Paths:
        """The same persons and years with other earnings, shape (n, H, M)."""
        return replace(self, earnings=earnings)

    def require_recalibrated(self) -> None:
        """Raise UsageError for raw paths, where a calibrator's thresholds do not apply."""
        if not self.recalibrated:
            raise UsageError(
                "These paths are raw, but recalibrated paths are needed here. Simulate with "
                "`recalibrate=True`, or apply `map_paths` first."
            )

    def require_raw(self) -> None:
        """Raise UsageError for recalibrated paths, which must not be recalibrated or fitted on."""
        if self.recalibrated:
            raise UsageError(
                "These paths are already recalibrated, but raw paths are needed here. Simulate "
                "with `recalibrate=False`."
            )
