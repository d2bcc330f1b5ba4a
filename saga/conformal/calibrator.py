"""The calibrator: recalibrates simulated paths and gives their prediction sets.

`calibration` fits it. Two steps apply at each horizon, both in probability space. First, the map R
of the person's cell, fitted on the persons of the map fold, replaces the forecast F by R(F). Every
path keeps its rank (ensemble copula coupling: Schefzik, Thorarinsdottir and Gneiting 2013), so the
dependence between years does not change. Second, a threshold, fitted on the persons of the
threshold fold, chooses from a nested family of sets (`saga.conformal.prediction_sets`) the one that
has the stated coverage. A person's cell is the smallest one with enough persons; overlapping groups
shift its threshold.
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
from saga.conformal.quantile_intervals import conformalised_intervals
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

ALL = "all"  # the group of all persons
# Groupings whose groups may have cells; the first one that has a cell for the person is used.
MONDRIAN = ("profile", "quintile")
THRESHOLD_KINDS: tuple[ThresholdKind, ...] = (
    "positive",
    "at_least",
    "at_most",
    "band",
    "present_value",
)
# With fewer persons, rounding makes a threshold noticeably larger. The report warns of this,
# and groups have no cells.
MIN_CELL_PERSONS = 1_000

REASONS: dict[str, str] = {
    "finite-sample": "Holds in finite samples: these persons were drawn like the calibration "
    "persons, in the same years.",
    "assumption": "Holds if this person is exchangeable with the calibration persons and "
    "conditions have not changed since then.",
    "extrapolated": "Not guaranteed: no outcome was observed this far ahead, or none for paths "
    "simulated in this way (another rollout, a scenario). The nearest threshold is used.",
    "none": "No interval: there are too few calibration persons or too few paths, the person is "
    "past age 64, or the calibration method has no interval of this kind.",
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
    """Whether groups shift the threshold of a cell.

    Not if the cell is a profile: such records lack the columns that define most groups.
    """
    return not cell.startswith("profile=")


def reason(guarantee: str, cell: str = ALL) -> str:
    """What stands behind an interval with this `guarantee`, calibrated on persons of `cell`."""
    if cell in ("", ALL) or guarantee == "none":
        return REASONS[guarantee]
    return f"{REASONS[guarantee]} Calibrated on persons with {cell.replace('=', ' ')}."


@dataclass(frozen=True, eq=False)
class Intervals:
    """Prediction sets: [lower, upper] of positive amounts, and {0} if `includes_zero`.

    Arrays (n, H, L) in real SEK, one L per `coverage`. `lower` and `upper` are NaN if `guarantee`
    is "none", and 0 if the set is {0} alone. `cell` (n, H) names the persons whose outcomes were
    used: "all", a group such as "quintile=2", or "" without interval.
    """

    coverage: tuple[float, ...]
    lower: Array
    upper: Array
    includes_zero: NDArray[np.bool_]
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]

    def covered(self, outcomes: Array) -> Array:
        """Whether each outcome (n, H) is in its set, 1 or 0 (n, H, L); NaN if either is missing."""
        return covered(outcomes[:, :, None], self.lower, self.upper, self.includes_zero)


@dataclass(frozen=True, eq=False)
class PersonThresholds:
    """Thresholds of persons at one horizon.

    `q` (n, L) is for the calibrator's coverage and does not decrease with it, NaN without
    threshold; `guarantee` (n, L); `cell` (n,) is the cell's name; `atom_width` (n,) is explained in
    `saga.conformal.prediction_sets`.
    """

    q: Array
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]
    atom_width: Array


@dataclass(frozen=True)
class KindThresholds:
    """Thresholds of one kind at one horizon.

    `thresholds` maps (number of paths, coverage) to q, fitted on `n` persons of the threshold fold;
    None if they are too few.
    """

    thresholds: Mapping[tuple[int, float], float | None]
    n: int


@dataclass(frozen=True, eq=False)
class Calibrator:
    """Cells and thresholds of a calibration.

    Args:
        cells: Cell by horizon and group.
        scale: Scale of the sets, t = log(earnings + scale), SEK.
        shifts: (horizon, coverage) -> group, such as "sex=female" -> shift of the cell's threshold.
        thresholds_of_kind: Thresholds of one-sided limits, intervals given positive earnings, path
            bands and present values, by kind and horizon (or number of years).
        band_scales: Horizon -> knots and values of the map that makes scores of all horizons
            comparable, for path bands.
        grouping: How persons are grouped; None if the calibration has no groups.
        extrapolated: Whether paths are simulated differently from those of the calibration (another
            rollout, a scenario). No guarantee is then better than "extrapolated".
        drift: (horizon, coverage) -> root mean square deviation of coverage over past origin years,
            and the number of those years.
        method: With "cqr" thresholds are SEK added to both quantiles
            (`saga.conformal.quantile_intervals`), cells are those of all persons, and other fields
            are empty.
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
        """A calibrator that does not change paths and gives no intervals."""
        return cls({})

    @cached_property
    def coverage(self) -> tuple[float, ...]:
        """Coverage for which thresholds were fitted, ascending."""
        return tuple(
            sorted({share for cell in self.cells.values() for _, share in cell.thresholds})
        )

    @cached_property
    def path_counts(self) -> tuple[int, ...]:
        """Numbers of paths for which thresholds were fitted, ascending."""
        return tuple(sorted({m for cell in self.cells.values() for m, _ in cell.thresholds}))

    @property
    def has_sets(self) -> bool:
        """Whether there are thresholds of nested sets, as ledgers and path bands need."""
        return self.method == "sets" and bool(self.coverage)

    @property
    def furthest_horizons(self) -> dict[float, int]:
        """Coverage -> furthest horizon with a threshold fitted on all persons; 0 without one."""
        fitted = [
            (share, h)
            for (h, group), cell in self.cells.items()
            if group == ALL
            for (_, share), q in cell.thresholds.items()
            if q is not None
        ]
        return {
            coverage: max((h for share, h in fitted if share == coverage), default=0)
            for coverage in self.coverage
        }

    def fitted_path_count(self, n_paths: int) -> int | None:
        """The fitted number of paths used for `n_paths`: the largest that is not above it.

        Fewer paths make noisier sets, which need a larger q. Coverage is therefore at least as
        stated. With fewer paths than the smallest fitted number there is no threshold: None.
        """
        return max((fitted for fitted in self.path_counts if fitted <= n_paths), default=None)

    def map_cell(self, horizon: int, *groups: str) -> Cell | None:
        """The cell whose map applies at a horizon, or None.

        It is the cell of the first of `groups` (default ALL) that has a map, at the horizon or else
        at the nearest shorter one.
        """
        for h in range(horizon, 0, -1):
            for group in groups or (ALL,):
                cell = self.cells.get((h, group))
                if cell is not None and cell.has_map:
                    return cell
        return None

    def cell_threshold(
        self, horizon: int, coverage: float, n_paths: int, groups: Sequence[str] = (ALL,)
    ) -> tuple[float | None, Guarantee, tuple[int, str] | None]:
        """The threshold for sets from `n_paths` paths, its guarantee, and the key of its cell.

        The cell is that of the first of `groups` with a threshold. Beyond the horizons with
        outcomes, the longest shorter horizon is used and the guarantee is "extrapolated".
        """
        fitted = self.fitted_path_count(n_paths)
        if fitted is None:
            return None, "none", None
        for h in range(horizon, 0, -1):
            keys = [
                (h, group)
                for group in groups
                if (h, group) in self.cells and self.cells[h, group].n_threshold > 0
            ]
            for key in keys:
                q = self.cells[key].thresholds.get((fitted, coverage))
                if q is not None:
                    return q, self._guarantee(h == horizon), key
            if keys and h == horizon:
                return None, "none", None
        return None, "none", None

    def _guarantee(self, observed: bool) -> Guarantee:
        return "assumption" if observed and not self.extrapolated else "extrapolated"

    def candidate_cells(self, paths: Paths) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
        """Row numbers of persons by the groups whose cells may apply, the preferred one first."""
        grouped = {group for _, group in self.cells} != {ALL}
        names = [name for name in MONDRIAN if name in paths.groups] if grouped else []
        if not names or not len(paths):
            return [((ALL,), np.arange(len(paths)))]
        combinations, index = np.unique(
            np.stack([paths.groups[name] for name in names], axis=1), axis=0, return_inverse=True
        )
        return [
            (
                (*(f"{name}={label}" for name, label in zip(names, labels, strict=True)), ALL),
                np.flatnonzero(index.ravel() == i),
            )
            for i, labels in enumerate(combinations.tolist())
        ]

    def person_thresholds(self, paths: Paths, horizon: int) -> PersonThresholds:
        """Each person's threshold at `horizon`: that of the cell plus the shifts of the groups.

        Raises UsageError if the calibration has no nested sets.
        """
        if self.method != "sets":
            problem = Problem(
                "calibration-method",
                f"its method is {self.method}",
                "Calibrate the bundle with `saga calibrate --method sets`.",
            )
            raise UsageError("The bundle's calibration has no nested sets", [problem])
        shape = (len(paths), len(self.coverage))
        q, guarantee = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        cell, width = np.full(len(paths), "", dtype=object), np.full(len(paths), np.nan)
        for groups, rows in self.candidate_cells(paths):
            highest, members = np.full(len(rows), -np.inf), members_of(paths.groups, rows)
            for j, coverage in enumerate(self.coverage):
                cell_q, cell_guarantee, key = self.cell_threshold(
                    horizon, coverage, paths.n_paths, groups
                )
                if cell_q is None or key is None:
                    continue
                shift = self.shift(members, key[0], coverage) if is_shifted(key[1]) else 0.0
                highest = np.maximum(highest, cell_q + shift)
                q[rows, j], guarantee[rows, j] = highest, cell_guarantee
                cell[rows], width[rows] = key[1], self.cells[key].atom_width
        return PersonThresholds(q, guarantee, cell.astype(np.str_), width)

    def shift(self, members: Members, horizon: int, coverage: float) -> Array | float:
        """Sum of the shifts of the groups of some persons, one number each; 0 without shifts."""
        effects = self.shifts.get((horizon, coverage), {})
        total: Array | float = 0.0
        for name, labels, index in members if effects else ():
            by_label = np.array([effects.get(f"{name}={label}", 0.0) for label in labels])
            total = total + by_label[index]
        return total

    def nested_thresholds(
        self, kind: ThresholdKind, horizon: int, n_paths: int
    ) -> tuple[Array, list[Guarantee]]:
        """Thresholds (L,) of one kind for all coverage, not decreasing, and their guarantees.

        `horizon` is a number of years for path bands and present values. If a horizon has outcomes,
        but too few, there is no threshold. A present value is then extrapolated, because there is
        no other interval for it.
        """
        q, guarantees = np.full(len(self.coverage), np.nan), list[Guarantee]()
        highest, fitted = -np.inf, self.fitted_path_count(n_paths)
        for j, coverage in enumerate(self.coverage):
            guarantee: Guarantee = "none"
            for h in range(horizon, 0, -1):
                at_horizon = self.thresholds_of_kind.get((kind, h))
                if at_horizon is None:
                    continue
                threshold = (
                    None if fitted is None else at_horizon.thresholds.get((fitted, coverage))
                )
                if threshold is not None:
                    q[j] = highest = max(highest, threshold)
                    guarantee = self._guarantee(h == horizon)
                    break
                if at_horizon.n > 0 and h == horizon and kind != "present_value":
                    break
            guarantees.append(guarantee)
        return q, guarantees

    def coverage_columns(self, coverage: Sequence[float]) -> list[int | None]:
        """Index of each of `coverage` among the fitted ones; all None without calibration.

        Raises UsageError if no threshold was fitted for one of them.
        """
        unknown = [share for share in coverage if self.coverage and share not in self.coverage]
        if unknown:
            fix = "Use one of " + ", ".join(f"{share:g}" for share in self.coverage) + "."
            problem = f"coverage {unknown[0]:g} was not calibrated"
            raise UsageError(
                "no threshold for this coverage",
                [Problem("coverage-level", problem, fix, "coverage")],
            )
        return [self.coverage.index(share) if self.coverage else None for share in coverage]

    def recalibrate(self, paths: Paths) -> Paths:
        """The paths under the recalibrated forecasts; every path keeps its rank.

        Zeros are ranked by the path's total earnings, then by its number. The result is
        deterministic and, bit for bit, independent of the other persons.
        """
        paths.require_raw()
        if not any(cell.has_map for cell in self.cells.values()):
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
        """Sorted samples (n, M) at `horizon` after the maps of the persons' cells, sorted."""
        mapped = ordered.copy()
        for groups, rows in self.candidate_cells(paths):
            cell = self.map_cell(horizon, *groups)
            if cell is not None:
                mapped[rows] = map_ordered(ordered[rows], cell)
        return mapped

    def intervals(self, paths: Paths, coverage: Sequence[float]) -> Intervals:
        """Prediction sets of recalibrated `paths` for each of `coverage`, nested.

        Raises UsageError if no threshold was fitted for one of them. Without calibration every
        guarantee is "none".
        """
        paths.require_recalibrated()
        columns = self.coverage_columns(coverage)
        if self.method == "cqr":
            return self._quantile_intervals(paths, coverage)
        shape = (len(paths), paths.n_horizons, len(coverage))
        lower, upper = np.full(shape, np.nan), np.full(shape, np.nan)
        zero, guarantee = np.zeros(shape, dtype=np.bool_), np.full(shape, "none", dtype="<U13")
        cell = np.full(shape[:2], "", dtype=object)
        for h in range(paths.n_horizons if self.coverage else 0):
            thresholds = self.person_thresholds(paths, h + 1)
            in_range = ~np.isnan(paths.earnings[:, h]).any(axis=1)
            rows = np.flatnonzero(in_range & ~np.isnan(thresholds.atom_width))
            if not len(rows):
                continue
            growth = grow(np.sort(paths.earnings[rows, h], axis=1), self.scale)
            sets = growth.with_atom(thresholds.atom_width[rows])
            cell[rows, h] = thresholds.cell[rows]
            for index, column in enumerate(columns):
                q = thresholds.q[rows, column]
                has_threshold = ~np.isnan(q)
                for values, end in zip((lower, upper, zero), sets.set_at(q), strict=True):
                    values[rows[has_threshold], h, index] = end[has_threshold]
                guarantee[rows, h, index] = thresholds.guarantee[rows, column]
        return Intervals(tuple(coverage), lower, upper, zero, guarantee, cell.astype(np.str_))

    def _quantile_intervals(self, paths: Paths, coverage: Sequence[float]) -> Intervals:
        fitted = self.fitted_path_count(paths.n_paths)
        lower, upper = np.full((2, len(paths), paths.n_horizons, len(coverage)), np.nan)
        for h in range(paths.n_horizons):
            cell = self.cells.get((h + 1, ALL))
            rows = np.flatnonzero(~np.isnan(paths.earnings[:, h]).any(axis=1))
            if cell is None or fitted is None or not len(rows):
                continue
            q = np.array([cell.thresholds[fitted, share] for share in self.coverage], np.float64)
            ends = conformalised_intervals(paths.earnings[rows, h], q, self.coverage)
            for index, share in enumerate(coverage):
                j = self.coverage.index(share)
                if not np.isnan(q[j]):
                    lower[rows, h, index], upper[rows, h, index] = (end[:, j] for end in ends)
        has_interval = ~np.isnan(lower)
        guarantee = np.where(has_interval, self._guarantee(True), "none").astype("<U13")
        cells = np.where(has_interval.any(axis=2), ALL, "").astype(np.str_)
        zero = has_interval & (lower <= 0)
        return Intervals(tuple(coverage), lower, upper, zero, guarantee, cells)

    def to_table(self) -> pl.DataFrame:
        """The content of the bundle's `calibration.parquet`; it has only averages over persons.

        With method "cqr" there is one kind, "cqr": q at `level` for quantiles of `knot` paths, from
        `n` persons. Otherwise the kinds are: "scale" (value); "cut" (limits of quintiles, see
        `saga.data.groups`); "map" (R at `knot` is `value`); "atom_width" (value); "threshold" (q at
        coverage `level` for sets from `knot` paths, null if there are too few persons); "shift"
        (what `group` adds at `level`); "stretch" (a score `knot` at a horizon counts as `value` in
        path bands); those of THRESHOLD_KINDS (q, as in "threshold"); "drift" (deviation of coverage
        at `level`, `n` origin years). `split` names the fold of the `n` persons: "A" is the map
        fold, "B" the threshold fold.
        """
        rows: list[_Row] = []
        if self.method == "cqr":
            rows += [
                ("cqr", horizon, group, share, m, cell.thresholds[m, share], cell.n_threshold, "AB")
                for (horizon, group), cell in sorted(self.cells.items())
                for m, share in sorted(cell.thresholds)
            ]
            return pl.DataFrame(rows, schema=SCHEMA, orient="row")
        if self.cells:
            rows.append(("scale", None, ALL, None, None, self.scale, None, None))
        if self.grouping is not None:
            rows += self.grouping.rows()
        for (horizon, group), cell in sorted(self.cells.items()):
            rows += [
                ("map", horizon, group, None, k, v, cell.n_map, "A")
                for k, v in zip(cell.knots, cell.values, strict=True)
            ]
            rows.append(
                ("atom_width", horizon, group, None, None, cell.atom_width, cell.n_map, "A")
            )
            rows += [
                (
                    "threshold",
                    horizon,
                    group,
                    share,
                    m,
                    cell.thresholds[m, share],
                    cell.n_threshold,
                    "B",
                )
                for m, share in sorted(cell.thresholds)
            ]
        for (horizon, share), effects in sorted(self.shifts.items()):
            rows += [
                ("shift", horizon, group, share, None, value, None, "A")
                for group, value in sorted(effects.items())
            ]
        for horizon, (knots, values) in sorted(self.band_scales.items()):
            rows += [
                ("stretch", horizon, ALL, None, k, v, None, "A")
                for k, v in zip(knots, values, strict=True)
            ]
        for (kind, horizon), fitted in sorted(self.thresholds_of_kind.items()):
            rows += [
                (kind, horizon, ALL, share, m, fitted.thresholds[m, share], fitted.n, "B")
                for m, share in sorted(fitted.thresholds)
            ]
        rows += [
            ("drift", horizon, ALL, share, None, deviation, n_years, "B")
            for (horizon, share), (deviation, n_years) in sorted(self.drift.items())
        ]
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> Calibrator:
        """The calibrator that `to_table` wrote.

        Earlier versions wrote kinds that are no longer used ("weight", "unsupported", and "cqr" in
        addition to the sets); they are skipped. Raises BundleError if the table has other columns
        or lacks a part.
        """
        if dict(table.schema) != SCHEMA:
            raise BundleError(
                "the calibration table does not have its columns",
                [Problem("calibration-form", f"expected {list(SCHEMA)}", "Calibrate again.")],
            )
        if calibration_method(table) == "cqr":
            return cls(_cqr_cells(table), method="cqr")
        cells = _read_cells(table)
        if not cells:
            return cls({})
        shifts: dict[tuple[int, float], dict[str, float]] = {}
        for horizon, share, group, value in (
            _of_kind(table, "shift").select("horizon", "level", "group", "value").iter_rows()
        ):
            shifts.setdefault((horizon, share), {})[group] = value
        by_kind = _of_kind(table, *THRESHOLD_KINDS).group_by("kind", "horizon", maintain_order=True)
        by_horizon = _of_kind(table, "stretch").group_by("horizon", maintain_order=True)
        drift = _of_kind(table, "drift").select("horizon", "level", "value", "n")
        return cls(
            cells,
            float(_of_kind(table, "scale")["value"][0]),
            shifts,
            {
                (str(kind), int(str(horizon))): KindThresholds(_thresholds(part), int(part["n"][0]))
                for (kind, horizon), part in by_kind
            },
            {
                int(str(horizon)): (part["knot"].to_numpy(), part["value"].to_numpy())
                for (horizon,), part in by_horizon
            },
            Grouping.from_rows(_of_kind(table, "cut")),
            drift={
                (horizon, share): (deviation, n_years)
                for horizon, share, deviation, n_years in drift.iter_rows()
            },
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the table's exact values; the provenance of every output has it."""
        text = "\n".join(
            "\t".join(value.hex() if isinstance(value, float) else str(value) for value in row)
            for row in self.to_table().iter_rows()
        )
        return hashlib.sha256(text.encode()).hexdigest()


_Row = tuple[str, int | None, str, float | None, float | None, float | None, int | None, str | None]


def calibration_method(table: pl.DataFrame | None) -> CalibrationMethod | None:
    """The method of a calibration table, None without a table.

    A table of nested sets that an earlier version wrote may have "cqr" rows too.
    """
    if table is None:
        return None
    return "cqr" if set(table["kind"]) == {"cqr"} else "sets"


def members_of(groups: Labels, rows: NDArray[np.int64]) -> Members:
    """Groupings and their pairs, the distinct labels in `rows`, and each row's label index."""
    labels_by_grouping = pair_groupings({name: labels[rows] for name, labels in groups.items()})
    members = []
    for name, labels in labels_by_grouping.items():
        distinct, index = np.unique(labels, return_inverse=True)
        members.append((name, distinct.tolist(), index))
    return members


def _of_kind(table: pl.DataFrame, *kinds: str) -> pl.DataFrame:
    return table.filter(pl.col("kind").is_in(kinds))


def _thresholds(rows: pl.DataFrame) -> dict[tuple[int, float], float | None]:
    columns = rows.select("knot", "level", "value")
    return {(int(m), share): q for m, share, q in columns.iter_rows()}


def _read_cells(table: pl.DataFrame) -> dict[tuple[int, str], Cell]:
    cells: dict[tuple[int, str], Cell] = {}
    in_cells = _of_kind(table, "map", "atom_width", "threshold")
    has_scale = len(_of_kind(table, "scale")) > 0
    for (horizon, group), part in in_cells.group_by("horizon", "group", maintain_order=True):
        kinds = {str(kind): rows for (kind,), rows in part.group_by("kind", maintain_order=True)}
        if "atom_width" not in kinds or "threshold" not in kinds or not has_scale:
            problem = Problem(
                "calibration-form", f"horizon {horizon} lacks a part", "Calibrate again."
            )
            raise BundleError("the calibration table is incomplete", [problem])
        knots = kinds.get("map", part.clear())
        cells[int(str(horizon)), str(group)] = Cell(
            knots["knot"].to_numpy(),
            knots["value"].to_numpy(),
            int(kinds["atom_width"]["n"][0]),
            float(kinds["atom_width"]["value"][0]),
            _thresholds(kinds["threshold"]),
            int(kinds["threshold"]["n"][0]),
        )
    return cells


def _cqr_cells(rows: pl.DataFrame) -> dict[tuple[int, str], Cell]:
    return {
        (int(str(horizon)), str(group)): Cell(
            np.empty(0), np.empty(0), 0, np.nan, _thresholds(part), int(part["n"][0])
        )
        for (horizon, group), part in rows.group_by("horizon", "group", maintain_order=True)
    }
