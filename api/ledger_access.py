"""The service's access to the ledger: the forecaster with the current thresholds."""

from __future__ import annotations

import threading

from calibration.adaptive.issuance import AdaptedForecaster
from calibration.adaptive.ledger import Ledger
from saga.forecaster import Forecaster


class LedgerAccess:
    """A ledger and the forecaster of one bundle; safe for several threads."""

    def __init__(self, ledger: Ledger, forecaster: Forecaster) -> None:
        self.ledger, self._base_forecaster = ledger, forecaster
        self._lock = threading.Lock()
        self._current = AdaptedForecaster.of(forecaster, None)

    def current(self) -> AdaptedForecaster:
        """The forecaster with the thresholds of the current adaptive state.

        The state is read from the database only if its version has changed. Raises LedgerError if
        the database cannot be read.
        """
        bundle = self._base_forecaster.bundle.digest
        with self._lock:
            if self.ledger.version(bundle) not in (None, self._current.state.version):
                state = self.ledger.state(bundle)
                if state is not None:
                    self._current = AdaptedForecaster.of(self._base_forecaster, state)
            return self._current
