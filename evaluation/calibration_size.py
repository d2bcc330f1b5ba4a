"""Coverage by the number of calibration persons, a table of the contest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.calibration.fit.split_conformal import fit_calibration
from saga.evaluation.scoring.evaluation_settings import Sample

from saga.data.groups import Grouping
from saga.data.origins import cut, history, realised_earnings
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.scores import covered

SIZES_VERSION = 2
SIZES = (1_000, 5_000, 14_107)  # numbers of calibration persons in the paper
HORIZON, COVERAGE_90, REPEATS = 10, 0.9, 100
GROUPS = ("all", "quintile=1")
COLUMNS = {
    "size": pl.Int64(),
    "group": pl.String(),
    "value": pl.Float64(),
    "sd": pl.Float64(),
    "repeats": pl.Int64(),
    "n": pl.Int64(),
    "available": pl.Int64(),
}


def coverage_by_size(
    forecaster: Forecaster,
    calibration: Panel,
    sample: Sample,
    *,
    seed: int,
    sizes: Sequence[int] = SIZES,
    repeats: int = REPEATS,
    progress: Callable[[str, int, int], None] | None = None,
) -> pl.DataFrame:
    """Coverage of 90 % sets 10 years ahead in-time by the number of calibration persons.

    Each repeat draws `size` of the calibration persons with an outcome, without replacement,
    because a second draw of a person is not a second observation. `value` and `sd` are mean and
    standard deviation over repeats, on the same n test persons. `available` is the number of
    calibration persons with an outcome: it is a further size, and sizes above it have no value.

    Args:
        forecaster: The bundle; its raw marginals are calibrated anew.
        calibration: The calibration persons.
        sample: The test persons, and the training persons, whose earnings define quintiles.
        seed: Seed of origins and repeats.
        sizes: Numbers of calibration persons.
        repeats: Random choices of persons for each size.
        progress: Called with (step, done, total).

    Returns:
        Rows of COLUMNS.
    """
    until = sample.until
    fit_marginals, fit_outcomes = _forecast(forecaster, sample, cut(calibration, until))
    test = cut(sample.test, until)
    test_marginals, test_outcomes = _forecast(forecaster, sample, test)
    members = {"all": np.ones(len(test_marginals), dtype=bool)}
    if test_marginals.groups:
        quintile = test_marginals.groups["quintile"]
        members |= {f"quintile={q}": quintile == q for q in ("1", "5")}
    rows = []
    available = len(fit_marginals)
    for size in sorted({*sizes, available}):
        shares: dict[str, list[float]] = {group: [] for group in GROUPS}
        n_repeats = 0 if not 0 < size <= available else repeats if size < available else 1
        for repeat in range(n_repeats):
            order = np.random.default_rng([seed, size, repeat]).permutation(available)
            chosen_rows = np.sort(order[:size])
            calibrator = fit_calibration(
                fit_marginals.take(chosen_rows),
                fit_outcomes[chosen_rows],
                seed=seed + repeat,
                coverage=(COVERAGE_90,),
            )
            sets = calibrator.intervals(calibrator.recalibrate(test_marginals), (COVERAGE_90,))
            lower, upper = sets.lower[..., 0], sets.upper[..., 0]
            inside = covered(test_outcomes, lower, upper, sets.includes_zero[..., 0])[:, 0]
            for group, member in members.items():
                # Very few calibration persons may give no interval at all.
                if group in shares and np.isfinite(inside[member]).any():
                    shares[group].append(float(np.nanmean(inside[member])))
            if progress:
                progress(f"calibration on {size:,} persons", repeat + 1, repeats)
        for group, values in shares.items():
            rows.append(
                {
                    "size": size,
                    "group": group,
                    "value": float(np.mean(values)) if values else None,
                    "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
                    "repeats": len(values),
                    "n": int(members[group].sum()) if group in members else 0,
                    "available": available,
                }
            )
    return pl.DataFrame(rows, schema=COLUMNS)


def _forecast(
    forecaster: Forecaster, sample: Sample, panel: Panel
) -> tuple[Marginals, NDArray[np.float64]]:
    """Raw marginals (n, 1) and outcomes (n, 1) at HORIZON, stored as if they were of horizon 1."""
    origins = sample.draw(panel)
    outcomes = realised_earnings(panel, origins, [HORIZON], end=sample.until)
    observed = np.isfinite(outcomes[:, 0])
    origins = origins.take(observed)
    past = history(panel, origins)
    blocks = forecaster.marginals(past, recalibrate=False)
    marginals = Marginals.joined(
        [replace(block.at_horizon(HORIZON), groups={}) for block in blocks]
    )
    grouping = Grouping.fit(sample.training)
    labels = grouping.labels(past, origins) if len(grouping.cuts) else {}
    return replace(marginals, groups=labels), outcomes[observed]
