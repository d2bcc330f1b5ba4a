"""The attainable floor as numbers: mean scores, a power law through them, errors, both tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.scoring.comparison import BUNDLE_NAME
from saga.evaluation.scoring.gap import CLAIRVOYANT

from saga.bundle import Bundle
from saga.errors import Problem, UsageError
from saga.pages.format import markdown_table

Array = NDArray[np.float64]
GAP_START = "gkos"  # the model at the upper end of the gap
TARGET_SHARE = 0.8  # of the gap from there to the floor
EXPONENTS = np.linspace(0.2, 1.0, 161)  # the values of b that are tried
SIDE_EXPONENTS = {"half": 0.5, "one": 1.0}  # their floors are shown next to the estimate
REPLICATES = 500
TRAINED = {
    "model": pl.String(),
    "sized": pl.Boolean(),
    **dict.fromkeys(("persons", "parameters", "steps"), pl.Int64()),
    "horizon": pl.Int32(),
    **dict.fromkeys(("crps", "se", "difference", "difference_se"), pl.Float64()),
}
FLOORS = {
    "horizon": pl.Int32(),
    "n": pl.Int64(),
    **{
        f"{name}{part}": pl.Float64()
        for names, parts in (
            ((GAP_START, CLAIRVOYANT, BUNDLE_NAME), ("", "_se")),
            (("floor", "closed"), ("", "_se", *(f"_{side}" for side in SIDE_EXPONENTS))),
            (("of_bound", "b"), ("", "_se")),
            (("misfit",), ("",)),
        )
        for name in names
        for part in parts
    },
    "reached": pl.Boolean(),
    "sure": pl.Boolean(),
}


@dataclass(frozen=True)
class Curve:
    """CRPS = `floor` + `a` n^-`b`, n in units of the largest size.

    `floor` and `a` have shape (..., n_horizon), `b` and the weighted sum of `squares` (...).
    """

    floor: Array
    a: Array
    b: Array
    squares: Array


def fit_floors(
    persons: Sequence[int], crps: Array, se: Array, exponents: Sequence[float] | Array = EXPONENTS
) -> Curve:
    """Fit the curves by weighted least squares; b is the best of `exponents`.

    If more persons do not help, `a` is 0, the floor is the mean, and the data do not determine b.

    Args:
        persons: Training persons of each size, (n_size,).
        crps: Mean scores, (..., n_horizon, n_size).
        se: Standard errors without the part that all sizes share, (n_horizon, n_size). The shared
            part moves only the floor.
        exponents: Values of b to try.
    """
    relative, weight = np.asarray(persons) / max(persons), se**-2.0
    total = weight.sum(axis=-1)
    middle = (weight * crps).sum(axis=-1) / total
    curves = []
    for b in exponents:
        x = relative**-b
        centre = (weight * x).sum(axis=-1) / total
        deviation = weight * (x - centre[:, None])
        a = np.maximum((deviation * crps).sum(axis=-1) / (deviation * x).sum(axis=-1), 0.0)
        floor = middle - a * centre
        residual = crps - floor[..., None] - a[..., None] * x
        squares = (weight * residual**2).sum(axis=(-2, -1))
        curves.append(Curve(floor, a, np.full(a.shape[:-1], b), squares))
    if not curves:
        raise ValueError("no exponent to try")
    return reduce(_better, curves)


def _better(old: Curve, new: Curve) -> Curve:
    improved = new.squares < old.squares
    row = improved[..., None]
    return Curve(
        np.where(row, new.floor, old.floor),
        np.where(row, new.a, old.a),
        np.where(improved, new.b, old.b),
        np.where(improved, new.squares, old.squares),
    )


@dataclass(frozen=True)
class MeanScores:
    """Mean CRPS of log earnings of all models on the same persons, futures and outcomes.

    `value` has shape (n_horizon, n_model), `replicates` (n_replicate, n_horizon, n_model). `n`
    (n_horizon,) counts persons with an outcome, on average over futures. The bootstrap draws
    persons and futures independently (Owen 2007), the same ones for every model and horizon:
    differences are paired. Its variance is not too small, and at most three times the true one.
    """

    models: list[str]
    horizons: list[int]
    n: list[int]
    value: Array
    replicates: Array

    def of_models(self, *models: str) -> tuple[Array, Array]:
        """Values (n_horizon, m) and replicates (n_replicate, n_horizon, m) of these models."""
        columns = [self.models.index(model) for model in models]
        return self.value[:, columns], self.replicates[:, :, columns]

    def of(self, model: str) -> tuple[Array, Array]:
        """Values (n_horizon,) and replicates (n_replicate, n_horizon) of one model."""
        value, replicates = self.of_models(model)
        return value[:, 0], replicates[:, :, 0]


def mean_scores(
    files: Mapping[str, Path], *, seed: int, replicates: int = REPLICATES
) -> MeanScores:
    """Means over futures of means over persons.

    `files` maps each model to its file of un-averaged forward scores (`saga.evaluation.contest`).

    Raises:
        UsageError: The outcomes are not drawn futures.
        ValueError: The models were not scored on the same outcomes.
    """
    keys = ["horizon", "draw", "person_id"]
    scores = [
        pl.read_parquet(file, columns=[*keys, "crps_log"]).drop_nulls("crps_log").sort(keys)
        for file in files.values()
    ]
    first = scores[0].select(keys)
    if first["draw"].null_count() or first["draw"].n_unique() < 2:
        fix = "Generate the register with --future-to and --future-draws."
        raise UsageError(
            "There are no futures to judge by",
            [Problem("futures", "the forward setting needs two drawn futures", fix)],
        )
    if not all(other.select(keys).equals(first) for other in scores):
        raise ValueError("the models were not scored on the same outcomes")
    horizon, draw, person = (
        np.unique(first[name].to_numpy(), return_inverse=True)[1] for name in keys
    )
    shape = tuple(int(codes.max()) + 1 for codes in (horizon, draw, person))
    observed, values = np.zeros(shape), np.zeros((len(scores), *shape))
    observed[horizon, draw, person] = 1
    for array, frame in zip(values, scores, strict=True):
        array[horizon, draw, person] = frame["crps_log"].cast(pl.Float64).to_numpy()
    rng = np.random.default_rng(seed)
    futures, persons = (
        np.vstack([np.ones(size), rng.multinomial(size, np.full(size, 1 / size), replicates)])
        for size in shape[1:]
    )
    averages = np.empty((replicates + 1, shape[0], len(scores)))
    for h in range(shape[0]):
        count = persons @ observed[h].T  # (R, D)
        weight = futures * (count > 0)
        total = weight.sum(axis=1)
        for m in range(len(scores)):
            by_draw = persons @ values[m, h].T / np.maximum(count, 1)
            averages[:, h, m] = np.divide(
                (weight * by_draw).sum(axis=1),
                total,
                out=np.full(len(total), np.nan),
                where=total > 0,
            )
    n = [round(float(observed[h].sum(axis=1).mean())) for h in range(shape[0])]
    # In a small sample nobody may have an outcome at a long horizon.
    complete = averages[1:][np.isfinite(averages[1:]).all(axis=(1, 2))]
    horizons = first["horizon"].unique(maintain_order=True).to_list()
    return MeanScores(list(files), horizons, n, averages[0], complete)


def floor_table(scores: MeanScores, sizes: Mapping[str, int]) -> pl.DataFrame:
    """One row per horizon: the ends of the gap, the floor, and the share that the bundle closes.

    Columns are those of FLOORS. `closed` is the share of the gap from GKOS to the floor that the
    calibrated bundle closes, `of_bound` the share of the gap to the clairvoyant; a share is null if
    there is no gap, and the target is then missed. `_half` and `_one` are values at b = 1/2 and
    b = 1. `misfit` is the mean square of the residuals in units of their sampling error: far above
    1, training runs differ by more than that error, or the curve is not a power law. `sure`: the
    target is reached, or missed, by two standard errors.

    Args:
        scores: Mean scores of all models.
        sizes: Training persons of the models that differ in nothing else; three or more.

    Raises:
        UsageError: Fewer than three sizes.
    """
    value, replicates = scores.of_models(*sizes)
    count = len(sizes)
    if count < 3:
        raise UsageError(
            "A floor needs three sizes",
            [Problem("shares", f"{count} give none", "Give three shares or more.")],
        )
    # The errors that the sizes do not share. Without the mean of S equal errors, each loses 1 / S
    # of its variance.
    se = _spread(replicates - replicates.mean(axis=2, keepdims=True)) * np.sqrt(count / (count - 1))
    persons = list(sizes.values())
    curve, curves = fit_floors(persons, value, se), fit_floors(persons, replicates, se)
    ends = {model: scores.of(model) for model in (GAP_START, CLAIRVOYANT, BUNDLE_NAME)}
    start, bound, bundle = ends.values()
    freedom = value.size - 2 * len(value) - 1
    data: dict[str, Any] = {"horizon": scores.horizons, "n": scores.n}
    for model, (mean, samples) in ends.items():
        data |= {model: mean, f"{model}_se": _spread(samples)}
    for name, end, samples in (("closed", curve.floor, curves.floor), ("of_bound", *bound)):
        data[name] = _share(start[0], bundle[0], end)
        data[f"{name}_se"] = _spread(_share(start[1], bundle[1], samples))
    for side, b in SIDE_EXPONENTS.items():
        floor = fit_floors(persons, value, se, [b]).floor
        data |= {f"floor_{side}": floor, f"closed_{side}": _share(start[0], bundle[0], floor)}
    distance = data["closed"] - TARGET_SHARE
    data |= {
        "floor": curve.floor,
        "floor_se": _spread(curves.floor),
        "b": float(curve.b),
        "b_se": float(_spread(curves.b)),
        "misfit": float(curve.squares) / freedom if freedom > 0 else None,
        "reached": np.nan_to_num(distance, nan=-np.inf) >= 0,
        "sure": np.abs(distance) > 2 * data["closed_se"],
    }
    table = pl.DataFrame(data).select(*FLOORS).with_columns(pl.col(pl.Float64).fill_nan(None))
    return table.cast(FLOORS)  # type: ignore[arg-type]


def _spread(replicates: Array) -> Array:
    """Standard deviation over the first axis."""
    return np.asarray(replicates.std(axis=0, ddof=1))


def _share(start: Array, bundle: Array, end: Array) -> Array:
    gap = start - end
    share: Array = np.divide(start - bundle, gap, out=np.full(gap.shape, np.nan), where=gap > 0)
    return share


def training_table(
    scores: MeanScores, bundles: Mapping[str, Bundle], sizes: Mapping[str, int]
) -> pl.DataFrame:
    """One row per bundle and horizon (TRAINED); `difference` is from the largest size."""
    full = scores.of(max(sizes, key=sizes.__getitem__))
    parts = []
    for name, bundle in bundles.items():
        training = bundle.metrics["training"]
        value, replicates = scores.of(name)
        data = {
            "model": name,
            "sized": name in sizes,
            "persons": training["persons"]["train"],
            "parameters": bundle.parameters,
            "steps": training["steps"],
            "horizon": scores.horizons,
            "crps": value,
            "se": _spread(replicates),
            "difference": value - full[0],
            "difference_se": _spread(replicates - full[1]),
        }
        parts.append(pl.DataFrame(data).cast(TRAINED))  # type: ignore[arg-type]
    return pl.concat(parts)


def to_markdown(floors: pl.DataFrame, trainings: pl.DataFrame) -> str:
    """Both tables; ? marks a verdict within two standard errors of its limit."""
    sized = trainings.filter("sized").sort("persons", maintain_order=True)
    persons = dict(sized.select("model", "persons").unique(maintain_order=True).iter_rows())
    scores = {(row["model"], row["horizon"]): row for row in trainings.iter_rows(named=True)}
    header = [
        *("h", "persons", GAP_START),
        *(f"n = {n:,}" for n in persons.values()),
        *("floor (b = 1 to 1/2)", CLAIRVOYANT, BUNDLE_NAME),
        *(f"{GAP_START} to floor, % (b = 1 to 1/2)", f"{GAP_START} to {CLAIRVOYANT}, %", "target"),
    ]
    rows = []
    for row in floors.iter_rows(named=True):
        verdict = ("reached" if row["reached"] else "MISSED") + ("" if row["sure"] else " ?")
        sides = f"{_percent(row, 'closed_one')} to {_percent(row, 'closed_half')}"
        rows.append(
            [
                str(row["horizon"]),
                f"{row['n']:,}",
                _value(row, GAP_START),
                *(_crps(scores[name, row["horizon"]]) for name in persons),
                f"{_value(row, 'floor')} ({row['floor_one']:.4f} to {row['floor_half']:.4f})",
                _value(row, CLAIRVOYANT),
                _value(row, BUNDLE_NAME),
                f"{_percent(row, 'closed')} ({sides})",
                _percent(row, "of_bound"),
                verdict,
            ]
        )
    first = markdown_table(header, rows)
    header = ["bundle", "persons", "parameters", "steps", *(f"h = {h}" for h in floors["horizon"])]
    rows = []
    for (name,), part in trainings.group_by("model", maintain_order=True):
        about = part.row(0, named=True)
        counts = [f"{about[column]:,}" for column in ("persons", "parameters", "steps")]
        values = [
            f"{_crps(row)} ({row['difference']:+.4f} ± {row['difference_se']:.4f})"
            for row in part.iter_rows(named=True)
        ]
        rows.append([str(name), *counts, *values])
    return first + "\n\n" + markdown_table(header, rows)


def _value(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.4f} ± {row[f'{name}_se']:.4f}"


def _crps(row: Mapping[str, Any]) -> str:
    return f"{row['crps']:.4f} ± {row['se']:.4f}"


def _percent(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "no gap"
    error = row.get(f"{name}_se")
    return f"{100 * row[name]:.1f}" + (f" ± {100 * error:.1f}" if error is not None else "")
