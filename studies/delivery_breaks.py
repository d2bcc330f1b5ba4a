"""Do forecasts stay right over yearly deliveries, with and without a planted break?

    python -m studies.delivery_breaks --register DIR [--persons 400] [--value-persons 300]
        [--futures 20] [--cache DIR] [--report FILE]

The register must have futures with all columns up to 2038 (`saga register generate --persons 4800
--seed 7 --future-to 2038 --future-draws 20 --future-records`). The bundle knows outcomes up to
2022. Each year from 2022 to 2032 a delivery brings a year of each future; the persons are forecast
one to five years ahead, and outcomes arrive when they are due. Breaks begin in 2024
(`studies.delivery_forecasts.plant`). Coverage is that of central intervals of 90 %, with random
ranks within the probability of zero.

Path bands and present values over five years are shown in the same way: *marginals* are those of
the moved marginals with the bundle's threshold, and *moved* also moves the threshold. Present
values are those of `--value-persons`.

Forecasts and results are kept in --cache, so a repeated command continues (after a change of the
layer, remove judged-*.parquet there). --report is written after each future. Writes
docs/pictures/deliveries.svg.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from calibration.adaptive.adaptive_state import (
    BAND,
    SPAN_KINDS,
    AdaptiveState,
    ExcessCounts,
    StateUpdater,
)
from calibration.adaptive.issued_intervals import ranks_of_outcomes
from calibration.adaptive.issued_spans import SPANS
from calibration.adaptive.marginal_moves import LEVELS, move_of, moved_levels
from calibration.yearly.drift_tests import ALPHA, compare_groups, compare_levels, sequential_test
from calibration.yearly.yearly_delivery import drift_scale
from saga.conformal.calibration_table import ALL, ThresholdKind
from saga.conformal.calibrator import Calibrator
from saga.conformal.path_bands import to_band_scale
from saga.conformal.prediction_sets import set_scores
from saga.conformal.value_distribution import SimulatedValues
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.files.markdown import markdown_table
from saga.files.plot_theme import draw_svg
from saga.forecaster import Forecaster
from saga.requests import RATE
from studies.delivery_forecasts import (
    BREAK_YEAR,
    BREAKS,
    FIRST_ORIGIN,
    GROUPS,
    LAST_ORIGIN,
    N_HORIZONS,
    N_PATHS,
    PROBABILITIES,
    OriginForecasts,
    Unbroken,
    continued_panel,
    forecasts_of_future,
    load,
    sample_persons,
    store,
)
from studies.online_conformal import ConformalPid, DynamicAci, OnlineThreshold
from studies.study_page import bundle_parser, page_head, publish_page, say

Array = NDArray[np.float64]
PICTURE = Path(__file__).resolve().parents[1] / "docs/pictures/deliveries.svg"
JUDGED = (1, N_HORIZONS)
LOW, HIGH = LEVELS.index(0.05), LEVELS.index(0.95)
ONLINE = ("DtACI", "conformal PID")
METHODS = ("static", "last year", *ONLINE, "moved")
SPAN_METHODS = ("static", "last year", *ONLINE, "marginals", "moved")
PRODUCTS = ("h = 1", f"h = {N_HORIZONS}", *SPAN_KINDS)
QUINTILES = [f"quintile={k}" for k in range(1, 6)]
FOLLOWED = [*QUINTILES, ALL]
_SVG = "http://www.w3.org/2000/svg"
MIN_GROUP = 50  # persons of a group in a year and future


@dataclass
class Deliveries:
    """The deliveries of one future: all methods follow the same outcomes."""

    parts: dict[int, OriginForecasts]
    calibrator: Calibrator
    ranks: dict[int, Array] = field(default_factory=dict)
    issued: dict[tuple[int, int], Array] = field(default_factory=dict)  # probabilities in force
    thresholds: dict[tuple[str, int, int], float] = field(default_factory=dict)
    span_scores: dict[tuple[str, str, int, int], Array] = field(default_factory=dict)
    span_thresholds: dict[tuple[str, str, int, int], float] = field(default_factory=dict)

    def run(self) -> None:
        """Deliver all years."""
        for origin, part in self.parts.items():
            self.ranks[origin] = _ranks(part)
        n_steps = sum(len(part.person_id) for part in self.parts.values())
        updaters = {group: StateUpdater(LEVELS, N_HORIZONS) for group in FOLLOWED}
        online: dict[tuple[str, str], OnlineThreshold] = {}
        for product in PRODUCTS:
            online["DtACI", product] = DynamicAci(0.9)
            online["conformal PID", product] = ConformalPid(0.9, n_steps)
        state = AdaptiveState(0, None, {})
        for year in range(FIRST_ORIGIN, LAST_ORIGIN + 1):
            if year > FIRST_ORIGIN:
                for group, updater in updaters.items():
                    updater.update(year, self._counts(year, group))
                cells = {
                    (group, *key): cell
                    for group, updater in updaters.items()
                    for key, cell in updater.states().items()
                }
                state = AdaptiveState(year, year, cells)
            for h in range(1, N_HORIZONS + 1):
                self.issued[year, h] = self._in_force(year, h, state)
            for kind in SPAN_KINDS:
                self._deliver_span(year, kind, state, online)
            for h in JUDGED:
                if year - h in self.parts:
                    known = self.ranks[year - h][:, h - 1]
                    scores = np.abs(2 * known[~np.isnan(known)] - 1)
                    for name in ONLINE:
                        online[name, f"h = {h}"].update(scores)
                    self.thresholds["last year", year, h] = float(np.quantile(scores, 0.9))
                for name in ONLINE:
                    self.thresholds[name, year, h] = online[name, f"h = {h}"].threshold

    def _deliver_span(
        self,
        year: int,
        kind: str,
        state: AdaptiveState,
        online: dict[tuple[str, str], OnlineThreshold],
    ) -> None:
        """Settle the spans that end in `year`, and issue those from it."""
        base, origin = self._span_threshold(kind, N_HORIZONS), year - N_HORIZONS
        if origin in self.parts:
            static = _known(self.span_scores[kind, "static", origin, N_HORIZONS])
            for name in ONLINE:
                online[name, kind].update(np.interp(static, [0, base, 1], [0, 0.9, 1]))
            last_year = float(np.quantile(static, 0.9))
            self.span_thresholds[kind, "last year", year, N_HORIZONS] = last_year
        for name in ONLINE:
            # Both begin at 0.9, so the bundle's threshold has to be 0.9 on their scale.
            threshold = float(np.interp(online[name, kind].threshold, [0, 0.9, 1], [0, base, 1]))
            self.span_thresholds[kind, name, year, N_HORIZONS] = threshold
        updater = StateUpdater((0.9,), N_HORIZONS)
        for earlier in range(FIRST_ORIGIN + 1, year + 1):
            updater.update(earlier, self._span_counts(kind, earlier, state))
        for years in SPANS:
            offset = updater.states()[years, 0.9].offset
            threshold = self._span_threshold(kind, years) + offset
            self.span_thresholds[kind, "moved", year, years] = threshold
            in_force = {h: self.issued[year, h] for h in range(1, years + 1)}
            score = self._band_scores if kind == BAND else self._value_scores
            self.span_scores[kind, "static", year, years] = score(year, years, None)
            self.span_scores[kind, "moved", year, years] = score(year, years, in_force)

    def _span_counts(self, kind: str, year: int, state: AdaptiveState) -> dict[int, ExcessCounts]:
        """The spans that ended in `year`: bands by their score under the moves of `state`."""
        counts = {}
        for years in SPANS:
            origin = year - years
            if origin not in self.parts:
                continue
            published = _known(self.span_scores[kind, "moved", origin, years])
            base = np.full((len(published), 1), self._span_threshold(kind, years))
            in_force = np.full_like(base, self.span_thresholds[kind, "moved", origin, years])
            counts[years] = ExcessCounts.of(published[:, None], base, in_force)
            if kind == BAND:
                levels = {h: self._in_force(origin, h, state) for h in range(1, years + 1)}
                scores = _known(self._band_scores(origin, years, levels))[:, None]
                rescored = ExcessCounts.of(scores, base, in_force)
                counts[years] = ExcessCounts(rescored.counts, counts[years].missed)
        return counts

    def _span_threshold(self, kind: str, years: int) -> float:
        name: ThresholdKind = "band" if kind == BAND else "present_value"
        thresholds = self.calibrator.nested_thresholds(name, years)[0]
        return float(thresholds[self.calibrator.coverage.index(0.9)])

    def span_covered(self, kind: str, method: str, origin: int) -> Array:
        """Whether the set of 90 % contains the next five outcomes or their present value (n,)."""
        scores = self.span_scores[kind, _published(method), origin, N_HORIZONS]
        base = self._span_threshold(kind, N_HORIZONS)
        threshold = self.span_thresholds.get((kind, method, origin, N_HORIZONS), base)
        return np.where(np.isnan(scores), np.nan, scores <= threshold)

    def _counts(self, year: int, group: str) -> dict[int, ExcessCounts]:
        counts = {}
        for h in range(1, N_HORIZONS + 1):
            part = self.parts.get(year - h)
            if part is None:
                continue
            rank = self.ranks[year - h][:, h - 1]
            rows = ~np.isnan(rank)
            if group != ALL:
                rows &= part.groups["quintile"] == group.removeprefix("quintile=")
            scores = np.tile(rank[rows, None], len(LEVELS))
            base = np.tile(LEVELS, (len(scores), 1))
            counts[h] = ExcessCounts.of(scores, base, self.issued[year - h, h][rows])
        return counts

    def _in_force(self, origin: int, horizon: int, state: AdaptiveState) -> Array:
        in_force = moved_levels(state, horizon, FOLLOWED)
        labels, index = np.unique(self.parts[origin].groups["quintile"], return_inverse=True)
        of_label = [in_force.get(f"quintile={label}", in_force[ALL]) for label in labels.tolist()]
        return np.array(of_label)[index]

    def covered(self, method: str, origin: int, horizon: int) -> Array:
        """Whether the 90 % interval contains the outcome (n,), NaN without an outcome."""
        rank = self.ranks[origin][:, horizon - 1]
        if method == "moved":
            ends = np.sort(self.issued[origin, horizon], axis=1)
            inside = (rank > ends[:, LOW]) & (rank <= ends[:, HIGH])
        else:
            threshold = self.thresholds.get((method, origin, horizon), 0.9)
            inside = np.abs(2 * rank - 1) <= threshold
        return np.where(np.isnan(rank), np.nan, inside)

    def width_ratio(self, origin: int, horizon: int) -> float:
        """Mean width of the moved 90 % intervals over that of the bundle's."""
        quantiles = self.parts[origin].quantiles[:, JUDGED.index(horizon)].astype(np.float64)
        ends = np.sort(self.issued[origin, horizon], axis=1)[:, [LOW, HIGH]]
        moved = np.array(
            [np.interp(p, PROBABILITIES, q) for p, q in zip(ends, quantiles, strict=True)]
        )
        bundle = quantiles[:, np.searchsorted(PROBABILITIES, [0.05 - 1e-9, 0.95 - 1e-9])]
        return float(np.nanmean(np.diff(moved)) / np.nanmean(np.diff(bundle)))

    def _band_scores(self, origin: int, years: int, in_force: dict[int, Array] | None) -> Array:
        """Score (n,) of the next outcomes in path bands, NaN without one of them.

        `in_force` are the levels (n, 9) of each horizon; None for the bundle's bands.
        """
        part = self.parts[origin]
        scores = []
        for h in range(1, years + 1):
            less, p_zero = part.less[:, h - 1], part.p_zero[:, h - 1]
            if in_force is not None:
                less, p_zero = (_moved(values, in_force[h]) for values in (less, p_zero))
            zero = part.less[:, h - 1] == 0
            score = np.where(zero, np.maximum(1 - 2 * p_zero, 0), np.abs(2 * less - 1))
            scores.append(to_band_scale(self.calibrator, h, score + 0 * part.less[:, h - 1]))
        return np.asarray(np.max(scores, axis=0))  # NaN stays NaN

    def _value_scores(self, origin: int, years: int, in_force: dict[int, Array] | None) -> Array:
        """Score (n,) of the realised present value, NaN if it is unknown or without paths."""
        part = self.parts[origin]
        realised = part.value[:, years - 1]
        known = ~np.isnan(realised) & ~np.isnan(part.slices[:, :years]).any(axis=(1, 2))
        index = np.flatnonzero(known)
        rows = part.simulated[index]
        simulated, sorted_sums = np.zeros((2, len(index), N_PATHS))
        for h in range(1, years + 1):
            slices = part.slices[index, h - 1].astype(np.float64)
            if in_force is not None:
                slices = _moved_slices(slices, part.p_zero[rows, h - 1], in_force[h][rows])
            discount = (1 + RATE) ** -float(h)
            ranks = part.ranks[index, h - 1].astype(int)
            simulated += np.take_along_axis(slices, ranks, 1) * discount
            sorted_sums += slices * discount
        distribution = SimulatedValues(simulated, sorted_sums).distribution
        scores = np.full(len(part.person_id), np.nan)
        scores[rows] = set_scores(distribution, realised[index, None], 0.9)[:, 0]
        return scores


def _known(scores: Array) -> Array:
    return scores[~np.isnan(scores)]


def _published(method: str) -> str:
    return "moved" if method in ("marginals", "moved") else "static"


def _moved_slices(slices: Array, p_zero: Array, issued: Array) -> Array:
    """Slice means (n, N_PATHS) of the distributions that levels in force (n, 9) have moved."""
    edges, middle = np.linspace(0, 1, N_PATHS + 1), (np.arange(N_PATHS) + 0.5) / N_PATHS
    total = np.concatenate([np.zeros((len(slices), 1)), np.cumsum(slices, axis=1)], axis=1)
    result = np.empty_like(slices)
    in_force, index = np.unique(issued, axis=0, return_inverse=True)
    for i, levels in enumerate(in_force):
        knots, values = move_of(levels)
        unmoved_edges, unmoved_middle = (np.interp(p, values, knots) for p in (edges, middle))
        size = np.diff(unmoved_edges) * N_PATHS
        for row in np.flatnonzero(index.ravel() == i).tolist():
            means = np.diff(np.interp(unmoved_edges, edges, total[row])) / size
            result[row] = np.where(unmoved_middle <= p_zero[row], 0.0, means)
    return result


def _ranks(part: OriginForecasts) -> Array:
    ranks = [
        ranks_of_outcomes(less, zero)
        for less, zero in zip(part.less.T, np.nan_to_num(part.p_zero).T, strict=True)
    ]
    return np.where(np.isnan(part.less), np.nan, np.stack(ranks, axis=1))


def _moved(values: Array, issued: Array) -> Array:
    result = np.empty(len(values))
    in_force, index = np.unique(issued, axis=0, return_inverse=True)
    for i, levels in enumerate(in_force):
        rows = index.ravel() == i
        result[rows] = np.interp(values[rows], *move_of(levels))
    return result


def rows_of_future(deliveries: Deliveries, draw: int, planted: str) -> list[dict[str, object]]:
    """Coverage of one future by product, method, outcome year and group, in points from 90."""
    rows: list[dict[str, object]] = []

    def add(product: str, method: str, year: int, group: str, inside: Array) -> None:
        known = inside[~np.isnan(inside)]
        if len(known) >= MIN_GROUP:
            rows.append(
                {
                    "draw": draw,
                    "break": planted,
                    "product": product,
                    "method": method,
                    "year": year,
                    "group": group,
                    "persons": len(known),
                    "deviation": 100 * float(known.mean()) - 90,
                }
            )

    for origin, part in deliveries.parts.items():
        for h in JUDGED:
            for method in METHODS:
                inside = deliveries.covered(method, origin, h)
                add(f"h = {h}", method, origin + h, ALL, inside)
                for grouping in GROUPS if method in ("static", "moved") else ():
                    for label in np.unique(part.groups[grouping]).tolist():
                        members = inside[part.groups[grouping] == label]
                        add(f"h = {h}", method, origin + h, f"{grouping}={label}", members)
            ratio = 100 * deliveries.width_ratio(origin, h)
            rows.append(
                {**rows[-1], "product": f"width h = {h}", "method": "moved", "group": ALL}
                | {"year": origin + h, "deviation": ratio - 100}
            )
        for kind in SPAN_KINDS:
            for method in SPAN_METHODS:
                inside = deliveries.span_covered(kind, method, origin)
                add(kind, method, origin + N_HORIZONS, ALL, inside)
                for grouping in GROUPS if method in ("static", "moved") else ():
                    for label in np.unique(part.groups[grouping]).tolist():
                        members = inside[part.groups[grouping] == label]
                        add(kind, method, origin + N_HORIZONS, f"{grouping}={label}", members)
    return rows


def false_alarms(rows: pl.DataFrame, forecaster: Forecaster) -> dict[str, float]:
    """Shares of years (and futures, for the sequential test) with an alarm, without a break."""
    scale = drift_scale(forecaster.bundle)
    static = rows.filter(
        (pl.col("break") == "none")
        & (pl.col("product") == "h = 1")
        & (pl.col("method") == "static")
        & (pl.col("group").str.starts_with("quintile=") | (pl.col("group") == ALL))
    )
    levels, differences, sequential = [], [], []
    for _, future in static.partition_by("draw", as_dict=True, maintain_order=True).items():
        everybody = []
        for _, year in future.sort("year").partition_by("year", as_dict=True).items():
            outside = {
                group: (0.1 - deviation / 100, persons)
                for group, deviation, persons in year.select(
                    "group", "deviation", "persons"
                ).iter_rows()
            }
            everybody.append(outside[ALL])
            levels.append(any(test.alarm for test in compare_levels(outside, scale)))
            differences.append(any(test.alarm for test in compare_groups(outside, scale)))
        sequential.append(max(sequential_test(everybody, scale)) >= 1 / ALPHA)
    return {
        "coverage, of years": float(np.mean(levels)),
        "groups, of years": float(np.mean(differences)),
        "sequential, of futures in eleven years": float(np.mean(sequential)),
    }


def recovery_table(rows: pl.DataFrame) -> str:
    """Mean deviation by break and product: in the first year, after 3 and after 6 deliveries.

    "Within" is the number of futures within 2 points after 6, and the worst group that after 6.
    """
    table = []
    for planted in BREAKS:
        for product in PRODUCTS:
            # Forecasts issued after k deliveries with outcomes have theirs h years later.
            ahead = 1 if product == "h = 1" else N_HORIZONS
            first = BREAK_YEAR if ahead == 1 else FIRST_ORIGIN + N_HORIZONS
            years = (first, first + 2 + ahead, first + 5 + ahead)
            at = {
                method: [_of_all(rows, planted, product, method, year) for year in years]
                for method in METHODS
            }
            cells = []
            for method in ("static", "moved"):
                after_six = at[method][2]
                cells += [
                    ", ".join(f"{values.mean():+.1f}" for values in at[method]),
                    f"{int((np.abs(after_six) <= 2).sum())}/{len(after_six)}",
                    _worst_group(rows, planted, product, method, years[2]),
                ]
            cells += [f"{at[name][2].mean():+.1f}" for name in ("last year", *ONLINE)]
            table.append((planted, product, *cells))
    names = [
        f"{method}: {what}"
        for method in ("static", "moved")
        for what in ("first, 3, 6", "within 2", "worst group")
    ]
    return markdown_table(("break", "forecast", *names, "last year", *ONLINE), table)


def _of_all(rows: pl.DataFrame, planted: str, product: str, method: str, year: int) -> Array:
    """Deviations of everybody in one year, by future."""
    chosen = _select(rows, planted, product, method)
    chosen = chosen.filter((pl.col("group") == ALL) & (pl.col("year") == year))
    return chosen.sort("draw")["deviation"].to_numpy()


def _worst_group(rows: pl.DataFrame, planted: str, product: str, method: str, year: int) -> str:
    groups = _select(rows, planted, product, method).filter(
        (pl.col("group") != ALL) & (pl.col("year") == year)
    )
    means = groups.group_by("group").agg(pl.col("deviation").mean(), pl.len())
    means = means.filter(pl.col("len") >= rows["draw"].n_unique() / 2)
    if means.is_empty():
        return "-"
    worst = means.sort(pl.col("deviation").abs(), descending=True).row(0, named=True)
    return f"{worst['deviation']:+.1f} ({worst['group']})"


def _select(rows: pl.DataFrame, planted: str, product: str, method: str) -> pl.DataFrame:
    return rows.filter(
        (pl.col("break") == planted) & (pl.col("product") == product) & (pl.col("method") == method)
    )


def product_table(rows: pl.DataFrame) -> str:
    """Growth of widths and deviation of spans, means over futures and all later years."""
    table = []
    for planted in BREAKS:
        later = rows.filter((pl.col("break") == planted) & (pl.col("group") == ALL))
        width = [
            later.filter(
                (pl.col("product") == f"width h = {h}") & (pl.col("year") > BREAK_YEAR + h)
            )
            for h in JUDGED
        ]
        spans = [
            later.filter((pl.col("product") == kind) & (pl.col("method") == method))
            for kind in SPAN_KINDS
            for method in ("static", "marginals", "moved")
        ]
        means = [float(np.mean(part["deviation"].to_numpy())) for part in (*width, *spans)]
        table.append((planted, *(f"{mean:+.1f}" for mean in means)))
    widths = ("width h = 1, %", f"width h = {N_HORIZONS}, %")
    names = [
        f"{kind}: {method}" for kind in SPAN_KINDS for method in ("static", "marginals", "moved")
    ]
    return markdown_table(("break", *widths, *names), table)


def draw_deviations(rows: pl.DataFrame, out: Path) -> None:
    """Draw the mean deviation from 90 % by outcome year, for each break and product."""
    shown = (
        rows.filter((pl.col("group") == ALL) & pl.col("product").is_in(PRODUCTS))
        .group_by("break", "product", "method", "year")
        .agg(pl.col("deviation").mean())
        .sort("break", "product", "method", "year")
    )
    colours = ["#b3541e", "#8c8c8c", "#7a5195", "#3c8d5a", "#e0a030", "#0b5cad"]
    base = alt.Chart(shown).encode(
        alt.X(
            "year:Q",
            title="Outcome year",
            axis=alt.Axis(format="d", tickMinStep=2),
            scale={"zero": False},
        )
    )
    lines = base.mark_line().encode(
        alt.Y("deviation:Q", title="Points from 90 %"),
        alt.Color(
            "method:N", title="Method", scale=alt.Scale(domain=list(SPAN_METHODS), range=colours)
        ),
    )
    rule = base.mark_rule(color="#777", strokeDash=[3, 3]).encode(y=alt.datum(0))
    chart = alt.layer(rule, lines).properties(width=150, height=110)
    facets = chart.facet(
        column=alt.Column("break:N", title=None, sort=list(BREAKS)),
        row=alt.Row("product:N", title=None, sort=list(PRODUCTS)),
    )
    svg = draw_svg(facets, "Deviation of coverage from 90 % by outcome year")
    # A file of its own needs the name of the format, which pictures in a page do not.
    out.write_text(svg.replace("<svg", f'<svg xmlns="{_SVG}"', 1) + "\n")


def judged_future(
    forecaster: Forecaster,
    panel: Panel,
    register: Path,
    cache: Path,
    draw: int,
    value_persons: set[str],
) -> pl.DataFrame:
    """The coverage of one future under all breaks; forecasts and results are kept in the cache."""
    results = cache / f"judged-{draw}.parquet"
    if results.exists():
        return pl.read_parquet(results)
    rows: list[dict[str, object]] = []
    unbroken = Unbroken(continued_panel(panel, register, draw, BREAKS[0])[0])
    for planted in BREAKS:
        file = cache / f"{draw}-{planted}.npz"
        if not file.exists():
            new = forecasts_of_future(
                forecaster, panel, register, draw, planted, value_persons, unbroken
            )
            store(list(new), file)
        parts = {part.origin: part for part in load(file)}
        deliveries = Deliveries(parts, forecaster.calibrator)
        deliveries.run()
        rows += rows_of_future(deliveries, draw, planted)
    table = pl.DataFrame(rows)
    table.write_parquet(results)
    return table


def page_of(table: pl.DataFrame, forecaster: Forecaster) -> str:
    """The page about the futures judged so far."""
    alarms = false_alarms(table, forecaster)
    sections = [
        page_head(
            "Deliveries with planted breaks",
            __file__,
            bundle=forecaster.bundle.digest[:12],
            futures=table["draw"].n_unique(),
        ),
        recovery_table(table),
        product_table(table),
        "False alarms without a break, at a stated rate of "
        f"{ALPHA:.0%}: " + ", ".join(f"{name} {share:.1%}" for name, share in alarms.items()) + ".",
    ]
    return "\n\n".join(sections)


def main() -> None:
    """Forecast, deliver, judge; write the tables and the picture after each future."""
    parser = bundle_parser(__doc__, n_persons=400, n_paths=2)
    parser.add_argument("--register", type=Path, required=True)
    parser.add_argument("--futures", type=int, default=20)
    parser.add_argument("--value-persons", type=int, default=300, help="Of these, with paths.")
    parser.add_argument("--cache", type=Path, help="Folder of forecasts and results to keep.")
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle, threads=1)
    panel = sample_persons(read_panel(args.register), args.persons, 0)
    value_persons = set(sample_persons(panel, args.value_persons, 0).persons())
    tables: list[pl.DataFrame] = []
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        cache.mkdir(parents=True, exist_ok=True)
        for draw in range(args.futures):
            tables.append(
                judged_future(forecaster, panel, args.register, cache, draw, value_persons)
            )
            say(f"  {draw + 1} of {args.futures} futures")
            if args.report is not None and draw + 1 < args.futures:
                args.report.write_text(page_of(pl.concat(tables), forecaster) + "\n")
    table = pl.concat(tables)
    draw_deviations(table, PICTURE)
    publish_page(page_of(table, forecaster), args.report)


if __name__ == "__main__":
    main()
