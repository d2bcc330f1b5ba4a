"""The service's part in the adaptive layer: forecasts under the thresholds in force, and promises into the ledger."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl

from calibration.online import AdaptiveState, adapt
from calibration.promises import promises
from calibration.store import Recorded, Store, open_store
from saga.calibrators import reason
from saga.errors import Problem, UsageError
from saga.forecaster import Forecaster
from saga.panel import Panel


@dataclass(frozen=True)
class Adapted:
    """A forecaster whose thresholds are those of one state of the ledger."""

    forecaster: Forecaster
    split: Forecaster
    state: AdaptiveState

    def identity(self) -> dict[str, Any]:
        """Which state, for provenance."""
        return {"version": self.state.version, "through": self.state.through, "digest": self.state.digest if self.state.cells else None}

    def reason(self, guarantee: str, *place: str) -> str:
        """What stands behind an interval, with the state that moved it."""
        if guarantee == "none" or not self.state.cells:
            return reason(guarantee, *place)
        return f"{reason(guarantee, *place)} Follows outcomes up to {self.state.through} (adaptive state {self.state.version})."


class Adaptive:
    """One ledger and one bundle. Thread-safe."""

    def __init__(self, store: Store, forecaster: Forecaster) -> None:
        self.store, self._split = store, forecaster
        self._lock = threading.Lock()
        self._now = Adapted(forecaster, forecaster, AdaptiveState(0, None, {}))

    @classmethod
    def open(cls, url: str, key: Path | None, forecaster: Forecaster) -> Self:
        """Open the ledger. Raises as `open_store`."""
        return cls(open_store(url, key), forecaster)

    def now(self) -> Adapted:
        """The present state, read from the database only where it has changed. Raises StoreError."""
        bundle = self._split.bundle.digest
        with self._lock:
            if self.store.version(bundle) not in (None, self._now.state.version):
                state = self.store.state(bundle)
                if state is not None:
                    adapted = copy.copy(self._split)
                    adapted.calibrator = adapt(self._split.calibrator, state)
                    self._now = Adapted(adapted, self._split, state)
            return self._now

    def forecast(
        self, adapted: Adapted, panel: Panel, levels: Mapping[str, Any], run: Mapping[str, Any], *, record: bool
    ) -> tuple[pl.DataFrame, Recorded | None]:
        """The forecast table; with `record` its promises go into the ledger. Raises UsageError for a scenario, which promises nothing about
        this world, and for a bundle without thresholds."""
        if not record:
            return adapted.forecaster.forecast(panel, **levels, **run), None
        if run["scenario"] not in (None, "baseline"):
            fix = "Leave the scenario out, or do not record"
            raise UsageError("A scenario cannot be recorded", [Problem("record-scenario", "It is about another world", fix, "record")])
        split = self._split.calibrator
        if not split.levels:
            fix = "Calibrate the bundle with `saga calibrate`, or do not record"
            raise UsageError("Nothing is promised", [Problem("record-uncalibrated", "The bundle gives no intervals", fix, "record")])
        tables, recorded = [], Recorded()
        for block in adapted.forecaster.blocks(panel, to_horizon=max(*levels["horizons"], levels["bands"] or 1), **run):
            tables.append(adapted.forecaster.table(block, **levels))
            made = promises(block, split, adapted.forecaster.calibrator, levels["horizons"])
            recorded += self.store.record(self._split.bundle.digest, made)
        return pl.concat(tables), recorded
