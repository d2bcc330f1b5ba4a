"""Bands of a country's real wage level, judged on many countries and origins.

    python -m studies.country_bands FILE [--json] [--paths 12800] [--every 3]

FILE has the columns country, year and log_real_wage. From each origin year, `--every` years
apart, each country with 20 of the last 30 years is forecast by `saga.macro.wage_trends` on
`--paths` paths: parameters from the other half of the countries, all series up to the origin.
Prints coverage and the mean interval score (Winkler 1972; logs) of the 80 and 90 % bands of the
level, with a standard error of the coverage from a bootstrap of countries and blocks of origins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.macro.moving_mean import GrowthTrend
from saga.macro.wage_trends import (
    DEGREES,
    TrendPosterior,
    country_spreads,
    growth_of_countries,
    growth_trends,
)
from saga.scores import interval_score
from studies.study_page import StepLog, study_parser

HORIZONS = (1, 5, 10, 20, 30)
COVERAGES = (80, 90)
FIRST_ORIGIN = 1980


def growth_futures(
    trend: GrowthTrend, spread: float, seed: int, n_paths: int, n_years: int
) -> Floats:
    """Yearly growth (n_paths, n_years) after the last year: the moving mean, and shocks.

    `spread` is the scale of the country's own shocks, as estimated (`country_spreads`).
    """
    mean = trend.draw(seed, n_paths, -1, 0, n_years + 1)[:, 1:]
    parameters = trend.parameters(seed, n_paths)
    random = np.random.default_rng(seed)
    common = parameters.year_shock[:, None] * random.standard_normal(mean.shape)
    national = (parameters.spread_factor * spread)[:, None] * random.standard_t(DEGREES, mean.shape)
    futures: Floats = mean + common + national
    return futures


def judge(growth: Floats, years: list[int], origin: int, n_paths: int) -> Iterator[dict[str, Any]]:
    """Rows of one origin: the band and the outcome of each country and horizon."""
    end = years.index(origin) + 1
    past = growth[:end]
    usable = np.flatnonzero(np.sum(~np.isnan(past), axis=0) >= 10)
    past = past[:, usable]
    for half in (0, 1):
        posterior = TrendPosterior.fit(past[:, np.arange(len(usable)) % 2 != half])
        judged = [
            country
            for country in range(half, len(usable), 2)
            if np.sum(~np.isnan(past[-30:, country])) >= 20
        ]
        spreads = country_spreads(past)
        for country, trend in zip(
            judged, growth_trends(past, posterior, judged, end - 1), strict=True
        ):
            outcome = growth[end:, usable[country]]
            futures = growth_futures(trend, spreads[country], origin, n_paths, max(HORIZONS))
            levels = futures.cumsum(axis=1)
            for horizon in HORIZONS:
                realised = outcome[:horizon]
                if len(realised) < horizon or np.isnan(realised).any():
                    continue
                row: dict[str, Any] = {"origin": origin, "horizon": horizon}
                row["country"] = int(usable[country])
                for coverage in COVERAGES:
                    miss = 1 - coverage / 100
                    lower, upper = np.quantile(levels[:, horizon - 1], [miss / 2, 1 - miss / 2])
                    y = realised.sum()
                    row[f"coverage_{coverage}"] = float(lower <= y <= upper)
                    score = interval_score(y, lower, upper, coverage / 100)
                    row[f"interval_score_{coverage}"] = float(score)
                yield row


def standard_error(rows: pl.DataFrame, column: str, block: int = 10, draws: int = 400) -> float:
    """Of the mean, when countries and blocks of `block` years of origins are drawn again."""
    random = np.random.default_rng(0)
    cells = (
        rows.with_columns(pl.col("origin") // block)
        .group_by("country", "origin")
        .agg(pl.col(column).sum().alias("sum"), pl.len().alias("n"))
    )
    countries, blocks = (cells[name].unique().to_list() for name in ("country", "origin"))
    sums, counts = np.zeros((2, len(countries), len(blocks)))
    for country, origin, total, n in cells.iter_rows():
        place = countries.index(country), blocks.index(origin)
        sums[place], counts[place] = total, n
    means = []
    for _ in range(draws):
        i = random.integers(len(countries), size=len(countries))
        j = random.integers(len(blocks), size=len(blocks))
        n = counts[np.ix_(i, j)].sum()
        if n:
            means.append(sums[np.ix_(i, j)].sum() / n)
    return float(np.std(means))


def main() -> None:
    """Run the study."""
    parser = study_parser(__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument("--paths", type=int, default=12_800)
    parser.add_argument("--every", type=int, default=3, help="Years between origins.")
    arguments = parser.parse_args()
    growth, countries, years = growth_of_countries(arguments.file)
    origins = range(max(FIRST_ORIGIN, years[0] + 20), years[-1], arguments.every)
    log = StepLog()
    rows: list[dict[str, Any]] = []
    for done, origin in enumerate(origins):
        log("origins", done, len(origins))
        rows += judge(growth, years, origin, arguments.paths)
    log("origins", len(origins), len(origins))
    table = pl.DataFrame(rows)
    result: dict[str, dict[str, float]] = {}
    for horizon in HORIZONS:
        of_horizon = table.filter(pl.col("horizon") == horizon)
        if of_horizon.is_empty():
            continue
        figures: dict[str, float] = {}
        for coverage in COVERAGES:
            for name in (f"coverage_{coverage}", f"interval_score_{coverage}"):
                figures[name] = round(float(np.mean(of_horizon[name].to_numpy())), 4)
            name = f"coverage_{coverage}"
            figures[f"{name}_se"] = round(standard_error(of_horizon, name), 4)
        result[str(horizon)] = {**figures, "n": of_horizon.height}
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{len(countries)} countries, {len(origins)} origins from {origins[0]} on")
    for years_ahead, figures in result.items():
        listed = ", ".join(f"{name} {value:g}" for name, value in figures.items())
        print(f"{years_ahead:>2} years: {listed}")


if __name__ == "__main__":
    main()
