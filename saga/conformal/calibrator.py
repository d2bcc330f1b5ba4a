"""The calibrator: recalibrates marginals and gives their prediction sets.

`calibration` fits it. Two steps apply at each horizon, both in probability space. First, the map R
of the person's cell, fitted on the persons of the map fold, replaces the forecast F by R(F).
Second, a threshold, fitted on the persons of the threshold fold, chooses from a nested family of
sets (`saga.conformal.families`) the one that has the stated coverage. A person's cell is
that of the profile or else of the quintile of earnings, or that of all persons if these have too
few. Groups, which may overlap, shift its threshold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL, read_parts, table_of
from saga.conformal.cross_fitted import CROSS_FITTED, CrossFittedCounts, FoldCounts
from saga.conformal.families import PRESENT_VALUE, YEAR
from saga.conformal.families.path_band import PathBand
from saga.conformal.families.set_family import KindThresholds, SetFamily
from saga.conformal.intervals import Intervals
from saga.conformal.recalibration import Cell
from saga.conformal.split_thresholds import SplitThresholds
from saga.data.groups import Grouping
from saga.distributions import Marginals
from saga.errors import Problem, UsageError
from saga.files.bundle_folder import CALIBRATION
from saga.files.stored_values import faults_of
from saga.requests import CalibrationMethod

# With fewer persons, rounding makes a threshold noticeably larger. The report warns of this,
# and groups have no cells.
MIN_CELL_PERSONS = 1_000

REASONS: dict[str, str] = {
    "finite-sample": "Holds in finite samples: these persons were drawn like the calibration "
    "persons, in the same years.",
    "assumption": "Holds if this person resembles the calibration persons (in statistics: is "
    "exchangeable with them) and conditions have not changed since then.",
    "extrapolated": "Not guaranteed: outcomes this far ahead were observed from one origin year "
    "or none, or none at this age or under such a scenario, or paths come from another rollout, or "
    "the origin is before or after the years of the records. The nearest threshold is used.",
    "cross-fitted": "Cross-fitted (CV+): a stated coverage 1 - a holds about in practice, and at "
    "least 1 - 2a less a small term in the worst case, if this person resembles the calibration "
    "persons and conditions have not changed since then.",
    "none": "No interval: there are too few calibration persons, no finite interval has this "
    "coverage, the person is past age 64, or the calibration method has no interval of this kind.",
}


def reason(guarantee: str, cell: str = ALL) -> str:
    """What stands behind an interval with this `guarantee`, calibrated on persons of `cell`."""
    if cell == CROSS_FITTED and guarantee == "assumption":
        return REASONS[CROSS_FITTED]
    if cell in ("", ALL, CROSS_FITTED) or guarantee == "none":
        return REASONS[guarantee]
    return f"{REASONS[guarantee]} Calibrated on persons with {cell.replace('=', ' ')}."


@dataclass(frozen=True, eq=False)
class Calibrator:
    """Everything that a calibration has fitted, applied to forecasts.

    Without arguments it does not change forecasts and gives no intervals.

    Args:
        cells: Cell by horizon and group.
        shifts: (horizon, coverage) -> group, such as "sex=female" -> shift of the cell's threshold.
        thresholds_of_kind: Thresholds of one-sided limits, intervals given positive earnings, path
            bands and present values, by kind and horizon (or number of years).
        band_scales: Horizon -> knots and values of the map that makes scores of all horizons
            comparable, for path bands.
        origin_years: (horizon, group) -> number of distinct origin years whose outcomes the cell
            has seen; the group is "cross-fitted" if the method is "cv+".
        grouping: How persons are grouped; None if the calibration has no groups.
        extrapolated: Whether forecasts are made differently from those of the calibration (under
            a scenario, or with paths of another rollout). No guarantee is then better than
            "extrapolated". Not stored.
        drift: (horizon, coverage) -> root mean square deviation of coverage over past origin years,
            and the number of those years.
        year: Family of the sets of a year. If it is that of quantile intervals (method "cqr"),
            cells are those of all persons and have no maps, and other fields are empty.
        fold_counts: (kind, horizon, coverage) -> counts of scores by fold, of cross-fitting (method
            "cv+"). The coverage is 0 if scores do not depend on it. Other fields are then empty.
        moves: (horizon, group) -> knots and values of the map by which later outcomes have moved
            the cell's recalibrated probabilities (`saga.calibration.adaptive`). Not stored.
    """

    cells: Mapping[tuple[int, str], Cell] = field(default_factory=dict)
    shifts: Mapping[tuple[int, float], Mapping[str, float]] = field(default_factory=dict)
    thresholds_of_kind: Mapping[tuple[str, int], KindThresholds] = field(default_factory=dict)
    band_scales: Mapping[int, tuple[Floats, Floats]] = field(default_factory=dict)
    origin_years: Mapping[tuple[int, str], int] = field(default_factory=dict)
    grouping: Grouping | None = None
    extrapolated: bool = False
    drift: Mapping[tuple[int, float], tuple[float, int]] = field(default_factory=dict)
    year: SetFamily = YEAR
    fold_counts: Mapping[tuple[str, int, float], FoldCounts] = field(default_factory=dict)
    moves: Mapping[tuple[int, str], tuple[Floats, Floats]] = field(default_factory=dict)

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> Calibrator:
        """The calibrator that `to_table` wrote (`read_parts`). Raises BundleError for another."""
        with faults_of(CALIBRATION):
            return cls(**read_parts(table))

    def to_table(self) -> pl.DataFrame:
        """The calibration table."""
        return table_of(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the table's exact values; the provenance of every output has it."""
        text = "\n".join(
            "\t".join(value.hex() if isinstance(value, float) else str(value) for value in row)
            for row in self.to_table().iter_rows()
        )
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def method(self) -> CalibrationMethod:
        """The method that fitted the calibration."""
        if self.fold_counts:
            return "cv+"
        return "sets" if self.year is YEAR else "cqr"

    @cached_property
    def fitted(self) -> SplitThresholds:
        """Which cells, maps and thresholds apply to a person."""
        return SplitThresholds(
            self.cells,
            self.shifts,
            self.thresholds_of_kind,
            self.origin_years,
            self.year,
            self.extrapolated,
        )

    @cached_property
    def thresholds(self) -> SplitThresholds | CrossFittedCounts:
        """How the thresholds of sets are found: from one fold, or by cross-fitting."""
        if self.fold_counts:
            return CrossFittedCounts(self.fold_counts, self.origin_years, self.extrapolated)
        return self.fitted

    @property
    def coverage(self) -> tuple[float, ...]:
        """The coverages for which thresholds were fitted, ascending."""
        return self.thresholds.coverage

    @property
    def has_sets(self) -> bool:
        """Whether there are thresholds of nested sets, as ledgers and path bands need."""
        return self.year is YEAR and bool(self.fitted.coverage)

    @property
    def has_present_values(self) -> bool:
        """Whether there are thresholds of present values."""
        return any(kind == PRESENT_VALUE.kind for kind, _ in self.thresholds_of_kind)

    @property
    def value_paths(self) -> int:
        """Number of paths of the present values that thresholds were fitted on."""
        return max((fitted.n_paths or 0 for fitted in self.thresholds_of_kind.values()), default=0)

    def shows_ranges(self, coverage: Sequence[float]) -> list[bool]:
        """Whether a range of simulated futures of each coverage may be shown as an interval.

        It may if enough persons are behind the sets of the next year with this coverage or, where
        it was not calibrated, with the next higher one.
        """
        fitted = self.coverage if self.has_sets or self.fold_counts else ()
        has_set = {c for c in fitted if self.thresholds.guarantee_at(1, c) != "none"}
        higher = [[c for c in fitted if c >= share] or fitted[-1:] for share in coverage]
        return [not has_set.isdisjoint(shares[:1]) for shares in higher]

    @property
    def tested_horizons(self) -> dict[float, list[int]]:
        """Coverage -> the horizons whose guarantee is "assumption"."""
        return {
            share: [
                h
                for h in self.thresholds.horizons
                if self.thresholds.guarantee_at(h, share) == "assumption"
            ]
            for share in self.coverage
        }

    @cached_property
    def band(self) -> PathBand:
        """The family of path bands, with the fitted scales."""
        return PathBand(self.band_scales)

    def coverage_columns(self, coverage: Sequence[float]) -> list[int]:
        """Index of each of `coverage` among the fitted ones; empty without calibration.

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
        return [self.coverage.index(share) for share in coverage if self.coverage]

    def recalibrate(self, marginals: Marginals) -> Marginals:
        """The marginals after the maps of the persons' cells, and their moves if there are some."""
        marginals.require_raw()
        cdf, p_zero = marginals.cdf.copy(), marginals.p_zero.copy()
        for groups, rows in self.fitted.candidate_cells(marginals):
            for h in range(marginals.n_horizons):
                cell = self.fitted.map_cell(h + 1, *groups)
                moved = self.fitted.moved_cell(h + 1, groups) if self.moves else None
                maps = [] if cell is None else [(cell.knots, cell.values)]
                if moved is not None and moved in self.moves:
                    maps.append(self.moves[moved])
                for knots, mapped in maps:
                    for values in (cdf, p_zero):
                        values[rows, h] = np.interp(values[rows, h], knots, mapped)
        members = tuple(replace(member, recalibrated=True) for member in marginals.members)
        return replace(marginals, cdf=cdf, p_zero=p_zero, recalibrated=True, members=members)

    def intervals(self, marginals: Marginals, coverage: Sequence[float]) -> Intervals:
        """The sets of a year of recalibrated marginals, see `sets` and `Intervals.containing`."""
        median = marginals.quantiles([0.5])[..., 0]
        return self.sets(self.year, marginals, coverage).containing(median)

    def sets(
        self,
        family: SetFamily,
        marginals: Marginals,
        coverage: Sequence[float],
        horizons: NDArray[np.int64] | None = None,
    ) -> Intervals:
        """Sets of one family for each of `coverage`, nested, of recalibrated marginals.

        Raises UsageError if no threshold was fitted for one of the coverages. Without calibration
        every guarantee is "none".

        Args:
            family: YEAR or one of FAMILIES; path bands are those of `band`.
            marginals: Recalibrated marginals (n, H).
            coverage: Coverages, in any order.
            horizons: The horizon or number of years (n, H) whose thresholds each person and column
                has, 0: no set; None: 1..H.
        """
        marginals.require_recalibrated()
        columns = self.coverage_columns(coverage)
        if not self.coverage:
            return Intervals.none(marginals, coverage)
        if horizons is None:
            ahead = np.arange(1, marginals.n_horizons + 1)
            horizons = np.broadcast_to(ahead, marginals.p_zero.shape)
        return self.thresholds.sets(family, marginals, horizons).at(columns)
