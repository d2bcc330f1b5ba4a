"""Un-averaged scores of one block of persons; the contest stores them for every forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from evaluation.scoring.metrics import METRICS
from evaluation.scoring.sample_sets import PredictionSets
from saga.requests import COVERAGE
from saga.scores import covered, interval_score, sample_scores

Array = NDArray[Any]
SCORES_VERSION = 1  # raise it when a score or a prediction set may change (see `evaluation.cache`)
SCHEMA = pa.schema(
    [
        ("model", pa.string()),
        ("setting", pa.string()),
        ("draw", pa.int32()),
        ("person_id", pa.string()),
        ("horizon", pa.int32()),
    ]
    + [(name, pa.float32()) for name in METRICS]
)


def score_block(
    samples: Array,
    outcomes: Array,
    sets: PredictionSets,
    person_id: NDArray[np.str_],
    horizons: Sequence[int],
    floor: float | None,
) -> pl.DataFrame:
    """Un-averaged scores, one row per person and horizon with an outcome.

    Metrics of intervals are in money and null if there is no interval; metrics named `_log` are of
    log max(earnings, floor).

    Args:
        samples: (n, H, M), real money.
        outcomes: (n, H), NaN if unknown.
        sets: (n, H, L) at COVERAGE.
        person_id: (n,).
        horizons: the H horizons.
        floor: lowest amount in logs; None: logs of positive earnings only.

    Returns:
        Columns `person_id`, `horizon` and one Float32 column per metric.
    """
    person, column = np.nonzero(np.isfinite(outcomes) & np.isfinite(samples[:, :, 0]))
    y = outcomes[person, column]
    by_name = sample_scores(samples[person, column][:, None], y[:, None], floor)
    scores = {name: values[:, 0] for name, values in by_name.items()}
    ends = (sets.lower, sets.upper, sets.includes_zero)
    lower, upper, zero = (end[person, column] for end in ends)
    inside = covered(y[:, None], lower, upper, zero)
    at_90 = np.s_[:, COVERAGE.index(0.9)]
    scores["interval_90"] = interval_score(y, lower[at_90], upper[at_90], 0.9, zero[at_90])
    scores["width_90"] = upper[at_90] - lower[at_90]
    scores |= {
        f"coverage_{round(100 * nominal)}": inside[:, i] for i, nominal in enumerate(COVERAGE)
    }
    frame = pl.DataFrame({name: scores[name] for name in METRICS}).with_columns(
        pl.all().fill_nan(None).cast(pl.Float32)
    )
    return frame.with_columns(
        pl.Series("person_id", person_id[person].tolist(), dtype=pl.String),
        pl.Series("horizon", np.asarray(horizons)[column], dtype=pl.Int32),
    )
