"""Batch products: the forecast table, the lifetime table or the paths of all persons of a source.

`saga.batch.engine` runs partition by partition; this module computes the rows of one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from saga.bundle import Bundle
from saga.data.facts import Facts, open_facts
from saga.data.panel import Panel
from saga.forecast_checks import find_without_rows
from saga.forecast_results import Result
from saga.forecaster import Forecaster
from saga.macro.scenarios import SCENARIOS, Scenario, scenario_from
from saga.requests import (
    Draws,
    ForecastRequest,
    PathsRequest,
    Request,
    RolloutName,
)
from saga.schema import MIN_AGE
from saga.version import current_version

if TYPE_CHECKING:
    from saga.calibration.adaptive.issuance import AdaptedForecaster
    from saga.calibration.adaptive.issued_intervals import IssuedInterval

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
    facts: str | Path | Facts | None = None  # an office's own, or their folder or file

    def with_contents(self) -> Self:
        """The recipe with its scenario and facts themselves: files may change during a run."""
        scenario = self.draws.scenario
        if not (isinstance(scenario, str) and scenario in SCENARIOS):
            scenario = scenario_from(scenario, None)
        draws = replace(self.draws, scenario=scenario)
        return replace(self, draws=draws, facts=open_facts(self.facts))

    def describe(self) -> dict[str, object]:
        """The values on which rows depend, to be written as JSON.

        The bundle and a scenario of values are represented by their digests.

        Raises:
            BundleError: If the bundle cannot be trusted.
            UsageError: If the bundle has no states and the request needs them.
        """
        scenario = self.draws.scenario
        bundle = Bundle.load(self.bundle)
        if isinstance(self.request, PathsRequest) and self.request.states:
            bundle.state_weights()  # fails before the input is staged
        return {
            "product": self.request.product,
            "bundle": bundle.digest,
            **asdict(self.request),
            "paths": self.draws.n_paths,
            "seed": self.draws.seed,
            "scenario": scenario.digest if isinstance(scenario, Scenario) else scenario,
            "rollout": self.rollout,
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
            facts=open_facts(self.facts),
        )

    def open(self) -> ProductComputation:
        """The computation of the recipe, with its bundle loaded."""
        return ProductComputation(self, self.forecaster())


class ProductComputation:
    """Computes the rows of a recipe with a forecaster, partition by partition.

    With `in_force` the thresholds follow a ledger, to which `enter` adds what is issued, if the
    rows are to be recorded.
    """

    def __init__(
        self,
        recipe: Recipe,
        forecaster: Forecaster,
        in_force: AdaptedForecaster | None = None,
        enter: Callable[[Sequence[IssuedInterval]], object] | None = None,
    ) -> None:
        self.recipe, self.forecaster = recipe, forecaster
        self.in_force, self.enter = in_force, enter

    @property
    def concurrent(self) -> bool:
        """Whether threads may share this: not if it enters rows in a ledger."""
        return self.enter is None

    def ineligible(self, panel: Panel) -> dict[str, str]:
        """The persons without rows -> the rule that excludes them."""
        reasons = find_without_rows(panel, self.recipe.request, self.forecaster.records)
        return {person: problem.rule for person, problem in reasons.items()}

    def compute(self, panel: Panel) -> Result:
        """The result of a panel of eligible persons, person by person in sorted order."""
        recipe, record = self.recipe, self.enter is not None
        result = self.forecaster.run(
            recipe.request, panel, recipe.draws, self.in_force, record=record
        )
        if self.enter is not None:
            self.enter(result.issued)
        return result
