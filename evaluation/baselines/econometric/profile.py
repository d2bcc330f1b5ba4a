"""What is usual: mean log earnings of workers by age, sex, education and year, and how the years go on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline

from evaluation.baselines.origin_states import CODES, States
from saga.keyed_random import uniforms
from saga.schema import MAX_AGE, MIN_AGE

Array = NDArray[Any]
Floats = NDArray[np.float64]
KNOTS = (16, 18, 20, 22, 25, 30, 40, 50, 58, 62, 64)  # closer where careers begin and end
LONGEST_DRIFT = 0.03  # real growth a year that a short panel may claim, either way
RIDGE = 0.1  # observations' worth of pull to zero on what tells a group from everybody: empty groups get the common profile
AGES = MAX_AGE - MIN_AGE + 1
GROUPS = (len(CODES["sex"]) + 1, len(CODES["education_level"]) + 1)


class Profile:
    """log y = m(age) + m_sex(age) + m_education(age) + m_sex,education + year effect + residual, by weighted least squares.

    m is a cubic B-spline of age. Year effects after the last year of the panel, and from the origin on in every forecast, are a random
    walk: the drift is the slope of the panel's year effects on the year (at most 3 % either way), the innovations are their centred
    yearly changes, drawn with replacement. What the economy did after the origin is not used.
    """

    def __init__(self, states: States, working: Array) -> None:
        year, age = states.year[working], np.clip(states.age[working], MIN_AGE, MAX_AGE) - MIN_AGE
        self._ages = int(age.min(initial=MAX_AGE)) + MIN_AGE, int(age.max(initial=0)) + MIN_AGE
        log = np.log(states.earnings[working])
        self.first = int(states.year.min())
        years = int(states.year.max()) - self.first + 1
        # One row a cell of sex, education, age and year: a million person-years are some ten thousand cells.
        shape = (*GROUPS, AGES, years)
        cell = np.ravel_multi_index(
            (states.sex[working], states.education_level[working], age, year - self.first), shape
        )
        count = np.bincount(cell, minlength=int(np.prod(shape)))
        total = np.bincount(cell, weights=log, minlength=len(count))
        filled = np.flatnonzero(count)
        sex, education, at, t = np.unravel_index(filled, shape)
        design = np.column_stack([self._design(sex, education, at), np.eye(years)[t][:, 1:]])
        penalty = np.where(np.arange(design.shape[1]) < len(KNOTS) + 2, 1e-6, RIDGE)
        weight = count[filled].astype(np.float64)
        gram = (design * weight[:, None]).T @ design + np.diag(penalty)
        solution = np.linalg.solve(gram, design.T @ total[filled])
        split = len(solution) - (years - 1)
        effect = np.concatenate([[0.0], solution[split:]])
        observed = np.bincount(t, weights=weight, minlength=years) > 0
        self._effect = np.interp(
            np.arange(years), np.flatnonzero(observed), effect[observed]
        )  # years without a record lie between
        steps = np.diff(self._effect)
        slope = float(np.polyfit(np.arange(years), self._effect, 1)[0]) if years > 2 else 0.0
        self.growth = float(np.clip(slope, -LONGEST_DRIFT, LONGEST_DRIFT))
        self._shocks = steps - steps.mean() if len(steps) else np.zeros(1)
        grid = np.indices((*GROUPS, AGES)).reshape(3, -1)
        self._table = (self._design(*grid) @ solution[:split]).reshape(*GROUPS, AGES)

    @staticmethod
    def _design(sex: Array, education: Array, age: Array) -> Floats:
        knots = np.concatenate([[KNOTS[0]] * 3, KNOTS, [KNOTS[-1]] * 3]).astype(float)
        spline = BSpline.design_matrix(age + float(MIN_AGE), knots, 3).toarray()
        of_sex = [spline * (sex == code)[:, None] for code in range(1, GROUPS[0])]
        of_level = [spline * (education == code)[:, None] for code in range(1, GROUPS[1])]
        pairs = np.eye(GROUPS[0] * GROUPS[1])[sex * GROUPS[1] + education]
        return np.concatenate([spline, *of_sex, *of_level, pairs], axis=1)

    def mean_log(self, age: Array, sex: Array, education: Array) -> Floats:
        """Mean log earnings in years of work without the year effect; the arguments broadcast.

        An age at which nobody was seen at work (a panel of one cohort, forecast further than it has come) is the nearest that somebody was.
        """
        return np.asarray(self._table[sex, education, np.clip(age, *self._ages) - MIN_AGE])

    def year_effect(self, year: Array) -> Floats:
        """The year effect; beyond the years of the panel it goes on at the mean growth."""
        inside = np.clip(year, self.first, self.first + len(self._effect) - 1)
        return np.asarray(self._effect[inside - self.first] + self.growth * (year - inside))

    def drawn(self, year: int, paths: int, seed: int) -> Floats:
        """The change of the year effect into `year` on each path (paths,), common to all persons."""
        pick = (uniforms(paths, "year-effect", seed, int(year)) * len(self._shocks)).astype(
            np.int64
        )
        return np.asarray(self.growth + self._shocks[pick])
