"""The conformal layer, applied: what `calibration` fitted turns simulated paths into calibrated paths and published sets.

Two steps per cell (horizon x group), both in probability space. The map R_h, from persons of half A, replaces the forecast F by R_h(F):
every path moves along its own rank (ensemble copula coupling, Schefzik, Thorarinsdottir and Gneiting 2013), so joint paths survive. The
threshold q_h, from persons of half B, picks from a nested family of sets the one that holds what it promises. See `saga.sets` for the
family.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.errors import BundleError, Problem, UsageError
from saga.paths import Paths
from saga.scores import covered
from saga.sets import NestedSets, grow

Array = NDArray[np.float64]
Guarantee = Literal["finite-sample", "assumption", "extrapolated", "none"]

ALL = "all"  # the group of everybody
FEW = 1_000  # below this many persons a cell's threshold is noticeably rounded outward: flagged

REASONS: dict[str, str] = {
    "finite-sample": "Holds in finite samples: the persons judged were drawn like the calibration persons, in the same years.",
    "assumption": "Holds if this person is exchangeable with the calibration persons and their world has not drifted since.",
    "extrapolated": "No outcome has been observed this far ahead: the threshold of the longest observed horizon serves, unguaranteed.",
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


def reason(guarantee: str) -> str:
    """One plain sentence on what stands behind an interval with this `guarantee`."""
    return REASONS[guarantee]


@dataclass(frozen=True, eq=False)
class Cell:
    """What one cell learnt.

    `knots` and `values` (K,): R as a piecewise linear map of [0, 1] onto itself, empty where half A (`map_n` persons) was too small.
    `thresholds`: (number of paths, level) -> q from half B (`n` persons), None where it was too small. `atom_width`: see `saga.sets`.
    """

    knots: Array
    values: Array
    map_n: int
    atom_width: float
    thresholds: Mapping[tuple[int, float], float | None]
    n: int

    @property
    def mapped(self) -> bool:
        """Whether the cell has a map of its own."""
        return len(self.knots) > 0


def calibrate_probability(u: Array, cell: Cell) -> Array:
    """R(u), same shape: the calibrated probability of a forecast probability."""
    return np.interp(u, cell.knots, cell.values) if cell.mapped else u


def map_ordered(ordered: NDArray[np.float32], cell: Cell) -> NDArray[np.float32]:
    """Sorted samples (n, M) of F -> sorted samples of R(F), float32.

    The r-th smallest becomes Q(R^-1(r / (M + 1))); Q runs through (i / (M + 1), i-th smallest), straight in logs between neighbours, with
    exponential tails in logs beyond the ends (`_tail_slope`). The atom stays an atom: with z > 0 zeros its mass R((z + 1/2) / (M + 1))
    decides how many values become exactly 0.
    """
    if not cell.mapped:
        return ordered
    m = ordered.shape[1]
    place = np.interp(np.arange(1, m + 1) / (m + 1), cell.values, cell.knots) * (m + 1)
    nearest = np.round(place)
    place = np.where(np.abs(place - nearest) < 1e-9, nearest, place)  # the identity map then gives back the very same numbers
    below = np.floor(place).astype(np.int64)
    share = place - below
    low = ordered[:, np.clip(below, 1, m) - 1]
    high = ordered[:, np.clip(below + 1, 1, m) - 1]
    low = np.where(low == 0, high, low)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(ordered.astype(np.float64))
        log_low, log_high = logs[:, np.clip(below, 1, m) - 1], logs[:, np.clip(below + 1, 1, m) - 1]
        between = np.exp((1 - share) * log_low + share * log_high).astype(np.float32)
        over, under = place > m, place < 1
        between[:, over] = np.exp(logs[:, -1:] - _tail_slope(logs) * np.log(m + 1 - place[over]))
        between[:, under] = np.exp(logs[:, :1] + _tail_slope(-logs[:, ::-1]) * np.log(place[under]))
    mapped = np.where((share == 0) | ((low == high) & ~over & ~under), low, between)
    zeros = (ordered == 0).sum(axis=1)
    return np.where((place <= zeros[:, None] + 0.5) & (zeros > 0)[:, None], np.float32(0), mapped)


def _tail_slope(logs: Array) -> Array:
    # Hill's (1975) estimate from the top tenth, shape (n, 1), at most that of a Pareto index of 1.5; 0 where zeros reach into that tenth.
    k = max(2, logs.shape[1] // 10)
    if logs.shape[1] <= k:
        return np.zeros((len(logs), 1))
    slope = logs[:, -k:].mean(axis=1, keepdims=True) - logs[:, -k - 1 : -k]
    return np.where(np.isfinite(slope), np.minimum(slope, 1 / 1.5), 0.0)


@dataclass(frozen=True, eq=False)
class Intervals:
    """Published sets {0} (where `includes_zero`) and [lower, upper] of positive amounts: arrays (n, H, L), L the levels, real SEK.

    `lower` and `upper` are NaN where `guarantee` is "none", and both 0 where the set is {0} alone.
    """

    levels: tuple[float, ...]
    lower: Array
    upper: Array
    includes_zero: NDArray[np.bool_]
    guarantee: NDArray[np.str_]

    def covered(self, outcomes: Array) -> Array:
        """1 or 0, shape (n, H, L), whether each outcome (n, H) lies in its set; NaN without outcome or interval."""
        return covered(outcomes[:, :, None], self.lower, self.upper, self.includes_zero)


@dataclass(frozen=True, eq=False)
class Calibrator:
    """All cells, with the scale of the sets (t = log(earnings + scale)).

    `extra` holds rows of the calibration table that others own (the CQR baseline); they are kept through `to_table` and `from_table`.
    """

    cells: Mapping[tuple[int, str], Cell]
    scale: float = 24_150.0
    extra: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SCHEMA))

    @classmethod
    def identity(cls) -> Calibrator:
        """No calibration: paths stay as they are, and no interval is given."""
        return cls({})

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """Coverage levels that thresholds were fitted for, ascending."""
        return tuple(sorted({level for cell in self.cells.values() for _, level in cell.thresholds}))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Numbers of paths that thresholds were fitted for, ascending."""
        return tuple(sorted({count for cell in self.cells.values() for count, _ in cell.thresholds}))

    def map_cell(self, horizon: int, group: str = ALL) -> Cell | None:
        """The cell whose map serves a horizon: its own, else that of the nearest shorter one, else None (no change)."""
        found = [h for (h, g), cell in self.cells.items() if g == group and h <= horizon and cell.mapped]
        return self.cells[max(found), group] if found else None

    def threshold(self, horizon: int, level: float, count: int, group: str = ALL) -> tuple[float | None, Guarantee, Cell | None]:
        """The threshold for sets from `count` paths, what it promises, and the cell that it is from.

        A cell that has seen outcomes answers for itself; beyond, the longest shorter horizon with a threshold answers, "extrapolated".
        Fewer paths make noisier sets, which need a larger q: the one fitted for the most paths not above `count` serves, so that sets
        hold at least what they promise; below the fewest none does.
        """
        fewer = [fitted for fitted in self.counts if fitted <= count]
        if not fewer:
            return None, "none", None
        key = (max(fewer), level)
        own = self.cells.get((horizon, group))
        if own is not None and own.n > 0:
            q = own.thresholds.get(key)
            return (None, "none", None) if q is None else (q, "assumption", own)
        found = [h for (h, g), cell in self.cells.items() if g == group and h < horizon and cell.thresholds.get(key) is not None]
        if not found:
            return None, "none", None
        cell = self.cells[max(found), group]
        return cell.thresholds[key], "extrapolated", cell

    def thin_cells(self) -> list[tuple[int, str]]:
        """Cells with intervals from fewer than 1,000 persons, whose outward rounding over-covers noticeably."""
        return [key for key, cell in sorted(self.cells.items()) if cell.n < FEW and any(q is not None for q in cell.thresholds.values())]

    def recalibrate(self, paths: Paths) -> Paths:
        """The paths under the recalibrated forecasts, ranks kept; zeros are ranked by the path's total earnings, then by its number.

        Deterministic and, bit for bit, independent of the other persons of the call.
        """
        served = [self.map_cell(h) for h in range(1, paths.horizons + 1)]
        if not any(served):
            return paths
        total = np.zeros((len(paths), paths.count))
        for h in range(paths.horizons):
            total += np.nan_to_num(paths.earnings[:, h])
        by_total = np.argsort(total, axis=1, kind="stable")
        result = paths.earnings.copy()
        for h, cell in enumerate(served):
            if cell is None:
                continue
            values = np.take_along_axis(paths.earnings[:, h], by_total, axis=1)
            order = np.argsort(values, axis=1, kind="stable")
            mapped = map_ordered(np.take_along_axis(values, order, axis=1), cell)
            np.put_along_axis(result[:, h], np.take_along_axis(by_total, order, axis=1), mapped, axis=1)
        return paths.with_earnings(result)

    def intervals(self, paths: Paths, levels: Sequence[float]) -> Intervals:
        """Published sets of recalibrated `paths` at each of `levels`; nested over levels.

        Raises UsageError for a level that no threshold was fitted for. Without calibration every guarantee is "none".
        """
        unknown = [level for level in levels if self.levels and level not in self.levels]
        if unknown:
            fix = "Use one of " + ", ".join(f"{level:g}" for level in self.levels) + ", or calibrate for it."
            raise UsageError(
                "no threshold for this coverage",
                [Problem("coverage-level", f"coverage {unknown[0]:g} was not calibrated", fix, "coverage")],
            )
        shape = (len(paths), paths.horizons, len(levels))
        lower, upper = np.full(shape, np.nan), np.full(shape, np.nan)
        zero, guarantee = np.zeros(shape, dtype=np.bool_), np.full(shape, "none", dtype="<U13")
        for h in range(paths.horizons):
            found = [self.threshold(h + 1, level, paths.count) for level in levels]
            if all(q is None for q, _, _ in found):
                continue
            alive = np.flatnonzero(~np.isnan(paths.earnings[:, h]).any(axis=1))
            growth = grow(np.sort(paths.earnings[alive, h], axis=1), self.scale)
            families: dict[float, NestedSets] = {}
            for index, (q, promise, cell) in enumerate(found):
                if q is None or cell is None:
                    continue
                family = families.setdefault(cell.atom_width, growth.with_atom(cell.atom_width))
                lower[alive, h, index], upper[alive, h, index], zero[alive, h, index] = family.at(q)
                guarantee[alive, h, index] = promise
        return Intervals(tuple(levels), lower, upper, zero, guarantee)

    def to_table(self) -> pl.DataFrame:
        """The `calibration.parquet` of the bundle: averages over persons only, no single person's value.

        Kinds: "scale" (value); "map" (R at `knot` is `value`); "atom_width" (value); "threshold" (q at `level` for sets from `knot` paths,
        null where too few persons); and what `extra` holds. `n` counts persons of the half named in `split`.
        """
        rows: list[tuple[str, int | None, str, float | None, float | None, float | None, int | None, str | None]] = []
        if self.cells:
            rows.append(("scale", None, ALL, None, None, self.scale, None, None))
        for (horizon, group), cell in sorted(self.cells.items()):
            rows += [("map", horizon, group, None, k, v, cell.map_n, "A") for k, v in zip(cell.knots, cell.values, strict=True)]
            rows.append(("atom_width", horizon, group, None, None, cell.atom_width, cell.map_n, "A"))
            rows += [
                ("threshold", horizon, group, level, m, cell.thresholds[m, level], cell.n, "B") for m, level in sorted(cell.thresholds)
            ]
        return pl.concat([pl.DataFrame(rows, schema=SCHEMA, orient="row"), self.extra])

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> Calibrator:
        """The calibrator that `to_table` wrote. Raises BundleError when the table has other columns or lacks a part."""
        if dict(table.schema) != SCHEMA:
            raise BundleError(
                "the calibration table does not have its columns",
                [Problem("calibration-form", f"expected {list(SCHEMA)}", "Calibrate again.")],
            )
        own = table["kind"].is_in(["scale", "map", "atom_width", "threshold"])
        extra, rows = table.filter(~own), table.filter(own)
        scale = rows.filter(pl.col("kind") == "scale")["value"]
        cells: dict[tuple[int, str], Cell] = {}
        for (horizon, group), part in rows.filter(pl.col("horizon").is_not_null()).group_by("horizon", "group", maintain_order=True):
            kinds = {str(kind): sub for (kind,), sub in part.group_by("kind", maintain_order=True)}
            if "atom_width" not in kinds or "threshold" not in kinds or not len(scale):
                raise BundleError(
                    "the calibration table is incomplete",
                    [Problem("calibration-form", f"horizon {horizon} lacks a part", "Calibrate again.")],
                )
            knots = kinds.get("map", part.clear())
            cells[int(str(horizon)), str(group)] = Cell(
                knots["knot"].to_numpy(),
                knots["value"].to_numpy(),
                int(kinds["atom_width"]["n"][0]),
                float(kinds["atom_width"]["value"][0]),
                {(int(m), level): q for m, level, q in kinds["threshold"].select("knot", "level", "value").iter_rows()},
                int(kinds["threshold"]["n"][0]),
            )
        if not cells:
            return cls({}, extra=extra)
        return cls(cells, scale=float(scale[0]), extra=extra)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the table's exact values: names the calibration in every output's provenance."""
        text = "\n".join(
            "\t".join(value.hex() if isinstance(value, float) else str(value) for value in row) for row in self.to_table().iter_rows()
        )
        return hashlib.sha256(text.encode()).hexdigest()
