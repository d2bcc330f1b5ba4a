"""The bundle told the economy that came, in-time: what baselines gain that are fitted on outcomes of the very years they are asked about.

No forecast can know it. Beside a row that does, the others of the same setting can be read: what of a difference is people, what economy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evaluation.comparison import VARIANT
from evaluation.contestants import Model
from evaluation.sets import Sets
from saga.forecaster import Forecaster
from saga.outcomes import Origins
from saga.panel import Panel
from saga.paths import Paths

TOLD = f"{VARIANT}told"


@dataclass(frozen=True)
class Told:
    """The bundle under the economy as it came up to the year `until`. The bundle must know macro series."""

    forecaster: Forecaster
    until: int
    name: str = TOLD

    def blocks(self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of the bundle."""
        assert self.forecaster.process is not None
        model = Model(self.forecaster, scenario=self.forecaster.process.observed(self.until))
        return model.blocks(past, origins, to_horizon=to_horizon, paths=paths, seed=seed)
