"""How do earnings respond to unemployment, in the model's futures and in the true ones?

The model is conditioned on each drawn economy of the register, so both sides have the same
recessions. The response of a statistic h years ahead is its least-squares slope, over economies, on
the mean unemployment of the years 1..h. A model that ignores recessions has slopes of zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.scoring.futures import macro_of_futures
from scipy.stats import linregress

from saga.data.macro_rows import SERIES
from saga.macro.scenarios import Scenario
from saga.pages.format import markdown_table
from studies.cross_section import BY_NAME, EVERYBODY, FollowedPersons, simulated_sections

Array = NDArray[np.float64]
RESPONDING = ("mean", "p10_p50", "zero")
YEARS_AHEAD = (1, 2, 3, 5, 10)
_MIN_ECONOMIES = 4  # of a slope


def true_unemployment(futures: Path) -> dict[int, Array]:
    """Unemployment (n_year,) of each drawn economy of the register, a fraction."""
    return {
        draw: economy["unemployment"].to_numpy()
        for draw, economy in macro_of_futures(futures).items()
    }


def true_scenarios(futures: Path) -> dict[int, Scenario]:
    """The drawn economies of the register as scenarios."""
    scenarios = {}
    for draw, economy in macro_of_futures(futures).items():
        years = economy.select("year", *SERIES).iter_rows()
        rows = {year: (u, growth, inflation) for year, u, growth, inflation in years}
        scenarios[draw] = Scenario(f"draw {draw}", rows)
    return scenarios


def conditioned_sections(
    persons: FollowedPersons, paths_by_draw: Mapping[int, NDArray[np.floating[Any]]]
) -> pl.DataFrame:
    """Cross-sections of the model in each economy, means over its paths.

    Columns are those of `simulated_sections`. `paths_by_draw` are real amounts (n, n_year, n_path).
    """
    parts = []
    for draw, paths in paths_by_draw.items():
        sections = simulated_sections(persons, paths)
        means = sections.group_by("source", "year", "group", "statistic", maintain_order=True).agg(
            pl.col("value").mean()
        )
        parts.append(means.with_columns(future=pl.lit(draw, dtype=pl.Int64)))
    return pl.concat(parts)


def responses(
    sections: pl.DataFrame, unemployment: Mapping[int, Array], years: Sequence[int] = YEARS_AHEAD
) -> pl.DataFrame:
    """Slopes per percentage point of unemployment, one row per statistic and year.

    Columns: `slope` of the model, `slope_true` with `se_true`, and their `difference` with
    `se_difference`. Relative statistics are in logs. Standard errors are those of least squares
    over independent economies. That of the difference is smaller, because both sides have the same
    economies, also in what mean unemployment does not describe.

    Args:
        sections: Cross-sections of model and truth; `future` is the same economy in both.
        unemployment: Unemployment in each future, (n_year,).
        years: Years ahead. Fewer than 4 economies give no rows.
    """
    selected = sections.filter(
        pl.col("group") == EVERYBODY,
        pl.col("statistic").is_in(RESPONDING),
        pl.col("year").is_in(list(years)),
    )
    model, truth = (
        selected.filter(source=source).select("future", "year", "statistic", "value")
        for source in ("model", "truth")
    )
    both = model.join(truth, on=["future", "year", "statistic"], suffix="_true").sort("future")
    rows = []
    for name in RESPONDING:
        for year in years:
            part = both.filter(statistic=name, year=year)
            if part.height < _MIN_ECONOMIES:
                continue
            x = np.array([100 * unemployment[future][:year].mean() for future in part["future"]])
            y, y_true = (part[column].to_numpy() for column in ("value", "value_true"))
            if BY_NAME[name].relative:
                y, y_true = np.log(y), np.log(y_true)
            true, difference = linregress(x, y_true), linregress(x, y - y_true)
            rows.append(
                {
                    "statistic": name,
                    "year": year,
                    "slope": float(linregress(x, y).slope),
                    "slope_true": float(true.slope),
                    "se_true": float(true.stderr),
                    "difference": float(difference.slope),
                    "se_difference": float(difference.stderr),
                }
            )
    return pl.DataFrame(rows)


def to_markdown(table: pl.DataFrame) -> str:
    """The table of `responses`, one row per statistic."""
    if table.is_empty():
        return ""
    years = table["year"].unique().sort().to_list()
    rows = []
    for (name,), part in table.group_by(["statistic"], maintain_order=True):
        relative = BY_NAME[str(name)].relative
        cells = [
            f"{_form(r['slope'], relative)} / {_form(r['slope_true'], relative)} "
            f"(± {_form(r['se_difference'], relative)[1:]})"
            for r in part.sort("year").iter_rows(named=True)
        ]
        rows.append([BY_NAME[str(name)].meaning, *cells])
    return (
        "Response to one percentage point more of unemployment, on average since the origin, in "
        "the same macro futures: model / truth (± standard error of the difference).\n\n"
        + markdown_table(["statistic", *(f"{year} years" for year in years)], rows)
        + "\n"
    )


def _form(value: float, relative: bool) -> str:
    return f"{100 * value:+.1f} %" if relative else f"{value:+.4f}"
