"""Batch products: the forecast table, the lifetime table or the paths of all persons in a file or folder.

`saga.batch.engine` runs partition by partition; this module computes the rows of one partition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.batch.engine import PERSONS_A_PARTITION, Opens, Progress, ScoreReport, run
from saga.batch.partitions import Intake
from saga.bundle import Bundle
from saga.data.files import keep_apart
from saga.data.panel import Panel
from saga.files.atomic import digest_file
from saga.forecaster import Forecaster
from saga.paths import Paths
from saga.requests import (
    Draws,
    ForecastRequest,
    LifetimeRequest,
    OnError,
    Precision,
    Request,
    RolloutName,
)
from saga.schema import MAX_AGE
from saga.states.life_courses import LifeCourses
from saga.version import current_version


def score(
    source: str | Path,
    out_dir: str | Path,
    request: Request = ForecastRequest(),
    draws: Draws = Draws(),
    *,
    bundle: str | Path,
    rollout: RolloutName | None = None,
    precision: Precision = "float32",
    mapping: str | Path | None = None,
    prices: int | None = None,
    on_error: OnError = "fail",
    workers: int = 1,
    persons_per_partition: int = PERSONS_A_PARTITION,
    progress: Progress | None = None,
    under: Callable[[Recipe], Opens] | None = None,
) -> ScoreReport:
    """Forecast everybody in `source` (a file or folder, any size) into `out_dir`, going on where an earlier run stopped.

    The product follows from the type of `request`. `workers` processes share the
    partitions of `persons_per_partition` persons; the rows do not depend on either. `under` makes another recipe of the product's, such
    as that under the thresholds of a ledger (`calibration.adaptive.issuance.AdaptiveRecipe`). Raises `InputError` and `UsageError` as `read_panel`
    and the forecaster do, `UsageError` where `out_dir` belongs to another run, `Interrupted` on SIGINT or SIGTERM.
    """
    recipe = Recipe(Path(bundle), request, draws, rollout, precision)
    opens = recipe if under is None else under(recipe)
    keep_apart(Path(source), Path(out_dir), "The output")
    intake = Intake(Path(source), mapping, prices, on_error)
    return run(
        intake, Path(out_dir), opens, workers=workers, size=persons_per_partition, progress=progress
    )


@dataclass(frozen=True)
class Recipe:
    """A product and all it depends on beside the persons. Small and picklable: a worker process opens it for itself.

    Raises `UsageError` for an unknown scenario, `BundleError` for a bundle that cannot be trusted.
    """

    bundle: Path
    request: Request = ForecastRequest()
    draws: Draws = Draws()
    rollout: RolloutName | None = None
    precision: Precision = "float32"

    def describe(self) -> dict[str, Any]:
        """What the rows depend on, as JSON values; the bundle and a scenario file by their content."""
        scenario = self.draws.scenario
        if isinstance(scenario, str | Path) and Path(scenario).is_file():
            scenario = digest_file(Path(scenario))
        bundle = Bundle.load(self.bundle)
        if getattr(self.request, "states", False):
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
            "code_version": current_version(),
        }

    def open(self) -> Product:
        """Load the bundle."""
        return Product(
            self,
            Forecaster.load(self.bundle, threads=1, rollout=self.rollout, precision=self.precision),
        )


class Product:
    """Computes the product for any panel whose persons all can be forecast; `provenance` says from what."""

    def __init__(self, recipe: Recipe, forecaster: Forecaster) -> None:
        self.recipe, self.forecaster = recipe, forecaster
        if isinstance(recipe.request, LifetimeRequest):
            forecaster.check_tax(recipe.request.tax)
        self.provenance = {
            **forecaster.provenance(recipe.draws),
            "product": recipe.request.product,
        }

    def obstacles(self, panel: Panel) -> dict[str, str]:
        """The persons that cannot be forecast, and the rule that says so."""
        request = self.recipe.request
        if isinstance(request, ForecastRequest):
            problems = self.forecaster.obstacles(panel, MAX_AGE, request.horizons[0])
        else:
            problems = self.forecaster.obstacles(panel, request.to_age)
        return {person: problem.rule for person, problem in problems.items()}

    def __call__(self, panel: Panel) -> pl.DataFrame:
        """The rows of the product, person by person in sorted order."""
        forecaster, request, draws = self.forecaster, self.recipe.request, self.recipe.draws
        if isinstance(request, ForecastRequest):
            return forecaster.forecast(panel, request, draws)
        if isinstance(request, LifetimeRequest):
            return forecaster.lifetime(panel, request, draws).table
        if request.states:
            courses = forecaster.life_courses(panel, draws, to_age=request.to_age)
            return pl.concat([table_of(block.paths, block) for block in courses])
        blocks = forecaster.blocks(panel, draws, to_horizon=None, to_age=request.to_age)
        return pl.concat([table_of(block) for block in blocks])


def table_of(paths: Paths, courses: LifeCourses | None = None) -> pl.DataFrame:
    """Paths as a long table `person_id, path, year, earnings`, sorted; paths count from 0, years end at age 64.

    With their `courses` also state, industry, occupation, county, marital_status, children, youngest_child: codes, null where there
    is none.
    """
    person, path, horizon = np.nonzero(
        np.broadcast_to(paths.within_age[:, None, :], (len(paths), paths.n_paths, paths.n_horizons))
    )
    earnings = paths.earnings[person, horizon, path]
    simulated = np.isfinite(earnings)
    return pl.DataFrame(
        {
            "person_id": paths.person_id[person],
            "path": path.astype(np.int32),
            "year": paths.years[person, horizon].astype(np.int32),
            "earnings": earnings,
            **(
                {}
                if courses is None
                else {
                    name: _coded(courses, name, person, horizon, path) for name in courses.numbers
                }
            ),
        }
    ).filter(simulated)


def _coded(courses: LifeCourses, name: str, *where: NDArray[np.int64]) -> pl.Series:
    codes = courses.labels(name)
    number = courses.numbers[name][where].astype(np.int64)
    return pl.Series([None, *codes], dtype=pl.Enum(codes)).gather(number)
