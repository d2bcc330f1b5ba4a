"""The plan of paths: the simulated futures themselves, with the states of each year."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from saga.data.panel import Panel
from saga.files.bundle_folder import VINTAGES
from saga.files.stored_values import faults_of
from saga.forecast_tables import round_amounts
from saga.model_error import ModelError
from saga.plans.plan import PieceOutput, Plan
from saga.requests import PathsRequest, Progress
from saga.states.life_courses import paths_table

if TYPE_CHECKING:
    from saga.forecaster import Forecaster


class PathsPlan(Plan[PathsRequest]):
    """Paths of each person, from which `saga tables` makes tables of groups."""

    @staticmethod
    def check(forecaster: Forecaster, request: PathsRequest) -> None:
        """Raise UsageError if the bundle lacks the states."""
        if request.states:
            forecaster.bundle.state_weights()

    def blocks(self, piece: Panel, progress: Progress | None) -> Iterator[PieceOutput]:
        """The rows of a piece."""
        forecaster, request, draws = self.forecaster, self.request, self.draws
        wages = forecaster.wage_index(draws) if request.wages else None
        if request.states:
            courses = forecaster.life_courses(
                piece, draws, to_age=request.to_age, progress=progress
            )
            tables = (paths_table(course.paths, course, wages) for course in courses)
        else:
            tables = (paths_table(paths, None, wages) for paths in self.paths(piece, progress))
        for table in tables:
            yield PieceOutput(round_amounts(table, self.decimals))

    def described(self) -> dict[str, object]:
        """The model's own error, which tables of groups need, if it is known."""
        vintages = self.forecaster.bundle.vintages
        if vintages is None:
            return {}
        with faults_of(VINTAGES):
            error = ModelError.fit(vintages)
            error.describe()  # as the tables will
        return {"vintages": asdict(error)}
