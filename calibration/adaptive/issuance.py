"""Forecasts under the thresholds in force, entered in the ledger, for service, CLI and batch.

The thresholds in force are those of one state of the ledger, which is fixed before a forecast. A
batch uses the state with which it started, even if it is interrupted and the ledger changes
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from saga.calibration.adaptive.adaptive_state import AdaptiveState
from saga.calibration.adaptive.issued_intervals import (
    IssuedInterval,
    collect_bands,
    collect_intervals,
    collect_lifetimes,
)
from saga.calibration.adaptive.ledger import Actor, RecordCounts, open_ledger
from saga.calibration.adaptive.ledger_tables import COMMON
from saga.calibration.adaptive.marginal_moves import adapt

from saga.batch.products import ProductComputation, Recipe
from saga.batch.run_folder import RUN
from saga.bundle import Bundle
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import reason
from saga.distributions import Marginals
from saga.errors import Problem, UsageError
from saga.files.folders import open_folder, read_json_of
from saga.forecast_warnings import ForecastWarning
from saga.forecaster import Forecaster
from saga.paths import Paths
from saga.requests import RATE, Draws, ForecastRequest, LifetimeRequest, Request

INITIAL_STATE = AdaptiveState(0, {})


@dataclass(frozen=True)
class AdaptedForecaster:
    """A forecaster under one state of the ledger; `unadapted` is that of the bundle alone."""

    forecaster: Forecaster
    unadapted: Forecaster
    state: AdaptiveState

    @classmethod
    def of(cls, unadapted: Forecaster, state: AdaptiveState | None) -> Self:
        """The forecaster under a state; without a state the thresholds are the bundle's."""
        state = state or INITIAL_STATE
        calibrator = adapt(unadapted.calibrator, state)
        return cls(unadapted.with_calibrator(calibrator, state.through), unadapted, state)

    def reason(self, guarantee: str, cell: str = ALL) -> str:
        """What stands behind an interval, with the state that moved it."""
        sentence = reason(guarantee, cell)
        if guarantee == "none" or not self.state.cells:
            return sentence
        state = self.state
        return (
            f"{sentence} Follows outcomes up to {state.through} (adaptive state {state.version})."
        )

    def identity(self) -> dict[str, object]:
        """The state, for provenance."""
        return self.state.identity()

    def check_recordable(self, request: Request, draws: Draws) -> None:
        """Raise UsageError unless outcomes can judge what is given for a request.

        They cannot judge forecasts under a scenario, and none without conformal sets. Present
        values of the past, at another rate or from fewer paths have no calibrated intervals.
        """
        if draws.scenario not in (None, "baseline"):
            why = "Its intervals hold under the scenario, so outcomes cannot judge them"
            fix = "Leave the scenario out, or do not record"
            problem = Problem("record-scenario", why, fix, "record")
            raise UsageError("A scenario cannot be recorded", [problem])
        if not self.unadapted.calibrator.has_sets:
            why = "The bundle has no thresholds of prediction sets"
            fix = "Calibrate the bundle with `saga calibrate --method sets`, or do not record"
            problem = Problem("record-uncalibrated", why, fix, "record")
            raise UsageError("There are no intervals to record", [problem])
        if not isinstance(request, LifetimeRequest):
            return
        needed = self.unadapted.calibrator.value_paths
        faults = (
            (needed == 0, "The bundle has no thresholds of present values", "Do not record"),
            (request.rate != RATE, f"Calibrated is a rate of {RATE:g}", f"Use rate {RATE:g}"),
            (request.from_age is not None, "The sum contains the past", "Leave from_age out"),
            (draws.n_paths < needed, f"Calibrated are {needed} paths", f"Use {needed} paths"),
        )
        problems = [
            Problem("record-lifetime", why, f"{fix}, or do not record", "record")
            for is_fault, why, fix in faults
            if is_fault
        ]
        if problems:
            raise UsageError("These present values cannot be recorded", problems)

    def issue_years(self, marginals: Marginals, request: ForecastRequest) -> list[IssuedInterval]:
        """What the ledger is to enter of recalibrated marginals: the intervals of single years.

        With `bands` = K also the bands of the persons who are at most 64 in all K years.
        """
        split, state = self.unadapted.calibrator, self.state
        issued = collect_intervals(marginals, split, state, request.horizons)
        if request.bands is not None:
            issued += collect_bands(marginals, split, state, request.bands)
        return issued

    def issue_lifetimes(self, paths: Paths, request: LifetimeRequest) -> list[IssuedInterval]:
        """What the ledger is to enter of recalibrated paths: the present values."""
        return collect_lifetimes(paths, self.unadapted.calibrator, self.state, request.to_age)


def recording_warnings(recorded: RecordCounts, n_forecasts: int) -> tuple[ForecastWarning, ...]:
    """Why a call that was to record entered nothing.

    `n_forecasts` are the rows of its table, and with bands its persons too.
    """
    if recorded.new:
        return ()
    n_without = n_forecasts - recorded.repeated - recorded.late
    message = (
        f"Nothing was entered in the ledger. Of {n_forecasts} forecasts {recorded.repeated} were"
        f" entered before, {recorded.late} are about a year whose outcome is known, and {n_without}"
        " have no interval that an outcome can judge: too few calibration persons were observed so"
        " far ahead."
    )
    return (ForecastWarning("nothing-recorded", message, option="record"),)


@dataclass(frozen=True, kw_only=True)
class AdaptiveRecipe(Recipe):
    """The batch recipe of a product under one state of a ledger.

    With `record` what each part of forecasts or present values issues is entered in the ledger
    at `url` before its rows are committed. If a process is killed in between, a new one enters them
    again. This changes nothing, because the ledger keeps the first intervals and the state is the
    same.
    """

    state: AdaptiveState
    record: bool
    ledger: str  # `Ledger.identity`
    url: str = field(repr=False)
    key: Path | None = None
    holder: str = COMMON

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        out: str | Path,
        *,
        url: str,
        key: Path | None,
        record: bool,
        holder: str = COMMON,
    ) -> Self:
        """The recipe under the present state, or that of the unfinished run in `out`.

        Args:
            recipe: The recipe of the product.
            out: Path or URL of the batch.
            url: Database URL of the ledger.
            key: File of the pseudonym key, or None for the default of `open_ledger`.
            record: Whether to enter the intervals in the ledger.
            holder: Whose part of the ledger it is.

        Raises:
            UsageError: The ledger cannot be opened.
            LedgerError: The database does not answer.
        """
        bundle = Bundle.load(recipe.bundle).digest
        ledger = open_ledger(url, key, Actor(holder))
        try:
            unfinished = ((read_json_of(open_folder(out), RUN) or {}).get("recipe") or {}).get(
                "adaptive"
            )
            if unfinished is None:
                state = ledger.state(bundle)
            else:
                state = ledger.replay(bundle, int(unfinished["version"]))
        finally:
            ledger.close()
        return cls(
            **vars(recipe),
            state=state or INITIAL_STATE,
            record=record,
            ledger=ledger.identity,
            url=url,
            key=key,
            holder=holder,
        )

    def describe(self) -> dict[str, Any]:
        """Everything on which the rows depend, and the ledger that they are entered in.

        The ledger is known by its key and its id, because its URL may change.
        """
        return {
            **super().describe(),
            "adaptive": self.state.identity(),
            "record": self.record,
            "ledger": self.ledger if self.record else None,
        }

    def open(self) -> ProductComputation:
        """Load the bundle and, to record, connect to the ledger."""
        forecaster = self.forecaster()
        adapted = AdaptedForecaster.of(forecaster, self.state)
        if not self.record:
            return ProductComputation(self, forecaster, adapted)
        adapted.check_recordable(self.request, self.draws)
        ledger = open_ledger(self.url, self.key, Actor(self.holder))

        def enter(issued: Sequence[IssuedInterval]) -> None:
            ledger.record(forecaster.bundle.digest, issued)

        return ProductComputation(self, forecaster, adapted, enter)
