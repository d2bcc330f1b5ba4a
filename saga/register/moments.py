"""Moments of a panel's earnings: what to look at first when judging a simulated register."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.register.economy import CPI

FLOOR = 24_150.0  # half a price base amount of 2022: changes are measured among earnings above it (SEK 2022)


def gini(values: NDArray[np.float64]) -> float:
    """Gini coefficient of non-negative values, zeros included (Lerman & Yitzhaki 1984 covariance form)."""
    x = np.sort(values)
    rank = np.arange(1, len(x) + 1)
    return float(2.0 * (rank * x).sum() / (len(x) * x.sum()) - (len(x) + 1.0) / len(x))


def real_earnings(panel: pl.DataFrame) -> pl.DataFrame:
    """person_id, year, age, female, real (SEK 2022), of rows with known earnings, from a panel in nominal SEK."""
    prices = pl.DataFrame({"year": list(CPI), "prices": list(CPI.values())}, schema_overrides={"year": pl.Int32})
    known = panel.filter(pl.col("earnings").is_not_null()).join(prices, on="year")
    return known.select(
        "person_id",
        "year",
        (pl.col("year") - pl.col("birth_year")).alias("age"),
        (pl.col("sex") == "female").alias("female"),
        (pl.col("earnings") / pl.col("prices")).alias("real"),
    )


def changes(real: pl.DataFrame, years: int) -> pl.DataFrame:
    """Rows with `change`: log earnings `years` later less now, both above the floor; `then` the later level."""
    later = real.select("person_id", (pl.col("year") - years).cast(pl.Int32).alias("year"), pl.col("real").alias("then"))
    both = real.join(later, on=["person_id", "year"])
    moved = both.filter((pl.col("real") > FLOOR) & (pl.col("then") > FLOOR))
    return moved.with_columns((pl.col("then").log() - pl.col("real").log()).alias("change"))


def kelley(values: NDArray[np.float64]) -> float:
    """Kelley skewness: (P90 + P10 - 2 P50) / (P90 - P10)."""
    low, mid, high = np.quantile(values, (0.1, 0.5, 0.9))
    return float((high + low - 2.0 * mid) / (high - low))


def crow_siddiqui(values: NDArray[np.float64]) -> float:
    """Excess Crow-Siddiqui kurtosis: (P97.5 - P2.5) / (P75 - P25) - 2.91, 0 for a normal distribution."""
    a, b, c, d = np.quantile(values, (0.025, 0.25, 0.75, 0.975))
    return float((d - a) / (c - b) - 2.91)


def summary(panel: pl.DataFrame) -> pl.DataFrame:
    """Columns moment, group, value: the first moments of a panel in nominal SEK with years inside 1990-2022.

    Moments without observations are left out.
    """
    real = real_earnings(panel)
    rows = [*_zeros(real), *_levels(real, panel), *_dynamics(real)]
    return pl.DataFrame(rows, schema={"moment": pl.String, "group": pl.String, "value": pl.Float64}, orient="row")


def _zeros(real: pl.DataFrame) -> Iterator[tuple[str, str, float]]:
    zero = real.filter(pl.col("age") >= 20).with_columns((pl.col("real") <= 0).alias("zero"))
    yield "zero share 20-64", "all", float(zero["zero"].mean())  # type: ignore[arg-type]
    for (female,), part in zero.group_by(["female"], maintain_order=True):
        yield "zero share 20-64", "women" if female else "men", float(part["zero"].mean())  # type: ignore[arg-type]
    for key, part in sorted(zero.group_by((pl.col("age") // 5 * 5).alias("band")), key=lambda item: item[0]):
        yield "zero share by age", f"{key[0]}-{key[0] + 4}", float(part["zero"].mean())  # type: ignore[arg-type]
    for key, part in sorted(zero.group_by("year"), key=lambda item: item[0]):
        yield "zero share by year", str(key[0]), float(part["zero"].mean())  # type: ignore[arg-type]


def _levels(real: pl.DataFrame, panel: pl.DataFrame) -> Iterator[tuple[str, str, float]]:
    year = panel.filter((pl.col("year") == 2020) & (pl.col("birth_year") <= 2000) & pl.col("earnings").is_not_null())
    values = year["earnings"].to_numpy()
    if len(values) and values.max() > 0:
        positive = values[values > 0]
        yield "mean 2020", "all", float(values.mean())
        for name, q in (("P10", 0.1), ("P25", 0.25), ("median", 0.5), ("P75", 0.75), ("P90", 0.9), ("P99", 0.99)):
            yield f"{name} of positive 2020", "all", float(np.quantile(positive, q))
        top = np.sort(values)[-max(len(values) // 100, 1) :]
        yield "mean of top 1 % 2020", "all", float(top.mean())
        yield "Gini 2020", "all", gini(values)
        women, men = (float(year.filter(pl.col("sex") == sex)["earnings"].mean() or np.nan) for sex in ("female", "male"))  # type: ignore[arg-type]
        yield "women / men mean 2020", "all", women / men


def _dynamics(real: pl.DataFrame) -> Iterator[tuple[str, str, float]]:
    prime = real.filter(pl.col("age").is_between(25, 55))
    for female, sex in ((False, "men"), (True, "women")):
        part = prime.filter(pl.col("female") == female)
        one, five = changes(part, 1), changes(part, 5)
        for (label, span), frame in zip((("boom", (1997, 2006)), ("bust", (1991, 1993))), (one, one), strict=True):
            values = frame.filter(pl.col("year").is_between(*span))["change"].to_numpy()
            if len(values) > 1:
                yield "Kelley of 1-year change", f"{sex} {label}", kelley(values)
                low, high = np.quantile(values, (0.1, 0.9))
                yield "P90-P10 of 1-year change", f"{sex} {label}", float(high - low)
        for years, frame in ((1, one), (5, five)):
            values = frame["change"].to_numpy()
            if len(values) > 1:
                yield f"std of {years}-year change", sex, float(values.std())
                yield f"excess Crow-Siddiqui of {years}-year change", sex, crow_siddiqui(values)
        ranked = five.filter(pl.col("age") >= 35).with_columns(
            pl.col("real").rank().over("year").alias("a"), pl.col("then").rank().over("year").alias("b")
        )
        if ranked.height > 1:
            yield "rank-rank slope 5 years, 35+", sex, float(np.corrcoef(ranked["a"].to_numpy(), ranked["b"].to_numpy())[0, 1])
