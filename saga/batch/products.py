"""Batch scoring with a bundle: the forecast table, the lifetime table or the paths of everybody in a file or folder.

`saga.batch.engine` does it partition by partition; here is what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.batch.engine import PERSONS_A_PARTITION, Opens, Progress, ScoreReport, run
from saga.batch.partitions import Intake
from saga.bundle import Bundle, current_version
from saga.data.files import keep_apart
from saga.data.panel import Panel
from saga.data.reading import OnError
from saga.errors import UsageError
from saga.files.atomic import digest_file
from saga.forecaster import Forecaster, RolloutName
from saga.paths import Paths
from saga.schema import MAX_AGE
from saga.simulation.matmul import Precision
from saga.states.life_courses import LifeCourses

PRODUCTS = ("forecasts", "lifetimes", "paths")


def score(
    source: str | Path,
    out_dir: str | Path,
    *,
    bundle: str | Path,
    product: str = "forecasts",
    paths: int = 500,
    seed: int = 0,
    scenario: str | Path | Sequence[Mapping[str, float]] | None = None,
    rollout: RolloutName | None = None,
    precision: Precision = "float32",
    mapping: str | Path | None = None,
    prices: int | None = None,
    on_error: OnError = "fail",
    options: Mapping[str, Any] | None = None,
    workers: int = 1,
    persons_per_partition: int = PERSONS_A_PARTITION,
    progress: Progress | None = None,
    under: Callable[[Recipe], Opens] | None = None,
) -> ScoreReport:
    """Forecast everybody in `source` (a file or folder, any size) into `out_dir`, going on where an earlier run stopped.

    `product` is forecasts, lifetimes or paths; `options` are those of the forecaster's method (see `Recipe`). `workers` processes share the
    partitions of `persons_per_partition` persons; the rows do not depend on either. `under` makes another recipe of the product's, such
    as that under the thresholds of a ledger (`calibration.adaptive.issuance.AdaptiveRecipe`). Raises `InputError` and `UsageError` as `read_panel`
    and the forecaster do, `UsageError` where `out_dir` belongs to another run, `Interrupted` on SIGINT or SIGTERM.
    """
    recipe = Recipe(Path(bundle), product, paths, seed, scenario, options or {}, rollout, precision)
    opens = recipe if under is None else under(recipe)
    keep_apart(Path(source), Path(out_dir), "The output")
    intake = Intake(Path(source), mapping, prices, on_error)
    return run(
        intake, Path(out_dir), opens, workers=workers, size=persons_per_partition, progress=progress
    )


@dataclass(frozen=True)
class Recipe:
    """A product by name, and all it depends on beside the persons. Small and picklable: a worker process opens it for itself.

    `options` go to the forecaster's method: horizons, coverage, quantiles for forecasts; rate, to_age, from_age, tax, coverage,
    quantiles for lifetimes; to_age, circumstances for paths. Raises `UsageError` for an unknown product or scenario, `BundleError` for a
    bundle that cannot be trusted.
    """

    bundle: Path
    product: str = "forecasts"
    paths: int = 500
    seed: int = 0
    scenario: str | Path | Sequence[Mapping[str, float]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    rollout: RolloutName | None = None
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if self.product not in PRODUCTS:
            raise UsageError(
                f"There is no product {self.product!r}. Use one of {', '.join(PRODUCTS)}."
            )

    def describe(self) -> dict[str, Any]:
        """What the rows depend on, as JSON values; the bundle and a scenario file by their content."""
        scenario = self.scenario
        if isinstance(scenario, str | Path) and Path(scenario).is_file():
            scenario = digest_file(Path(scenario))
        bundle = Bundle.load(self.bundle)
        if self.options.get("circumstances"):
            bundle.state_weights()  # found out before the input is staged
        return {
            **asdict(self),
            "bundle": bundle.digest,
            "scenario": scenario,
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
        forecaster.check_tax(recipe.options.get("tax", "none"))
        self.draw: dict[str, Any] = {
            "paths": recipe.paths,
            "seed": recipe.seed,
            "scenario": recipe.scenario,
        }
        self.provenance = {**forecaster.provenance(**self.draw), "product": recipe.product}

    def obstacles(self, panel: Panel) -> dict[str, str]:
        """The persons that cannot be forecast, and the rule that says so."""
        to_age, ahead = (
            int(self.recipe.options.get("to_age", MAX_AGE)),
            min(self.recipe.options.get("horizons", (1,))),
        )
        return {
            person: problem.rule
            for person, problem in self.forecaster.obstacles(panel, to_age, ahead).items()
        }

    def __call__(self, panel: Panel) -> pl.DataFrame:
        """The rows of the product, person by person in sorted order."""
        if self.recipe.product == "forecasts":
            return self.forecaster.forecast(panel, **self.recipe.options, **self.draw)
        if self.recipe.product == "lifetimes":
            return self.forecaster.lifetime(panel, **self.recipe.options, **self.draw).table
        options = dict(self.recipe.options)
        if options.pop("circumstances", False):
            return pl.concat(
                [
                    table_of(block.paths, block)
                    for block in self.forecaster.courses(panel, **options, **self.draw)
                ]
            )
        return pl.concat(
            [
                table_of(block)
                for block in self.forecaster.blocks(panel, to_horizon=None, **options, **self.draw)
            ]
        )


def table_of(paths: Paths, courses: LifeCourses | None = None) -> pl.DataFrame:
    """Paths as a long table `person_id, path, year, earnings`, sorted; paths count from 0, years end at age 64.

    With their `courses` also state, industry, occupation, county, marital_status, children, youngest_child: codes, null where there
    is none.
    """
    person, path, horizon = np.nonzero(
        np.broadcast_to(paths.within_age[:, None, :], (len(paths), paths.count, paths.horizons))
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
