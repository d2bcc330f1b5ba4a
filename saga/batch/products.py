"""Batch products: the forecast table, the lifetime table or the paths of all persons of a source.

`saga.batch.engine` runs partition by partition; this module computes the rows of one partition.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.bundle import Bundle
from saga.data.facts import open_facts
from saga.data.panel import Panel
from saga.data.rules import find_ineligible
from saga.files.atomic import digest_file
from saga.forecast_tables import round_amounts
from saga.forecast_warnings import ForecastWarning
from saga.forecaster import Forecaster
from saga.paths import Paths
from saga.requests import (
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PathsRequest,
    Precision,
    Request,
    RolloutName,
)
from saga.schema import MAX_AGE, MIN_AGE
from saga.states.life_courses import LifeCourses
from saga.version import current_version

_ROWS, _PERSONS = 5_000_000, 2_000  # of one partition, at most


@dataclass(frozen=True)
class Recipe:
    """A product and everything on which it depends besides the persons.

    The type of `request` decides the product. A recipe is small and can be pickled.
    """

    bundle: str | Path  # its directory
    request: Request = ForecastRequest()
    draws: Draws = Draws()
    rollout: RolloutName | None = None
    precision: Precision = "float32"
    facts: str | Path | None = None  # a folder or file with an office's own

    def describe(self) -> dict[str, object]:
        """The values on which rows depend, to be written as JSON.

        The bundle and a scenario file are represented by their digests.

        Raises:
            BundleError: If the bundle cannot be trusted.
            UsageError: If the bundle has no states and the request needs them.
        """
        scenario = self.draws.scenario
        if isinstance(scenario, str | Path) and Path(scenario).is_file():
            scenario = digest_file(Path(scenario))
        bundle = Bundle.load(self.bundle)
        if isinstance(self.request, PathsRequest) and self.request.states:
            bundle.state_weights()  # fails before the input is staged
        return {
            "product": self.request.product,
            "bundle": bundle.digest,
            **asdict(self.request),
            "paths": self.draws.n_paths,
            "seed": self.draws.seed,
            "scenario": scenario,
            "rollout": self.rollout,
            "precision": self.precision,
            "facts": open_facts(self.facts).digest,
            "code_version": current_version(),
        }

    def largest_partition(self) -> int:
        """How many persons of one partition have room in memory, by the rows of a person."""
        if isinstance(self.request, PathsRequest):
            return max(1, _ROWS // (self.draws.n_paths * (self.request.to_age - MIN_AGE)))
        return _PERSONS

    def forecaster(self) -> Forecaster:
        """The bundle's forecaster, with the options of the recipe."""
        return Forecaster.load(
            self.bundle,
            threads=1,
            rollout=self.rollout,
            precision=self.precision,
            facts=open_facts(self.facts),
        )

    def open(self) -> ProductComputation:
        """The computation of the recipe, with its bundle loaded."""
        return ProductComputation(self, self.forecaster())


class ProductComputation:
    """Computes the rows of a recipe with a forecaster, partition by partition."""

    def __init__(self, recipe: Recipe, forecaster: Forecaster) -> None:
        self.recipe, self.forecaster = recipe, forecaster
        request = recipe.request
        self.provenance = {**forecaster.provenance(recipe.draws), "product": request.product}
        if isinstance(request, LifetimeRequest):
            self.provenance |= forecaster.tax_provenance(request)

    def ineligible(self, panel: Panel) -> dict[str, str]:
        """The persons that cannot be forecast -> the rule that excludes them."""
        request = self.recipe.request
        if isinstance(request, ForecastRequest):
            problems = find_ineligible(panel, MAX_AGE, request.horizons[0])
        else:
            problems = find_ineligible(panel, request.to_age)
        return {person: problem.rule for person, problem in problems.items()}

    def compute(self, panel: Panel) -> pl.DataFrame:
        """The rows of a panel of eligible persons, person by person in sorted order."""
        forecaster, request, draws = self.forecaster, self.recipe.request, self.recipe.draws
        if isinstance(request, ForecastRequest):
            return forecaster.forecast(panel, request, draws).table
        if isinstance(request, LifetimeRequest):
            return forecaster.lifetime(panel, request, draws).table
        if request.states:
            blocks = forecaster.life_courses(panel, draws, to_age=request.to_age)
            tables = [paths_table(block.paths, block) for block in blocks]
        else:
            path_blocks = forecaster.blocks(panel, draws, to_horizon=None, to_age=request.to_age)
            tables = [paths_table(block) for block in path_blocks]
        return round_amounts(pl.concat(tables), forecaster.decimals(request))

    def warnings(self, panel: Panel) -> tuple[ForecastWarning, ...]:
        """The warnings about a panel of eligible persons."""
        return self.forecaster.warnings(panel, self.recipe.request, self.recipe.draws)


def paths_table(paths: Paths, life_courses: LifeCourses | None = None) -> pl.DataFrame:
    """Paths as a long table `person_id, path, year, earnings`, sorted in this order of columns.

    Paths are numbered from 0; earnings are real money of the panel a year. A path ends with its
    last simulated year, at age 64 or earlier. With `life_courses`, whose paths are `paths`, the
    table also has the columns of `saga.states.codes`; a person without a code has null.
    """
    person, path, column = np.nonzero(np.isfinite(paths.earnings.transpose(0, 2, 1)))
    table = pl.DataFrame(
        {
            "person_id": paths.person_id[person],
            "path": path.astype(np.int32),
            "year": paths.years[person, column].astype(np.int32),
            "earnings": paths.earnings[person, column, path],
        }
    )
    if life_courses is None:
        return table
    return table.with_columns(
        _code_column(life_courses, name, person, column, path).alias(name)
        for name in life_courses.numbers
    )


def _code_column(life_courses: LifeCourses, name: str, *index: NDArray[np.int64]) -> pl.Series:
    """The codes of a column of life courses; number 0 is a missing code."""
    codes = life_courses.labels(name)
    number = life_courses.numbers[name][index].astype(np.int64)
    return pl.Series([None, *codes], dtype=pl.Enum(codes)).gather(number)
