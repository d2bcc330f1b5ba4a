"""A plain AR(1) with fixed effects, fitted to a register and measured like it: what a linear Gaussian process cannot reproduce.

log y(i, t) = age-and-year mean + mu(i) + x(i, t), x(i, t) = rho x(i, t-1) + e(i, t), mu and e normal. Its changes have no excess
kurtosis, and a gain fades as fast as a loss whatever the rank. Real changes have sharp peaks and long tails, and gains and losses
fade differently, in ways that depend on past earnings (Guvenen, Karahan, Ozkan and Song 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from saga.register.simulation.economy import CPI
from saga.register.validation.earnings_dynamics import AGES, PAST, changes, past_fifth
from saga.register.validation.estimators import Estimate, Sample
from saga.register.validation.level_statistics import Measured
from saga.register.validation.register_arrays import Bools, People

AHEAD = 5  # years after which a change is looked for again
MAX_RHO = 0.995


@dataclass(frozen=True)
class FixedEffectsAR1:
    """rho, standard deviation of e and of mu, and the age-and-year means (ages, T), ages from `first_age` on."""

    rho: float
    shock: float
    effect: float
    means: NDArray[np.float64]
    first_age: int

    @classmethod
    def fit(cls, people: People) -> FixedEffectsAR1:
        """rho by instrumental variables on first differences (Anderson and Hsiao 1981), variances from those of changes and levels."""
        age = np.array(people.years)[None, :] - people.born[:, None]
        inside = np.isfinite(people.logs) & (age >= AGES[0]) & (age <= AGES[1] + 1)
        first = int(age.min())
        shape = (int(age.max()) - first + 1, len(people.years))
        cell = np.ravel_multi_index(
            (age - first, np.broadcast_to(np.arange(shape[1]), age.shape)), shape
        )
        count = np.bincount(cell[inside], minlength=shape[0] * shape[1])
        means = np.bincount(cell[inside], people.logs[inside], shape[0] * shape[1]) / np.maximum(
            count, 1
        )
        y = np.where(inside, people.logs - means[cell], np.nan)
        step = np.diff(y, axis=1)
        now, before, instrument = step[:, 1:], step[:, :-1], y[:, :-2]
        known = np.isfinite(now) & np.isfinite(before)
        rho = float((now * instrument)[known].sum() / (before * instrument)[known].sum())
        rho = float(np.clip(rho, 0.0, MAX_RHO))
        shock2 = (
            float(np.nanvar(step)) * (1.0 + rho) / 2.0
        )  # the variance of a change is 2 shock^2 / (1 + rho)
        effect2 = max(float(np.nanvar(y)) - shock2 / (1.0 - rho**2), 0.0)
        return cls(
            rho, float(np.sqrt(shock2)), float(np.sqrt(effect2)), means.reshape(shape), first
        )

    def simulate(self, people: People, rng: np.random.Generator) -> People:
        """The same people, observed in the same years, with earnings of this process where theirs lie above the floor."""
        n, years = people.logs.shape
        state = self.shock / np.sqrt(1.0 - self.rho**2) * rng.standard_normal(n)
        effect = self.effect * rng.standard_normal(n)
        earnings = np.full((n, years), np.nan, np.float32)
        for t, year in enumerate(people.years):
            state = self.rho * state + self.shock * rng.standard_normal(n) if t else state
            log = self.means[people.age(year) - self.first_age, t] + effect + state
            earnings[:, t] = np.where(
                np.isfinite(people.logs[:, t]), np.exp(log) * CPI[year], np.nan
            )
        return replace(people, earnings=earnings)


def against_linear(people: People) -> Measured:
    """Peakedness of changes and difference in fading, in the register and in the AR(1) fitted to it."""
    if not set(range(1990, 2023)) <= set(people.years):
        return
    fitted = FixedEffectsAR1.fit(people)
    twin = fitted.simulate(people, np.random.default_rng(people.about["seed"]))
    for name, whose in (("register", people), ("fitted", twin)):
        every = range(1991, 2023)
        yield f"ar1.peak.{name}", changes(whose, every).crow_siddiqui()
        yield f"ar1.kurtosis.{name}", kurtosis(changes(whose, every))
        for place, fifth in (("bottom", 0), ("top", 4)):
            yield (
                f"ar1.fading_{place}.{name}",
                _kept(whose, fifth, losses=True) - _kept(whose, fifth, losses=False),
            )


def kurtosis(sample: Sample) -> Estimate:
    """Fourth central moment over the squared variance: 3 for a normal distribution."""
    z = (sample.values - sample.values.mean()) / sample.values.std()
    value = float((z**4).mean())
    return sample.estimate(value, z**4 - 2.0 * value * z**2)


def _kept(people: People, fifth: int, *, losses: bool) -> Estimate:
    """Share of a further loss (or gain) still there `AHEAD` years later: slope of the long change on the short one among the third
    of changes that are lowest (highest), 25-55 in the given fifth of past earnings."""
    short, long, who = [], [], []
    for year in range(people.years.start + PAST, people.years.stop - AHEAD):
        t = people.column(year)
        change = people.logs[:, t] - people.logs[:, t - 1]
        later = people.logs[:, t + AHEAD] - people.logs[:, t - 1]
        mask: Bools = (
            (past_fifth(people, year - 1) == fifth) & np.isfinite(change) & np.isfinite(later)
        )
        if not mask.any():
            continue
        short.append(change[mask] - change[mask].mean(dtype=np.float64))
        long.append(later[mask] - later[mask].mean(dtype=np.float64))
        who.append(np.flatnonzero(mask))
    x, y, person = np.concatenate(short), np.concatenate(long), np.concatenate(who)
    tail = x <= np.quantile(x, 1 / 3) if losses else x >= np.quantile(x, 2 / 3)
    x, y = x[tail] - x[tail].mean(), y[tail] - y[tail].mean()
    kept = float((x * y).sum() / (x**2).sum())
    return Sample(x, person[tail], len(people)).estimate(kept, x * (y - kept * x) / (x**2).mean())
