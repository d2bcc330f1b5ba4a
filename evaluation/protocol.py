"""What a contestant must offer: fit on a panel, then paths for any origin."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

import polars as pl

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.paths import Paths


class Baseline(Protocol):
    """A forecaster of earnings that the contest can fit and question.

    `name` is its row in `metrics.parquet`. A baseline may know everything of the persons it is fitted on; of the persons it
    forecasts it may use only rows up to the origin, even if `history` holds later ones.
    """

    name: str

    # A baseline whose library is not part of the train extra imports it when it is made, so that a contest of all can do without it.

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Learns from the persons of `panel` (training persons, all their years) and returns itself.

        Raises InputError when the panel holds nothing to learn from.
        """
        ...

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`paths` joint futures over horizons 1..`to_horizon` of each person in `origins`, in that order.

        Real money of the panel's price year, shape (n, to_horizon, paths), NaN beyond age 64. The numbers of a person depend on
        (seed, person, origin) alone, not on who else is asked for.
        """
        ...


@runtime_checkable
class Estimated(Protocol):
    """A baseline whose parameters mean something: the contest shows them."""

    def estimated(self) -> pl.DataFrame:
        """After `fit`: text `parameter`, numbers `value` and `se` (null where none is known), in the order to be shown."""
        ...


@runtime_checkable
class Keyed(Protocol):
    """A baseline whose fit depends on more than its own code, the persons and the seed: kept scores are those of its key."""

    def key(self) -> str:
        """Names the rest: settings, and code outside the package of baselines."""
        ...
