"""The plan of forecasts: yearly distributions with their sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from saga.data.panel import Panel
from saga.forecast_results import Forecasts, Result
from saga.forecast_tables import forecast_table, round_amounts
from saga.plans.plan import PieceOutput, Plan
from saga.requests import ForecastRequest, Progress

if TYPE_CHECKING:
    from saga.forecaster import Forecaster


class ForecastPlan(Plan[ForecastRequest]):
    """Forecasts of single years, which need no simulated paths."""

    @staticmethod
    def check(forecaster: Forecaster, request: ForecastRequest) -> None:
        """Raise UsageError if the bundle lacks a coverage."""
        forecaster.calibrator.coverage_columns(request.coverage)

    def blocks(self, piece: Panel, progress: Progress | None) -> Iterator[PieceOutput]:
        """The rows of a piece, and the intervals to be recorded."""
        forecaster, request, draws = self.forecaster, self.request, self.draws
        for marginals in forecaster.marginals(
            piece, draws.scenario, n_horizons=request.n_years, progress=progress
        ):
            if not request.beyond_span:
                age = marginals.origin_year - marginals.birth_year
                ahead = np.arange(1, marginals.n_horizons + 1)
                marginals = marginals.only(forecaster.records.reach(age[:, None], ahead))
            calibrator = forecaster.calibrator_for(marginals)
            table = forecast_table(marginals, calibrator, request, forecaster.records)
            issued = self.recording.issue_years(marginals, request) if self.recording else ()
            yield PieceOutput(round_amounts(table, self.decimals), tuple(issued))

    def completed(self, result: Result, whole: PieceOutput) -> Forecasts:  # noqa: ARG002
        """The result as forecasts."""
        return Forecasts(**vars(result))
