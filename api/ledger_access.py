"""The service's part in the adaptive layer: forecasts under the thresholds in force, and promises into the ledger."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import polars as pl

from calibration.adaptive.issuance import Adapted, issue
from calibration.adaptive.ledger import Recorded, Store, open_store
from saga.data.panel import Panel
from saga.forecaster import Forecaster


class Adaptive:
    """One ledger and one bundle. Thread-safe."""

    def __init__(self, store: Store, forecaster: Forecaster) -> None:
        self.store, self._split = store, forecaster
        self._lock = threading.Lock()
        self._now = Adapted.of(forecaster, None)

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
                    self._now = Adapted.of(self._split, state)
            return self._now

    def forecast(
        self,
        adapted: Adapted,
        panel: Panel,
        levels: Mapping[str, Any],
        run: Mapping[str, Any],
        *,
        record: bool,
    ) -> tuple[pl.DataFrame, Recorded | None]:
        """The forecast table; with `record` its promises go into the ledger. Raises UsageError as `issue`."""
        if not record:
            return adapted.forecaster.forecast(panel, **levels, **run), None
        return issue(adapted, panel, self.store, levels, run)
