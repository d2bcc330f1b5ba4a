"""The calibration table: everything that a calibration has fitted, as `calibration.parquet`.

Every figure is an average over persons. Each row is of one kind; unused columns are null.

- "cut": limits of the quintiles, see `saga.data.groups`.
- "map": the map R of a cell is `value` at `knot`.
- "threshold": `value` is q for coverage `level`; null if there were too few persons.
- "shift": `value` is added to q for the persons of `group`, at coverage `level`.
- "stretch": a score of `knot` at a horizon counts as `value` in path bands.
- the kinds of `saga.conformal.families.FAMILIES`: as "threshold", for all persons; present values
  are those of `knot` paths.
- "origin_years": the persons of the cell have outcomes from `n` distinct origin years.
- "drift": `value` is the deviation of coverage `level` in `n` past origin years.
- "cqr": as "threshold", in money; the only other kind if the method is "cqr".
- "fold": `value` scores of the fold `split` are at or above `knot`, for sets of coverage `level` or
  for another kind of limit (`group`); the only other kind if the method is "cv+".

Elsewhere `n` is the number of persons, and `split` their fold: "A" is the map fold, "B" the
threshold fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.conformal.cross_fitted import FoldCounts
from saga.conformal.families import FAMILIES, YEAR
from saga.conformal.families.quantile_intervals import QUANTILE_INTERVALS
from saga.conformal.families.set_family import KindThresholds
from saga.conformal.recalibration import Cell
from saga.data.groups import Grouping
from saga.requests import CalibrationMethod
from saga.schema import N_AGES

if TYPE_CHECKING:
    from saga.conformal.calibrator import Calibrator

_Row = tuple[str, int | None, str, float | None, float | None, float | None, int | None, str | None]
_Part = Mapping[str, list[Any]]  # the columns of the rows with one kind, horizon and group

ALL = "all"  # the group of all persons
FOLD = "fold"  # the kind of rows with fold counts
ORIGIN_YEARS, DRIFT = "origin_years", "drift"
OF_YEARS = (ORIGIN_YEARS, DRIFT)  # kinds of rows whose `n` is a number of years, not of persons
# Family of the sets of a year -> the kind of the rows of its thresholds, and their fold.
_CELL_ROWS = {YEAR: ("threshold", "B"), QUANTILE_INTERVALS: ("cqr", "AB")}
_CELL_KINDS = [kind for kind, _ in _CELL_ROWS.values()]
_MAPS = ["map", "stretch"]
# The columns that a row of each kind needs.
_OF_THRESHOLDS = ("horizon", "group", "level", "n")
_NEEDED = {
    "cut": ("group", "level", "knot", "value", "n"),
    "map": ("horizon", "group", "knot", "value", "n"),
    "stretch": ("horizon", "group", "knot", "value"),
    "shift": ("horizon", "group", "level", "value"),
    **dict.fromkeys((*_CELL_KINDS, *FAMILIES), _OF_THRESHOLDS),
    ORIGIN_YEARS: ("horizon", "group", "n"),
    DRIFT: ("horizon", "level", "value", "n"),
    FOLD: ("horizon", "group", "n", "split"),
}
METHODS: dict[CalibrationMethod, str] = {
    "sets": "prediction sets from recalibrated forecasts, thresholds by group",
    "cqr": "conformalised quantile regression, one threshold per horizon for everybody",
    "cv+": "cross-fitted prediction sets, from members that have not seen the person",
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


def table_of(calibrator: Calibrator) -> pl.DataFrame:
    """The calibration table of a calibrator."""
    rows: list[_Row] = [] if calibrator.grouping is None else list(calibrator.grouping.rows())
    kind, fold = _CELL_ROWS[calibrator.year]
    for key, cell in sorted(calibrator.cells.items()):
        rows += _map_rows("map", key, cell.knots, cell.values, cell.n_map)
        fitted = KindThresholds(cell.thresholds, cell.n_threshold)
        rows += _threshold_rows(kind, key, fitted, fold)
    for (horizon, coverage), effects in sorted(calibrator.shifts.items()):
        rows += [
            ("shift", horizon, group, coverage, None, value, None, "A")
            for group, value in sorted(effects.items())
        ]
    for horizon, (knots, values) in sorted(calibrator.band_scales.items()):
        rows += _map_rows("stretch", (horizon, ALL), knots, values, None)
    for (kind, horizon), fitted in sorted(calibrator.thresholds_of_kind.items()):
        rows += _threshold_rows(kind, (horizon, ALL), fitted, "B")
    rows += [
        (ORIGIN_YEARS, horizon, group, None, None, None, n_years, None)
        for (horizon, group), n_years in sorted(calibrator.origin_years.items())
    ]
    rows += [
        (DRIFT, horizon, ALL, coverage, None, deviation, n_years, "B")
        for (horizon, coverage), (deviation, n_years) in sorted(calibrator.drift.items())
    ]
    for fold_key, counts in sorted(calibrator.fold_counts.items()):
        rows += _fold_rows(fold_key, counts)
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def read_parts(table: pl.DataFrame) -> dict[str, Any]:
    """The arguments of the calibrator whose table this is.

    Rows of unknown kinds are skipped. Raises ValueError if the table has other columns or values,
    or lacks a part.
    """
    _check_values(table)
    # Lists of values, because a thousand small tables would take longer than the forecast.
    by = ("kind", "horizon", "group")
    of_cells = table.filter(pl.col("kind").is_in([*_MAPS, *_CELL_KINDS, *FAMILIES]))
    grouped = of_cells.group_by(by, maintain_order=True).agg("level", "knot", "value", "n")
    parts: dict[tuple[Any, ...], _Part] = {
        tuple(row.pop(name) for name in by): row for row in grouped.iter_rows(named=True)
    }
    shifts: dict[tuple[int, float], dict[str, float]] = {}
    for horizon, coverage, group, value in (
        _of_kind(table, "shift").select("horizon", "level", "group", "value").iter_rows()
    ):
        shifts.setdefault((horizon, coverage), {})[group] = value
    drift = _of_kind(table, DRIFT).select("horizon", "level", "value", "n")
    folds = _of_kind(table, FOLD).with_columns(pl.col("level").fill_null(0.0))
    by_fold_key = folds.partition_by("group", "horizon", "level", as_dict=True)
    return {
        "cells": _read_cells(parts),
        "shifts": shifts,
        "thresholds_of_kind": {
            (kind, horizon): _read_thresholds(part)
            for (kind, horizon, _), part in parts.items()
            if kind in FAMILIES
        },
        "band_scales": {
            horizon: _read_map(part)
            for (kind, horizon, _), part in parts.items()
            if kind == "stretch"
        },
        "grouping": Grouping.from_rows(_of_kind(table, "cut")),
        "origin_years": {
            (h, group): n
            for h, group, n in _of_kind(table, ORIGIN_YEARS)
            .select("horizon", "group", "n")
            .iter_rows()
        },
        "drift": {(h, coverage): (value, n) for h, coverage, value, n in drift.iter_rows()},
        "year": QUANTILE_INTERVALS if calibration_method(table) == "cqr" else YEAR,
        "fold_counts": {key: _read_fold_counts(part) for key, part in by_fold_key.items()},
    }


def _check_values(table: pl.DataFrame) -> None:
    """Raise ValueError if a column, a value that is needed or the range of one is wrong."""
    if dict(table.schema) != SCHEMA:
        raise ValueError(f"its columns are not {', '.join(SCHEMA)}, or of other types")
    for row in table.group_by("kind").agg(pl.all().null_count()).iter_rows(named=True):
        if lacking := [name for name in _NEEDED.get(row["kind"], ()) if row[name]]:
            raise ValueError(f"a row of kind {row['kind']} lacks its {lacking[0]}")
    broken = table.select(
        ~pl.col("horizon").is_between(1, N_AGES),
        ~pl.col("level").is_between(0, 1),
        pl.col("n") < 0,
        pl.col("knot", "value").is_nan(),
    )
    for column in broken.select(pl.all().any()):
        if column.item():
            raise ValueError(f"a {column.name} is out of its range")


def _read_map(rows: _Part) -> tuple[Floats, Floats]:
    """Knots and values (K,) of a map of shares to shares, which increases."""
    ends = np.array([rows["knot"], rows["value"]])
    if (np.diff(ends) < 0).any() or ends.min() < 0 or ends.max() > 1:
        raise ValueError("a map is not one of shares to shares that increases")
    return ends[0], ends[1]


def calibration_method(table: pl.DataFrame | None) -> CalibrationMethod | None:
    """The method of a calibration table, None without a table."""
    if table is None:
        return None
    kinds = set(table["kind"].unique())
    methods: dict[str, CalibrationMethod] = {"cqr": "cqr", FOLD: "cv+"}
    return next((methods[kind] for kind in methods if kind in kinds), "sets")


def _map_rows(
    kind: str, cell: tuple[int, str], knots: Floats, values: Floats, n: int | None
) -> list[_Row]:
    return [(kind, *cell, None, k, v, n, "A") for k, v in zip(knots, values, strict=True)]


def _threshold_rows(
    kind: str, cell: tuple[int, str], fitted: KindThresholds, fold: str
) -> list[_Row]:
    return [
        (kind, *cell, coverage, fitted.n_paths, q, fitted.n, fold)
        for coverage, q in sorted(fitted.thresholds.items())
    ]


def _fold_rows(key: tuple[str, int, float], fold_counts: FoldCounts) -> list[_Row]:
    kind, horizon, coverage = key
    level = coverage or None
    rows: list[_Row] = []
    for k, n in enumerate(fold_counts.n):
        points: list[tuple[float | None, float | None]] = [(None, None)]  # too few persons
        if fold_counts.knots:
            points = list(zip(fold_counts.knots[k], fold_counts.counts[k], strict=True))
        rows += [(FOLD, horizon, kind, level, x, y, n, str(k)) for x, y in points]
    return rows


def _read_fold_counts(rows: pl.DataFrame) -> FoldCounts:
    folds = rows.partition_by("split", maintain_order=True)
    n = tuple(int(fold["n"][0]) for fold in folds)
    if rows["knot"].null_count():
        return FoldCounts((), (), n)
    knots, counts = ([fold[name].to_numpy() for fold in folds] for name in ("knot", "value"))
    return FoldCounts(tuple(knots), tuple(counts), n)


def _of_kind(table: pl.DataFrame, kind: str) -> pl.DataFrame:
    return table.filter(pl.col("kind") == kind)


def _read_thresholds(rows: _Part) -> KindThresholds:
    n_paths = rows["knot"][0]
    return KindThresholds(
        dict(zip(rows["level"], rows["value"], strict=True)),
        int(rows["n"][0]),
        None if n_paths is None else int(n_paths),
    )


def _read_cells(parts: Mapping[tuple[Any, ...], _Part]) -> dict[tuple[int, str], Cell]:
    """The cells of a table, from its rows by kind, horizon and group."""
    cells: dict[tuple[int, str], Cell] = {}
    for key in ((h, group) for kind, h, group in parts if kind in ("map", *_CELL_KINDS)):
        rows = next((parts[kind, *key] for kind in _CELL_KINDS if (kind, *key) in parts), None)
        if rows is None or not any((kind, key[0], ALL) in parts for kind in _CELL_KINDS):
            raise ValueError(f"horizon {key[0]} lacks thresholds")
        fitted = _read_thresholds(rows)
        of_map = parts.get(("map", *key))
        knots, values = (np.array([]), np.array([])) if of_map is None else _read_map(of_map)
        cells[key] = Cell(
            knots,
            values,
            0 if of_map is None else int(of_map["n"][0]),
            fitted.thresholds,
            fitted.n,
        )
    return cells
