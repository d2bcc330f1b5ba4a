"""The conformal layer, applied: what `calibration` fitted turns simulated paths into calibrated paths and published sets.

Two steps at each horizon, both in probability space. The map R of the person's cell, from persons of half A, replaces the forecast F by
R(F): every path moves along its own rank (ensemble copula coupling, Schefzik, Thorarinsdottir and Gneiting 2013), so joint paths survive.
The threshold, from persons of half B, picks from a nested family of sets the one that holds what it promises. See `saga.conformal.prediction_sets` for the
family. A person's cell is the smallest of theirs that had persons enough; overlapping groups shift the threshold within it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.conformal.prediction_sets import grow
from saga.conformal.quantile_intervals import quantile_intervals
from saga.conformal.recalibration import Cell, map_ordered
from saga.data.groups import Grouping, Labels, pair_groupings
from saga.errors import BundleError, Problem, UsageError
from saga.paths import Paths
from saga.requests import CalibrationMethod
from saga.scores import covered

Array = NDArray[np.float64]
Members = list[tuple[str, list[str], NDArray[np.int64]]]
Guarantee = Literal["finite-sample", "assumption", "extrapolated", "none"]
ThresholdKind = Literal["positive", "at_least", "at_most", "band", "present_value"]

ALL = "all"  # the group of everybody
MONDRIAN = (
    "profile",
    "quintile",
)  # groupings with cells of their own, the first that has one serves
THRESHOLD_KINDS: tuple[ThresholdKind, ...] = (
    "positive",
    "at_least",
    "at_most",
    "band",
    "present_value",
)
MIN_CELL_PERSONS = 1_000  # below this many persons a threshold is noticeably rounded outward: the report says so, and no group has a cell of its own

REASONS: dict[str, str] = {
    "finite-sample": "Holds in finite samples: the persons judged were drawn like the calibration persons, in the same years.",
    "assumption": "Holds if this person is exchangeable with the calibration persons and their world has not drifted since.",
    "extrapolated": "Unguaranteed: no outcome was observed this far ahead, or none of paths drawn this way (another rollout, a scenario); "
    "the nearest threshold serves.",
    "none": "No interval: no or too few calibration persons, too few paths, or the person is past age 64.",
}

SCHEMA: dict[str, pl.DataType] = {
    "kind": pl.String(),
    "horizon": pl.Int32(),
    "group": pl.String(),
    "level": pl.Float64(),
    "knot": pl.Float64(),
    "value": pl.Float64(),
    "n": pl.Int64(),
    "split": pl.String(),
}


def is_shifted(cell: str) -> bool:
    """Whether groups shift the threshold of a cell: not that of a kind of record, which lacks what most groups are told by."""
    return not cell.startswith("profile=")


def reason(guarantee: str, cell: str = ALL) -> str:
    """One plain sentence on what stands behind an interval with this `guarantee`, and of which `cell` the persons were."""
    named = (
        ""
        if cell in ("", ALL) or guarantee == "none"
        else f" Calibrated on persons with {cell.replace('=', ' ')}."
    )
    return REASONS[guarantee] + named


@dataclass(frozen=True, eq=False)
class Intervals:
    """Published sets {0} (where `includes_zero`) and [lower, upper] of positive amounts: arrays (n, H, L), L the levels, real SEK.

    `lower` and `upper` are NaN where `guarantee` is "none", and both 0 where the set is {0} alone. `cell` (n, H) names the persons whose
    outcomes the thresholds rest on: "all", or a group such as "quintile=2"; "" without interval.
    """

    coverage: tuple[float, ...]
    lower: Array
    upper: Array
    includes_zero: NDArray[np.bool_]
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]

    def covered(self, outcomes: Array) -> Array:
        """1 or 0, shape (n, H, L), whether each outcome (n, H) lies in its set; NaN without outcome or interval."""
        return covered(outcomes[:, :, None], self.lower, self.upper, self.includes_zero)


@dataclass(frozen=True, eq=False)
class PersonThresholds:
    """What each person is served at one horizon: `q` (n, L) at the calibrator's levels, nested over them, NaN where there is none.

    `guarantee` (n, L); `cell` (n,) its name; `atom_width` (n,), see `saga.conformal.prediction_sets`.
    """

    q: Array
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]
    atom_width: Array


@dataclass(frozen=True)
class KindThresholds:
    """Thresholds of one kind of limit at one horizon: (number of paths, level) -> q from `n` persons of half B, None where too few."""

    thresholds: Mapping[tuple[int, float], float | None]
    n: int


@dataclass(frozen=True, eq=False)
class Calibrator:
    """All cells, with the scale of the sets (t = log(earnings + scale)).

    `shifts`: (horizon, level) -> what being in a group, such as "sex=female", adds to the threshold of the cells of half B. `limits`: the
    thresholds of one-sided limits, intervals given positive earnings, bands of K years and present values of K years, by kind and horizon
    (or K). `stretches`: horizon -> knots and values that put scores of all horizons on one scale, for bands. `grouping`: how persons are
    grouped, None where the calibration knows no groups. `elsewhere`: the paths are not drawn as those of the calibration were (another
    rollout, a scenario), and nothing beyond "extrapolated" is promised. `drift`: (horizon, coverage) -> root mean square deviation of
    coverage over past origin years, and the number of those years. `method`: under "cqr" the thresholds are SEK to add to both quantiles
    (`saga.conformal.quantile_intervals`), the cells are those of everybody, and there is nothing else.
    """

    cells: Mapping[tuple[int, str], Cell]
    scale: float = 1.0
    shifts: Mapping[tuple[int, float], Mapping[str, float]] = field(default_factory=dict)
    thresholds_of_kind: Mapping[tuple[str, int], KindThresholds] = field(default_factory=dict)
    band_scales: Mapping[int, tuple[Array, Array]] = field(default_factory=dict)
    grouping: Grouping | None = None
    extrapolated: bool = False
    drift: Mapping[tuple[int, float], tuple[float, int]] = field(default_factory=dict)
    method: CalibrationMethod = "sets"

    @classmethod
    def identity(cls) -> Calibrator:
        """No calibration: paths stay as they are, and no interval is given."""
        return cls({})

    @cached_property
    def coverage(self) -> tuple[float, ...]:
        """Coverage levels that thresholds were fitted for, ascending."""
        return tuple(
            sorted({level for cell in self.cells.values() for _, level in cell.thresholds})
        )

    @cached_property
    def path_counts(self) -> tuple[int, ...]:
        """Numbers of paths that thresholds were fitted for, ascending."""
        return tuple(
            sorted({count for cell in self.cells.values() for count, _ in cell.thresholds})
        )

    @property
    def has_sets(self) -> bool:
        """Whether there are thresholds of nested sets, which ledgers, path bands and present values need."""
        return self.method == "sets" and bool(self.coverage)

    @property
    def furthest_horizons(self) -> dict[float, int]:
        """Level -> the furthest horizon with an interval for everybody that rests on outcomes; 0: none, too few persons."""
        own = [
            (level, h)
            for (h, group), cell in self.cells.items()
            if group == ALL
            for (_, level), q in cell.thresholds.items()
            if q is not None
        ]
        return {
            level: max((h for at, h in own if at == level), default=0) for level in self.coverage
        }

    def fitted_path_count(self, count: int) -> int | None:
        """The fitted number of paths that serves `count`: the largest not above it.

        Fewer paths make noisier sets, which need a larger q, so that sets hold at least what they promise; below the fewest none does.
        """
        return max((fitted for fitted in self.path_counts if fitted <= count), default=None)

    def map_cell(self, horizon: int, *groups: str) -> Cell | None:
        """The cell whose map serves a horizon: of the first of `groups` (ALL) that has one, else of the nearest shorter one; or None."""
        for h in range(horizon, 0, -1):
            for group in groups or (ALL,):
                cell = self.cells.get((h, group))
                if cell is not None and cell.mapped:
                    return cell
        return None

    def cell_threshold(
        self, horizon: int, level: float, count: int, *groups: str
    ) -> tuple[float | None, Guarantee, Cell | None]:
        """The threshold for sets from `count` paths, what it promises, and the cell that it is from: of the first of `groups` (ALL).

        Where some cell has seen outcomes, one of those answers; beyond, the longest shorter horizon with a threshold, "extrapolated".
        """
        q, promise, place = self._threshold(horizon, level, count, groups or (ALL,))
        return q, promise, None if place is None else self.cells[place]

    def _threshold(
        self, horizon: int, level: float, count: int, groups: tuple[str, ...]
    ) -> tuple[float | None, Guarantee, tuple[int, str] | None]:
        fitted = self.fitted_path_count(count)
        if fitted is None:
            return None, "none", None
        for h in range(horizon, 0, -1):
            own = [
                (h, group)
                for group in groups
                if (h, group) in self.cells and self.cells[h, group].n > 0
            ]
            for place in own:
                q = self.cells[place].thresholds.get((fitted, level))
                if q is not None:
                    return q, self._guarantee(h == horizon), place
            if own and h == horizon:
                return None, "none", None
        return None, "none", None

    def _guarantee(self, observed: bool) -> Guarantee:
        return "assumption" if observed and not self.extrapolated else "extrapolated"

    def candidate_cells(self, paths: Paths) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
        """Persons (row numbers) by the groups whose cells may serve them, the preferred one first."""
        grouped = {group for _, group in self.cells} != {ALL}
        names = [name for name in MONDRIAN if name in paths.groups] if grouped else []
        if not names or not len(paths):
            return [((ALL,), np.arange(len(paths)))]
        kinds, kind = np.unique(
            np.stack([paths.groups[name] for name in names], axis=1), axis=0, return_inverse=True
        )
        return [
            (
                (*(f"{name}={label}" for name, label in zip(names, labels, strict=True)), ALL),
                np.flatnonzero(kind.ravel() == i),
            )
            for i, labels in enumerate(kinds.tolist())
        ]

    def person_thresholds(self, paths: Paths, horizon: int) -> PersonThresholds:
        """What everybody of `paths` is served at `horizon`: threshold of the cell plus the shifts of the person's groups, made nested.

        Raises UsageError for a calibration without nested sets.
        """
        if self.method != "sets":
            problem = Problem(
                "calibration-method",
                f"its method is {self.method}",
                "Calibrate the bundle with `saga calibrate --method sets`.",
            )
            raise UsageError("The bundle's calibration has no nested sets", [problem])
        n, count = len(paths), len(self.coverage)
        q, guarantee = np.full((n, count), np.nan), np.full((n, count), "none", dtype="<U13")
        cell, width = np.full(n, "", dtype=object), np.full(n, np.nan)
        for groups, rows in self.candidate_cells(paths):
            highest, members = np.full(len(rows), -np.inf), members_of(paths.groups, rows)
            for j, level in enumerate(self.coverage):
                own, promise, place = self._threshold(horizon, level, paths.n_paths, groups)
                if own is None or place is None:
                    continue
                shift = self.shift(members, place[0], level) if is_shifted(place[1]) else 0.0
                highest = np.maximum(highest, own + shift)
                q[rows, j], guarantee[rows, j] = highest, promise
                cell[rows], width[rows] = place[1], self.cells[place].atom_width
        return PersonThresholds(q, guarantee, cell.astype(np.str_), width)

    def shift(self, members: Members, horizon: int, level: float) -> Array | float:
        """What the groups of some persons add to the threshold of their cell, one number each; 0 where nothing is known of groups."""
        effects = self.shifts.get((horizon, level), {})
        total: Array | float = 0.0
        for name, labels, which in members if effects else ():
            total = (
                total + np.array([effects.get(f"{name}={label}", 0.0) for label in labels])[which]
            )
        return total

    def nested_thresholds(
        self, kind: ThresholdKind, horizon: int, count: int
    ) -> tuple[Array, list[Guarantee]]:
        """Thresholds (L,) of one kind at a horizon (or number of years) for `count` paths at all `levels`, nested, and their promises.

        Where the horizon has seen too few outcomes there is none; but a present value, which has no other interval, is extrapolated.
        """
        q, promises, highest = np.full(len(self.coverage), np.nan), list[Guarantee](), -np.inf
        fitted = self.fitted_path_count(count)
        for j, level in enumerate(self.coverage):
            promise: Guarantee = "none"
            for h in range(horizon, 0, -1):
                cuts = self.thresholds_of_kind.get((kind, h))
                own = (
                    cuts.thresholds.get((fitted, level))
                    if cuts is not None and fitted is not None
                    else None
                )
                if own is not None:
                    q[j] = highest = max(highest, own)
                    promise = self._guarantee(h == horizon)
                if own is not None or (
                    cuts is not None and cuts.n > 0 and h == horizon and kind != "present_value"
                ):
                    break
            promises.append(promise)
        return q, promises

    def coverage_columns(self, levels: Sequence[float]) -> list[int | None]:
        """Where each of `levels` is among the fitted ones; all None without calibration. Raises UsageError for one that was not fitted."""
        unknown = [level for level in levels if self.coverage and level not in self.coverage]
        if unknown:
            fix = "Use one of " + ", ".join(f"{level:g}" for level in self.coverage) + "."
            raise UsageError(
                "no threshold for this coverage",
                [
                    Problem(
                        "coverage-level",
                        f"coverage {unknown[0]:g} was not calibrated",
                        fix,
                        "coverage",
                    )
                ],
            )
        return [self.coverage.index(level) if self.coverage else None for level in levels]

    def recalibrate(self, paths: Paths) -> Paths:
        """The paths under the recalibrated forecasts, ranks kept; zeros are ranked by the path's total earnings, then by its number.

        Deterministic and, bit for bit, independent of the other persons of the call.
        """
        paths.require_raw()
        if not any(cell.mapped for cell in self.cells.values()):
            return replace(paths, recalibrated=True)
        total = np.zeros((len(paths), paths.n_paths))
        for h in range(paths.n_horizons):
            total += np.nan_to_num(paths.earnings[:, h])
        by_total = np.argsort(total, axis=1, kind="stable")
        result = paths.earnings.copy()
        for h in range(paths.n_horizons):
            values = np.take_along_axis(paths.earnings[:, h], by_total, axis=1)
            order = np.argsort(values, axis=1, kind="stable")
            mapped = self.map_samples(paths, h + 1, np.take_along_axis(values, order, axis=1))
            np.put_along_axis(
                result[:, h], np.take_along_axis(by_total, order, axis=1), mapped, axis=1
            )
        return replace(paths, earnings=result, recalibrated=True)

    def map_samples(
        self, paths: Paths, horizon: int, ordered: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Sorted samples (n, M) of everybody of `paths` at `horizon` under the maps of their cells, sorted."""
        mapped = ordered.copy()
        for groups, rows in self.candidate_cells(paths):
            cell = self.map_cell(horizon, *groups)
            if cell is not None:
                mapped[rows] = map_ordered(ordered[rows], cell)
        return mapped

    def intervals(self, paths: Paths, levels: Sequence[float]) -> Intervals:
        """Published sets of recalibrated `paths` at each of `levels`; nested over levels.

        Raises UsageError for a level that no threshold was fitted for. Without calibration every guarantee is "none".
        """
        paths.require_recalibrated()
        columns = self.coverage_columns(levels)
        if self.method == "cqr":
            return self._quantile_intervals(paths, levels)
        shape = (len(paths), paths.n_horizons, len(levels))
        lower, upper = np.full(shape, np.nan), np.full(shape, np.nan)
        zero, guarantee = np.zeros(shape, dtype=np.bool_), np.full(shape, "none", dtype="<U13")
        cell = np.full(shape[:2], "", dtype=object)
        for h in range(paths.n_horizons if self.coverage else 0):
            served = self.person_thresholds(paths, h + 1)
            alive = np.flatnonzero(
                ~np.isnan(paths.earnings[:, h]).any(axis=1) & ~np.isnan(served.atom_width)
            )
            if not len(alive):
                continue
            family = grow(np.sort(paths.earnings[alive, h], axis=1), self.scale).with_atom(
                served.atom_width[alive]
            )
            cell[alive, h] = served.cell[alive]
            for index, column in enumerate(columns):
                given = ~np.isnan(served.q[alive, column])
                ends = family.at(served.q[alive, column])
                for values, end in zip((lower, upper, zero), ends, strict=True):
                    values[alive[given], h, index] = end[given]
                guarantee[alive, h, index] = served.guarantee[alive, column]
        return Intervals(tuple(levels), lower, upper, zero, guarantee, cell.astype(np.str_))

    def _quantile_intervals(self, paths: Paths, levels: Sequence[float]) -> Intervals:
        fitted = self.fitted_path_count(paths.n_paths)
        lower, upper = np.full((2, len(paths), paths.n_horizons, len(levels)), np.nan)
        for h in range(paths.n_horizons):
            cell = self.cells.get((h + 1, ALL))
            alive = np.flatnonzero(~np.isnan(paths.earnings[:, h]).any(axis=1))
            if cell is None or fitted is None or not len(alive):
                continue
            q = np.array([cell.thresholds[fitted, level] for level in self.coverage], np.float64)
            ends = quantile_intervals(paths.earnings[alive, h], q, self.coverage)
            for index, level in enumerate(levels):
                j = self.coverage.index(level)
                if not np.isnan(q[j]):
                    lower[alive, h, index], upper[alive, h, index] = (end[:, j] for end in ends)
        given = ~np.isnan(lower)
        guarantee = np.where(given, self._guarantee(True), "none").astype("<U13")
        cells = np.where(given.any(axis=2), ALL, "").astype(np.str_)
        return Intervals(tuple(levels), lower, upper, given & (lower <= 0), guarantee, cells)

    def to_table(self) -> pl.DataFrame:
        """The `calibration.parquet` of the bundle: averages over persons only, no single person's value.

        With method "cqr" there is one kind, "cqr": q at `level` for quantiles of `knot` paths, from `n` persons. Otherwise the
        kinds: "scale" (value); "cut" (quintile cut-offs, see `saga.data.groups`); "map" (R at `knot` is `value`); "atom_width" (value);
        "threshold" (q at `level` for sets from `knot` paths, null where too few persons); "shift" (what `group` adds at `level`);
        "stretch" (score `knot` at a horizon counts as `value` in bands); the kinds of THRESHOLD_KINDS (q, as in "threshold"); "drift"
        (deviation of coverage at `level`, `n` origin years). `n` counts persons of the half named in `split`.
        """
        rows: list[
            tuple[
                str,
                int | None,
                str,
                float | None,
                float | None,
                float | None,
                int | None,
                str | None,
            ]
        ] = []
        if self.method == "cqr":
            rows += [
                ("cqr", horizon, group, level, m, cell.thresholds[m, level], cell.n, "AB")
                for (horizon, group), cell in sorted(self.cells.items())
                for m, level in sorted(cell.thresholds)
            ]
            return pl.DataFrame(rows, schema=SCHEMA, orient="row")
        if self.cells:
            rows.append(("scale", None, ALL, None, None, self.scale, None, None))
        if self.grouping is not None:
            rows += self.grouping.rows()
        for (horizon, group), cell in sorted(self.cells.items()):
            rows += [
                ("map", horizon, group, None, k, v, cell.map_n, "A")
                for k, v in zip(cell.knots, cell.values, strict=True)
            ]
            rows.append(
                ("atom_width", horizon, group, None, None, cell.atom_width, cell.map_n, "A")
            )
            rows += [
                ("threshold", horizon, group, level, m, cell.thresholds[m, level], cell.n, "B")
                for m, level in sorted(cell.thresholds)
            ]
        for (horizon, level), effects in sorted(self.shifts.items()):
            rows += [
                ("shift", horizon, group, level, None, value, None, "A")
                for group, value in sorted(effects.items())
            ]
        for horizon, (knots, values) in sorted(self.band_scales.items()):
            rows += [
                ("stretch", horizon, ALL, None, k, v, None, "A")
                for k, v in zip(knots, values, strict=True)
            ]
        for (kind, horizon), cuts in sorted(self.thresholds_of_kind.items()):
            rows += [
                (kind, horizon, ALL, level, m, cuts.thresholds[m, level], cuts.n, "B")
                for m, level in sorted(cuts.thresholds)
            ]
        rows += [
            ("drift", horizon, ALL, level, None, deviation, n_years, "B")
            for (horizon, level), (deviation, n_years) in sorted(self.drift.items())
        ]
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> Calibrator:
        """The calibrator that `to_table` wrote. Raises BundleError when the table has other columns or lacks a part.

        Earlier versions wrote kinds that nothing reads ("weight", "unsupported", and "cqr" beside the sets): they are skipped.
        """
        if dict(table.schema) != SCHEMA:
            raise BundleError(
                "the calibration table does not have its columns",
                [Problem("calibration-form", f"expected {list(SCHEMA)}", "Calibrate again.")],
            )
        if calibration_method(table) == "cqr":
            return cls(_cqr_cells(table), method="cqr")
        scale = table.filter(pl.col("kind") == "scale")["value"]
        cells: dict[tuple[int, str], Cell] = {}
        in_cells = table.filter(pl.col("kind").is_in(["map", "atom_width", "threshold"]))
        for (horizon, group), part in in_cells.group_by("horizon", "group", maintain_order=True):
            kinds = {str(kind): sub for (kind,), sub in part.group_by("kind", maintain_order=True)}
            if "atom_width" not in kinds or "threshold" not in kinds or not len(scale):
                raise BundleError(
                    "the calibration table is incomplete",
                    [
                        Problem(
                            "calibration-form",
                            f"horizon {horizon} lacks a part",
                            "Calibrate again.",
                        )
                    ],
                )
            knots = kinds.get("map", part.clear())
            cells[int(str(horizon)), str(group)] = Cell(
                knots["knot"].to_numpy(),
                knots["value"].to_numpy(),
                int(kinds["atom_width"]["n"][0]),
                float(kinds["atom_width"]["value"][0]),
                _by_count_and_level(kinds["threshold"]),
                int(kinds["threshold"]["n"][0]),
            )
        if not cells:
            return cls({})
        shifts: dict[tuple[int, float], dict[str, float]] = {}
        for horizon, level, group, value in (
            _of(table, "shift").select("horizon", "level", "group", "value").iter_rows()
        ):
            shifts.setdefault((horizon, level), {})[group] = value
        limits = {
            (str(kind), int(str(horizon))): KindThresholds(
                _by_count_and_level(part), int(part["n"][0])
            )
            for (kind, horizon), part in table.filter(
                pl.col("kind").is_in(THRESHOLD_KINDS)
            ).group_by("kind", "horizon", maintain_order=True)
        }
        stretches = {
            int(str(horizon)): (part["knot"].to_numpy(), part["value"].to_numpy())
            for (horizon,), part in _of(table, "stretch").group_by("horizon", maintain_order=True)
        }
        return cls(
            cells,
            float(scale[0]),
            shifts,
            limits,
            stretches,
            Grouping.from_rows(_of(table, "cut")),
            drift={
                (horizon, level): (deviation, n_years)
                for horizon, level, deviation, n_years in _of(table, "drift")
                .select("horizon", "level", "value", "n")
                .iter_rows()
            },
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the table's exact values: names the calibration in every output's provenance."""
        text = "\n".join(
            "\t".join(value.hex() if isinstance(value, float) else str(value) for value in row)
            for row in self.to_table().iter_rows()
        )
        return hashlib.sha256(text.encode()).hexdigest()


def calibration_method(table: pl.DataFrame | None) -> CalibrationMethod | None:
    """The method of a calibration table, None without one.

    A table of nested sets written by an earlier version may hold "cqr" rows too.
    """
    if table is None:
        return None
    return "cqr" if set(table["kind"]) == {"cqr"} else "sets"


def members_of(groups: Labels, rows: NDArray[np.int64]) -> Members:
    """Grouping (pairs among them), its distinct labels among `rows`, and which of them each row has."""
    own = pair_groupings({name: labels[rows] for name, labels in groups.items()})
    found = ((name, np.unique(labels, return_inverse=True)) for name, labels in own.items())
    return [(name, distinct.tolist(), which) for name, (distinct, which) in found]


def _of(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    return rows.filter(pl.col("kind") == kind)


def _by_count_and_level(rows: pl.DataFrame) -> dict[tuple[int, float], float | None]:
    return {(int(m), level): q for m, level, q in rows.select("knot", "level", "value").iter_rows()}


def _cqr_cells(rows: pl.DataFrame) -> dict[tuple[int, str], Cell]:
    return {
        (int(str(horizon)), str(group)): Cell(
            np.empty(0), np.empty(0), 0, np.nan, _by_count_and_level(part), int(part["n"][0])
        )
        for (horizon, group), part in rows.group_by("horizon", "group", maintain_order=True)
    }
