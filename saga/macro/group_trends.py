"""What groups earn beside the whole, and how many of them work: drawn after the origin.

A level of a column (female; long_tertiary) has an effect on the log mean of positive earnings and
one on the log odds of having any, at equal age and equal levels of the other columns. The column
`age` has the ages 22 and 62, and others lie on the line between them. Effects move: each has a
trend that goes on in part, and yearly steps. Nobody knows how much of a trend goes on, so each path
has its own parameters. All persons of a level share the draw of a path.

How large the steps are is estimated on the pay of women and men in 20 countries. With y the log
ratio of two groups and d its trend,

    d_t = persistence * d_(t-1) + trend_step * u_t
    y_t = (1 - pull) * y_(t-1) + d_t + level_step * v_t

and y is observed with an error. In the countries a gap that had narrowed for twenty years narrowed
further, at about a third of its pace and some tenths of a per cent a year.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.macro_rows import ODDS_PREFIX
from saga.errors import UsageError
from saga.files.stored_values import LEVEL, Shape, Year, read_values
from saga.macro.everybody import Everybody
from saga.macro.moving_mean import path_normals
from saga.macro.scenarios import Scenario
from saga.macro.wage_trends import laplace
from saga.schema import STATIC
from saga.special import expit

STATISTICS = ("earnings", "odds")
# Sizes of steps beside those of the pay of women and men in countries. No series of many countries
# is shipped for work and ages, so these are judgements: odds of work move twice as much, and pay of
# ages twenty years apart moves as that of women and men.
SCALES = {"earnings": 1.0, "odds": 2.0}
AGE, AGES = "age", (22, 62)
AGE_LEVELS = tuple(f"age_{age}" for age in AGES)
_AGE_SCALE = {"earnings": (AGES[1] - AGES[0]) / 20, "odds": 1.0}
# Prior of the parameters, on the scale of `TrendParameters.of`: half of a trend is left after one
# to nine years, steps of .3 and 1 % a year, a pull of 1 % a year, errors of 1 %.
PRIOR_MEAN = np.array([1.0, np.log(0.003), np.log(0.01), np.log(0.01), np.log(0.01)])
PRIOR_SD = np.array([1.0, 0.8, 0.8, 0.8, 0.8])
# Variances of y and d before the first known year: d has a standard deviation of 1 %.
UNKNOWN = np.diag([1e4, 0.01**2])


def age_shares(age: NDArray[np.number[Any]]) -> Floats:
    """How far a person of each age (...) belongs to the two ages of the column `age`, (..., 2)."""
    older = np.clip((age - AGES[0]) / (AGES[1] - AGES[0]), 0.0, 1.0)
    return np.stack([1 - older, older], axis=-1)


@dataclass(frozen=True)
class TrendParameters:
    """How the log ratio of two groups moves; each a number, or with one entry per path.

    Of a trend the share `persistence` is left after a year. `trend_step` and `level_step` are
    standard deviations of yearly steps, `pull` the share of the ratio that is lost in a year, and
    `noise` the standard deviation of an error of observation.
    """

    persistence: Floats
    trend_step: Floats
    level_step: Floats
    pull: Floats
    noise: Floats

    @classmethod
    def of(cls, values: Floats) -> TrendParameters:
        """From unbounded values (..., 5): logs, but the logit of the persistence."""
        return cls(expit(values[..., 0]), *np.moveaxis(np.exp(values[..., 1:]), -1, 0))


@dataclass(frozen=True)
class GroupSeries:
    """Effects of K levels on one statistic, as they are known at the end of each year.

    Attributes:
        level: Effects (n_year, K), in logs.
        trend: Their yearly trends (n_year, K), and `trend_sd` the standard deviations of these.
        weights: Weights (K,) with which the effects of a column have mean zero.
        implied: Changes (H, K) 1..H years ahead that the network forecasts without this.
    """

    level: Annotated[Floats, Shape("year", LEVEL)]
    trend: Annotated[Floats, Shape("year", LEVEL)]
    trend_sd: Annotated[Floats, Shape("year", LEVEL)]
    weights: Annotated[Floats, Shape(LEVEL)]
    implied: Annotated[Floats, Shape(None, LEVEL)]


@dataclass(frozen=True)
class GroupTrends:
    """The series of a bundle's groups, known at the end of years from `first_year`.

    `columns` are pairs of a column and its levels. The parameters are normal with mean
    `mode` (5,) and covariance `root` @ `root`.T, on the scale of `TrendParameters.of`. The last
    year is the cut-off: forecasts from a later origin know no more. `everybody` is for bundles
    without macro series, which tell of everybody otherwise.
    """

    columns: Sequence[tuple[str, Sequence[str]]]
    first_year: Year
    mode: Annotated[Floats, Shape(5)]
    root: Annotated[Floats, Shape(5, 5)]
    series: Mapping[str, GroupSeries]
    everybody: Everybody | None = None

    @cached_property
    def levels(self) -> list[tuple[str, str]]:
        """The K levels, each with its column."""
        return [(column, level) for column, levels in self.columns for level in levels]

    @cached_property
    def of_age(self) -> NDArray[np.bool_]:
        """Which levels (K,) are ages."""
        return np.array([column == AGE for column, _ in self.levels])

    @cached_property
    def compared(self) -> NDArray[np.bool_]:
        """Which levels (K,) tell a trend: those for life, and ages.

        Those who have another level differ between cohorts.
        """
        return self.of_age | np.isin([column for column, _ in self.levels], STATIC)

    def sizes(self, statistic: str) -> Floats:
        """Sizes (K,) of the effects' steps beside those of a ratio, the difference of two."""
        scale = np.where(self.of_age, _AGE_SCALE[statistic], 1.0)
        return np.asarray(SCALES[statistic] * np.sqrt(0.5) * scale)

    def pulled(self, statistic: str) -> NDArray[np.bool_]:
        """Which effects (K,) are pulled to zero: pay of women and men, as in the countries."""
        return np.array([column == "sex" and statistic == "earnings" for column, _ in self.levels])

    def changes(
        self,
        statistic: str,
        seed: int,
        n_paths: int,
        origin: int,
        n_years: int,
        scenario: Scenario | None = None,
    ) -> Floats:
        """Changes (n_path, n_year, K) of effects since `origin`, less those of the network.

        What is known in the year `origin`, or in the nearest year, is the start. Path k uses the
        random numbers keyed by (seed, k, year). Ratios of the scenario hold in their years; in the
        years before, the draws lead to them, and after the last one they go on from there.
        """
        series, fixed = self.series[statistic], self._told(statistic, origin, scenario)
        start = min(origin, self.first_year + len(series.level) - 1)
        until = max([origin + n_years, *(year for _, ratios in fixed for year in ratios)])
        level = self._draw(statistic, seed, n_paths, start, until)[:, origin - start :]
        if fixed:
            contrasts = np.stack([contrast for contrast, _ in fixed])
            missing = np.stack(
                [_missing(level @ contrast, origin, ratios) for contrast, ratios in fixed],
                axis=-1,
            )
            # The smallest weighted change that gives these ratios; it keeps the weighted mean.
            spread = contrasts.T / series.weights[:, None]
            level = level + missing @ (spread @ np.linalg.pinv(contrasts @ spread)).T
        ahead = np.minimum(np.arange(n_years), len(series.implied) - 1)
        changes: Floats = level[:, 1 : n_years + 1] - level[:, :1] - series.implied[ahead]
        return changes

    def _draw(self, statistic: str, seed: int, n_paths: int, start: int, until: int) -> Floats:
        """Effects (n_path, n_year, K) of the years `start` .. `until`."""
        series, k = self.series[statistic], len(self.levels)
        row = max(0, start - self.first_year)
        numbers = path_normals(n_paths, 5, "groups", "parameters", seed)
        p = TrendParameters.of(self.mode + numbers @ self.root.T)
        left = 1 - p.pull[:, None] * self.pulled(statistic)
        size = self.sizes(statistic)
        numbers = path_normals(n_paths, k, "groups", statistic, seed)
        trend = series.trend[row] + series.trend_sd[row] * numbers
        level = np.empty((n_paths, until - start + 1, k))
        level[:, 0] = series.level[row]
        for i in range(1, level.shape[1]):
            numbers = path_normals(n_paths, 2 * k, "groups", statistic, seed, start + i)
            trend = p.persistence[:, None] * trend
            trend += size * p.trend_step[:, None] * numbers[:, :k]
            level[:, i] = left * level[:, i - 1] + trend
            level[:, i] += size * p.level_step[:, None] * numbers[:, k:]
        return self.centred(level, series.weights)

    def beside(self, implied: Floats) -> GroupTrends:
        """The trends of a network that forecasts changes `implied` (H, K) of earnings itself."""
        earnings = replace(self.series["earnings"], implied=implied)
        return replace(self, series={**self.series, "earnings": earnings})

    def centred(self, effects: Floats, weights: Floats) -> Floats:
        """Effects (..., K) less the weighted mean (K,) of their column."""
        of_column = np.array([column for column, _ in self.levels])
        together = (of_column[:, None] == of_column) * weights
        mean: Floats = effects @ (together / together.sum(1, keepdims=True)).T
        return effects - mean

    def _told(
        self, statistic: str, origin: int, scenario: Scenario | None
    ) -> list[tuple[Floats, dict[int, float]]]:
        """The contrasts (K,) whose log ratios are told for years from `origin`, with these."""
        by_name: dict[str, dict[int, float]] = {}
        for year, ratios in sorted(scenario.ratios.items() if scenario else ()):
            for name, ratio in ratios.items():
                if year >= origin and name.startswith(ODDS_PREFIX) == (statistic == "odds"):
                    by_name.setdefault(name, {})[year] = float(np.log(ratio))
        return [(self.contrast(name), ratios) for name, ratios in by_name.items()]

    def contrast(self, name: str) -> Floats:
        """The contrast (K,) of a scenario's column, such as female/male.

        Raises UsageError if the two are not levels of one column.
        """
        column, pair = self.compared_levels(name)
        contrast = np.zeros(len(self.levels))
        contrast[[self.levels.index((column, level)) for level in pair]] = 1.0, -1.0
        return contrast

    def check_ratios(self, names: Sequence[str]) -> None:
        """Raise UsageError for a column without two levels, or which follows from others.

        Such columns could not all hold: female/male beside male/female, or three ratios of three
        levels.
        """
        known = {prefix: np.empty((0, len(self.levels))) for prefix in ("", ODDS_PREFIX)}
        for name in names:
            prefix = ODDS_PREFIX if name.startswith(ODDS_PREFIX) else ""
            known[prefix] = np.vstack([known[prefix], self.contrast(name)])
            if np.linalg.matrix_rank(known[prefix]) < len(known[prefix]):
                raise UsageError(
                    f"The scenario's column '{name}' follows from its other columns. Leave it out."
                )

    def compared_levels(self, name: str) -> tuple[str, list[str]]:
        """The column of a ratio such as female/male, and its two levels.

        Raises UsageError if the two are not levels of one column.
        """
        pair = name.removeprefix(ODDS_PREFIX).split("/")
        for column, levels in self.columns:
            if len(pair) == 2 and pair[0] != pair[1] and {*pair} <= {*levels}:
                return column, pair
        known = "; ".join(f"{column}: {', '.join(levels)}" for column, levels in self.columns)
        raise UsageError(
            f"The scenario has the column '{name}'. Name two groups of one of these columns, such "
            f"as {self.levels[0][1]}/{self.levels[1][1]}. {known}."
        )

    def ratios(self) -> dict[str, float]:
        """The ratios at the cut-off of each level to the first one of its column."""
        first = {column: levels[0] for column, levels in self.columns}
        names = [f"{level}/{first[c]}" for c, level in self.levels if level != first[c]]
        now = self.series["earnings"].level[-1]
        return {name: float(np.exp(now @ self.contrast(name))) for name in names}

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, for macro.json; five decimals."""
        return {
            "columns": [[column, list(levels)] for column, levels in self.columns],
            "first_year": self.first_year,
            "mode": self.mode.tolist(),
            "root": self.root.tolist(),
            "series": {
                statistic: {name: values.round(5).tolist() for name, values in asdict(each).items()}
                for statistic, each in self.series.items()
            },
            **({} if self.everybody is None else {"everybody": self.everybody.as_dict()}),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> GroupTrends:
        """Inverse of `as_dict`."""
        read = read_values(cls, d)
        if {*read.series} != {*STATISTICS} or len(read.levels) != len(read.series["odds"].weights):
            raise ValueError("'series' are not those of its columns")
        return read


def _missing(free: Floats, origin: int, ratios: Mapping[int, float]) -> Floats:
    """What drawn log ratios (n_path, n_year) from `origin` lack of those told, (n_path, n_year).

    It grows evenly from zero at the origin to each year told, and stays after the last one.
    """
    fixed = {origin: free[:, 0]} | {year: np.full(len(free), r) for year, r in ratios.items()}
    years = np.array(list(fixed)) - origin
    lacks = np.stack(list(fixed.values()), axis=1) - free[:, years]
    hats = [np.interp(np.arange(free.shape[1]), years, row) for row in np.eye(len(years))]
    return lacks @ np.stack(hats)


def filter_ratios(
    observed: Floats, error: Floats, p: TrendParameters, pull: Floats
) -> tuple[Floats, Floats, float]:
    """Kalman filter of K series (n_year, K), NaN where unknown.

    Args:
        observed: Log ratios, or effects of groups.
        error: Standard deviations (n_year, K) of their errors.
        p: The parameters; steps may be those of each series (K,).
        pull: Pull of each series (K,).

    Returns:
        Means (n_year, K, 2) and covariances (n_year, K, 2, 2) of y and d at the end of each year,
        and the log likelihood of all series after their first known years.
    """
    k = observed.shape[1]
    move, step = np.zeros((k, 2, 2)), np.ones((k, 2, 2)) * np.reshape(p.trend_step**2, (-1, 1, 1))
    move[:, 0, 0], move[:, :, 1] = 1 - pull, p.persistence
    step[:, 0, 0] += p.level_step**2
    mean, covariance, log_likelihood = np.zeros((k, 2)), UNKNOWN * np.ones((k, 1, 1)), 0.0
    states = []
    for values, errors in zip(observed, error, strict=True):
        mean = np.einsum("kij,kj->ki", move, mean)
        covariance = move @ covariance @ move.transpose(0, 2, 1) + step
        begins, known = covariance[:, 0, 0] > 1, ~np.isnan(values)
        covariance[begins] = UNKNOWN
        variance = covariance[:, 0, 0] + np.where(known, errors, 1.0) ** 2
        surprise = np.where(known, values - mean[:, 0], 0.0)
        log_density = -0.5 * (surprise**2 / variance + np.log(variance))
        log_likelihood += float(log_density[known & ~begins].sum())
        gain = covariance[:, :, 0] / variance[:, None] * known[:, None]
        mean = mean + gain * surprise[:, None]
        covariance = covariance - gain[:, :, None] * covariance[:, None, 0]
        states.append((mean, covariance))
    means, covariances = (np.array(part) for part in zip(*states, strict=True))
    return means, covariances, log_likelihood


@cache
def prior_of_countries(
    last_year: int, without: frozenset[str] = frozenset()
) -> tuple[Floats, Floats]:
    """Mode (5,) and root (5, 5) of the parameters given the countries up to `last_year`.

    `without` are the codes of countries that are left out, for a judge who uses them.
    """
    table = resources.files("saga.data").joinpath("tables", "gender_pay_gap_of_countries.csv")
    with table.open("rb") as file:
        rows = pl.read_csv(file, glob=False, comment_prefix="#").filter(
            pl.col("year") <= last_year, ~pl.col("country").is_in(sorted(without))
        )
    years = pl.DataFrame({"year": range(1970, last_year + 1)}, schema={"year": pl.Int64})
    wide = years.join(rows.pivot("country", index="year"), on="year", how="left").sort("year")
    ratios = np.log(1 - wide.drop("year").to_numpy().astype(np.float64) / 100)

    def loss(values: Floats) -> float:
        p, ones = TrendParameters.of(values), np.ones(ratios.shape)
        *_, log_likelihood = filter_ratios(ratios, p.noise * ones, p, p.pull * ones[0])
        surprise = (values - PRIOR_MEAN) / PRIOR_SD
        return float(0.5 * surprise @ surprise - log_likelihood)

    return laplace(loss, PRIOR_MEAN)
