"""Simulated futures of persons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from saga.person_forecasts import PersonForecasts
from saga.schema import MAX_AGE


@dataclass(frozen=True, eq=False, repr=False)
class Paths(PersonForecasts):
    """M simulated futures of n persons over horizons 1..H.

    Path k of all persons shares one macro future, so sums over persons are taken path by path.

    Args:
        person_id: See `PersonForecasts`, like the arguments that are not listed.
        earnings: Real money of the panel a year, shape (n, H, M), NaN beyond age 64.
    """

    kind: ClassVar[str] = "paths"
    needs_recalibrated: ClassVar[str] = (
        "Simulate with `recalibrate=True`, or apply `map_paths` first."
    )
    needs_raw: ClassVar[str] = "Simulate with `recalibrate=False`."

    earnings: NDArray[np.float32]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.earnings.ndim != 3:
            raise ValueError(
                f"earnings have shape (persons, horizons, paths), not {self.earnings.shape}"
            )

    @property
    def n_horizons(self) -> int:
        """H, the number of horizons."""
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

    def with_earnings(self, earnings: NDArray[np.float32]) -> Paths:
        """The same persons and years with other earnings, shape (n, H, M)."""
        return replace(self, earnings=earnings)

    def comonotone(self) -> Paths:
        """Paths that keep their rank in all years, with the same values in each year."""
        return self.with_earnings(np.sort(self.earnings, axis=-1))
