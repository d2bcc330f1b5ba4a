"""Un-averaged scores of one block of persons; the contest stores them for every forecast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from saga.evaluation.scoring.metrics import METRICS, percent_names
from saga.evaluation.scoring.year_forecasts import YearForecasts

from saga.arrays import Array
from saga.requests import COVERAGE
from saga.scores import covered, interval_score

SCORES_VERSION = 2
SCHEMA = pa.schema(
    [
        ("model", pa.string()),
        ("setting", pa.string()),
        ("draw", pa.int32()),
        ("person_id", pa.string()),
        ("horizon", pa.int32()),
        ("p_zero", pa.float32()),
    ]
    + [(name, pa.float32()) for name in METRICS]
)


def score_block(
    forecasts: YearForecasts, outcomes: Array, horizons: Sequence[int], floor: float | None
) -> pl.DataFrame:
    """Un-averaged scores, one row per person and horizon with an outcome and a forecast.

    Metrics of intervals are in money and null if there is no interval; metrics named `_log` are of
    log max(earnings, floor), or of positive earnings only if `floor` is None. Outcomes (n, H) are
    NaN if unknown.

    Returns:
        Columns `person_id`, `horizon`, and Float32 columns: `p_zero` and one per metric.
    """
    person, column = np.nonzero(np.isfinite(outcomes) & forecasts.marginals.exists)
    at = (person, column)
    y = outcomes[at]
    scores = forecasts.scores(outcomes, at, floor)
    lower, upper, zero = (
        ends[at] for ends in (forecasts.lower, forecasts.upper, forecasts.includes_zero)
    )
    inside = covered(y[:, None], lower, upper, zero)
    by_coverage = {
        "coverage": inside,
        "width": upper - lower,
        "interval": np.stack(
            [
                interval_score(y, lower[:, j], upper[:, j], coverage, zero[:, j])
                for j, coverage in enumerate(COVERAGE)
            ],
            axis=1,
        ),
    }
    for name, values in by_coverage.items():
        scores |= dict(zip(percent_names(name), values.T, strict=True))
    columns = {"p_zero": forecasts.marginals.p_zero[at], **{name: scores[name] for name in METRICS}}
    frame = pl.DataFrame(columns).with_columns(pl.all().fill_nan(None).cast(pl.Float32))
    return frame.with_columns(
        pl.Series("person_id", forecasts.person_id[person].tolist(), dtype=pl.String),
        pl.Series("horizon", np.asarray(horizons)[column], dtype=pl.Int32),
    )
