"""A checked request and its result: the product of each piece, and what is said of the whole.

`saga.forecaster.Forecaster.plan` makes a plan. Money, scenario and tax are checked before, and
rounding, provenance, warnings and guarantees are made here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.errors import Problem
from saga.features.training_reference import ComparedRecords
from saga.forecast_checks import check_scenario
from saga.forecast_results import Forecasts, Lifetimes, Pensions, Result
from saga.forecast_tables import (
    forecast_table,
    lifetime_table,
    round_amounts,
    round_population,
)
from saga.lifetime import population
from saga.model_error import ModelError
from saga.paths import Paths
from saga.pensions.pension_reform import reform_table
from saga.pensions.pension_rules import PensionLaw
from saga.pensions.pension_table import BASIS, WageIndex, rights_table
from saga.requests import (
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PathsRequest,
    PensionRequest,
    Progress,
    Request,
)
from saga.states.life_courses import paths_table

if TYPE_CHECKING:  # a forecast needs no ledger
    from saga.calibration.adaptive.issuance import AdaptedForecaster
    from saga.calibration.adaptive.issued_intervals import IssuedInterval
    from saga.forecaster import Forecaster

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PieceOutput:
    """What is computed for one piece of a plan; only lifetimes have values and taxes."""

    table: pl.DataFrame
    issued: tuple[IssuedInterval, ...] = ()
    values: Array | None = None
    taxes: Array | None = None

    @classmethod
    def joined(cls, outputs: Sequence[Self]) -> Self:
        """The outputs of consecutive persons as one."""

        def together(arrays: list[Array | None]) -> Array | None:
            known = [array for array in arrays if array is not None]
            return np.concatenate(known) if known else None

        return cls(
            pl.concat([output.table for output in outputs]),
            tuple(part for output in outputs for part in output.issued),
            together([output.values for output in outputs]),
            together([output.taxes for output in outputs]),
        )


@dataclass(frozen=True)
class Plan:
    """A checked request for the persons of `panel`, all of whom can be forecast.

    `left_out` are the reasons why others cannot.
    """

    forecaster: Forecaster
    request: Request
    panel: Panel
    draws: Draws
    left_out: tuple[Problem, ...] = ()
    in_force: AdaptedForecaster | None = None
    record: bool = False

    def check_scenario(self) -> None:
        """Raise UsageError if the scenario covers no year of any person's forecast."""
        scenario, request = self.forecaster.scenario(self.draws.scenario), self.request
        if isinstance(request, ForecastRequest):
            check_scenario(scenario, self.panel, years=max(request.horizons))
        else:
            check_scenario(scenario, self.panel, to_age=request.to_age)

    def years_ahead(self, to_age: int) -> int:
        """Years to simulate for the youngest person."""
        born, last = pl.col("birth_year").first(), pl.col("year").max()
        age = self.panel.frame.group_by("person_id").agg(age=last - born)["age"]
        return max(1, to_age - int(age.to_numpy().min()))

    def pieces(self, n_persons: int) -> list[Panel]:
        """The persons in pieces of at most `n_persons`, in their order."""
        if self.panel.n_persons <= n_persons:
            return [self.panel]
        persons = self.panel.persons()
        starts = range(0, len(persons), n_persons)
        return [self.panel.only(persons[start : start + n_persons]) for start in starts]

    def compute(self, piece: Panel, progress: Progress | None = None) -> PieceOutput:
        """The rows of a piece, and what is to be recorded of it."""
        return PieceOutput.joined(list(self._blocks(piece, progress)))

    def _blocks(self, piece: Panel, progress: Progress | None) -> Iterator[PieceOutput]:
        """What is computed of a piece, in blocks of persons."""
        forecaster, request, draws = self.forecaster, self.request, self.draws
        decimals = forecaster.decimals(request)
        wages = (
            forecaster.wage_index(draws)
            if isinstance(request, PathsRequest) and request.wages
            else None
        )
        if isinstance(request, ForecastRequest):
            for marginals in forecaster.marginals(
                piece, draws.scenario, n_horizons=request.n_years, progress=progress
            ):
                if not request.beyond_span:
                    age = marginals.origin_year - marginals.birth_year
                    ahead = np.arange(1, marginals.n_horizons + 1)
                    marginals = marginals.only(forecaster.records.reach(age[:, None], ahead))
                calibrator = forecaster.calibrator_for(marginals)
                table = forecast_table(marginals, calibrator, request, forecaster.records)
                yield PieceOutput(round_amounts(table, decimals), self._issue(marginals))
        elif isinstance(request, PathsRequest) and request.states:
            for courses in forecaster.life_courses(
                piece, draws, to_age=request.to_age, progress=progress
            ):
                table = paths_table(courses.paths, courses, wages)
                yield PieceOutput(round_amounts(table, decimals))
        else:
            for paths in forecaster.blocks(
                piece, draws, to_horizon=None, to_age=request.to_age, progress=progress
            ):
                if isinstance(request, LifetimeRequest):
                    yield self._lifetimes(piece, paths, request)
                elif isinstance(request, PensionRequest):
                    yield self._pensions(piece, paths, request)
                else:
                    yield PieceOutput(round_amounts(paths_table(paths, None, wages), decimals))

    def _lifetimes(self, piece: Panel, paths: Paths, request: LifetimeRequest) -> PieceOutput:
        forecaster = self.forecaster
        table, values, taxes = lifetime_table(
            paths,
            forecaster.calibrator_for(paths),
            piece,
            request,
            forecaster.records,
            forecaster.decimals(request),
            tax=None if request.tax == "none" else forecaster.tax_rule(request.tax),
        )
        return PieceOutput(table, self._issue(paths), values, taxes)

    def _pensions(self, piece: Panel, paths: Paths, request: PensionRequest) -> PieceOutput:
        forecaster = self.forecaster

        def wages(law: PensionLaw) -> WageIndex:
            return forecaster.wage_index(
                self.draws, lambda years: np.asarray(law.mean_growth * years)
            )

        table, values = rights_table(
            paths,
            piece,
            request,
            [(law, wages(law)) for law in forecaster.pension_laws(request)],
            forecaster.calibrator,
            forecaster.decimals(request),
        )
        return PieceOutput(table, values=values)

    def _issue(self, block: Marginals | Paths) -> tuple[IssuedInterval, ...]:
        if not self.record or self.in_force is None:
            return ()
        return tuple(self.in_force.issue(block, self.request))

    def provenance(self) -> dict[str, object]:
        """What made the result: bundle, draws, product, tax rule and adaptive state."""
        request = self.request
        provenance = {**self.forecaster.provenance(self.draws), "product": request.product}
        if isinstance(request, LifetimeRequest):
            provenance |= {
                "rate": request.rate,
                "to_age": request.to_age,
                "from_age": request.from_age,
                "tax": request.tax if isinstance(request.tax, str) else request.tax.name,
            }
            if request.tax != "none":
                provenance["tax_rule"] = self.forecaster.tax_rule(request.tax).describe()
        if isinstance(request, PensionRequest):
            laws = self.forecaster.pension_laws(request)
            names = ("rule", "reform")[: len(laws)]
            provenance |= zip(names, (law.rule.describe() for law in laws), strict=True)
            provenance |= {"basis": BASIS, "first_age": request.first_age}
        vintages = self.forecaster.bundle.vintages
        if isinstance(request, PathsRequest) and vintages is not None:
            provenance["vintages"] = asdict(ModelError.fit(vintages))
        if self.in_force is not None:
            provenance["adaptive"] = self.in_force.identity()
        return provenance

    def result(
        self, outputs: Sequence[PieceOutput], compared: ComparedRecords | None = None
    ) -> Result:
        """The result of all pieces, in their order.

        `compared` are the records beside those of training of the panel that the plan was made for,
        if they are compared already.
        """
        request, whole = self.request, PieceOutput.joined(outputs)
        result = Result(
            whole.table,
            self.forecaster.warnings(
                self.panel, request, self.draws, compared=None if self.left_out else compared
            ),
            self.panel,
            self.provenance(),
            self.left_out,
            whole.issued,
        )
        if isinstance(request, ForecastRequest):
            return Forecasts(**vars(result))
        if isinstance(request, PensionRequest):
            groups = None if whole.values is None else reform_table(whole.values)
            return Pensions(**vars(result), groups=groups)
        if whole.values is None:
            return result
        statistics = population(whole.values[~np.isnan(whole.values).any(axis=1)])
        statistics = round_population(statistics, self.forecaster.decimals(request))
        return Lifetimes(
            **vars(result), values=whole.values, population=statistics, taxes=whole.taxes
        )
