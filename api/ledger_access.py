"""The service's access to the ledger: states in memory, writes one at a time on other threads.

A forecast never waits for the database. The states of all holders are in memory and are read again
within a second of a change. If the ledger fails, forecasts follow the last known states and say so,
calls that need the ledger get 503 at once, and one log line has the cause.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from asgi_correlation_id import correlation_id
from prometheus_client import Gauge
from saga.api.key_file import Caller
from saga.api.logs import error_location
from saga.api.refusals import refused
from saga.api.turns import Turns
from saga.calibration.adaptive.database import LedgerError
from saga.calibration.adaptive.issuance import AdaptedForecaster
from saga.calibration.adaptive.ledger import Actor, Ledger
from saga.calibration.adaptive.ledger_tables import COMMON
from structlog.typing import FilteringBoundLogger

from saga.errors import SagaError
from saga.forecast_warnings import ForecastWarning
from saga.forecaster import Forecaster

Result = TypeVar("Result")

WAIT_SECONDS = 5.0  # longest wait for another writer or a connection
_READ_AGAIN_SECONDS = 1.0  # between two readings of the adaptive states
_READINGS_PER_PROBE = 5  # every fifth reading also tries to write
_THREADS = 4  # calls to the database at a time


class LedgerAccess:
    """A ledger and the forecaster of one bundle; safe for several threads."""

    def __init__(
        self, ledger: Ledger, forecaster: Forecaster, log: FilteringBoundLogger, up: Gauge
    ) -> None:
        """Read all states. Raises LedgerError if the database does not answer."""
        self._ledger, self._forecaster, self._log, self._up = ledger, forecaster, log, up
        self._lock = threading.Lock()
        self._unmoved = AdaptedForecaster.of(forecaster, None)
        self._adapted = {COMMON: self._unmoved}
        self._is_up = self._is_current = True
        self._writer = Turns(1)
        self._threads = CapacityLimiter(_THREADS)
        self._read_states()
        up.set(1)

    @property
    def is_up(self) -> bool:
        """Whether the ledger could be read and written when it was last tried."""
        return self._is_up

    def current(self, holder: str) -> AdaptedForecaster:
        """The forecaster with the thresholds of the last known state of a holder."""
        return self._adapted.get(holder) or self._adapted[COMMON]

    def identity(self, holder: str) -> dict[str, object]:
        """The state of a holder in provenance; `last_known` if it may have changed meanwhile."""
        identity = self.current(holder).state.identity()
        return identity if self._is_current else identity | {"last_known": True}

    def warnings(self) -> tuple[ForecastWarning, ...]:
        """What a reader must know about the thresholds of a forecast."""
        if self._is_current:
            return ()
        message = (
            "The ledger cannot be read at present. The thresholds are those of its last known"
            " state, which the provenance names."
        )
        return (ForecastWarning("ledger-unavailable", message),)

    def require_up(self) -> None:
        """Raise LedgerError if the ledger is known to fail."""
        if not self._is_up:
            raise refused("ledger-down")

    async def read(self, caller: Caller, work: Callable[[Ledger], Result]) -> Result:
        """The result of `work` on the caller's part. Raises LedgerError if the ledger fails."""
        self.require_up()
        return await self._run(caller, work)

    async def write(self, caller: Caller, work: Callable[[Ledger], Result]) -> Result:
        """The result of `work`, which writes to the caller's part; holders take turns.

        Raises:
            LedgerError: The ledger fails.
            ProblemError: Status 503 if the other writers take too long.
        """
        self.require_up()
        async with AsyncExitStack() as place:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await place.enter_async_context(self._writer.turn(caller.holder))
            except TimeoutError:
                raise refused("ledger-busy") from None
            self.require_up()  # it may have failed for an earlier writer
            result = await self._run(caller, work)
            await anyio.to_thread.run_sync(self._read_or_note, limiter=self._threads)
            return result

    async def watch(self) -> None:
        """Read the states again and try to write, until cancelled."""
        readings = 0
        while True:
            await asyncio.sleep(_READ_AGAIN_SECONDS)
            readings += 1
            is_due = not self._is_up or readings % _READINGS_PER_PROBE == 0
            try:
                await anyio.to_thread.run_sync(
                    self._check, is_due and self._writer.has_place, abandon_on_cancel=True
                )
            except Exception as error:
                self._log.error("internal_error", **error_location(error))

    async def _run(self, caller: Caller, work: Callable[[Ledger], Result]) -> Result:
        part = self._ledger.acting_as(Actor(caller.holder, caller.key, correlation_id.get()))
        try:
            return await anyio.to_thread.run_sync(work, part, limiter=self._threads)
        except LedgerError as error:
            self._note_failure(error)
            raise

    def _check(self, probe: bool) -> None:
        if self._read_or_note() and probe:
            try:
                self._ledger.probe()
            except SagaError as error:
                self._note_failure(error)
            else:
                self._note_success()

    def _read_or_note(self) -> bool:
        """Read changed states; False if the ledger cannot be read."""
        try:
            self._read_states()
        except SagaError as error:
            self._is_current = False
            self._note_failure(error)
            return False
        self._is_current = True
        return True

    def _read_states(self) -> None:
        bundle = self._forecaster.bundle.digest
        with self._lock:
            adapted = {COMMON: self._unmoved}  # a restored backup may have fewer holders
            for holder, version in self._ledger.versions(bundle).items():
                known = self._adapted.get(holder)
                if known is None or known.state.version != version:
                    state = self._ledger.acting_as(Actor(holder)).state(bundle)
                    known = AdaptedForecaster.of(self._forecaster, state)
                adapted[holder] = known
            self._adapted = adapted

    def _note_failure(self, error: SagaError) -> None:
        if self._is_up:  # one line for one failure
            self._is_up = False
            self._up.set(0)
            problems = [str(problem) for problem in error.problems]
            self._log.error("ledger_down", wrong=error.args[0], problems=problems)

    def _note_success(self) -> None:
        if not self._is_up:
            self._is_up = True
            self._up.set(1)
            self._log.info("ledger_up")
