"""Forecasts under the thresholds in force, entered in the ledger, for service, CLI and batch.

The thresholds in force are those of one state of the ledger, which is fixed before a forecast. A
batch uses the state with which it started, even if it is interrupted and the ledger changes
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import polars as pl

from calibration.adaptive.adaptive_state import AdaptiveState
from calibration.adaptive.issued_intervals import IssuedIntervals, collect_intervals
from calibration.adaptive.ledger import Ledger, RecordCounts, open_ledger
from calibration.adaptive.marginal_moves import adapt
from calibration.adaptive.tenancy import COMMON, Actor
from saga.batch.products import ProductComputation, Recipe
from saga.batch.run_folder import RUN
from saga.bundle import Bundle
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import reason
from saga.data.panel import Panel
from saga.errors import Problem, UsageError
from saga.files.folders import open_folder, read_json_of
from saga.forecast_warnings import ForecastWarning
from saga.forecaster import Forecaster, Progress
from saga.macro.scenarios import ScenarioSource
from saga.requests import Draws, ForecastRequest

INITIAL_STATE = AdaptiveState(0, None, {})


@dataclass(frozen=True)
class AdaptedForecaster:
    """A forecaster under one state of the ledger; `unadapted` has those of the bundle."""

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


def check_recordable(forecaster: Forecaster, scenario: ScenarioSource) -> None:
    """Raise UsageError if forecasts are under a scenario, or there are no conformal sets."""
    if scenario not in (None, "baseline"):
        message = "Its intervals hold under the scenario, so outcomes cannot judge them"
        fix = "Leave the scenario out, or do not record"
        raise UsageError(
            "A scenario cannot be recorded", [Problem("record-scenario", message, fix, "record")]
        )
    if not forecaster.calibrator.has_sets:
        fix = "Calibrate the bundle with `saga calibrate --method sets`, or do not record"
        raise UsageError(
            "There are no intervals to record",
            [
                Problem(
                    "record-uncalibrated",
                    "The bundle has no thresholds of prediction sets",
                    fix,
                    "record",
                )
            ],
        )


def forecast_and_issue(
    adapted: AdaptedForecaster,
    panel: Panel,
    request: ForecastRequest,
    draws: Draws,
    *,
    progress: Progress | None = None,
) -> Iterator[tuple[pl.DataFrame, IssuedIntervals]]:
    """Forecast tables of blocks of persons, with the intervals to enter in the ledger.

    Raises UsageError as `check_recordable`.

    Args:
        adapted: The forecaster under the thresholds in force.
        panel: Persons' records; the origin of each is the last year of the record.
        request: The forecast table to make.
        draws: Number of paths, seed and scenario.
        progress: Called with the persons done and the persons in all.
    """
    check_recordable(adapted.unadapted, draws.scenario)
    in_force = adapted.forecaster.calibrator
    blocks = adapted.forecaster.forecast_blocks(panel, request, draws, progress=progress)
    for block, table in blocks:
        yield table, collect_intervals(block, in_force, request.horizons, adapted.state)


def forecast_and_record(
    adapted: AdaptedForecaster,
    panel: Panel,
    ledger: Ledger,
    request: ForecastRequest,
    draws: Draws,
    *,
    progress: Progress | None = None,
) -> tuple[pl.DataFrame, RecordCounts]:
    """Make the forecast table and enter its intervals in the ledger.

    A repetition of the same forecast enters nothing. Raises UsageError as `check_recordable`.

    Args:
        adapted: The forecaster under the thresholds in force.
        panel: Persons' records; the origin of each is the last year of the record.
        ledger: The ledger to write to.
        request: The forecast table to make.
        draws: Number of paths, seed and scenario.
        progress: Called with the persons done and the persons in all.
    """
    tables, recorded = [], RecordCounts()
    for table, issued in forecast_and_issue(adapted, panel, request, draws, progress=progress):
        tables.append(table)
        recorded += ledger.record(adapted.unadapted.bundle.digest, issued)
    return pl.concat(tables), recorded


def recording_warnings(recorded: RecordCounts, n_rows: int) -> tuple[ForecastWarning, ...]:
    """Why a call that was to record entered nothing; `n_rows` are the rows of its table."""
    if recorded.new:
        return ()
    n_without = n_rows - recorded.repeated - recorded.late
    message = (
        f"No interval was entered in the ledger. Of {n_rows} rows {recorded.repeated} were entered"
        f" before, {recorded.late} are about a year whose outcome is known, and {n_without} have no"
        " interval that an outcome can judge: too few calibration persons were observed so far"
        " ahead."
    )
    return (ForecastWarning("nothing-recorded", message, option="record"),)


@dataclass(frozen=True)
class AdaptiveRecipe:
    """The batch recipe of a product under one state of a ledger.

    With `record` the intervals of each part of forecasts are entered in the ledger at `url` before
    its rows are committed. If a process is killed in between, a new one enters them again. This
    changes nothing, because the ledger keeps the first intervals and the state is the same.
    """

    recipe: Recipe
    state: AdaptiveState
    record: bool
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
        return cls(recipe, state or INITIAL_STATE, record, url, key, holder)

    def describe(self) -> dict[str, Any]:
        """Everything on which the rows depend: the recipe and the state, not the URL."""
        return {**self.recipe.describe(), "adaptive": self.state.identity(), "record": self.record}

    def largest_partition(self) -> int:
        """That of the recipe."""
        return self.recipe.largest_partition()

    def open(self) -> ProductComputation:
        """Load the bundle and, to record, connect to the ledger."""
        recipe = self.recipe
        forecaster = Forecaster.load(
            recipe.bundle, threads=1, rollout=recipe.rollout, precision=recipe.precision
        )
        adapted = AdaptedForecaster.of(forecaster, self.state)
        if not self.record:
            return _AdaptiveProduct(recipe, adapted, None)
        check_recordable(forecaster, recipe.draws.scenario)
        return _AdaptiveProduct(
            recipe, adapted, open_ledger(self.url, self.key, Actor(self.holder))
        )


class _AdaptiveProduct(ProductComputation):
    """The product of a part under one state; forecasts are entered in the ledger, if any."""

    def __init__(self, recipe: Recipe, adapted: AdaptedForecaster, ledger: Ledger | None) -> None:
        super().__init__(recipe, adapted.forecaster)
        self.adapted, self.ledger = adapted, ledger
        self.provenance |= {"adaptive": adapted.state.identity()}

    def compute(self, panel: Panel) -> pl.DataFrame:
        request, draws = self.recipe.request, self.recipe.draws
        if self.ledger is None or not isinstance(request, ForecastRequest):
            return super().compute(panel)
        return forecast_and_record(self.adapted, panel, self.ledger, request, draws)[0]
