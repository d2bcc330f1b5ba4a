"""What a forecaster returns: the forecasts and the lifetimes of a panel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.errors import Problem
from saga.forecast_warnings import ForecastWarning
from saga.table_results import TableResult

if TYPE_CHECKING:
    from saga.pages.person import ForecastPicture


@dataclass(frozen=True, eq=False, repr=False)
class Result(TableResult):
    """What a request gives, whatever the door: `saga.forecaster.Forecaster.run`.

    `table` is that of the product, `warnings` are those of `saga.forecast_warnings`, `provenance`
    says what made it. `left_out` are the persons who cannot be forecast, `panel` the others.
    `issued` is what a ledger is to enter, if the request is to be recorded.
    """

    table: pl.DataFrame
    warnings: tuple[ForecastWarning, ...]
    panel: Panel
    provenance: Mapping[str, object]
    left_out: tuple[Problem, ...] = ()
    issued: tuple[object, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Forecasts(Result):
    """The forecast of a panel; `table` is that of `forecast_table`."""

    def plot(self, person_id: str | None = None) -> ForecastPicture:
        """The picture of one person, which a notebook shows and `save` writes.

        Raises:
            UsageError: If no person is named and there are several, or the table has no median.
            InputError: If the person is not in the table.
        """
        from saga.pages.person import ForecastPicture  # takes a second to import

        return ForecastPicture.of(person_id, self.panel, self.table, self.provenance, self.warnings)


@dataclass(frozen=True, eq=False, repr=False)
class Lifetimes(Result):
    """Present values of a panel.

    `table` is that of `lifetime_table`, `values` (n_person, n_path) are the present values of all
    paths, and `population` is the table of `saga.lifetime.population`. With a tax rule, `taxes`
    (n_person, n_path) are the present values of the tax on all paths.
    """

    values: NDArray[np.float64] = field(kw_only=True)
    population: pl.DataFrame = field(kw_only=True)
    taxes: NDArray[np.float64] | None = field(default=None, kw_only=True)
