"""The mean of the macro process, which moves: real wage growth and the level of unemployment.

Mean growth is f + d: f is a random walk common to all countries, d the country's own drift, a
first-order autoregression around zero (`saga.macro.wage_trends` estimates both). The level of log
unemployment is a random walk. Nobody knows how fast they move, so each path has its own parameters.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np

from saga.arrays import Floats
from saga.files.stored_values import Shape, Spread, Year
from saga.keyed_random import uniforms
from saga.special import expit, ndtri

MOST_PERSISTENT = 0.99


@dataclass(frozen=True)
class Parameters:
    """Standard deviations of the parts of yearly growth, persistence of d, factor of spreads.

    Each is a number, or has one entry per path.
    """

    common_step: Floats
    persistence: Floats
    own_drift: Floats
    year_shock: Floats
    spread_factor: Floats

    @classmethod
    def of(cls, values: Floats) -> Parameters:
        """From unbounded values (..., 5): logs, but the logit of the persistence."""
        logs = np.exp(values)
        persistence = np.minimum(expit(values[..., 1]), MOST_PERSISTENT)
        return cls(logs[..., 0], persistence, logs[..., 2], logs[..., 3], logs[..., 4])

    @property
    def own_step(self) -> Floats:
        """Standard deviation of the yearly step of d; that of d is `own_drift`."""
        step: Floats = self.own_drift * np.sqrt(1 - self.persistence**2)
        return step


@dataclass(frozen=True)
class GrowthTrend:
    """Mean growth of real wages of one country, with what is known of it at the end of each year.

    The parameters have a normal distribution with mean `mode` (5,) and covariance
    `root` @ `root`.T, on the scale of `Parameters.of`; (f, d) has one with mean `state_mean`
    (n_year, 2) and the square roots `state_root` (n_year, 2, 2) of the covariance.
    """

    mode: Annotated[Floats, Shape(5)]
    root: Annotated[Floats, Shape(5, 5)]
    state_mean: Annotated[Floats, Shape("growth year", 2)]
    state_root: Annotated[Floats, Shape("growth year", 2, 2)]

    def parameters(self, seed: int, n_paths: int) -> Parameters:
        """The parameters of each path."""
        return Parameters.of(self.mode + path_normals(n_paths, 5, "parameters", seed) @ self.root.T)

    def draw(self, seed: int, n_paths: int, row: int, first_year: int, n_years: int) -> Floats:
        """Mean growth (n_paths, n_years) of years from `first_year`, when `row` is known."""
        parameters = self.parameters(seed, n_paths)
        start = path_normals(n_paths, 2, "state", seed) @ self.state_root[row].T
        common, drift = (self.state_mean[row] + start).T
        mean = np.empty((n_paths, n_years))
        mean[:, :1] = (common + drift)[:, None]
        for i in range(1, n_years):
            steps = path_normals(n_paths, 2, "steps", seed, first_year + i)
            common = common + parameters.common_step * steps[:, 0]
            drift = parameters.persistence * drift + parameters.own_step * steps[:, 1]
            mean[:, i] = common + drift
        return mean


@dataclass(frozen=True)
class UnemploymentLevel:
    """Level of log unemployment, a random walk, with what is known of it at the end of each year.

    The log of the standard deviation of the yearly step has mean log(`step`) and standard deviation
    `step_sd`. The level has means `state_mean` (n_year,) and standard deviations `state_sd`.
    """

    step: Spread
    step_sd: Spread
    state_mean: Annotated[Floats, Shape("growth year")]
    state_sd: Annotated[Floats, Shape("growth year")]

    def draw(self, seed: int, n_paths: int, row: int, first_year: int, n_years: int) -> Floats:
        """Levels (n_paths, n_years) of years from `first_year`, when `row` is known."""
        step_number, start = path_normals(n_paths, 2, "level", seed).T
        step = self.step * np.exp(self.step_sd * step_number)
        level = np.empty((n_paths, n_years))
        level[:, 0] = self.state_mean[row] + self.state_sd[row] * start
        for i in range(1, n_years):
            number = path_normals(n_paths, 1, "level", seed, first_year + i)[:, 0]
            level[:, i] = level[:, i - 1] + step * number
        return level


@dataclass(frozen=True)
class MovingMean:
    """Level of log unemployment and mean wage growth, known at the end of years from `first_year`.

    The last year is the cut-off: forecasts from a later origin know no more.
    """

    first_year: Year
    unemployment: UnemploymentLevel
    growth: GrowthTrend

    def draw(self, seed: int, n_paths: int, origin: int, to_year: int) -> Floats:
        """Means (n_paths, n_year, 2) in the years `origin` .. `to_year`.

        What is known in the year `origin`, or in the nearest year, is the start. Path k uses the
        random numbers keyed by (seed, k, year).
        """
        last = self.first_year + len(self.growth.state_mean) - 1
        start = min(origin, last)
        row = max(0, start - self.first_year)
        parts = [
            part.draw(seed, n_paths, row, start, to_year - start + 1)
            for part in (self.unemployment, self.growth)
        ]
        return np.stack(parts, axis=-1)[:, origin - start :]

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, for macro.json."""
        return {
            "first_year": self.first_year,
            **{
                name: {
                    key: value.tolist() if isinstance(value, np.ndarray) else value
                    for key, value in asdict(part).items()
                }
                for name, part in (("unemployment", self.unemployment), ("growth", self.growth))
            },
        }


@lru_cache(maxsize=128)  # the years after one origin, which are drawn again for the next one
def path_normals(n_paths: int, n: int, *key: int | str) -> Floats:
    """Standard normal numbers (n_paths, n), read-only; a path's do not depend on `n_paths`."""
    numbers: Floats = ndtri(uniforms(n * n_paths, "moving mean", *key)).reshape(n_paths, n)
    numbers.flags.writeable = False
    return numbers
