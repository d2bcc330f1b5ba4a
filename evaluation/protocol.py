"""The interface of a baseline: fit on a panel, then simulate paths from any origin."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

import polars as pl

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.paths import Paths


class Baseline(Protocol):
    """A forecaster of earnings that the contest can fit and score.

    A baseline may use every record of the persons it is fitted on. Of the persons it forecasts, it
    may use only rows up to the origin, even if `history` contains later ones. Import a library that
    is not in the pip extra `train` in `__init__`, not at module level: a contest of all baselines
    then leaves out the baselines whose library is not installed.

    Attributes:
        name: Its name in the tables.
        version: Part of the key of stored results (`saga.evaluation.cache`). Increase it with every
            change of the code that may change results.
    """

    name: str
    version: int

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Fit the baseline to `panel` (training persons, all their years).

        Raises InputError if the panel has too few data.
        """
        ...

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures over horizons 1..`to_horizon` of each person in `origins`.

        Earnings have shape (n, to_horizon, n_paths) in the order of `origins`, in real money of the
        panel's price year, NaN beyond age 64. A person's numbers depend on the seed, the person's
        id, record and origin alone, not on the other persons.
        """
        ...


@runtime_checkable
class HasDistributions(Protocol):
    """A baseline that computes the distribution of each year, not only paths."""

    def distributions(self, history: Panel, origins: Origins) -> Marginals:
        """Distributions (n, 30), in the order of `origins`; arguments as in `simulate`."""
        ...


@runtime_checkable
class HasEstimates(Protocol):
    """A baseline with interpretable parameters, which the contest shows in a table."""

    def estimates(self) -> pl.DataFrame:
        """After `fit`: columns `parameter` (text), `value` and `se` (null if unknown)."""
        ...


@runtime_checkable
class HasSettings(Protocol):
    """A baseline whose fit depends on more than its version, the panel and the seed."""

    def settings_key(self) -> str:
        """Identify these further inputs, such as a training configuration."""
        ...
