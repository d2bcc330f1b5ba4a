"""The earnings profile: mean logs of persons at work by age, sex, education and year."""

from __future__ import annotations

import numpy as np
from saga.evaluation.baselines.person_states import CODES, States
from scipy.interpolate import BSpline

from saga.arrays import Array, Floats
from saga.keyed_random import uniforms
from saga.schema import MAX_AGE, MIN_AGE, N_AGES
from saga.trees.earnings_ranks import LARGEST_GROWTH

KNOTS = (16, 18, 20, 22, 25, 30, 40, 50, 58, 62, 64)  # ages; denser at both ends of careers
N_SPLINES = len(KNOTS) + 2  # cubic B-splines on these knots
RIDGE = 0.1  # penalty that shrinks groups and years to the common profile, in observations
MIN_RIDGE = 1e-6  # penalty of the common profile, so that ages without observations are solved
GROUPS = (len(CODES["sex"]) + 1, len(CODES["education_level"]) + 1)  # codes, 0 for unknown


class Profile:
    """Mean log earnings by weighted least squares, and a random walk of year effects.

        log y = m(age) + m_sex(age) + m_education(age) + m_sex,education + year effect + residual

    m is a cubic B-spline of age. In forecasts, year effects after the origin are a random walk. Its
    drift is the slope of the panel's year effects on the year, limited to
    LARGEST_GROWTH a year in both directions. Its innovations are the yearly changes of the panel's
    year effects, centred and drawn with replacement. Macro series after the origin are not used.

    Args:
        states: All person-years with known earnings.
        working: Whether the person works in each of them.
    """

    def __init__(self, states: States, working: Array) -> None:
        year, age = states.year[working], np.clip(states.age[working], MIN_AGE, MAX_AGE)
        self._ages = int(age.min(initial=MAX_AGE)), int(age.max(initial=MIN_AGE))
        age_index = age - MIN_AGE
        log = np.log(states.earnings[working])
        self.first = int(states.year.min())
        years = int(states.year.max()) - self.first + 1
        # One row per combination of sex, education, age and year: far fewer than person-years.
        shape = (*GROUPS, N_AGES, years)
        combination = np.ravel_multi_index(
            (states.sex[working], states.education_level[working], age_index, year - self.first),
            shape,
        )
        count = np.bincount(combination, minlength=int(np.prod(shape)))
        total = np.bincount(combination, weights=log, minlength=len(count))
        filled = np.flatnonzero(count)
        sex, education, age_index, t = np.unravel_index(filled, shape)
        design = np.column_stack([self._design(sex, education, age_index), np.eye(years)[t][:, 1:]])
        penalty = np.where(np.arange(design.shape[1]) < N_SPLINES, MIN_RIDGE, RIDGE)
        weight = count[filled].astype(np.float64)
        gram = (design * weight[:, None]).T @ design + np.diag(penalty)
        solution = np.linalg.solve(gram, design.T @ total[filled])
        split = len(solution) - (years - 1)
        effect = np.concatenate([[0.0], solution[split:]])
        observed = np.bincount(t, weights=weight, minlength=years) > 0
        # Effects of years without observations are interpolated.
        self._effect = np.interp(np.arange(years), np.flatnonzero(observed), effect[observed])
        steps = np.diff(self._effect)
        slope = float(np.polyfit(np.arange(years), self._effect, 1)[0]) if years > 2 else 0.0
        self.growth = float(np.clip(slope, -LARGEST_GROWTH, LARGEST_GROWTH))
        self._shocks = steps - steps.mean() if len(steps) else np.zeros(1)
        grid = np.indices((*GROUPS, N_AGES)).reshape(3, -1)
        self._table = (self._design(*grid) @ solution[:split]).reshape(*GROUPS, N_AGES)

    @staticmethod
    def _design(sex: Array, education: Array, age_index: Array) -> Floats:
        knots = np.concatenate([[KNOTS[0]] * 3, KNOTS, [KNOTS[-1]] * 3]).astype(float)
        spline = BSpline.design_matrix(age_index + float(MIN_AGE), knots, 3).toarray()
        by_sex = [spline * (sex == code)[:, None] for code in range(1, GROUPS[0])]
        by_education = [spline * (education == code)[:, None] for code in range(1, GROUPS[1])]
        pairs = np.eye(GROUPS[0] * GROUPS[1])[sex * GROUPS[1] + education]
        return np.concatenate([spline, *by_sex, *by_education, pairs], axis=1)

    def mean_log(self, age: Array, sex: Array, education: Array) -> Floats:
        """Mean log earnings in years of work without the year effect; the arguments broadcast.

        Ages beyond those of the training panel's years of work have the value of the nearest age.
        """
        return np.asarray(self._table[sex, education, np.clip(age, *self._ages) - MIN_AGE])

    def year_effect(self, year: Array) -> Floats:
        """The year effect; outside the panel's years it grows at the rate of the drift."""
        inside = np.clip(year, self.first, self.first + len(self._effect) - 1)
        return np.asarray(self._effect[inside - self.first] + self.growth * (year - inside))

    def draw(self, year: int, n_paths: int, seed: int) -> Floats:
        """The change of the year effect from the year before to `year`, (n_paths,).

        It is the same for all persons on a path.
        """
        position = uniforms(n_paths, "year-effect", seed, int(year)) * len(self._shocks)
        return np.asarray(self.growth + self._shocks[position.astype(np.int64)])
