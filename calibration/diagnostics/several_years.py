"""Intervals for several years together: whether they hold, and how far a seed moves them.

Distributions and intervals of single years have no seed: they are computed from the record, the
weights and fixed macro futures (`saga.simulation.marginals`). Present values are simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
from saga.calibration.diagnostics.person_results import Rows
from saga.calibration.diagnostics.verdicts import typical_value

from saga.arrays import Array
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import PRESENT_VALUE
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.families.set_family import SMALLEST_AMOUNT
from saga.conformal.published_sets import value_intervals
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.lifetime import present_value
from saga.paths import Paths
from saga.requests import RATE, Draws

# Kind of threshold ("band", "present_value") and number of years -> whether the intervals of each
# coverage contain the outcomes, (n, L): 1 or 0, NaN if an outcome is unknown or there is no
# guarantee.
Inside = dict[tuple[str, int], Array]
N_SEEDS = 5
N_PERSONS = 200  # whose present values are simulated with every seed


def judge_several_years(
    calibrator: Calibrator,
    marginals: Marginals,
    paths: Paths | None,
    outcomes: Array,
    years: Sequence[int],
) -> Inside:
    """Recalibrated forecasts of n persons against `outcomes` (n, H), for each K of `years`.

    A set contains the outcomes exactly if their score is at most the threshold, or if a set of
    lower coverage contains them. Without `paths` there are no present values.
    """
    inside: Inside = {}
    if not years or not calibrator.has_sets:
        return inside
    coverage, outcomes = calibrator.coverage, outcomes[:, : max(years)]
    marginals = marginals.first(outcomes.shape[1])
    for family, forecasts in ((calibrator.band, marginals), (PRESENT_VALUE, paths)):
        if forecasts is None:
            continue
        is_enough = not family.of_paths or (
            paths is not None and paths.n_paths >= calibrator.value_paths
        )
        by_coverage = family.scores_by_coverage(forecasts, outcomes, coverage)
        scores = np.stack(list(by_coverage.values()), axis=-1)
        for k in years:
            q, guarantees = calibrator.fitted.nested_thresholds(family, k)
            is_judged = is_enough & (np.array(guarantees) == "assumption")
            contained = np.logical_or.accumulate(scores[:, k - 1] <= q, axis=1)
            is_known = is_judged & ~np.isnan(scores[:, k - 1])
            inside[family.kind, k] = np.where(is_known, contained, np.nan)
    return inside


def measure_seed_ranges(
    forecaster: Forecaster, records: Panel, draws: Draws, years: Sequence[int], coverage: float
) -> dict[int, pl.DataFrame]:
    """For each K of `years`, `seed_ranges` of present values of K years.

    At most 200 persons are drawn; those who pass age 64 within the K years are left out. Empty if
    the calibration has no present values.
    """
    calibrator = forecaster.calibrator
    if not (years and calibrator.has_present_values):
        return {}
    chosen = sample_persons(records.persons(), N_PERSONS, "seed-stability", draws.seed)
    people = records.only(chosen)
    ends: dict[int, list[tuple[Array, Array, Array]]] = {k: [] for k in years}
    for seed in range(draws.seed, draws.seed + N_SEEDS):
        paths = forecaster.simulate(people, replace(draws, seed=seed), to_horizon=max(years))
        for k in years:
            complete = np.flatnonzero(~np.isnan(paths.earnings[:, :k, 0]).any(axis=1))
            values = SimulatedValues.of(paths.take(complete), partial(present_value, years=k))
            n_years = np.full(len(values), k)
            sets = value_intervals(calibrator, values, n_years, (coverage,), RATE)
            ends[k].append((sets.lower[:, 0], sets.upper[:, 0], values.quantiles([0.5])[:, 0]))
    return {
        k: seed_ranges(*(np.stack(part) for part in zip(*ends_by_seed, strict=True)))
        for k, ends_by_seed in ends.items()
    }


def seed_ranges(lower: Array, upper: Array, median: Array) -> pl.DataFrame:
    """How far the ends of n persons' intervals move, from ends and medians (S, n) of S seeds.

    Columns `lower` and `upper`: the largest minus the smallest value of an end, divided by the
    person's median present value. `differs`: whether the interval begins at zero with some seeds
    and above with others.
    """
    unit = np.maximum(median.mean(axis=0), SMALLEST_AMOUNT)
    at_zero = lower <= SMALLEST_AMOUNT
    return pl.DataFrame(
        {
            "lower": np.ptp(lower, axis=0) / unit,
            "upper": np.ptp(upper, axis=0) / unit,
            "differs": at_zero.any(axis=0) & ~at_zero.all(axis=0),
        }
    )


def tabulate_seed_ranges(
    ranges: Mapping[int, pl.DataFrame], coverage: float, min_persons: int
) -> Rows:
    """Median over persons of each end's range (`middle`), and its 90 % quantile (`high`).

    Both are averages of ten persons (`typical_value`). No rows below `min_persons` persons.
    """
    rows: Rows = []
    for years, of_persons in ranges.items():
        complete = of_persons.filter(pl.col("lower").is_not_nan() & pl.col("upper").is_not_nan())
        for end in ("lower", "upper") if complete.height >= min_persons else ():
            values = complete[end].to_numpy()
            rows.append(
                {
                    "horizon": years,
                    "end": end,
                    "coverage": coverage,
                    "n": complete.height,
                    "middle": typical_value(values),
                    "high": typical_value(values, 0.9),
                    "differs": complete["differs"].mean(),
                }
            )
    return rows
