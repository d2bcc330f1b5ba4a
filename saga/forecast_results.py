"""What a forecaster returns: tables and warnings, for polars, pandas, Arrow and notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga import exchange
from saga.data.panel import Panel
from saga.errors import Problem
from saga.forecast_warnings import ForecastWarning, merge_warnings
from saga.pages.format import figure, set_start
from saga.summaries import Summarised, Summary, count, format_counts

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from saga.calibration.adaptive.issued_intervals import IssuedInterval
    from saga.pages.person import ForecastPicture
    from saga.pages.picture import Picture

_SHOWN = (
    "person_id",
    "year",
    "age",
    "to_age",
    "measure",
    "statistic",
    "value",
    "mean",
    "p_zero",
    "q50",
    "lower_90",
    "upper_90",
)
_ROWS = 10  # of a table that are shown
_NAMES = 7  # of its columns that are named, and the last one
_PLAIN = ("year", "origin_year", "birth_year")  # numbers without thousands separators
_SET_STARTS = ("lower_", "band_lower_", "positive_lower_")


def has_sets(columns: Sequence[str]) -> bool:
    """Whether limits in a table with these columns are those of sets, not of any statistic."""
    return not {"statistic", "measure"} & set(columns)


def show_value(
    name: str, value: object, *, of_set: bool = True, amount: Callable[[float], str] = figure
) -> str:
    """A cell of the column `name` for readers: `31.4%`, `1,250,000`, `2030`, `-` for unknown.

    The lower end of a set is `above 0` as in sentences (`saga.pages.format.set_start`). `amount` is
    how a number with decimals is written.
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value) if name in _PLAIN else f"{value:,}"
    if isinstance(value, float):
        if name == "p_zero":
            return f"{value:.1%}"
        starts_set = of_set and name.startswith(_SET_STARTS)
        return set_start(value, amount) if starts_set else amount(value)
    return str(value)


def count_left_out(problems: Sequence[Problem]) -> str:
    """How many persons are not forecast, and why: `3 persons (too-old 2, no-earnings 1)`."""
    rules: Counter[str] = Counter()
    for problem in problems:
        rules[problem.rule] += problem.count
    return f"{count(rules.total(), 'person')} ({format_counts(rules)})"


@dataclass(frozen=True, eq=False, repr=False)
class Result(Summarised):
    """What a request gives, whatever the door: `saga.forecaster.Forecaster.run`.

    `table` is that of the product, `warnings` are those of `saga.forecast_warnings`, `provenance`
    says what made it. `left_out` are the persons who cannot be forecast, `panel` the others.
    `issued` is what a ledger is to enter, if the request is to be recorded.

    It exports its table by the Arrow stream protocol, so that `pl.DataFrame(result)`,
    `pa.table(result)` and DuckDB read it.
    """

    table: pl.DataFrame
    warnings: tuple[ForecastWarning, ...]
    panel: Panel
    provenance: Mapping[str, object]
    left_out: tuple[Problem, ...] = ()
    issued: tuple[IssuedInterval, ...] = ()

    def summary(self) -> Summary:
        """Numbers of persons (also left out) and rows, years and warnings; no value of a person."""
        n_persons = self.panel.n_persons
        names = self.table.columns
        ends = [*names[:_NAMES], "..", *names[-1:]] if len(names) > _NAMES + 2 else names
        lines = {"rows": f"{len(self.table):,}", "columns": f"{len(names)}: {', '.join(ends)}"}
        if "year" in self.table.columns and len(self.table):
            years = self.table["year"].drop_nulls().to_numpy()
            lines["years"] = f"{years.min()} to {years.max()}"
        if self.left_out:
            lines["left out"] = count_left_out(self.left_out)
        for k, warning in enumerate(merge_warnings(self.warnings, max_persons=1), start=1):
            lines[f"warning {k}"] = str(warning)
        return Summary(f"{type(self).__name__} of {count(n_persons, 'person')}", lines)

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas data frame. Needs pandas."""
        return self.table.to_pandas()

    def to_arrow(self) -> pa.Table:
        """The table as an Arrow table."""
        return self.table.to_arrow()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __str__(self) -> str:
        with pl.Config(
            tbl_hide_dataframe_shape=True,
            tbl_hide_column_data_types=True,
            tbl_formatting="MARKDOWN",
            tbl_cell_alignment="RIGHT",
            tbl_rows=_ROWS,
            tbl_cols=-1,
        ):
            return f"{self.summary().text}\n{self._first_rows()}"

    def _repr_html_(self) -> str:
        rows = self._first_rows()
        cells = [
            "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
            for tag, row in (("th", rows.columns), *(("td", row) for row in rows.iter_rows()))
        ]
        table = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"{self.summary().html}<table>{table}</table>"

    def _first_rows(self) -> pl.DataFrame:
        """The first rows of the main columns, and of those of groups, as texts.

        Also the guarantee, if the coverage of some of these sets was not tested.
        """
        names = self.table.columns
        of_set = has_sets(names)
        groups = names[: names.index("statistic")] if "statistic" in names else ()
        first = self.table.head(_ROWS)
        first = first.select(
            name
            for name in names
            if name in (*_SHOWN, *groups)
            or (name == "guarantee_90" and "extrapolated" in first[name])
        )
        return pl.DataFrame(
            {
                name: [show_value(name, value, of_set=of_set) for value in first[name]]
                for name in first.columns
            },
            schema=dict.fromkeys(first.columns, pl.String),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Forecasts(Result):
    """The forecast of a panel; `table` is that of `forecast_table`."""

    @overload  # of a text, which is an iterable of texts, too
    def plot(  # type: ignore[overload-overlap]
        self, person_id: str | None = None
    ) -> ForecastPicture: ...

    @overload
    def plot(self, person_id: Iterable[str]) -> Picture: ...

    def plot(self, person_id: str | Iterable[str] | None = None) -> ForecastPicture | Picture:
        """The picture of one person, or of up to 24, which a notebook shows and `save` writes.

        Args:
            person_id: The person, several persons, or None if there is only one.

        Raises:
            UsageError: If no person is named and there are several, or the table has no median.
            InputError: If a person is not in the table.
        """
        from saga.pages.person import ForecastPicture  # takes a second to import
        from saga.pages.picture import draw_persons

        def picture_of(name: str | None) -> ForecastPicture:
            return ForecastPicture.of(name, self.panel, self.table, self.provenance, self.warnings)

        if isinstance(person_id, Iterable) and not isinstance(person_id, str):
            return draw_persons([picture_of(name) for name in person_id])
        return picture_of(person_id)

    def to_long(self) -> pl.DataFrame:
        """The table as Nixtla's libraries have it: see `saga.exchange.to_long`."""
        return exchange.to_long(self.table)

    def to_gluonts(self) -> list[object]:
        """A `QuantileForecast` of GluonTS for each person: see `saga.exchange.to_gluonts`."""
        return exchange.to_gluonts(self.table)

    def to_darts(self) -> dict[str, object]:
        """Person -> `TimeSeries` of Darts with quantiles: see `saga.exchange.to_darts`."""
        return exchange.to_darts(self.table)


@dataclass(frozen=True, eq=False, repr=False)
class GroupForecasts(Result):
    """Statistics of groups by year with their bands.

    `table` is that of `saga.population.policy_tables.PolicyTables.statistics`.
    """

    def plot(self, statistic: str = "mean") -> Picture:
        """The picture of a statistic by year and group, with 90 % bands.

        Raises:
            UsageError: If the table has no value of the statistic, or all are suppressed.
        """
        from saga.pages.picture import draw_groups

        groups = self.table.columns[1 : self.table.columns.index("statistic")]
        unit = f"{self.provenance['currency']} of {self.provenance['price_year']}"
        simulated = any(warning.code == "simulated-people" for warning in self.warnings)
        return draw_groups(self.table, statistic, groups, unit, simulated=simulated)


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


@dataclass(frozen=True, eq=False, repr=False)
class Pensions(Result):
    """Pension rights of a panel, from earnings only.

    `table` is that of `saga.pensions.pension_table`; with a reform, `groups` is that of
    `saga.pensions.pension_table`.
    """

    groups: pl.DataFrame | None = field(default=None, kw_only=True)
