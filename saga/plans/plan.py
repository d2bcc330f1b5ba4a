"""A checked request and its result: the product of each piece, and what is said of the whole.

`saga.forecaster.Forecaster.plan` makes a plan. Money, scenario and tax are checked before, and
rounding, provenance, warnings and guarantees are made here and nowhere else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.data.panel import Panel
from saga.errors import Problem
from saga.features.training_reference import ComparedRecords
from saga.forecast_checks import check_scenario
from saga.forecast_results import Result
from saga.forecast_warnings import ForecastWarning
from saga.paths import Paths
from saga.requests import Draws, Progress, Request

if TYPE_CHECKING:  # a forecast needs no ledger
    from saga.calibration.adaptive.issuance import AdaptedForecaster
    from saga.calibration.adaptive.issued_intervals import IssuedInterval
    from saga.forecaster import Forecaster

RequestT = TypeVar("RequestT", bound=Request)


@dataclass(frozen=True)
class PieceOutput:
    """What is computed for one piece of a plan; only some products have values and taxes."""

    table: pl.DataFrame
    issued: tuple[IssuedInterval, ...] = ()
    values: Floats | None = None
    taxes: Floats | None = None

    @classmethod
    def joined(cls, outputs: Sequence[Self]) -> Self:
        """The outputs of consecutive persons as one."""

        def together(arrays: list[Floats | None]) -> Floats | None:
            known = [array for array in arrays if array is not None]
            return np.concatenate(known) if known else None

        return cls(
            pl.concat([output.table for output in outputs]),
            tuple(part for output in outputs for part in output.issued),
            together([output.values for output in outputs]),
            together([output.taxes for output in outputs]),
        )


@dataclass(frozen=True)
class Plan(Generic[RequestT]):
    """A checked request for the persons of `panel`, all of whom can be forecast.

    `left_out` are the reasons why others cannot. A subclass has the `blocks` of a product, and what
    else is special about it.
    """

    forecaster: Forecaster
    request: RequestT
    panel: Panel
    draws: Draws
    left_out: tuple[Problem, ...] = ()
    in_force: AdaptedForecaster | None = None
    record: bool = False

    @staticmethod
    @abstractmethod
    def check(forecaster: Forecaster, request: RequestT) -> None:
        """Raise UsageError if the bundle lacks a coverage, tax or pension rule, or states."""

    @abstractmethod
    def blocks(self, piece: Panel, progress: Progress | None) -> Iterator[PieceOutput]:
        """What is computed of a piece, in blocks of persons."""

    def described(self) -> dict[str, object]:
        """What provenance says of the product's options."""
        return {}

    def own_warnings(self) -> Iterable[ForecastWarning]:
        """What is to be known of this product alone."""
        return ()

    def completed(self, result: Result, whole: PieceOutput) -> Result:  # noqa: ARG002 # others do
        """The result with what only this product has, of all persons together."""
        return result

    def check_scenario(self) -> None:
        """Raise UsageError if the scenario covers no year of any person's forecast."""
        scenario = self.forecaster.scenario(self.draws.scenario)
        check_scenario(scenario, self.panel, self.request)

    @property
    def decimals(self) -> int | None:
        """Decimals of the amounts in a table; None: amounts are not rounded."""
        return None if self.request.unrounded else self.forecaster.transforms.decimals

    @property
    def recording(self) -> AdaptedForecaster | None:
        """What issues the intervals that are to be recorded; None: nothing is."""
        return self.in_force if self.record else None

    def years_ahead(self, to_age: int) -> int:
        """Years to simulate for the youngest person."""
        return max(1, to_age - int((self.panel.origins - self.panel.birth_years).min()))

    def pieces(self, n_persons: int) -> list[Panel]:
        """The persons in pieces of at most `n_persons`, in their order."""
        if self.panel.n_persons <= n_persons:
            return [self.panel]
        persons = self.panel.persons()
        starts = range(0, len(persons), n_persons)
        return [self.panel.only(persons[start : start + n_persons]) for start in starts]

    def paths(self, piece: Panel, progress: Progress | None) -> Iterator[Paths]:
        """Recalibrated paths of a piece until the last age, in blocks of persons."""
        return self.forecaster.blocks(
            piece, self.draws, to_horizon=None, to_age=self.request.to_age, progress=progress
        )

    def compute(self, piece: Panel, progress: Progress | None = None) -> PieceOutput:
        """The rows of a piece, and what is to be recorded of it."""
        return PieceOutput.joined(list(self.blocks(piece, progress)))

    def provenance(self) -> dict[str, object]:
        """What made the result: bundle, draws, product, tax rule and adaptive state."""
        made_by = self.forecaster.provenance(self.draws)
        provenance = {**made_by, "product": self.request.product, **self.described()}
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
        whole = PieceOutput.joined(outputs)
        warnings = self.forecaster.warnings(
            self.panel,
            self.request,
            self.draws,
            compared=None if self.left_out else compared,
        )
        result = Result(
            whole.table,
            (*warnings, *self.own_warnings()),
            self.panel,
            self.provenance(),
            self.left_out,
            whole.issued,
        )
        return self.completed(result, whole)
