"""Un-averaged scores of one block of persons: what the contest keeps of every forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from evaluation.scoring.metrics import LEVELS, METRICS
from evaluation.scoring.sample_sets import Sets
from saga.scores import covered, interval_score, sample_scores

Array = NDArray[Any]
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


def score_frame(
    samples: Array,
    outcomes: Array,
    sets: Sets,
    person_id: NDArray[np.str_],
    horizons: Sequence[int],
    floor: float | None,
) -> pl.DataFrame:
    """Un-averaged scores, one row a person and horizon with an outcome: `person_id`, `horizon` and a Float32 column a metric.

    `samples` (n, H, M), `outcomes` (n, H), sets (n, H, L) at LEVELS. Where no interval is given its metrics are null. Interval metrics are
    in money, those named `_log` in log of max(earnings, floor).
    """
    person, column = np.nonzero(np.isfinite(outcomes) & np.isfinite(samples[:, :, 0]))
    y = outcomes[person, column]
    scores = {
        name: values[:, 0]
        for name, values in sample_scores(
            samples[person, column][:, None], y[:, None], floor
        ).items()
    }
    lower, upper, zero = (
        part[person, column] for part in (sets.lower, sets.upper, sets.includes_zero)
    )
    inside = covered(y[:, None], lower, upper, zero)
    ninety = LEVELS.index(0.9)
    scores["interval_90"] = interval_score(
        y, lower[:, ninety], upper[:, ninety], 0.9, zero[:, ninety]
    )
    scores["width_90"] = upper[:, ninety] - lower[:, ninety]
    scores |= {f"coverage_{round(100 * level)}": inside[:, i] for i, level in enumerate(LEVELS)}
    frame = pl.DataFrame({name: scores[name] for name in METRICS}).with_columns(
        pl.all().fill_nan(None).cast(pl.Float32)
    )
    return frame.with_columns(
        pl.Series("person_id", person_id[person].tolist(), dtype=pl.String),
        pl.Series("horizon", np.asarray(horizons)[column], dtype=pl.Int32),
    )
