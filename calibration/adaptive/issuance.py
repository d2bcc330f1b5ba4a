"""Forecasts under the thresholds in force, and what they promise: one way for the service, the command line and batch.

The thresholds in force are those of one state of the ledger. Whoever issues a forecast fixes that state first: a batch keeps the one it
started with, however often it is interrupted and whatever the ledger learns meanwhile, so its rows stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import polars as pl

from calibration.adaptive.adaptive_state import AdaptiveState, adapt
from calibration.adaptive.issued_intervals import collect_intervals
from calibration.adaptive.ledger import Ledger, RecordCounts, open_ledger
from saga.batch.engine import RUN
from saga.batch.products import Product, Recipe
from saga.bundle import Bundle
from saga.conformal.calibrator import reason
from saga.data.panel import Panel
from saga.errors import Problem, UsageError
from saga.files.atomic import read_json
from saga.forecaster import Forecaster, Progress
from saga.macro.scenarios import ScenarioSource
from saga.requests import Draws, ForecastRequest

INITIAL_STATE = AdaptiveState(0, None, {})


@dataclass(frozen=True)
class AdaptedForecaster:
    """A forecaster whose thresholds are those of one state of the ledger; `split` has those of the bundle alone."""

    forecaster: Forecaster
    split: Forecaster
    state: AdaptiveState

    @classmethod
    def of(cls, split: Forecaster, state: AdaptiveState | None) -> Self:
        """The forecaster under a state; without one, or before anything is learnt, thresholds are those of the bundle."""
        state = state or INITIAL_STATE
        return cls(split.with_calibrator(adapt(split.calibrator, state)), split, state)

    def identity(self) -> dict[str, Any]:
        """Which state, for provenance."""
        return state_identity(self.state)

    def reason(self, guarantee: str, *place: str) -> str:
        """What stands behind an interval, with the state that moved it."""
        if guarantee == "none" or not self.state.cells:
            return reason(guarantee, *place)
        return f"{reason(guarantee, *place)} Follows outcomes up to {self.state.through} (adaptive state {self.state.version})."


def state_identity(state: AdaptiveState) -> dict[str, Any]:
    """Which state, for provenance: its version, the last year it has heard of, its digest (None before anything is learnt)."""
    return {
        "version": state.version,
        "through": state.through,
        "digest": state.digest if state.cells else None,
    }


def check_recordable(forecaster: Forecaster, scenario: ScenarioSource) -> None:
    """Raise UsageError where a forecast cannot be recorded: under a scenario, which promises nothing about this world, or without
    thresholds."""
    if scenario not in (None, "baseline"):
        fix = "Leave the scenario out, or do not record"
        raise UsageError(
            "A scenario cannot be recorded",
            [Problem("record-scenario", "It is about another world", fix, "record")],
        )
    if not forecaster.calibrator.has_sets:
        fix = "Calibrate the bundle with `saga calibrate --method sets`, or do not record"
        raise UsageError(
            "Nothing is promised",
            [Problem("record-uncalibrated", "The bundle has no nested sets", fix, "record")],
        )


def forecast_and_record(
    adapted: AdaptedForecaster,
    panel: Panel,
    store: Ledger,
    request: ForecastRequest,
    draws: Draws,
    *,
    progress: Progress | None = None,
) -> tuple[pl.DataFrame, RecordCounts]:
    """The forecast table, its promises entered in the ledger. The same forecast again enters nothing.

    Raises UsageError as `check_recordable`."""
    check_recordable(adapted.split, draws.scenario)
    tables, recorded = [], RecordCounts()
    for block, table in adapted.forecaster.forecast_blocks(
        panel, request, draws, progress=progress
    ):
        tables.append(table)
        made = collect_intervals(
            block, adapted.split.calibrator, adapted.forecaster.calibrator, request.horizons
        )
        recorded += store.record(adapted.split.bundle.digest, made)
    return pl.concat(tables), recorded


@dataclass(frozen=True)
class AdaptiveRecipe:
    """The batch recipe of forecasts under one state of a ledger; with `record` the ledger at `url` is told what each part promises.

    A part's promises are entered before its rows are committed. A process that dies between the two enters them again when the part is
    computed again, which changes nothing: the first promise stands, and it is the same one, since the state is.
    """

    recipe: Recipe
    state: AdaptiveState
    record: bool
    url: str = field(repr=False)
    key: Path | None = None

    @classmethod
    def of(cls, recipe: Recipe, out: Path, *, url: str, key: Path | None, record: bool) -> Self:
        """The recipe under the present state, or under the one that an unfinished run in `out` started with. Raises UsageError for
        another product than forecasts, for a ledger that no longer knows that state, and as `open_ledger` and `check_recordable`."""
        product = recipe.request.product
        if product != "forecasts":
            raise UsageError(
                f"A ledger is about forecasts of single years. Leave it away for the product {product}."
            )
        bundle = Bundle.load(recipe.bundle)
        store = open_ledger(url, key)
        try:
            earlier = ((read_json(out / RUN) or {}).get("recipe") or {}).get("adaptive")
            state = (
                store.state(bundle.digest)
                if earlier is None
                else store.replay(bundle.digest, int(earlier["version"]))
            )
        finally:
            store.close()
        return cls(recipe, state or INITIAL_STATE, record, url, key)

    def describe(self) -> dict[str, Any]:
        """What the rows depend on: the recipe and the state, not where the ledger is."""
        return {
            **self.recipe.describe(),
            "adaptive": state_identity(self.state),
            "record": self.record,
        }

    def open(self) -> Product:
        """Load the bundle and, to record, connect to the ledger."""
        adapted = AdaptedForecaster.of(
            Forecaster.load(
                self.recipe.bundle,
                threads=1,
                rollout=self.recipe.rollout,
                precision=self.recipe.precision,
            ),
            self.state,
        )
        if not self.record:
            return _AdaptiveProduct(self.recipe, adapted, None)
        check_recordable(adapted.split, self.recipe.draws.scenario)
        return _AdaptiveProduct(self.recipe, adapted, open_ledger(self.url, self.key))


class _AdaptiveProduct(Product):
    """The forecasts of a part under one state, entered in the ledger `store` where there is one."""

    def __init__(self, recipe: Recipe, adapted: AdaptedForecaster, store: Ledger | None) -> None:
        super().__init__(recipe, adapted.forecaster)
        self.adapted, self.store = adapted, store
        self.provenance |= {"adaptive": adapted.identity()}

    def __call__(self, panel: Panel) -> pl.DataFrame:
        request = self.recipe.request
        if self.store is None or not isinstance(request, ForecastRequest):
            return super().__call__(panel)
        draws = self.recipe.draws
        return forecast_and_record(self.adapted, panel, self.store, request, draws)[0]
