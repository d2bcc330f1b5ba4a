"""How many calibration persons do intervals need: the layer fitted on fewer of them, again and again, and judged on the test persons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from calibration.fit.split_conformal import fit_calibration
from evaluation.scoring.evaluation_settings import Sample
from saga.data.groups import Grouping
from saga.data.origins import Origins, cut, history, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.forecaster import Forecaster
from saga.paths import Paths
from saga.requests import Draws
from saga.scores import covered

SIZES = (1_000, 5_000, 14_107)  # the paper's
HORIZON, LEVEL, REPEATS = 10, 0.9, 100
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


def calibration_size(
    forecaster: Forecaster,
    panel: Panel,
    sample: Sample,
    grouping: Grouping,
    *,
    paths: int,
    seed: int,
    sizes: Sequence[int] = SIZES,
    repeats: int = REPEATS,
    progress: Callable[[str, int, int], None] | None = None,
) -> pl.DataFrame:
    """Coverage of 90 % sets 10 years ahead in-time by the number of calibration persons: rows of COLUMNS.

    Each repeat draws `size` of the calibration persons with an outcome without replacement: a person who occurs twice is no second
    observation. `value` and `sd` are over repeats, on the same n test persons. A size beyond those `available` gives no value; all that
    are available are added as a size of their own.
    """
    known = cut(panel.only(persons_of(panel, "calibration")), sample.until)
    fitting, truth = _answers(forecaster, known, sample, grouping, paths, seed)
    tested, judged = _answers(
        forecaster, cut(sample.test, sample.until), sample, grouping, paths, seed
    )
    member = {"all": np.ones(len(tested), dtype=bool)}
    member |= {f"quintile={q}": tested.groups["quintile"] == q for q in "15" if tested.groups}
    rows: list[dict[str, Any]] = []
    available = len(fitting)
    for size in sorted({*sizes, available}):
        shares: dict[str, list[float]] = {group: [] for group in GROUPS}
        possible = 0 < size <= available
        for repeat in range((repeats if size < available else 1) if possible else 0):
            drawn = np.sort(
                np.random.default_rng([seed, size, repeat]).permutation(available)[:size]
            )
            calibrator = fit_calibration(
                fitting.take(drawn), truth[drawn], seed=seed + repeat, levels=(LEVEL,)
            )
            found = calibrator.intervals(calibrator.recalibrate(tested), (LEVEL,))
            inside = covered(
                judged, found.lower[..., 0], found.upper[..., 0], found.includes_zero[..., 0]
            )[:, 0]
            for group in GROUPS:
                judged_here = inside[member[group]] if group in member else np.empty(0)
                if np.isfinite(judged_here).any():  # so few persons may give no interval at all
                    shares[group].append(float(np.nanmean(judged_here)))
            if progress:
                progress(f"calibration on {size:,} persons", repeat + 1, repeats)
        for group, values in shares.items():
            n = int(member[group].sum()) if group in member else 0
            sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
            value = float(np.mean(values)) if values else None
            rows.append(
                {
                    "size": size,
                    "group": group,
                    "value": value,
                    "sd": sd,
                    "repeats": len(values),
                    "n": n,
                    "available": available,
                }
            )
    return pl.DataFrame(rows, schema=COLUMNS)


def _answers(
    forecaster: Forecaster, known: Panel, sample: Sample, grouping: Grouping, paths: int, seed: int
) -> tuple[Paths, NDArray[np.float64]]:
    """Paths (n, 1, M) at the one horizon, as if it were the first, of everybody with an outcome (n, 1) there."""
    origins = sample.draw(known)
    outcomes = realised_earnings(known, origins, [HORIZON], end=sample.until)
    there = np.isfinite(outcomes[:, 0])
    some = Origins(origins.person_id[there], origins.year[there])
    past = history(known, some)
    blocks = []
    for block in forecaster.blocks(past, Draws(paths, seed), to_horizon=HORIZON, recalibrate=False):
        at = np.ascontiguousarray(block.earnings[:, [HORIZON - 1]])
        blocks.append(
            replace(block, earnings=at, groups={}, origin_year=block.origin_year + HORIZON - 1)
        )
    joined = Paths.joined(blocks)
    labels = grouping.labels(past, some) if len(grouping.cuts) else {}
    return replace(joined, groups=labels), outcomes[there]
