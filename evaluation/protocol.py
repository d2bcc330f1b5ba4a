"""The interface of a baseline: fit on a panel, then simulate paths from any origin."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

import polars as pl

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.paths import Paths


class Baseline(Protocol):
    """A forecaster of earnings that the contest can fit and score.

    A baseline may use every record of the persons it is fitted on. For the persons it forecasts, it
    may use only rows up to the origin, even if `history` contains later ones. If it needs a library
    outside the extra `train`, it imports the library when it is constructed; a contest of all
    baselines then leaves it out.

    Attributes:
        name: its row in `metrics.parquet`.
        version: raise it when the same inputs may give other numbers (see `evaluation.cache`).
    """

    name: str
    version: int

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Learns from the persons of `panel` (training persons, all their years).

        Raises InputError if the panel has no data that the baseline can learn from.
        """
        ...

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures over horizons 1..`to_horizon` of each person in `origins`.

        Shape (n, to_horizon, n_paths) in the order of `origins`, real money of the panel's price
        year, NaN beyond age 64. A person's numbers depend on (seed, person, origin) alone, not on
        the other persons.
        """
        ...


@runtime_checkable
class HasEstimates(Protocol):
    """A baseline with interpretable parameters; the contest shows them."""

    def estimates(self) -> pl.DataFrame:
        """After `fit`: columns `parameter` (text), `value` and `se` (null if unknown), in order."""
        ...


@runtime_checkable
class HasSettings(Protocol):
    """A baseline whose fit depends on more than its version, the panel and the seed."""

    def settings_key(self) -> str:
        """Identifies these further inputs, such as a training configuration."""
        ...
