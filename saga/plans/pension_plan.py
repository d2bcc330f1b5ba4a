"""The plan of pensions: rights of each career by a rule, and what a reform changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from saga.data.panel import Panel
from saga.forecast_results import Pensions, Result
from saga.forecast_warnings import ForecastWarning
from saga.pensions.pension_rules import ROLES, PensionLaw, check_laws
from saga.pensions.pension_table import BASIS, WageIndex, reform_table, rights_table
from saga.plans.plan import PieceOutput, Plan
from saga.request_warnings import past_warnings, pension_warnings
from saga.requests import PensionRequest, Progress

if TYPE_CHECKING:
    from saga.forecaster import Forecaster


def laws_of(forecaster: Forecaster, request: PensionRequest) -> list[PensionLaw]:
    """The rule and the reform, if there is one, in the bundle's money.

    Raises UsageError if one cannot be used.
    """
    money = forecaster.transforms.price_year, forecaster.transforms.currency
    sources = ((role, getattr(request, role)) for role in ROLES)
    return [
        PensionLaw.of(source, forecaster.facts, *money, role)
        for role, source in sources
        if source is not None
    ]


class PensionPlan(Plan[PensionRequest]):
    """Pension rights from earnings only."""

    @staticmethod
    def check(forecaster: Forecaster, request: PensionRequest) -> None:
        """Raise UsageError if a rule cannot be used, or two cannot be compared."""
        check_laws(laws_of(forecaster, request), request.first_age)

    @cached_property
    def _laws(self) -> list[PensionLaw]:
        return laws_of(self.forecaster, self.request)

    def _wages(self, law: PensionLaw) -> WageIndex:
        """The wages that a law's index follows."""
        return self.forecaster.wage_index(
            self.draws, lambda years: np.asarray(law.mean_growth * years)
        )

    def blocks(self, piece: Panel, progress: Progress | None) -> Iterator[PieceOutput]:
        """The rows of a piece, and the values that group tables need."""
        laws = [(law, self._wages(law)) for law in self._laws]
        calibrator = self.forecaster.calibrator
        for paths in self.paths(piece, progress):
            table, values = rights_table(
                paths, piece, self.request, laws, calibrator, self.decimals
            )
            yield PieceOutput(table, values=values)

    def described(self) -> dict[str, object]:
        """The rules, and what rights are made from."""
        rules = zip(("rule", "reform"), (law.rule.describe() for law in self._laws), strict=False)
        return {**dict(rules), "basis": BASIS, "first_age": self.request.first_age}

    def own_warnings(self) -> Iterator[ForecastWarning]:
        """Unknown years of the past, and persons with years before the first one of a rule."""
        request, first_year = self.request, max(law.rule.first_year for law in self._laws)
        yield from past_warnings(self.panel, request.first_age, request.unknown_years)
        yield from pension_warnings(self.panel, request, first_year)

    def completed(self, result: Result, whole: PieceOutput) -> Pensions:
        """The result with the groups of a reform."""
        groups = None if whole.values is None else reform_table(whole.values)
        return Pensions(**vars(result), groups=groups)
