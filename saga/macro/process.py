"""The macro process: macro series after the origin.

No realised series is used after the origin. Futures are drawn from a vector autoregression fitted
on the history up to the cut-off, around a mean that moves, or follow a scenario.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from saga.arrays import Floats
from saga.data.macro_rows import SERIES, UNEMPLOYMENT_RANGE
from saga.files.stored_values import Shape, read_values
from saga.keyed_random import uniforms
from saga.macro.history import MacroHistory
from saga.macro.moving_mean import MovingMean
from saga.macro.scenarios import Scenario, named_scenario
from saga.special import ndtri


@dataclass(frozen=True)
class MacroProcess:
    """Vector autoregression of log unemployment, real wage growth and inflation.

    It has order one and Gaussian innovations. It is fitted by ridge regression on standardised
    series, because 33 years are few. The spectral radius is below one, so futures return to
    their mean. `mean` (3,) is that expected at the cut-off; with `moving`, the mean of each path
    moves. `history` ends at the cut-off. `known` also has later years, as far as they are
    published: forecasts from a later origin start from them.
    """

    history: MacroHistory
    mean: Annotated[Floats, Shape(3)]
    transition: Annotated[Floats, Shape(3, 3)]
    innovation: Annotated[Floats, Shape(3, 3)]
    known: MacroHistory | None = None
    moving: MovingMean | None = None

    @classmethod
    def fit(
        cls,
        history: MacroHistory,
        *,
        dynamics: MacroHistory | None = None,
        ridge: float = 1.0,
        max_radius: float = 0.95,
    ) -> MacroProcess:
        """Estimate from at least ten years of `dynamics`, by default of `history`.

        Later years continue `history` and move like `dynamics`, a series of another definition.
        """
        dynamics = dynamics or history
        x = _state(dynamics.values)
        mean, scale = x.mean(0), x.std(0)
        z = (x - mean) / scale
        past, following = z[:-1], z[1:]
        a = np.linalg.solve(past.T @ past + ridge * np.eye(3), past.T @ following).T
        a *= min(1.0, max_radius / _radius(a))
        residual = following - past @ a.T
        covariance = residual.T @ residual / max(1, len(residual) - 4)
        return cls(
            history,
            mean,
            scale[:, None] * a / scale[None, :],
            scale[:, None] * np.linalg.cholesky(covariance),
        )

    def draw(
        self,
        seed: int,
        n_paths: int,
        from_year: int,
        to_year: int,
        scenario: Scenario | None = None,
    ) -> Floats:
        """Macro paths of the years from_year+1 .. to_year, shape (n_paths, n_year, 3).

        They start from the state of `from_year`: observed, of the scenario, expected from the last
        known year, or, before the first one, the long-run mean. Path k uses the random numbers
        keyed by (seed, k, year), so it does not depend on the number of paths. Years in the
        scenario are taken from it; the mean moves on meanwhile.
        """
        scenario = self._started(scenario, from_year)
        years = range(from_year + 1, to_year + 1)
        out = np.empty((n_paths, len(years), 3))
        mean = np.tile(self.mean, (n_paths, len(years) + 1, 1))
        if self.moving is not None:
            mean[..., :2] = self.moving.draw(seed, n_paths, from_year, to_year)
        x = np.broadcast_to(self._at(from_year, scenario), (n_paths, 3))
        fixed = scenario.rows if scenario else {}
        for i, year in enumerate(years):
            if year in fixed:
                x = np.broadcast_to(_state(np.array([fixed[year]]))[0], (n_paths, 3))
            else:
                shock = ndtri(uniforms(3 * n_paths, "macro", seed, year)).reshape(n_paths, 3)
                deviation = (x - mean[:, i]) @ self.transition.T + shock @ self.innovation.T
                x = mean[:, i + 1] + deviation
            out[:, i] = _series(x)
        return out

    def observed(self, until: int) -> Scenario:
        """The realised macro series up to `until`, as a scenario."""
        history = self.history.until(until)
        rows = enumerate(history.values.tolist(), start=history.first_year)
        return Scenario("observed", {year: (row[0], row[1], row[2]) for year, row in rows})

    def unemployment(self, year: int, scenario: Scenario | None = None) -> float:
        """Unemployment in `year`, from which later years start, a fraction."""
        return float(_series(self._at(year, self._started(scenario, year))[None])[0, 0])

    @property
    def last_known(self) -> int:
        """Last year with values."""
        return (self.known or self.history).last_year

    def _started(self, scenario: Scenario | None, origin: int) -> Scenario | None:
        """The scenario; one by name starts after the origin if the history ends before it."""
        if scenario is None or not scenario.by_name or origin <= self.history.last_year:
            return scenario
        return named_scenario(scenario.name, origin, self.unemployment(origin))

    def _at(self, year: int, scenario: Scenario | None) -> Floats:
        """State (3,) of a year: observed, else of the scenario, else published or expected.

        The expected state after the last known year follows the autoregression without shocks.
        """
        if self.history.has(year):
            return _state_of(self.history.of_year(year))
        if scenario and year in scenario.rows:
            return _state_of(np.array(scenario.rows[year]))
        known = self.known or self.history
        if year < known.first_year:
            return self.mean
        last = min(year, known.last_year)
        deviation = _state_of(known.of_year(last)) - self.mean
        for _ in range(year - last):
            deviation = self.transition @ deviation
        state: Floats = self.mean + deviation
        return state

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, for macro.json."""
        return {
            "series": list(SERIES),
            "first_year": self.history.first_year,
            "history": self.history.values.tolist(),
            "mean": self.mean.tolist(),
            "transition": self.transition.tolist(),
            "innovation": self.innovation.tolist(),
            **({} if self.moving is None else {"moving_mean": self.moving.as_dict()}),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> MacroProcess:
        """Inverse of `as_dict`."""
        history = {"first_year": d["first_year"], "values": d["history"]}
        read = read_values(cls, {**d, "history": history, "moving": d.get("moving_mean")})
        if _radius(read.transition) >= 1:
            raise ValueError("'transition' leads away from the mean")
        return read


def _radius(transition: Floats) -> float:
    """Spectral radius."""
    return float(np.abs(np.linalg.eigvals(transition)).max())


def _state(values: Floats) -> Floats:
    """Series -> autoregressive state, with unemployment in logs so that it stays positive."""
    return np.column_stack([np.log(np.clip(values[:, 0], *UNEMPLOYMENT_RANGE)), values[:, 1:]])


def _state_of(values: Floats) -> Floats:
    """State (3,) of the values (3,) of one year."""
    state: Floats = _state(values[None])[0]
    return state


def _series(state: Floats) -> Floats:
    return np.column_stack([np.clip(np.exp(state[:, 0]), *UNEMPLOYMENT_RANGE), state[:, 1:]])
