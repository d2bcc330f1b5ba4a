"""An entry of the benchmark by boosted trees. Usage: benchmark_lightgbm.py ROUND ENTRY.csv."""

import sys

import lightgbm as lgb
import numpy as np
import polars as pl

LEVELS = np.array([0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99])  # of the entry
KNOTS = np.array([0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.99])  # positive earnings
CODES = ["sex", "education_level", "birth_region", "county", "industry", "marital_status"]
OTHERS = ["children", "employment_rate", "sickness_benefit", "unemployment_benefit"]
TREES = {"num_leaves": 31, "learning_rate": 0.05, "verbose": -1, "num_threads": 1, "seed": 1}

folder, out = sys.argv[1:]
panel = pl.read_parquet(f"{folder}/panel.parquet")
panel = panel.with_columns(pl.col(CODES).cast(pl.Categorical).to_physical())
rows = pl.read_csv(f"{folder}/rows.csv", schema_overrides={"person_id": pl.String})
earned = panel.select("person_id", "year", "earnings").drop_nulls().cast({"year": pl.Int64})


def features(origins: pl.DataFrame) -> np.ndarray:
    """What is known of `person_id` in `origin`, for a forecast `horizon` years ahead."""
    now = panel.with_columns(origin=pl.col("year").cast(pl.Int64))
    keys, kept = ["person_id", "origin"], {"how": "left", "maintain_order": "left"}
    known = origins.join(now, keys, **kept)
    for lag in range(1, 11):
        past = earned.select("person_id", pl.col("year") + lag, pl.col("earnings").alias(f"-{lag}"))
        known = known.join(past.rename({"year": "origin"}), keys, **kept)
    lags = [f"-{lag}" for lag in range(1, 11)]
    age = (pl.col("origin") - pl.col("birth_year")).alias("age")
    return known.select(age, "horizon", "earnings", *lags, *CODES, *OTHERS).to_numpy()


def train(x: np.ndarray, y: np.ndarray, **loss: object) -> np.ndarray:
    """The forecasts for the rows of the entry."""
    return lgb.train({**TREES, **loss}, lgb.Dataset(x, y), 200).predict(ahead)


pairs = earned.rename({"year": "origin"}).join(rows.select("horizon").unique(), how="cross")
later = earned.select("person_id", pl.col("year").alias("target"), outcome="earnings")
pairs = pairs.drop("earnings").with_columns(target=pl.col("origin") + pl.col("horizon"))
pairs = pairs.join(later, ["person_id", "target"]).filter(pl.col("origin") % 3 == 1)
x, y = features(pairs), pairs["outcome"].to_numpy()
ahead = features(rows.with_columns(origin=pl.lit(panel["year"].max(), dtype=pl.Int64)))
p_zero = np.clip(train(x, y == 0, objective="binary"), 0.0005, 0.9995)[:, None]
positive = [train(x[y > 0], np.log(y[y > 0]), objective="quantile", alpha=p) for p in KNOTS]
inside = np.clip((LEVELS - p_zero) / (1 - p_zero), 0, 1)  # the levels among positive earnings
logs = np.sort(np.stack(positive, axis=1), axis=1)
amounts = np.exp([np.interp(at, KNOTS, row) for at, row in zip(inside, logs, strict=True)])
table = pl.DataFrame(
    np.where(LEVELS > p_zero, amounts, 0).round(), [f"q{100 * p:02.0f}" for p in LEVELS]
)
rows.hstack(table).with_columns(p_zero=p_zero[:, 0]).write_csv(out)
