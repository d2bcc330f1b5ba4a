"""Simulated futures of persons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.schema import MAX_AGE


@dataclass(frozen=True, eq=False)
class Paths:
    """M simulated futures of n persons over horizons 1..H.

    `person_id` (n,) text, `birth_year` and `origin_year` (n,) ints, `earnings` (n, H, M) float32: real SEK a year, horizon on axis 1, path
    on axis 2, NaN beyond age 64. Path k of every person lives in the same macro future, so sums over persons are taken path by path.
    `groups`: name of a grouping -> the persons' labels (n,), as `saga.data.groups` gives them at the origin. `told`: the economy was not
    drawn, a scenario gave it.

    Raises ValueError when the shapes do not agree.
    """

    person_id: NDArray[np.str_]
    birth_year: NDArray[np.int64]
    origin_year: NDArray[np.int64]
    earnings: NDArray[np.float32]
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    told: bool = False

    def __post_init__(self) -> None:
        n = len(self.person_id)
        if self.earnings.ndim != 3 or {
            len(self.earnings),
            len(self.birth_year),
            len(self.origin_year),
        } != {n}:
            raise ValueError(
                f"paths of {n} persons need birth and origin years of shape ({n},) and earnings of shape ({n}, horizons, paths); "
                f"got {self.birth_year.shape}, {self.origin_year.shape} and {self.earnings.shape}"
            )

    def __len__(self) -> int:
        return len(self.person_id)

    @property
    def horizons(self) -> int:
        """H, the last horizon."""
        return int(self.earnings.shape[1])

    @property
    def count(self) -> int:
        """M, the number of paths a person."""
        return int(self.earnings.shape[2])

    @property
    def years(self) -> NDArray[np.int64]:
        """Calendar years of the horizons, shape (n, H)."""
        return self.origin_year[:, None].astype(np.int64) + np.arange(1, self.horizons + 1)

    @property
    def within_age(self) -> NDArray[np.bool_]:
        """Whether the person is at most 64 in that year, shape (n, H)."""
        return self.years - self.birth_year[:, None] <= MAX_AGE

    def take(self, rows: Any) -> Paths:
        """The paths of some persons: an index, mask or slice over the first axis."""
        groups = {name: labels[rows] for name, labels in self.groups.items()}
        return Paths(
            self.person_id[rows],
            self.birth_year[rows],
            self.origin_year[rows],
            self.earnings[rows],
            groups,
            self.told,
        )

    @classmethod
    def joined(cls, parts: Sequence[Paths]) -> Paths:
        """Consecutive blocks of persons as one; all with the same horizons, paths and groupings."""
        return cls(
            np.concatenate([p.person_id for p in parts]),
            np.concatenate([p.birth_year for p in parts]),
            np.concatenate([p.origin_year for p in parts]),
            np.concatenate([p.earnings for p in parts]),
            {name: np.concatenate([p.groups[name] for p in parts]) for name in parts[0].groups},
            any(p.told for p in parts),
        )

    def with_earnings(self, earnings: NDArray[np.float32]) -> Paths:
        """The same persons and years with other earnings, shape (n, H, M)."""
        return replace(self, earnings=earnings)
