"""AR(1) with fixed effects: system GMM, a Kalman filter for each person, empirical surprises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from saga.evaluation.baselines.econometric.gmm import GmmEstimate, system_gmm
from saga.evaluation.baselines.econometric.histories import LOW, UNKNOWN, WORK, ZERO, Histories
from saga.evaluation.baselines.econometric.hurdle import (
    Career,
    careers,
    quantile_position,
    repeat_on_paths,
)
from saga.evaluation.baselines.econometric.hurdle_base import HurdleBaseline
from saga.evaluation.baselines.econometric.variance_components import Belief, Components

from saga.arrays import Array, Floats
from saga.errors import InputError
from saga.features.transforms import record_rhythm

PRIME = (25, 59)  # ages between the beginning and the end of careers, to estimate persistence
# First lags of the instruments. If there is a transitory part of one year, the error is a moving
# average, and 3 is the smallest valid lag.
FIRST_LAGS = (3, 4, 5, 6)
REJECTION_P = 0.01  # below this p of Hansen's test the next first lag is tried
LONGEST_RHYTHM = 3  # longest regular distance of a panel's records, in years
N_QUANTILES = 201  # of the surprises of a bin
MIN_SURPRISES = 200  # surprises that a bin needs; with fewer the next broader bin is used
AGE_LIMITS = (18, 20, 23, 26, 30, 40, 50, 55, 59, 62)  # between bins
RESIDUAL_LIMITS = (-1.0, -0.5, -0.2, 0.0, 0.2, 0.5)  # between bins of the expected residual
SCALE_LIMITS = (0.15, 0.3, 0.6, 1.0)  # between bins of recent surprise, see `Belief.scale`


class AutoRegression(HurdleBaseline[Belief]):
    """r = alpha + z + eps with z an AR(1), forecast by the Kalman filter in innovations form.

    r is the residual of log earnings in a year of work (`Histories.residual`). The filter gives
    mean and standard deviation of next year's residual given a record. The standardised surprise
    (residual less mean, divided by the standard deviation) is drawn from those of training persons
    of similar age, expected residual, recent surprise and spell of work.
    A drawn surprise updates the filter in the same way as an observed one, so paths include the
    uncertainty about alpha.
    """

    name = "ar1"
    version = 1
    estimate: GmmEstimate
    components: Components

    def learn(self, past: Histories, *, seed: int) -> None:
        """Estimate rho by system GMM in the panel's rhythm, then variances, then surprises.

        Variance components are estimated by minimum distance. Surprises are those of the filter on
        the training records. Raises InputError if the panel is too small to estimate rho.
        """
        del seed  # nothing is drawn
        person, known_column = np.nonzero(past.status != UNKNOWN)
        # The rhythm is that of the last years; the instruments then also use earlier records, which
        # may be closer together.
        end = past.status.shape[1] - 1
        rhythm = record_rhythm(person, known_column, end=end, longest=LONGEST_RHYTHM)
        self.estimate = _persistence(past, rhythm)
        rho = float(np.clip(self.estimate.rho, 0.0, 1.0)) ** (1 / rhythm)
        enters = np.zeros(past.status.shape, dtype=np.bool_)  # after a calendar year without work
        enters[:, 1:] = _without_work(past.status[:, :-1])
        self.components = Components.fit(_steady(past), past.age, past.residual[enters], rho)
        bins_of_year: list[list[Array]] = []
        surprises: list[Floats] = []
        for column, year in enumerate(self._filtered(past, careers(past))):
            keys = _bins(past.age[:, column], year.expected, year.belief.scale, year.career)
            bins_of_year.append([key[year.works] for key in keys])
            surprises.append((year.surprise / year.deviation)[year.works])
        self.surprises = Surprises(
            [np.concatenate(keys) for keys in zip(*bins_of_year, strict=True)],
            np.concatenate(surprises),
        )

    def states(self, past: Histories, careers: list[Career], u: Floats) -> Belief:
        """The filter's distribution in the last column, the same on every path."""
        belief = Belief.prior(self.components, (len(past.age),))
        for year in self._filtered(past, careers):
            belief = year.updated()
        return Belief(**repeat_on_paths(belief, u.shape[1]))

    def _filtered(self, past: Histories, careers: Iterable[Career]) -> Iterator[_FilteredYear]:
        """What the filter expects of each column, and the surprise in it."""
        belief = Belief.prior(self.components, (len(past.age),))
        for column, career in zip(range(past.years), careers, strict=False):
            belief, expected, deviation = self._expect(belief, past.age[:, column], career)
            surprise, works = past.residual[:, column] - expected, past.status[:, column] == WORK
            year = _FilteredYear(career, belief, expected, deviation, surprise, works)
            yield year
            belief = year.updated()

    def step(
        self, state: Belief, age: Array, status: Array, career: Career, u: tuple[Floats, Floats]
    ) -> tuple[Floats, Belief]:
        """One year: expected residual plus a drawn surprise, which updates the filter at work."""
        belief, expected, deviation = self._expect(state, age, career)
        bins = _bins(age, expected, belief.scale, career)
        surprise = deviation * self.surprises.draw(bins, u[0])
        return expected + surprise, belief.updated(surprise, status == WORK, deviation)

    def _expect(self, belief: Belief, age: Array, career: Career) -> tuple[Belief, Floats, Floats]:
        """The belief a year later, at `age`, and mean and standard deviation of the residual."""
        ahead = belief.ahead(self.components, age)
        return (ahead, *ahead.expected(self.components, age, career.years_out > 0))


@dataclass(frozen=True)
class _FilteredYear:
    """A year of n persons: the career and the belief before it, and the surprise in it."""

    career: Career
    belief: Belief
    expected: Floats
    deviation: Floats
    surprise: Floats
    works: Array

    def updated(self) -> Belief:
        """The belief after the year."""
        return self.belief.updated(self.surprise, self.works, self.deviation)


class Surprises:
    """Quantiles of standardised surprises by bin, at several levels of detail.

    Args:
        bins: The bin (n,) of each surprise at every level of detail, finest first. The last level
            has one bin.
        surprises: (n,), standardised.
    """

    def __init__(self, bins: list[Array], surprises: Floats) -> None:
        probabilities = np.linspace(0, 1, N_QUANTILES)
        self._tables, self._is_used = [], []
        for detail, key in enumerate(bins):
            order = np.argsort(key, kind="stable")
            count = np.bincount(key)
            table = np.zeros((len(count), N_QUANTILES))
            enough = count >= (MIN_SURPRISES if detail < len(bins) - 1 else 1)
            start = np.cumsum(count) - count
            for b in np.flatnonzero(enough):
                table[b] = np.quantile(
                    surprises[order[start[b] : start[b] + count[b]]], probabilities
                )
            self._tables.append(table)
            self._is_used.append(enough)

    def draw(self, bins: list[Array], u: Floats) -> Floats:
        """A surprise for each uniform; `bins` as in the fit, of the shape of `u`."""
        below, within = quantile_position(u, N_QUANTILES)
        surprises = np.zeros(u.shape)
        is_missing = np.ones(u.shape, dtype=np.bool_)
        for key, table, enough in zip(bins, self._tables, self._is_used, strict=True):
            inside = np.minimum(key, len(enough) - 1)
            selected = is_missing & (key < len(enough)) & enough[inside]
            k, b = inside[selected], below[selected]
            surprises[selected] = table[k, b] + within[selected] * (table[k, b + 1] - table[k, b])
            is_missing &= ~selected
        return surprises


def _bins(age: Array, expected: Floats, scale: Floats, career: Career) -> list[Array]:
    """Bin numbers at five levels of detail, finest first.

    The finest is kind of career x age x expected residual x recent surprise. The others combine
    fewer of these. The last has one bin.
    """
    # 0 to 2: at work for at least three years in a row, for two years, for at most one year.
    # 3 to 5: out of work for 1, 2-3, 4+ years. 6, 7: never at work, with and without a known year.
    kind = np.where(career.tenure >= 3, 0, np.where(career.tenure == 2, 1, 2))
    kind = np.where(
        career.years_out > 0,
        np.where(career.years_out == 1, 3, np.where(career.years_out < 4, 4, 5)),
        kind,
    )
    kind = np.where(career.worked == 0, np.where(career.years_out > 0, 6, 7), kind)
    age_bin = np.broadcast_to(np.searchsorted(AGE_LIMITS, age, side="right"), expected.shape)
    residual_bin = np.searchsorted(RESIDUAL_LIMITS, expected, side="right")
    scale_bin = np.searchsorted(SCALE_LIMITS, scale, side="right")
    kinds, ages, residuals, scales = (
        8, len(AGE_LIMITS) + 1, len(RESIDUAL_LIMITS) + 1, len(SCALE_LIMITS) + 1,
    )  # fmt: skip
    keys = (kind, age_bin, residual_bin, scale_bin)
    return [
        np.ravel_multi_index(keys, (kinds, ages, residuals, scales)),
        np.ravel_multi_index((kind, residual_bin, scale_bin), (kinds, residuals, scales)),
        np.ravel_multi_index((kind, age_bin), (kinds, ages)),
        kind,
        np.zeros_like(kind),
    ]


def _without_work(status: Array) -> Array:
    return np.asarray((status == ZERO) | (status == LOW))


def _steady(past: Histories) -> Floats:
    """Residuals except in years of work before or after a calendar year known to be without work.

    Such years are often partial. If records are every second year, no year is left out.
    """
    idle, steady = _without_work(past.status), past.residual.copy()
    steady[:, 1:][idle[:, :-1]] = np.nan
    steady[:, :-1][idle[:, 1:]] = np.nan
    return steady


def _persistence(past: Histories, rhythm: int) -> GmmEstimate:
    """System GMM on the steady years of persons in their prime.

    The first lag is the smallest one that Hansen's test does not reject; if it rejects all, the one
    with the largest p. If there are too few persons in their prime, all ages are used. Raises
    InputError if these are too few as well.
    """
    steady = _steady(past)
    prime = np.where((past.age >= PRIME[0]) & (past.age <= PRIME[1]), steady, np.nan)
    too_few: InputError | None = None
    estimates: list[GmmEstimate] = []
    for residual in (prime, steady):  # all ages if a panel has few persons in their prime
        for lag in FIRST_LAGS:
            try:
                estimates.append(system_gmm(residual, first_lag=lag, step=rhythm))
            except InputError as error:
                too_few = error
                break
            if estimates[-1].p_hansen >= REJECTION_P:
                return estimates[-1]
        if estimates:
            return max(estimates, key=lambda estimate: estimate.p_hansen)
    assert too_few is not None
    raise too_few
