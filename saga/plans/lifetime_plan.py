"""The plan of lifetimes: present values of the years of each person, and of all together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from saga.data.panel import Panel
from saga.forecast_results import Lifetimes, Result
from saga.forecast_tables import lifetime_table, round_population
from saga.forecast_warnings import ForecastWarning
from saga.lifetime import population
from saga.plans.plan import PieceOutput, Plan
from saga.request_warnings import past_warnings, tax_warnings
from saga.requests import LifetimeRequest, Progress
from saga.tax.tax_rules import TaxRule

if TYPE_CHECKING:
    from saga.forecaster import Forecaster


class LifetimePlan(Plan[LifetimeRequest]):
    """Present values, before and after tax."""

    @staticmethod
    def check(forecaster: Forecaster, request: LifetimeRequest) -> None:
        """Raise UsageError if the tax rule cannot be used."""
        forecaster.tax_rule(request.tax)

    @property
    def _tax(self) -> TaxRule | None:
        return self.forecaster.tax_rule(self.request.tax)

    def blocks(self, piece: Panel, progress: Progress | None) -> Iterator[PieceOutput]:
        """The rows of a piece, values and taxes on all paths, and what is to be recorded."""
        forecaster, request = self.forecaster, self.request
        for paths in self.paths(piece, progress):
            table, values, taxes = lifetime_table(
                paths,
                forecaster.calibrator_for(paths),
                piece,
                request,
                forecaster.records,
                self.decimals,
                tax=self._tax,
            )
            issued = self.recording.issue_lifetimes(paths, request) if self.recording else ()
            yield PieceOutput(table, tuple(issued), values, taxes)

    def described(self) -> dict[str, object]:
        """Rate, ages and the tax rule."""
        request, tax = self.request, self._tax
        return {
            "rate": request.rate,
            "to_age": request.to_age,
            "from_age": request.from_age,
            "tax": request.tax if isinstance(request.tax, str) else request.tax.name,
            **({} if tax is None else {"tax_rule": tax.describe()}),
        }

    def own_warnings(self) -> Iterator[ForecastWarning]:
        """Unknown years of the past, and what is not published of the tax rule."""
        forecaster, request = self.forecaster, self.request
        if request.from_age is not None:
            yield from past_warnings(self.panel, request.from_age, request.unknown_years)
        if self._tax is not None:
            price_year = forecaster.transforms.price_year
            yield from tax_warnings(self._tax, forecaster.facts, price_year)

    def completed(self, result: Result, whole: PieceOutput) -> Lifetimes:
        """The result with the values on all paths, and their distribution over persons."""
        values = whole.values
        assert values is not None
        statistics = population(values[~np.isnan(values).any(axis=1)])
        statistics = round_population(statistics, self.decimals)
        return Lifetimes(**vars(result), values=values, population=statistics, taxes=whole.taxes)
