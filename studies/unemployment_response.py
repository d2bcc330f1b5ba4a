"""How people's earnings answer to the economy: in the model's futures and in the register's true ones, in the same economies.

The model is told each drawn economy of the register as a scenario. So both sides live through the same slumps, and what differs is how
people take them, not how often they come. The answer of a statistic h years ahead is its least-squares slope, over economies, on the mean
unemployment of the years 1..h. A model that learnt nothing of recessions has slopes of zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import linregress

from evaluation.scoring.futures import true_economies
from saga.macro.history import SERIES
from saga.macro.scenarios import Scenario
from studies.cross_section import BY_NAME, EVERYBODY, STATISTICS, Persons, simulated

Array = NDArray[np.float64]
ANSWERING = ("zero", "mean", "p10_p50")  # lower earnings, more zeros, a longer lower tail
AHEAD = (1, 2, 3, 5, 10)
_FEWEST = 4  # economies that a slope is taken over


def true_unemployment(futures: Path) -> dict[int, Array]:
    """Unemployment (years,) by draw of the register's future economies, fractions."""
    return {
        draw: economy["unemployment"].to_numpy()
        for draw, economy in true_economies(futures).items()
    }


def true_scenarios(futures: Path) -> dict[int, Scenario]:
    """The register's future economies by draw, to tell to forecasts."""
    found = {}
    for draw, economy in true_economies(futures).items():
        years = economy.select("year", *SERIES).iter_rows()
        found[draw] = Scenario(
            f"draw {draw}", {year: (u, growth, prices) for year, u, growth, prices in years}
        )
    return found


def told(who: Persons, drawn: Mapping[int, NDArray[np.floating[Any]]]) -> pl.DataFrame:
    """Cross-sections of the model in each economy, means over its paths; columns as `studies.cross_section.simulated` has them.

    `drawn` are the persons' paths (n, H, K) in the economy of each draw, real money.
    """
    parts = []
    for draw, paths in drawn.items():
        sections = simulated(who, paths)
        means = sections.group_by("source", "year", "group", "statistic", maintain_order=True).agg(
            pl.col("value").mean()
        )
        parts.append(means.with_columns(future=pl.lit(draw, dtype=pl.Int64)))
    return pl.concat(parts)


def responses(
    sections: pl.DataFrame, unemployment: Mapping[int, Array], years: Sequence[int] = AHEAD
) -> pl.DataFrame:
    """Columns statistic, year, per percentage point of unemployment `slope` of the model, `slope_true`, and their difference `apart`, with
    `se_true` and `se_apart`.

    `sections` of the model and the truth, `future` being the same economy in both; `unemployment[future]` (years,). Relative statistics
    are taken in logs. Standard errors are those of least squares, economies being independent; that of the difference is the smaller, since
    what the mean of unemployment leaves out of an economy is the same on both sides. Fewer than 4 economies give no rows.
    """
    of = sections.filter(
        pl.col("group") == EVERYBODY,
        pl.col("statistic").is_in(ANSWERING),
        pl.col("year").is_in(list(years)),
    )
    model, truth = (
        of.filter(source=source).select("future", "year", "statistic", "value")
        for source in ("model", "truth")
    )
    both = model.join(truth, on=["future", "year", "statistic"], suffix="_true").sort("future")
    rows = []
    for name in (statistic.name for statistic in STATISTICS if statistic.name in ANSWERING):
        for year in years:
            part = both.filter(statistic=name, year=year)
            if part.height < _FEWEST:
                continue
            x = np.array([100 * unemployment[future][:year].mean() for future in part["future"]])
            y, y_true = (part[column].to_numpy() for column in ("value", "value_true"))
            if BY_NAME[name].relative:
                y, y_true = np.log(y), np.log(y_true)
            true, apart = linregress(x, y_true), linregress(x, y - y_true)
            rows.append(
                {
                    "statistic": name,
                    "year": year,
                    "slope": float(linregress(x, y).slope),
                    "slope_true": float(true.slope),
                    "se_true": float(true.stderr),
                    "apart": float(apart.slope),
                    "se_apart": float(apart.stderr),
                }
            )
    return pl.DataFrame(rows)


def as_markdown(table: pl.DataFrame) -> str:
    """The table of `responses`, a row a statistic."""
    if table.is_empty():
        return ""
    years = table["year"].unique().sort().to_list()
    about = "What a percentage point more of unemployment, on average since the origin, does in the same economies: model / truth"
    lines = [f"{about} (± standard error of the difference).", ""]
    lines += [
        f"| statistic | {' | '.join(f'{year} years' for year in years)} |",
        "|---|" + "---|" * len(years),
    ]
    for (name,), part in table.group_by(["statistic"], maintain_order=True):
        relative = BY_NAME[str(name)].relative
        cells = [
            f"{_form(r['slope'], relative)} / {_form(r['slope_true'], relative)} (± {_form(r['se_apart'], relative)[1:]})"
            for r in part.sort("year").iter_rows(named=True)
        ]
        lines.append(f"| {BY_NAME[str(name)].meaning} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _form(value: float, relative: bool) -> str:
    return f"{100 * value:+.1f} %" if relative else f"{value:+.4f}"
