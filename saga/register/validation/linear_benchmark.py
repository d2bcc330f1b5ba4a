"""An AR(1) with fixed effects, fitted to a register as a linear benchmark.

log y(i, t) = age-and-year mean + mu(i) + x(i, t), x(i, t) = rho x(i, t-1) + e(i, t), with mu and e
normal. Its changes have no excess kurtosis, and a gain fades as fast as a loss at every rank. Real
changes have sharp peaks and long tails, and gains and losses fade differently, in ways that depend
on past earnings (Guvenen, Karahan, Ozkan and Song 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from saga.register.simulation.economy import CPI
from saga.register.validation.earnings_dynamics import (
    CHANGE_YEARS,
    PRIME_AGES,
    RANK_YEARS,
    changes,
    past_rank,
)
from saga.register.validation.estimators import Estimate, Sample
from saga.register.validation.level_statistics import KeyedEstimates
from saga.register.validation.register_arrays import FULL_PERIOD, RegisterArrays

FADING_YEARS = 5  # years after a change over which it may fade
MAX_RHO = 0.995  # largest persistence that an estimate may have


@dataclass(frozen=True)
class FixedEffectsAR1:
    """A linear process of log earnings.

    Attributes:
        rho: Autocorrelation of x.
        shock: Standard deviation of e.
        effect: Standard deviation of mu.
        means: Age-and-year means (n_age, T), ages from `first_age` on.
        first_age: Age of the first row of `means`.
    """

    rho: float
    shock: float
    effect: float
    means: NDArray[np.float64]
    first_age: int

    @classmethod
    def fit(cls, register: RegisterArrays) -> FixedEffectsAR1:
        """Fit by instrumental variables on first differences (Anderson and Hsiao 1981).

        The variances follow from those of changes and levels.
        """
        logs = register.logs
        age = np.array(register.years)[None, :] - register.birth_year[:, None]
        inside = np.isfinite(logs) & (age >= PRIME_AGES[0]) & (age <= PRIME_AGES[1] + 1)
        first_age = int(age.min())
        shape = (int(age.max()) - first_age + 1, len(register.years))
        column = np.broadcast_to(np.arange(shape[1]), age.shape)
        age_year = np.ravel_multi_index((age - first_age, column), shape)
        size = shape[0] * shape[1]
        count = np.bincount(age_year[inside], minlength=size)
        means = np.bincount(age_year[inside], logs[inside], size) / np.maximum(count, 1)
        y = np.where(inside, logs - means[age_year], np.nan)
        change = np.diff(y, axis=1)
        later, earlier, instrument = change[:, 1:], change[:, :-1], y[:, :-2]
        complete = np.isfinite(later) & np.isfinite(earlier)
        rho = float((later * instrument)[complete].sum() / (earlier * instrument)[complete].sum())
        rho = float(np.clip(rho, 0.0, MAX_RHO))
        # The variance of a change is 2 shock^2 / (1 + rho).
        shock_variance = float(np.nanvar(change)) * (1.0 + rho) / 2.0
        effect_variance = max(float(np.nanvar(y)) - shock_variance / (1.0 - rho**2), 0.0)
        shock, effect = float(np.sqrt(shock_variance)), float(np.sqrt(effect_variance))
        return cls(rho, shock, effect, means.reshape(shape), first_age)

    def simulate(self, register: RegisterArrays, rng: np.random.Generator) -> RegisterArrays:
        """The same persons and years, with earnings of this process.

        A person-year up to half a price base amount is NaN.
        """
        n, n_years = register.logs.shape
        state = self.shock / np.sqrt(1.0 - self.rho**2) * rng.standard_normal(n)
        effect = self.effect * rng.standard_normal(n)
        earnings = np.full((n, n_years), np.nan, np.float32)
        for t, year in enumerate(register.years):
            state = self.rho * state + self.shock * rng.standard_normal(n) if t else state
            log = self.means[register.age(year) - self.first_age, t] + effect + state
            earnings[:, t] = np.where(register.attached(year), np.exp(log) * CPI[year], np.nan)
        return replace(register, earnings=earnings)


def compare_with_linear(register: RegisterArrays) -> KeyedEstimates:
    """Peakedness of changes and difference in fading, in the register and in the fitted AR(1)."""
    if not register.covers(FULL_PERIOD):
        return
    rng = np.random.default_rng(register.metadata["seed"])
    fitted = FixedEffectsAR1.fit(register).simulate(register, rng)
    for name, arrays in (("register", register), ("fitted", fitted)):
        sample = changes(arrays, CHANGE_YEARS)
        yield f"ar1.peak.{name}", sample.crow_siddiqui()
        yield f"ar1.kurtosis.{name}", kurtosis(sample)
        for rank, fifth in (("bottom", 0), ("top", 4)):
            losses, gains = (_persistence(arrays, fifth, losses=flag) for flag in (True, False))
            yield f"ar1.fading_{rank}.{name}", losses - gains


def kurtosis(sample: Sample) -> Estimate:
    """Fourth central moment over the squared variance: 3 for a normal distribution."""
    z = (sample.values - sample.values.mean()) / sample.values.std()
    value = float((z**4).mean())
    return sample.estimate(value, z**4 - 2.0 * value * z**2)


def _persistence(register: RegisterArrays, fifth: int, *, losses: bool) -> Estimate:
    """Share of a further loss (or gain) that remains `FADING_YEARS` years later.

    It is the slope of the long change on the short one among the lowest (highest) third of
    changes, for persons of 25-55 in the given fifth of past earnings.
    """
    short_changes, long_changes, persons = [], [], []
    for year in range(register.years.start + RANK_YEARS, register.years.stop - FADING_YEARS):
        t = register.column(year)
        short = register.logs[:, t] - register.logs[:, t - 1]
        long = register.logs[:, t + FADING_YEARS] - register.logs[:, t - 1]
        in_fifth = past_rank(register, year - 1) == fifth
        mask = in_fifth & np.isfinite(short) & np.isfinite(long)
        if mask.any():
            short_changes.append(short[mask] - short[mask].mean(dtype=np.float64))
            long_changes.append(long[mask] - long[mask].mean(dtype=np.float64))
            persons.append(np.flatnonzero(mask))
    x, y, person = map(np.concatenate, (short_changes, long_changes, persons))
    tail = x <= np.quantile(x, 1 / 3) if losses else x >= np.quantile(x, 2 / 3)
    x, y = x[tail] - x[tail].mean(), y[tail] - y[tail].mean()
    slope = float((x * y).sum() / (x**2).sum())
    sample = Sample(x, person[tail], len(register))
    return sample.estimate(slope, x * (y - slope * x) / (x**2).mean())
