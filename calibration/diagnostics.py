"""How far a bundle can be trusted, as tables: everything that the calibration report shows is computed here.

Test persons are forecast from one drawn origin each, by the rule that calibration uses, and judged by what came true inside the panel's
years. Tables hold averages over at least `min_cell` persons, no single person's value, so they may travel with the bundle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from calibration.bands import coverage_band, map_noise, simultaneous_band
from calibration.judged import EVENTS, QUANTILES, Judged, Together, judge, thresholds_for
from calibration.reliability import (
    Decomposition,
    decompose_brier,
    decompose_crps,
    decompose_pinball,
    mincer_zarnowitz,
    reliability_curve,
)
from calibration.verdicts import QUESTIONS, Light, curve_status, publishable, status, worst
from saga.calibrators import ALL, Calibrator
from saga.errors import BundleError, InputError, Problem
from saga.forecaster import Forecaster, Progress, level_name
from saga.groups import Grouping
from saga.keyed import uniform_each
from saga.options import COVERAGE, MAX_HORIZON
from saga.outcomes import Origins, draw_origins, history, last_year, realised
from saga.panel import Panel
from saga.split import persons_of

Array = NDArray[Any]
HORIZONS = (1, 5, 10, 20, 30)
PATHS = 200
MIN_CELL = 10  # persons that a published figure rests on
ALPHA = 0.05  # probability that a forecaster without fault gets any light but green, over the whole report
PERIOD = 100  # persons that a period of the drift table has at least: years are joined until it does
PIT_BINS = (20, 10, 5)
LOW_PAY = 0.6  # of the median of positive earnings

_I, _N, _F, _S, _B = pl.Int32(), pl.Int64(), pl.Float64(), pl.String(), pl.Boolean()
_BAND: dict[str, pl.DataType] = {"band_lower": _F, "band_upper": _F}
SCHEMAS: dict[str, dict[str, pl.DataType]] = {
    "provenance": {"name": _S, "text": _S},
    "lights": {"question": _S, "horizon": _I, "status": _S, "n": _N, "size": _F, "tolerance": _F, "level": _F, "group": _S},
    "promise": {"horizon": _I, "persons_map": _N, "persons_threshold": _N, "guarantee": _S, "n": _N},
    "coverage": {
        "horizon": _I,
        "grouping": _S,
        "group": _S,
        "level": _F,
        "n": _N,
        "inside": _F,
        "under": _F,
        "over": _F,
        **_BAND,
        "status": _S,
    },
    "pit": {"horizon": _I, "rank": _F, "n": _N, "share": _F, "share_lower": _F, "share_upper": _F, "ecdf": _F, **_BAND, "outside": _B},
    "reliability": {"event": _S, "horizon": _I, "forecast": _F, "observed": _F, "n": _N, **_BAND, "outside": _B},
    "widths": {
        "horizon": _I,
        "grouping": _S,
        "group": _S,
        "level": _F,
        "n": _N,
        "width": _F,
        "typical": _F,
        "with_zero": _F,
        "without": _F,
    },
    "scores": {
        **{"horizon": _I, "score": _S, "n": _N, "value": _F, "se": _F, "recalibrated": _F},
        **{"miscalibration": _F, "discrimination": _F, "uncertainty": _F},
    },
    "level": {
        **{"horizon": _I, "n": _N, "mean_forecast": _F, "mean_outcome": _F, "mean_error": _F, "error_lower": _F, "error_upper": _F},
        **{"intercept": _F, "slope": _F, "slope_lower": _F, "slope_upper": _F, "status": _S},
    },
    "together": {"question": _S, "horizon": _I, "level": _F, "n": _N, "inside": _F, **_BAND, "status": _S},
    "adaptive": {"horizon": _I, "group": _S, "level": _F, "n": _N, "inside": _F, "size": _F, "last_year": _I},
    "drift": {"horizon": _I, "first_year": _I, "last_year": _I, "n": _N, "inside": _F, **_BAND, "status": _S},
}


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Tables by name, with the columns of SCHEMAS. Figures of fewer than `min_cell` persons are null, with their number."""

    tables: Mapping[str, pl.DataFrame]

    def __getitem__(self, name: str) -> pl.DataFrame:
        return self.tables[name]

    @property
    def provenance(self) -> dict[str, str]:
        """What made these tables, by name."""
        return dict(self.tables["provenance"].iter_rows())

    def to_table(self) -> pl.DataFrame:
        """All tables as one, a column `table` beside the columns of all: the `diagnostics.parquet` of the bundle."""
        return pl.concat([table.select(pl.lit(name).alias("table"), pl.all()) for name, table in self.tables.items()], how="diagonal")

    @classmethod
    def from_table(cls, stored: pl.DataFrame) -> Self:
        """The tables that `to_table` wrote. Raises BundleError where a column is missing."""
        if missing := {"table", *(name for schema in SCHEMAS.values() for name in schema)} - set(stored.columns):
            problem = Problem("diagnostics-form", f"columns missing: {sorted(missing)}", "Run `saga report --panel DIR --store` again.")
            raise BundleError("the diagnostics table does not have its columns", [problem])
        parts = {name: stored.filter(pl.col("table") == name) for name in SCHEMAS}
        return cls({name: parts[name].select(pl.col(c).cast(dtype) for c, dtype in schema.items()) for name, schema in SCHEMAS.items()})


def diagnose(
    forecaster: Forecaster,
    panel: Panel,
    *,
    horizons: Sequence[int] = HORIZONS,
    paths: int = PATHS,
    seed: int = 0,
    persons: int | None = None,
    min_cell: int = MIN_CELL,
    progress: Progress | None = None,
) -> Diagnostics:
    """Forecast the panel's test persons, one keyed origin each, and judge the forecasts by what came true.

    `persons` limits them (a keyed choice). Raises InputError when the panel has no test person with an origin.
    """
    end, floor = last_year(panel), panel.meta.floor
    tested = persons_of(panel, "test")
    if persons is not None and persons < len(tested):
        order = np.argsort(uniform_each(tested, "contest", panel.meta.panel_id))
        tested = sorted(tested[i] for i in order[:persons])
    people = panel.only(tested)
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=seed, end=end) if tested else Origins(np.empty(0, str), np.empty(0, int))
    if not len(origins):
        problem = Problem(
            "no-origins", "No test person is eligible", "Give a panel with persons of 3 years of earnings and an age of 20-60."
        )
        raise InputError("There is nobody to judge the forecasts on.", [problem])
    past, years = history(people, origins), realised(people, origins, range(1, max(horizons) + 1), end=end)
    outcomes = years[:, np.asarray(horizons) - 1]
    thresholds = [thresholds_for(outcomes[:, i], floor) for i in range(len(horizons))]
    low_pay = low_pay_line(panel)
    parts: list[list[Judged]] = [[] for _ in horizons]
    wholes: list[Together] = []
    done = 0
    for block in forecaster.blocks(past, to_horizon=max(horizons), paths=paths, seed=seed, progress=progress):
        rows = slice(done, done + len(block))
        sets = forecaster.calibrator.intervals(block, forecaster.calibrator.levels or COVERAGE)
        for i, h in enumerate(horizons):
            judged = judge(block, sets, outcomes[rows, i], h, thresholds=thresholds[i], floor=floor, low_pay=low_pay)
            parts[i].append(judged)
        wholes.append(Together.of(forecaster.calibrator, block, years[rows]))
        done += len(block)
    grouping = forecaster.calibrator.grouping or Grouping.fit(panel.only(persons_of(panel, "train")))
    groups = grouping.of(past, origins)
    record = {
        **forecaster.provenance(paths=paths, seed=seed),
        "panel": panel.meta.panel_id,
        "trained_on": forecaster.bundle.split.get("panel_id"),
        "persons": len(origins),
        "origins": f"{int(origins.year.min())}-{int(origins.year.max())}",
        "last_year": end,
        "low_pay": low_pay,
        "floor": floor,
    }
    cases = {h: Judged.join(part) for h, part in zip(horizons, parts, strict=True)}
    together = Together.join(wholes)
    return summarise(cases, groups, forecaster.calibrator, together, provenance=record, seed=seed, min_cell=min_cell)


def low_pay_line(panel: Panel) -> float:
    """60 % of the median of all positive earnings in the panel, rounded to two digits: real money a year."""
    median = panel.frame.filter(pl.col("earnings") > 0)["earnings"].median()
    return rounded(LOW_PAY * float(median), 2) if isinstance(median, (int, float)) else 0.0


def rounded(value: float, digits: int = 3) -> float:
    """To so many significant digits."""
    return float(f"{value:.{digits}g}")


def summarise(
    cases: Mapping[int, Judged],
    groups: pl.DataFrame | None,
    calibrator: Calibrator,
    together: Together | None = None,
    *,
    provenance: Mapping[str, Any],
    seed: int = 0,
    min_cell: int = MIN_CELL,
) -> Diagnostics:
    """All tables from un-averaged results by horizon and of several years `together`; `groups` has `person_id` and a text column a
    grouping. The table "adaptive" is empty (see `calibration.following`)."""
    summary = _Summary(cases, groups, calibrator, seed, min_cell)
    tables = {
        "promise": summary.promise(),
        "coverage": summary.coverage(),
        "pit": summary.pit(),
        "reliability": summary.reliability(),
        "widths": summary.widths(),
        "scores": summary.scores(),
        "level": summary.level(),
        "together": summary.together(together),
        "adaptive": [],
        "drift": summary.drift(),
    }
    order = {question: i for i, question in enumerate(QUESTIONS)}
    tables["lights"] = [light.row() for light in sorted(summary.lights, key=lambda light: (order[light.question], light.horizon))]
    record = {**provenance, "min_cell": min_cell, "alpha": ALPHA, "horizons": ",".join(str(h) for h in cases)}
    tables["provenance"] = [{"name": name, "text": str(value)} for name, value in record.items() if value is not None]
    return Diagnostics({name: pl.DataFrame(tables[name], schema=schema, orient="row") for name, schema in SCHEMAS.items()})


Rows = list[dict[str, Any]]


class _Summary:
    """Makes the tables one by one, and notes each verdict on the way."""

    def __init__(self, cases: Mapping[int, Judged], groups: pl.DataFrame | None, calibrator: Calibrator, seed: int, min_cell: int) -> None:
        self.cases, self.calibrator, self.seed, self.min_cell = cases, calibrator, seed, min_cell
        self.levels = calibrator.levels or COVERAGE
        self.lights: list[Light] = []
        self.cells = {h: _cells(case.frame, groups, min_cell) for h, case in cases.items()}
        # The probability of a false alarm is shared by the questions, then by the figures of each.
        self.share = ALPHA / len(QUESTIONS)

    def promise(self) -> Rows:
        rows: Rows = []
        for h, case in self.cases.items():
            own, mapped = self.calibrator.cells.get((h, ALL)), self.calibrator.map_cell(h)
            promised = case.frame["guarantee"].mode().sort().to_list()
            row = {"horizon": h, "persons_map": mapped.map_n if mapped else 0, "persons_threshold": own.n if own else 0}
            rows.append({**row, "guarantee": promised[0] if promised else "none", "n": self._count(case)})
        return rows

    def coverage(self) -> Rows:
        """Everybody at all levels is one question, the groups are another: each shares its alarm among its own figures."""
        everybody = len(self.cases) * len(self.levels)
        grouped = max(1, sum(len(cells) - 1 for cells in self.cells.values()) * len(self.levels))
        rows: Rows = []
        for h, case in self.cases.items():
            own: list[Light] = []
            theirs: list[Light] = []
            for (grouping, group), rows_of in self.cells[h].items():
                alarm = self.share / (everybody if grouping == ALL else grouped)
                part = None if rows_of is None else case.frame[rows_of]
                for level in self.levels:
                    row, light = self._covered(part, h, level, alarm, grouping, group)
                    rows.append(row)
                    (own if grouping == ALL else theirs).append(light)
            self.lights.append(worst(own))
            if theirs:
                self.lights.append(worst(theirs))
        return rows

    def _covered(
        self, part: pl.DataFrame | None, h: int, level: float, alarm: float, grouping: str, group: str
    ) -> tuple[dict[str, Any], Light]:
        row: dict[str, Any] = {"horizon": h, "grouping": grouping, "group": group, "level": level, "status": "unclear"}
        question = "coverage" if grouping == ALL else "groups"
        name = level_name(level)
        given = None if part is None else part.filter(pl.col(f"inside_{name}").is_not_null())
        if given is None or given.height < self.min_cell:
            return row, Light(question, h, "unclear", level=level, group=None if grouping == ALL else f"{grouping}={group}")
        n = given.height
        means = {kind: float(given[f"{kind}_{name}"].cast(pl.Float64).mean()) for kind in ("inside", "under", "over")}  # type: ignore[arg-type]
        lower, upper = coverage_band(level, n, self._calibrated_on(h, grouping, group), probability=1 - alarm)
        found = status(means["inside"], lower, upper, n, target=level, tolerance=QUESTIONS[question], too_much_is_mild=True)
        row |= {"n": n, **means, "band_lower": lower, "band_upper": upper, "status": found}
        return row, Light(question, h, found, n, means["inside"] - level, level, None if grouping == ALL else f"{grouping}={group}")

    def together(self, found: Together | None) -> Rows:
        """Share of persons whose outcomes of the next K years all lie in their band, and whose present value of K years in its interval."""
        rows: Rows = []
        kinds = () if found is None else tuple(found.inside)
        cells = [(kind, h) for kind in kinds for h in self.cases if h > 1]
        lights: dict[int, list[Light]] = {}
        for kind, years in cells:
            for j, level in enumerate(self.levels):
                column = found.inside[kind][:, years - 1, j]  # type: ignore[union-attr]  # without it there are no cells
                hits = column[~np.isnan(column)]
                n, cuts = len(hits), self.calibrator.limits.get((kind, years))
                row: dict[str, Any] = {"question": kind, "horizon": years, "level": level, "status": "unclear"}
                light = Light("together", years, "unclear", level=level, group=kind)
                if n >= self.min_cell:
                    alarm, share = self.share / (len(cells) * len(self.levels)), float(hits.mean())
                    lower, upper = coverage_band(level, n, cuts.n if cuts else None, probability=1 - alarm)
                    status_ = status(share, lower, upper, n, target=level, tolerance=QUESTIONS["together"], too_much_is_mild=True)
                    row |= {"n": n, "inside": share, "band_lower": lower, "band_upper": upper, "status": status_}
                    light = Light("together", years, status_, n, share - level, level, kind)
                rows.append(row)
                lights.setdefault(years, []).append(light)
        self.lights += [worst(own) for own in lights.values()]
        return rows

    def _calibrated_on(self, horizon: int, grouping: str = ALL, group: str = ALL) -> int | None:
        """Persons behind the threshold that serves these persons: the luck of their draw is in the band."""
        own, everybody = (self.calibrator.cells.get((horizon, key)) for key in (f"{grouping}={group}", ALL))
        if own is not None and own.n:
            return own.n
        if everybody is None or not everybody.n:
            return None
        rows = self.cells[horizon].get((grouping, group))
        shifted = any(f"{grouping}={group}" in shift for (h, _), shift in self.calibrator.shifts.items() if h == horizon)
        if not shifted or rows is None:
            return everybody.n
        # A shift of its own was fitted on the group's calibration persons: about the same share of all as here.
        return max(1, round(everybody.n * len(rows) / self.cases[horizon].frame.height))

    def _mapped_on(self, horizon: int) -> int | None:
        cell = self.calibrator.map_cell(horizon)
        return cell.map_n if cell else None

    def pit(self) -> Rows:
        rows: Rows = []
        for h, case in self.cases.items():
            values, probability = case.frame["pit"].to_numpy(), 1 - self.share / len(self.cases)
            n = len(values)
            counts = {bins: np.histogram(values, bins=bins, range=(0, 1))[0] for bins in PIT_BINS}
            bins = next((b for b in PIT_BINS if n and counts[b].min() >= self.min_cell), None)
            if bins is None:
                self.lights.append(Light("shape", h, "unclear"))
                continue
            rng = self._rng("pit", h)
            ranks = map_noise(bins, self._mapped_on(h), _replicates(probability), rng)
            chance = rng.multinomial(n, np.diff(ranks, axis=1)) / n
            share, ecdf = counts[bins] / n, np.cumsum(counts[bins]) / n
            lower, upper = simultaneous_band(np.cumsum(chance, axis=1)[:, :-1], probability)
            share_lower, share_upper = simultaneous_band(chance, probability)
            rank = np.arange(1, bins + 1) / bins
            size = float(np.abs(ecdf - rank).max())
            lower, upper = np.append(lower, 1.0), np.append(upper, 1.0)  # all ranks lie below 1
            outside = (ecdf < lower) | (ecdf > upper)
            reach = float((upper - lower)[:-1].max()) / 2
            found = curve_status(bool(outside.any()), reach, n, size=size, tolerance=QUESTIONS["shape"])
            self.lights.append(Light("shape", h, found, n, size))
            for j in range(bins):
                row = {"horizon": h, "rank": rank[j], "n": n, "share": share[j], "ecdf": ecdf[j], "outside": bool(outside[j])}
                row |= {"share_lower": max(share_lower[j], 0.0), "share_upper": share_upper[j]}
                rows.append(row | {"band_lower": lower[j], "band_upper": upper[j]})
        return rows

    def reliability(self) -> Rows:
        rows: Rows = []
        for event in EVENTS:
            for h, case in self.cases.items():
                frame, probability = case.frame, 1 - self.share / len(self.cases)
                happened, drawn = frame[event].to_numpy(), frame[f"{event}_paths"].to_numpy()
                n = len(frame)
                if n < self.min_cell:
                    self.lights.append(Light(event, h, "unclear"))
                    continue
                curve = reliability_curve(
                    drawn,
                    frame[f"{event}_first"].to_numpy(),
                    case.paths,
                    happened,
                    least=self.min_cell,
                    calibrated_on=self._mapped_on(h),
                    replicates=_replicates(probability),
                    rng=self._rng(event, h),
                )
                lower, upper = (np.clip(limit, 0, 1) for limit in simultaneous_band(curve.chance, probability))
                outside = (curve.observed < lower) | (curve.observed > upper)
                reach = float(np.average(upper - lower, weights=curve.n)) / 2
                size, tolerance = curve.error, QUESTIONS[event]
                found = curve_status(bool(outside.any()), reach, n, size=size, tolerance=tolerance)
                # What neither happened nor was forecast cannot have been forecast wrongly or rightly.
                found = found if happened.any() or drawn.any() else "unclear"
                self.lights.append(Light(event, h, found, n, size))
                for j in range(len(curve.n)):
                    row = {"event": event, "horizon": h, "forecast": curve.forecast[j], "observed": curve.observed[j], "n": int(curve.n[j])}
                    rows.append(row | {"band_lower": lower[j], "band_upper": upper[j], "outside": bool(outside[j])})
        return rows

    def widths(self) -> Rows:
        rows: Rows = []
        for h, case in self.cases.items():
            for (grouping, group), rows_of in self.cells[h].items():
                part = None if rows_of is None else case.frame[rows_of]
                for level in self.levels:
                    row: dict[str, Any] = {"horizon": h, "grouping": grouping, "group": group, "level": level}
                    if part is not None:
                        row |= self._width(part, level_name(level))
                    rows.append(row)
        return rows

    def _width(self, part: pl.DataFrame, name: str) -> dict[str, Any]:
        given = part.filter(pl.col(f"width_{name}").is_not_null())
        if given.height < self.min_cell:
            return {}
        return {
            "n": given.height,
            "width": middle(given[f"width_{name}"].to_numpy()),
            "typical": middle(given["median"].to_numpy()),
            "with_zero": given[f"with_zero_{name}"].mean(),
            "without": 1 - given.height / part.height,
        }

    def scores(self) -> Rows:
        rows: Rows = []
        for h, case in self.cases.items():
            frame, n = case.frame, case.frame.height
            if n < self.min_cell:
                continue
            y, crps = frame["log_y"].to_numpy(), frame["crps"].to_numpy()
            parts: dict[str, tuple[Array, Decomposition | None]] = {
                "crps_log": (crps, decompose_crps(float(crps.mean()), case.below, case.paths, y, case.thresholds))
            }
            for level in QUANTILES:
                name = level_name(level)
                parts[f"pinball_{name}_log"] = (
                    frame[f"pinball_{name}"].to_numpy(),
                    decompose_pinball(frame[f"q_{name}"].to_numpy(), y, level),
                )
            for event in EVENTS:
                drawn, happened = frame[f"{event}_paths"].to_numpy(), frame[event].to_numpy()
                parts[f"brier_{event}"] = ((drawn / case.paths - happened) ** 2, decompose_brier(drawn, case.paths, happened))
            parts["logscore"] = (frame["logscore"].to_numpy(), None)
            for score, (each, split) in parts.items():
                row = {"horizon": h, "score": score, "value": float(each.mean()), "se": float(each.std(ddof=1) / math.sqrt(n)), "n": n}
                if split is not None:
                    row |= {
                        "value": split.score,
                        "recalibrated": split.score - split.miscalibration,
                        "miscalibration": split.miscalibration,
                        "discrimination": split.discrimination,
                        "uncertainty": split.uncertainty,
                    }
                rows.append(row)
        return rows

    def level(self) -> Rows:
        rows: Rows = []
        # Two figures a horizon: the mean error and the slope.
        z = float(stats.norm.ppf(1 - self.share / (2 * len(self.cases)) / 2))
        for h, case in self.cases.items():
            frame, n = case.frame, case.frame.height
            forecast, outcome, noise = (frame[name].to_numpy() for name in ("mean_log", "log_y", "noise"))
            found = mincer_zarnowitz(forecast, outcome, noise, self._mapped_on(h)) if n >= self.min_cell else None
            if found is None:
                self.lights.append(Light("level", h, "unclear"))
                continue
            error, slope = z * found.mean_error_se, z * found.slope_se
            tolerance = QUESTIONS["level"]
            by_error = status(found.mean_error, -error, error, n, target=0, tolerance=tolerance)
            by_slope = status(found.slope, 1 - slope, 1 + slope, n, target=1, tolerance=2 * tolerance)
            light = worst(
                [Light("level", h, by_error, n, found.mean_error), Light("level", h, by_slope, n, found.slope - 1, group="slope")]
            )
            self.lights.append(light)
            row = {"horizon": h, "n": n, "mean_error": found.mean_error, "error_lower": -error, "error_upper": error}
            row |= {"mean_forecast": rounded(float(frame["mean"].mean())), "mean_outcome": rounded(float(frame["y"].mean()))}  # type: ignore[arg-type]
            row |= {"intercept": found.intercept, "slope": found.slope, "slope_lower": 1 - slope, "slope_upper": 1 + slope}
            rows.append(row | {"status": light.status})
        return rows

    def drift(self) -> Rows:
        """Coverage of the 90 % (or highest) intervals by the year of the outcome; years are joined until a period has 100 persons."""
        level = 0.9 if 0.9 in self.levels else self.levels[-1]
        name = level_name(level)
        given = {h: case.frame.filter(pl.col(f"inside_{name}").is_not_null()) for h, case in self.cases.items()}
        periods = {h: _periods(frame["year"], max(PERIOD, self.min_cell)) for h, frame in given.items()}
        alarm = self.share / max(1, sum(len(found) for found in periods.values()))
        rows: Rows = []
        for h, frame in given.items():
            lights = [Light("drift", h, "unclear")] if frame.height < self.min_cell else []
            for first, last in periods[h] if frame.height >= self.min_cell else []:
                inside = frame.filter(pl.col("year").is_between(first, last))[f"inside_{name}"]
                n, share = len(inside), float(inside.cast(pl.Float64).mean())  # type: ignore[arg-type]
                lower, upper = coverage_band(level, n, self._calibrated_on(h), probability=1 - alarm)
                found = status(share, lower, upper, n, target=level, tolerance=QUESTIONS["drift"], too_much_is_mild=True)
                rows.append(
                    {"horizon": h, "first_year": first, "last_year": last, "n": n, "inside": share}
                    | {"band_lower": lower, "band_upper": upper, "status": found}
                )
                when = str(first) if first == last else f"{first}-{last}"
                lights.append(Light("drift", h, found, n, share - level, level, when))
            self.lights.append(worst(lights))
        return rows

    def _count(self, case: Judged) -> int | None:
        return case.frame.height if case.frame.height >= self.min_cell else None

    def _rng(self, *key: str | int) -> np.random.Generator:
        place = uniform_each(["/".join(map(str, key))], "diagnostics", self.seed)[0]
        return np.random.default_rng(int(place * 2**53))


def _replicates(probability: float) -> int:
    """Enough draws of chance for a band of this probability."""
    return max(1_999, math.ceil(4 / (1 - probability)))


def _cells(frame: pl.DataFrame, groups: pl.DataFrame | None, min_cell: int) -> dict[tuple[str, str], Array | None]:
    """(grouping, group) -> the rows of its persons, everybody first; None where too few persons are in it to be shown."""
    everybody = np.arange(frame.height)
    cells: dict[tuple[str, str], Array | None] = {(ALL, ALL): everybody if frame.height >= min_cell else None}
    if groups is None:
        return cells
    joined = frame.select("person_id").join(groups, on="person_id", how="left", maintain_order="left")
    for grouping in (name for name in groups.columns if name != "person_id"):
        labels = np.array(joined[grouping].fill_null("").to_list(), dtype=np.str_)
        counts = {str(label): int(n) for label, n in zip(*np.unique(labels, return_counts=True), strict=True)}
        named = sorted(label for label in counts if label)
        if len(named) < 2:
            continue  # the same persons as everybody
        shown = publishable(counts, min_cell)
        cells |= {(grouping, label): np.flatnonzero(labels == label) if label in shown else None for label in named}
    return cells


def _periods(years: pl.Series, least: int) -> list[tuple[int, int]]:
    """Consecutive years joined until each period has `least` persons; a rest that is too small joins the period before it."""
    periods: list[tuple[int, int]] = []
    first, held = None, 0
    for year, n in years.alias("year").value_counts().sort("year").iter_rows():
        first, held = year if first is None else first, held + n
        if held >= least:
            periods.append((first, year))
            first, held = None, 0
    if first is not None:
        start = periods.pop()[0] if periods else first
        periods.append((start, int(years.max())))  # type: ignore[arg-type]
    return periods


def middle(values: Array, neighbours: int = 10) -> float:
    """The median as the average of the ten (or all) values around it, to three digits: no single person's value."""
    ordered = np.sort(values)
    start = max(0, len(ordered) // 2 - neighbours // 2)
    return rounded(float(ordered[start : start + neighbours].mean()))
