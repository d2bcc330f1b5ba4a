"""How far intervals of present values move if only the seed of the paths changes.

Distributions and intervals of single years have no seed: they are computed from the record, the
weights and fixed macro futures (`saga.simulation.marginals`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.diagnostics.cases import Rows
from saga.calibration.diagnostics.person_results import value_of_years
from saga.calibration.diagnostics.verdicts import typical_value

from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.families.set_family import SMALLEST_AMOUNT
from saga.conformal.published_sets import value_intervals
from saga.data.panel import Panel
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.requests import RATE, Draws

Array = NDArray[Any]
N_SEEDS = 5
N_PERSONS = 200  # whose present values are simulated with every seed


@dataclass(frozen=True, eq=False)
class SeedRanges:
    """How far the two ends of the intervals of n persons move over the seeds.

    `lower` and `upper` (n,) are the largest minus the smallest value of an end, divided by the
    person's median present value. `differs` (n,): whether the interval begins at zero with some
    seeds and above with others.
    """

    lower: Array
    upper: Array
    differs: NDArray[np.bool_]

    @classmethod
    def of(cls, lower: Array, upper: Array, median: Array) -> SeedRanges:
        """From ends and medians (S, n) of S seeds."""
        unit = np.maximum(median.mean(axis=0), SMALLEST_AMOUNT)
        at_zero = lower <= SMALLEST_AMOUNT
        return cls(
            np.ptp(lower, axis=0) / unit,
            np.ptp(upper, axis=0) / unit,
            np.asarray(at_zero.any(axis=0) & ~at_zero.all(axis=0)),
        )


def measure_seed_ranges(
    forecaster: Forecaster, records: Panel, draws: Draws, years: Sequence[int], coverage: float
) -> dict[int, SeedRanges]:
    """For each K of `years`, the ranges for present values of K years.

    At most 200 persons are drawn; those who pass age 64 within the K years are left out. Empty if
    the calibration has no present values.
    """
    calibrator = forecaster.calibrator
    if not calibrator.has_present_values:
        return {}
    chosen = sample_persons(records.persons(), N_PERSONS, "seed-stability", draws.seed)
    people = records.only(chosen)
    ends: dict[int, list[tuple[Array, Array, Array]]] = {k: [] for k in years}
    for seed in range(draws.seed, draws.seed + N_SEEDS):
        paths = forecaster.simulate(people, replace(draws, seed=seed), to_horizon=max(years))
        for k in years:
            complete = np.flatnonzero(~np.isnan(paths.earnings[:, :k, 0]).any(axis=1))
            values = SimulatedValues.of(paths.take(complete), partial(value_of_years, years=k))
            n_years = np.full(len(values), k)
            sets = value_intervals(calibrator, values, n_years, (coverage,), RATE)
            ends[k].append((sets.lower[:, 0], sets.upper[:, 0], values.quantiles([0.5])[:, 0]))
    return {
        k: SeedRanges.of(*(np.stack(part) for part in zip(*ends_by_seed, strict=True)))
        for k, ends_by_seed in ends.items()
    }


def tabulate_seed_ranges(
    ranges: Mapping[int, SeedRanges], coverage: float, min_persons: int
) -> Rows:
    """Median over persons of each end's range (`middle`), and its 90 % quantile (`high`).

    Both are averages of ten persons (`typical_value`). No rows below `min_persons` persons.
    """
    rows: Rows = []
    for years, year_ranges in ranges.items():
        complete = ~(np.isnan(year_ranges.lower) | np.isnan(year_ranges.upper))
        n = int(complete.sum())
        for end in ("lower", "upper") if n >= min_persons else ():
            values = getattr(year_ranges, end)[complete]
            rows.append(
                {
                    "horizon": years,
                    "end": end,
                    "level": coverage,
                    "n": n,
                    "middle": typical_value(values),
                    "high": typical_value(values, 0.9),
                    "differs": float(year_ranges.differs[complete].mean()),
                }
            )
    return rows
