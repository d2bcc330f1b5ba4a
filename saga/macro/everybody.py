"""How the earnings and the work of everybody move, for bundles without macro series.

Growth at equal age and equal groups is drawn as the real wages of a country are
(`saga.macro.wage_trends`): a mean that moves, its own shocks, and those common to all. The log odds
of having any earnings are a random walk. All persons share the draw of a path.

A network without macro series has learnt how everybody's earnings grew in the years of its panel.
After the last one it carries this on, together with careers that may have changed since, so its
growth is replaced by that which is expected. In the panel's own years it stays.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.files.stored_values import Number, Shape, Year
from saga.macro.moving_mean import GrowthTrend, path_normals

_N_DRAWS, _SEED = 4_096, 0


@dataclass(frozen=True)
class Everybody:
    """What the panel shows of everybody.

    Attributes:
        last_year: The last year of the panel, the cut-off.
        growth: Mean growth, as it is known in the last year, its one row.
        shock: Standard deviation of the own shock of a year to earnings.
        odds_step: That of the yearly step of the log odds of having any.
        expected: Logs (H,) of the expected growth 1..H years after the last one.
        implied: Logs (H,) of the growth that the network forecasts itself from the last year.
        start_sd: Standard deviation of the error of both, because persons are few.
    """

    last_year: Year
    growth: GrowthTrend
    shock: Number
    odds_step: Number
    expected: Annotated[Floats, Shape(None)]
    implied: Annotated[Floats, Shape(None)]
    start_sd: Number

    @classmethod
    def expecting(
        cls, last_year: int, growth: GrowthTrend, shock: float, odds_step: float, implied: Floats
    ) -> Everybody:
        """With the expected growth of as many years as `implied` has, and an exact start."""
        free = cls(last_year, growth, shock, odds_step, 0 * implied, implied, 0.0)
        draws = free._growth(_SEED, _N_DRAWS, last_year, len(implied))
        return replace(free, expected=np.log(np.exp(draws).mean(axis=0)))

    def changes(self, statistic: str, seed: int, n_paths: int, origin: int, n_years: int) -> Floats:
        """Changes (n_path, n_year) of log earnings or log odds since `origin`, beside the network.

        What is known in the last year is the start. Path k uses the random numbers keyed by
        (seed, k, year).
        """
        if statistic == "odds":
            return np.cumsum(
                self.odds_step * self._numbers(statistic, seed, n_paths, origin, n_years), axis=1
            )
        start, ahead = min(origin, self.last_year), np.arange(1, n_years + 1)
        before = origin - start
        level = self._growth(seed, n_paths, start, before + n_years)
        level -= self._at(self.expected, 1 + np.arange(before + n_years))
        level = np.c_[np.zeros(n_paths), level]
        changes = level[:, before + 1 :] - level[:, [before]]
        after, until = origin + ahead - self.last_year, max(self.last_year - origin, 0)
        shift = self._at(self.expected, after) - self._at(self.expected, after[:1] - 1)
        shift -= self._at(self.implied, ahead) - self._at(self.implied, np.array([until]))
        error = self.start_sd * path_normals(n_paths, 1, "everybody", "start", seed)
        return np.asarray(changes + np.where(after > 0, shift + error, 0.0))

    def _growth(self, seed: int, n_paths: int, start: int, n_years: int) -> Floats:
        """Logs (n_path, n_year) of the growth of years after `start`, summed."""
        mean = self.growth.draw(seed, n_paths, 0, start, n_years + 1)[:, 1:]
        parameters = self.growth.parameters(seed, n_paths)
        sd = np.hypot(parameters.spread_factor * self.shock, parameters.year_shock)
        numbers = self._numbers("earnings", seed, n_paths, start, n_years)
        return np.cumsum(np.log1p(mean + sd[:, None] * numbers), axis=1)

    @staticmethod
    def _numbers(statistic: str, seed: int, n_paths: int, start: int, n_years: int) -> Floats:
        """Standard normal numbers (n_path, n_year) of the years after `start`."""
        of_years = [
            path_normals(n_paths, 1, "everybody", statistic, seed, start + i)
            for i in range(1, n_years + 1)
        ]
        return np.concatenate(of_years, axis=1)

    @staticmethod
    def _at(curve: Floats, years: NDArray[np.int64]) -> Floats:
        """A curve (H,) of 1..H years at years (n,): zero before, later at its last pace."""
        whole = np.r_[0.0, curve]
        beyond = np.maximum(years - len(curve), 0) * (whole[-1] - whole[-2])
        return np.asarray(whole[np.clip(years, 0, len(curve))] + beyond)

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, for macro.json; logs have six decimals."""
        return {
            **asdict(self),
            "growth": {name: values.tolist() for name, values in asdict(self.growth).items()},
            "expected": self.expected.round(6).tolist(),
            "implied": self.implied.round(6).tolist(),
        }
