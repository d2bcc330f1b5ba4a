"""Planted breaks: how fast thresholds that follow outcomes find back to what they promise, beside thresholds that stay.

Streams of scores, no register and no model: persons' log earnings are a random walk with Gaussian steps (sd 0.35) and a small common
shock a year (sd 0.03); the forecaster knows this law exactly, so its split thresholds are right. From a break year on a recession with
scarring: each year a share of all persons loses a job and with it an exponential part of the level, much at first and less, but more
than before, for ever. Shares and depths are drawn anew for each break. The same persons are forecast 1, 2, 5 and 10 years ahead every
year, before and after, and their outcomes are settled when they are due. Seeds 1000 and up; the constants of `calibration.adaptive.adaptive_state` were
fixed on other seeds. Writes docs/pictures/adaptive.svg.

Usage: python -m studies.planted_breaks [--breaks 24] [--persons 3000]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from calibration.adaptive.adaptive_state import MAX_THRESHOLD, ExcessCounts, StateUpdater

ROOT = Path(__file__).resolve().parents[1]
LEVELS = (0.5, 0.8, 0.9, 0.95)
HORIZONS = (1, 2, 5, 10)
SD, COMMON, DRAWN = (
    0.35,
    0.03,
    0.99,
)  # DRAWN: mass within the samples; beyond it the score is 1 + the distance in logs
BREAK, AFTER = 12, 14  # years before the break, and judged after it
FIRST_SEED = 1000


def steps(rng: np.random.Generator, persons: int, broken: bool) -> NDArray[np.float64]:
    """Yearly changes of log earnings (persons, years)."""
    years = BREAK + AFTER
    change = rng.normal(0, SD, (persons, years)) + rng.normal(0, COMMON, years)
    first, lasting, depth = rng.uniform(0.12, 0.2), rng.uniform(0.5, 0.8), rng.uniform(0.6, 1.0)
    if broken:
        for year in range(BREAK, years):
            share = first * (lasting + (1 - lasting) * 0.6 ** (year - BREAK))
            change[:, year] -= (rng.random(persons) < share) * rng.exponential(depth, persons)
    return change


def scores(change: NDArray[np.float64], horizon: int) -> NDArray[np.float64]:
    """Mass of the smallest central set of the Gaussian forecast that holds the outcome, (persons,)."""
    distance, sd = np.abs(change), SD * horizon**0.5
    edge = ndtri((1 + DRAWN) / 2) * sd
    return np.where(distance > edge, 1 + distance - edge, (2 * ndtr(distance / sd) - 1) / DRAWN)


def life(seed: int, persons: int, *, broken: bool) -> list[dict[str, float]]:
    """Coverage by horizon, level and year of one stream, with split and with adapted thresholds."""
    change = steps(np.random.default_rng(seed), persons, broken)
    level_of = np.concatenate([np.zeros((persons, 1)), np.cumsum(change, axis=1)], axis=1)
    base = np.asarray(LEVELS) / DRAWN
    updater, issued, rows = StateUpdater(LEVELS, max(HORIZONS)), {}, []
    for year in range(change.shape[1]):
        tallies = {}
        for h in HORIZONS:
            if (h, year - h) not in issued:
                continue
            found, now = (
                scores(level_of[:, year + 1] - level_of[:, year + 1 - h], h),
                issued[h, year - h],
            )
            tallies[h] = ExcessCounts.of(
                found, np.tile(base, (persons, 1)), np.tile(now, (persons, 1))
            )
            for j, level in enumerate(LEVELS):
                held = {"split": (found <= base[j]).mean(), "adaptive": (found <= now[j]).mean()}
                rows += [
                    {
                        "seed": seed,
                        "horizon": h,
                        "level": level,
                        "since": year - BREAK,
                        "layer": layer,
                        "off": 100 * (share - level),
                    }
                    for layer, share in held.items()
                ]
        updater.update(year, tallies)
        states = updater.states()
        for h in HORIZONS:
            moved = np.maximum.accumulate(base + [states[h, level].offset for level in LEVELS])
            issued[h, year] = np.where(moved >= MAX_THRESHOLD, np.inf, moved)
    return rows


def table(rows: pl.DataFrame, horizon: int, level: float) -> pl.DataFrame:
    """Mean deviation in points, and its mean size, by years since the break."""
    chosen = rows.filter(
        pl.col("horizon") == horizon, pl.col("level") == level, pl.col("since").is_between(-1, 10)
    )
    means = chosen.group_by("since", "layer").agg(
        mean=pl.col("off").mean(), size=pl.col("off").abs().mean()
    )
    wide = means.pivot("layer", index="since", values=["mean", "size"]).sort("since")
    return wide.select("since", "mean_split", "mean_adaptive", "size_split", "size_adaptive")


def verdicts(rows: pl.DataFrame, level: float) -> None:
    """The promise at h = 1, on average over the breaks and break by break."""
    own = rows.filter(pl.col("horizon") == 1, pl.col("level") == level).pivot(
        "since", index=["seed", "layer"], values="off"
    )
    for layer in ("split", "adaptive"):
        at = own.filter(pl.col("layer") == layer)
        first, third, sixth = (at[name].abs() for name in ("0", "3", "6"))
        print(
            f"{level:.0%} {layer:>8}: {at['0'].mean():+.1f} points in the year of the break, {at['3'].mean():+.1f} after 3 updates,"
            f" {at['6'].mean():+.1f} after 6; halved after 3 in {(third <= first / 2).sum()} of {at.height} breaks,"
            f" within 2 points after 6 in {(sixth <= 2).sum()}"
        )


def draw(rows: pl.DataFrame, out: Path) -> None:
    """Deviation from 90 % by years since the break: mean over breaks, and the middle 80 % of them."""
    chosen = rows.filter(
        pl.col("level") == 0.9,
        pl.col("horizon").is_in([1, 2, 5]),
        pl.col("since").is_between(-3, 10),
    )
    ahead = pl.format(
        "{} ahead",
        pl.when(pl.col("horizon") == 1)
        .then(pl.lit("1 year"))
        .otherwise(pl.format("{} years", "horizon")),
    )
    shown = (
        chosen.with_columns(ahead.alias("ahead"))
        .group_by("ahead", "since", "layer")
        .agg(
            mean=pl.col("off").mean(),
            low=pl.col("off").quantile(0.1),
            high=pl.col("off").quantile(0.9),
        )
        .sort("ahead", "since", "layer")
    )
    x = alt.X("since:Q", title="Years since the break", axis=alt.Axis(format="d", tickMinStep=1))
    scale = alt.Scale(domain=["split", "adaptive"], range=["#b3541e", "#1f5a99"])
    colour = alt.Color("layer:N", title="Thresholds", scale=scale)
    band = (
        alt.Chart()
        .mark_area(opacity=0.18)
        .encode(x, alt.Y("low:Q", title="Coverage less 90 %, points"), alt.Y2("high:Q"), colour)
    )
    line = alt.Chart().mark_line(point=True).encode(x, alt.Y("mean:Q"), colour)
    zero = alt.Chart().mark_rule(color="#777", strokeDash=[3, 3]).encode(y=alt.datum(0))
    layered = alt.layer(band, line, zero, data=shown).properties(width=230, height=220)
    title = (
        "A recession with scarring from year 0 on: mean over breaks, and the middle 80 % of them"
    )
    layered.facet(alt.Facet("ahead:N", title=None, sort="ascending"), title=title).save(out)


def main() -> None:
    """Plant, follow, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--breaks", type=int, default=24)
    parser.add_argument("--persons", type=int, default=3_000)
    asked = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + asked.breaks)
    rows = pl.DataFrame([row for seed in seeds for row in life(seed, asked.persons, broken=True)])
    print(
        f"{asked.breaks} planted breaks, {asked.persons:,} persons a year, seeds {seeds[0]} to {seeds[-1]}; points of coverage off 90 %\n"
    )
    with pl.Config(
        tbl_rows=20,
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        float_precision=1,
    ):
        for horizon in HORIZONS:
            print(f"h = {horizon}", table(rows, horizon, 0.9), sep="\n")
    for level in LEVELS:
        verdicts(rows, level)
    calm = pl.DataFrame([row for seed in seeds for row in life(seed, asked.persons, broken=False)])
    costs = (
        calm.filter(pl.col("level") == 0.9, pl.col("since") > -BREAK / 2)
        .group_by("horizon", "layer")
        .agg((pl.col("off") ** 2).mean() ** 0.5)
    )
    print(
        "\nWithout a break, root mean square deviation from 90 % in points (what adapting costs):"
    )
    for row in costs.sort("horizon", "layer").iter_rows():
        print("h = {:>2} {:>8}: {:.2f}".format(*row))
    draw(rows, ROOT / "docs/pictures/adaptive.svg")


if __name__ == "__main__":
    main()
