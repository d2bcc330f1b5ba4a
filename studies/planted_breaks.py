"""How fast do adaptive thresholds recover stated coverage after a planted break?

    python -m studies.planted_breaks [--breaks 24] [--persons 3000]

The study uses streams of conformity scores, without a register and without a network. Persons' log
earnings are a random walk with Gaussian steps (sd 0.35) and a small common shock a year (sd 0.03).
The forecaster knows this process, so its split thresholds are right. From a break year on there is
a recession with scarring: each year a share of the persons permanently loses an exponentially
distributed amount of log earnings; the share is largest in the first year and falls to a lasting
value. Shares and depths differ between breaks. The same persons are forecast 1, 2, 5 and 10 years
ahead every year, and outcomes arrive when they are due. Seeds start at 1000; the constants of
`adaptive.adaptive_state` were chosen on other seeds. Writes docs/pictures/adaptive.svg.
"""

from __future__ import annotations

from pathlib import Path

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import MAX_THRESHOLD, ExcessCounts, StateUpdater
from scipy.special import ndtr

from saga.requests import COVERAGE
from studies.study_page import study_parser

Array = NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[1]
HORIZONS = (1, 2, 5, 10)
SD, COMMON_SD = 0.35, 0.03
YEARS_BEFORE, YEARS_AFTER = 12, 14
FIRST_SEED = 1000


def yearly_changes(rng: np.random.Generator, n_persons: int, broken: bool) -> Array:
    """Yearly changes of log earnings, (n_person, n_year)."""
    years = YEARS_BEFORE + YEARS_AFTER
    change = rng.normal(0, SD, (n_persons, years)) + rng.normal(0, COMMON_SD, years)
    first, lasting, depth = rng.uniform(0.12, 0.2), rng.uniform(0.5, 0.8), rng.uniform(0.6, 1.0)
    if broken:
        for year in range(YEARS_BEFORE, years):
            share = first * (lasting + (1 - lasting) * 0.6 ** (year - YEARS_BEFORE))
            change[:, year] -= (rng.random(n_persons) < share) * rng.exponential(depth, n_persons)
    return change


def conformity_scores(change: Array, horizon: int) -> Array:
    """Mass of the smallest central set of the forecast that contains the outcome, (n_person,)."""
    return np.asarray(2 * ndtr(np.abs(change) / (SD * horizon**0.5)) - 1)


def coverage_deviations(seed: int, n_persons: int, *, broken: bool) -> list[dict[str, object]]:
    """Deviation of coverage by horizon, coverage and year of one stream, for both layers."""
    change = yearly_changes(np.random.default_rng(seed), n_persons, broken)
    log_earnings = np.concatenate([np.zeros((n_persons, 1)), np.cumsum(change, axis=1)], axis=1)
    base = np.asarray(COVERAGE)
    updater = StateUpdater(COVERAGE, max(HORIZONS))
    issued: dict[tuple[int, int], Array] = {}  # (horizon, origin year) -> thresholds
    rows: list[dict[str, object]] = []
    for year in range(change.shape[1]):
        counts = {}
        for h in HORIZONS:
            if (h, year - h) not in issued:
                continue
            difference = log_earnings[:, year + 1] - log_earnings[:, year + 1 - h]
            scores, thresholds = conformity_scores(difference, h), issued[h, year - h]
            counts[h] = ExcessCounts.of(
                np.tile(scores[:, None], len(COVERAGE)),
                np.tile(base, (n_persons, 1)),
                np.tile(thresholds, (n_persons, 1)),
            )
            rows += [
                {
                    "seed": seed,
                    "horizon": h,
                    "coverage": coverage,
                    "since": year - YEARS_BEFORE,
                    "layer": layer,
                    "deviation": 100 * float((scores <= threshold).mean() - coverage),
                }
                for j, coverage in enumerate(COVERAGE)
                for layer, threshold in (("split", base[j]), ("adaptive", thresholds[j]))
            ]
        updater.update(year, counts)
        states = updater.states()
        for h in HORIZONS:
            moved = base + [states[h, coverage].offset for coverage in COVERAGE]
            issued[h, year] = np.where(moved >= MAX_THRESHOLD, np.inf, moved)
    return rows


def deviation_table(rows: pl.DataFrame, horizon: int, coverage: float) -> pl.DataFrame:
    """Mean deviation in points, and mean absolute deviation, by years since the break."""
    selected = rows.filter(
        pl.col("horizon") == horizon,
        pl.col("coverage") == coverage,
        pl.col("since").is_between(-1, 10),
    )
    means = selected.group_by("since", "layer").agg(
        mean=pl.col("deviation").mean(), size=pl.col("deviation").abs().mean()
    )
    wide = means.pivot("layer", index="since", values=["mean", "size"]).sort("since")
    return wide.select("since", "mean_split", "mean_adaptive", "size_split", "size_adaptive")


def print_recovery(rows: pl.DataFrame, coverage: float) -> None:
    """Print the recovery at h = 1: means over the breaks, and numbers of breaks."""
    next_year = rows.filter(pl.col("horizon") == 1, pl.col("coverage") == coverage)
    by_break = next_year.pivot("since", index=["seed", "layer"], values="deviation")
    for layer in ("split", "adaptive"):
        at = by_break.filter(pl.col("layer") == layer)
        first, third, sixth = (at[name].abs() for name in ("0", "3", "6"))
        print(
            f"{coverage:.0%} {layer:>8}: {_mean(at['0']):+.1f} points in the year of the break, "
            f"{_mean(at['3']):+.1f} after 3 updates, {_mean(at['6']):+.1f} after 6; "
            f"halved after 3 in {(third <= first / 2).sum()} of {at.height} breaks,"
            f" within 2 points after 6 in {(sixth <= 2).sum()}"
        )


def _mean(values: pl.Series) -> float:
    return float(values.to_numpy().mean())


def draw(rows: pl.DataFrame, out: Path) -> None:
    """Draw deviations from 90 % by years since the break: mean, and the middle 80 % of breaks."""
    selected = rows.filter(
        pl.col("coverage") == 0.9,
        pl.col("horizon").is_in([1, 2, 5]),
        pl.col("since").is_between(-3, 10),
    )
    years_ahead = pl.format(
        "{} ahead",
        pl.when(pl.col("horizon") == 1)
        .then(pl.lit("1 year"))
        .otherwise(pl.format("{} years", "horizon")),
    )
    shown = (
        selected.with_columns(years_ahead.alias("years ahead"))
        .group_by("years ahead", "since", "layer")
        .agg(
            mean=pl.col("deviation").mean(),
            low=pl.col("deviation").quantile(0.1),
            high=pl.col("deviation").quantile(0.9),
        )
        .sort("years ahead", "since", "layer")
    )
    x = alt.X("since:Q", title="Years since the break", axis=alt.Axis(format="d", tickMinStep=1))
    scale = alt.Scale(domain=["split", "adaptive"], range=["#b3541e", "#1f5a99"])
    colour = alt.Color("layer:N", title="Thresholds", scale=scale)
    band = (
        alt.Chart()
        .mark_area(opacity=0.18)
        .encode(x, alt.Y("low:Q", title="Coverage minus 90 %, points"), alt.Y2("high:Q"), colour)
    )
    line = alt.Chart().mark_line(point=True).encode(x, alt.Y("mean:Q"), colour)
    zero = alt.Chart().mark_rule(color="#777", strokeDash=[3, 3]).encode(y=alt.datum(0))
    layered = alt.layer(band, line, zero, data=shown).properties(width=230, height=220)
    title = (
        "A recession with scarring from year 0 on: mean over breaks, and the middle 80 % of breaks"
    )
    layered.facet(alt.Facet("years ahead:N", title=None, sort="ascending"), title=title).save(out)


def main() -> None:
    """Simulate the streams, print the tables, draw the picture."""
    parser = study_parser(__doc__)
    parser.add_argument("--breaks", type=int, default=24)
    parser.add_argument("--persons", type=int, default=3_000)
    args = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + args.breaks)
    rows = pl.DataFrame(
        [row for seed in seeds for row in coverage_deviations(seed, args.persons, broken=True)]
    )
    print(
        f"{args.breaks} planted breaks, {args.persons:,} persons per year, seeds {seeds[0]} to "
        f"{seeds[-1]}; deviation from 90 % coverage in points\n"
    )
    with pl.Config(
        tbl_rows=20,
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        float_precision=1,
    ):
        for horizon in HORIZONS:
            print(f"h = {horizon}", deviation_table(rows, horizon, 0.9), sep="\n")
    for coverage in COVERAGE:
        print_recovery(rows, coverage)
    calm = pl.DataFrame(
        [row for seed in seeds for row in coverage_deviations(seed, args.persons, broken=False)]
    )
    costs = (
        calm.filter(pl.col("coverage") == 0.9, pl.col("since") > -YEARS_BEFORE / 2)
        .group_by("horizon", "layer")
        .agg((pl.col("deviation") ** 2).mean() ** 0.5)
    )
    print(
        "\nWithout a break, root mean square deviation from 90 % in points (the cost of adapting):"
    )
    for row in costs.sort("horizon", "layer").iter_rows():
        print("h = {:>2} {:>8}: {:.2f}".format(*row))
    draw(rows, ROOT / "docs/pictures/adaptive.svg")


if __name__ == "__main__":
    main()
