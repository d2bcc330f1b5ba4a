"""Tables of the coverage study: each coverage with its sampling band, its bound and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray
from saga.calibration.diagnostics.verdicts import coverage_band
from saga.calibration.fit.split_conformal import in_map_fold
from saga.evaluation.scoring.metrics import ZERO_EDGES

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.pages.format import markdown_table
from saga.requests import COVERAGE
from studies.coverage_forecasts import YEARS, Persons

Array = NDArray[np.float64]
HORIZONS = (1, 5, 10)
MAIN_GROUPS = ("quintile", "sex", "education_level")
SIMULTANEOUS = 0.99  # probability that all figures of a faultless table are in their bands
NINETY = COVERAGE.index(0.9)
MIN_PAIR_PERSONS = 1_000
TITLES = {"sets": "sets, all", "value": "present value of K years", "band": "band of K years"}
HEADER = (
    *("product", "h or K", "coverage, %", "test persons", "calibrated on"),
    *("covered, %", "simultaneous 99 % band", "verdict"),
)


@dataclass(frozen=True)
class Bound:
    """The largest deviation, in points, that is allowed with so many persons on each side."""

    points: float
    persons: int


EVERYBODY, GROUP = Bound(0.3, 200_000), Bound(1.0, 50_000)
VALUE, BAND = Bound(0.5, 50_000), Bound(1.0, 50_000)


@dataclass(frozen=True)
class Figure:
    """One line of a table; `holds` is None if its coverage was not measured."""

    row: list[str]
    holds: bool | None


def judge_coverage(
    name: str,
    horizon: int,
    coverage: float,
    covered: Array,
    *,
    calibrated_on: int,
    n_figures: int,
    bound: Bound | None,
) -> Figure:
    """Compare a share with its simultaneous band and its bound.

    Args:
        name: product or group.
        horizon: years ahead, or number of years together.
        coverage: stated coverage.
        covered: 1, 0 or NaN, (n,).
        calibrated_on: persons behind the threshold.
        n_figures: number of figures that share the simultaneous band.
        bound: allowed deviation, or None.
    """
    measured = covered[~np.isnan(covered)]
    row = [name, str(horizon), f"{100 * coverage:g}", f"{len(measured):,}", f"{calibrated_on:,}"]
    if not len(measured) or not calibrated_on:
        return Figure([*row, "", "", "not measured"], None)
    low, high = coverage_band(
        coverage, len(measured), calibrated_on, probability=1 - (1 - SIMULTANEOUS) / n_figures
    )
    share = measured.mean()
    in_band = bool(low - 1e-12 <= share <= high + 1e-12)
    verdict, in_bound = "in band" if in_band else "OUT OF BAND", True
    if bound is not None and min(len(measured), 2 * calibrated_on) < bound.persons:
        verdict += f"; +-{bound.points:g} needs {bound.persons:,}"
    elif bound is not None:
        in_bound = abs(share - coverage) <= bound.points / 100
        verdict += f"; {'within' if in_bound else 'NOT WITHIN'} +-{bound.points:g}"
    row += [f"{100 * share:.2f} ({100 * (share - coverage):+.2f})"]
    row += [f"{100 * low:.2f}-{100 * high:.2f}", verdict]
    return Figure(row, in_band and in_bound)


class CoverageTables:
    """The tables of new calibrations: products, groups, pairs of groups, comparisons.

    `covered` is that of `coverage_in_time.covered_by_product` for the persons of `test`, and
    `calibrations` has the calibration persons of each register. Registers have separate persons, so
    the sampling error of all together is that of one calibration on as many persons.
    """

    def __init__(
        self,
        covered: dict[str, Array],
        calibrations: Sequence[Persons],
        test: Persons,
        seed: int,
        value_persons: int,
    ) -> None:
        self.covered, self.test = covered, test
        self.calibration = Persons.joined(calibrations)
        self.observed = ~np.isnan(self.calibration.outcomes)
        folds = [~in_map_fold(persons.person_id, seed) for persons in calibrations]
        # (n, YEARS), with an outcome
        self.in_threshold_fold = self.observed & np.concatenate(folds)[:, None]
        # Present values are fitted on the first persons of each threshold fold.
        self.first = np.concatenate([np.cumsum(fold) <= value_persons for fold in folds])

    def figures(self) -> list[Figure]:
        """Sets of all persons, present values, bands, and 90 % sets of the main groups."""
        complete = (self.in_threshold_fold & self.observed.all(1, keepdims=True))[:, 0]
        counts = {("sets", h): n for h, n in zip(HORIZONS, self._calibrated_on(), strict=True)}
        counts["value", YEARS] = int((complete & self.first).sum())
        counts["band", YEARS] = int(complete.sum())

        def of_group(group: str, label: str, h: int) -> int:
            members = self.calibration.groups[group] == label
            return int(self.in_threshold_fold[members, h - 1].sum())

        return judge_products(self.covered, self.test, counts, of_group)

    def _calibrated_on(self, members: NDArray[np.bool_] | slice = slice(None)) -> list[int]:
        """Persons of the threshold fold with an outcome, for each of HORIZONS."""
        return [int(self.in_threshold_fold[members, h - 1].sum()) for h in HORIZONS]

    def pairs_line(self) -> str:
        """How sets cover within pairs of main groups, for all horizons and coverages."""
        pairs = []
        for (one, a), (two, b) in combinations(main_groups(self.test), 2):
            rows, calibration_rows = (
                (persons.groups[one] == a) & (persons.groups[two] == b)
                for persons in (self.test, self.calibration)
            )
            if one != two and rows.sum() >= MIN_PAIR_PERSONS:
                pairs += [
                    (f"{one}={a}, {two}={b}", h, coverage, self.covered["sets"][rows, h - 1, j], n)
                    for h, n in zip(HORIZONS, self._calibrated_on(calibration_rows), strict=True)
                    for j, coverage in enumerate(COVERAGE)
                ]
        outside, unmeasured, worst = 0, 0, (0.0, "no figure")
        for name, h, coverage, covered, n in pairs:
            figure = judge_coverage(
                name, h, coverage, covered, calibrated_on=n, n_figures=len(pairs), bound=None
            )
            if figure.holds is None:
                unmeasured += 1
                continue
            outside += not figure.holds
            deviation = abs(float(np.nanmean(covered)) - coverage)
            worst = max(worst, (deviation, f"{name}, h={h}, {100 * coverage:g} %"))
        return (
            f"Pairs of groups of {MIN_PAIR_PERSONS:,} and more test persons, all coverages and "
            f"horizons: {outside} of {len(pairs)} figures out of the band, {unmeasured} not "
            f"measured; worst {100 * worst[0]:.2f} points ({worst[1]}). The bands of a group are "
            "computed from the number of its persons in the threshold fold."
        )

    def comparisons(self) -> tuple[list[Figure], bool]:
        """CQR and the broken calibrator, and whether the check detects the broken one."""
        cqr, broken = (
            [
                judge_coverage(
                    name,
                    h,
                    0.9,
                    self.covered[name][:, h - 1],
                    calibrated_on=int(persons[:, h - 1].sum()),
                    n_figures=len(HORIZONS),
                    bound=EVERYBODY,
                )
                for h in HORIZONS
            ]
            # CQR is fitted on both folds.
            for name, persons in (("cqr", self.observed), ("uncalibrated", self.in_threshold_fold))
        )
        return cqr + broken, any(figure.holds is False for figure in broken)


def main_groups(persons: Persons) -> list[tuple[str, str]]:
    """The main groups with their labels, without "unknown"."""
    return [
        (group, label)
        for group in MAIN_GROUPS
        for label in np.unique(persons.groups[group]).tolist()
        if label != "unknown"
    ]


def judge_products(
    covered: dict[str, Array],
    test: Persons,
    counts: Mapping[tuple[str, int], int],
    of_group: Callable[[str, str, int], int],
    *,
    however_few: bool = False,
) -> list[Figure]:
    """The figures of all persons, then those of 90 % sets by main group.

    Args:
        covered: As in `CoverageTables`; products that it lacks have no figure.
        test: The persons judged.
        counts: Persons behind the threshold of a product at a horizon.
        of_group: The same of sets of a group: group, label and horizon.
        however_few: Whether bounds hold for any number of persons.
    """

    def bound_of(bound: Bound) -> Bound:
        return Bound(bound.points, 0) if however_few else bound

    spans = [(name, bound) for name, bound in (("value", VALUE), ("band", BAND)) if name in covered]
    products = [("sets", h, covered["sets"][:, h - 1], EVERYBODY, len(HORIZONS)) for h in HORIZONS]
    products += [(name, YEARS, covered[name], bound, len(spans)) for name, bound in spans]
    groups = main_groups(test)
    return [
        judge_coverage(
            TITLES[name],
            h,
            coverage,
            inside[:, j],
            calibrated_on=counts[name, h],
            n_figures=len(COVERAGE) * n_kinds,
            bound=bound_of(bound) if j == NINETY else None,
        )
        for name, h, inside, bound, n_kinds in products
        for j, coverage in enumerate(COVERAGE)
    ] + [
        judge_coverage(
            f"{group}={label}",
            h,
            0.9,
            covered["sets"][test.groups[group] == label, h - 1, NINETY],
            calibrated_on=of_group(group, label, h),
            n_figures=len(groups) * len(HORIZONS),
            bound=bound_of(GROUP),
        )
        for group, label in groups
        for h in HORIZONS
    ]


def shipped_figures(
    calibrator: Calibrator, covered: dict[str, Array], test: Persons
) -> list[Figure]:
    """Sets, bands, and 90 % sets of the main groups, by the bundle's own table.

    Its thresholds of present values are for more paths than the study has. Figures are compared
    with the bounds however few persons are behind the table. It does not say how many of them
    belong to a group: here they have the group's share of the test persons.
    """
    counts = {("sets", h): calibrator.cells[h, ALL].n_threshold for h in HORIZONS}
    counts["band", YEARS] = calibrator.thresholds_of_kind["band", YEARS].n
    return judge_products(
        covered,
        test,
        counts,
        lambda group, label, h: round(
            counts["sets", h] * float((test.groups[group] == label).mean())
        ),
        however_few=True,
    )


def conclusion(holds: Sequence[bool | None], detected: bool, persons: int) -> tuple[str, int]:
    """The last line and the exit status.

    Args:
        holds: of each figure whether it holds; None: not measured.
        detected: whether the broken calibrator was detected.
        persons: number of persons on the smaller side.
    """
    missed, unmeasured, total = holds.count(False), holds.count(None), len(holds)
    broken = "the broken calibrator is inside its band too"
    if missed or unmeasured == total:
        return f"NOT as stated: of {total} figures {missed} missed, {unmeasured} not measured.", 1
    if not detected and persons >= EVERYBODY.persons:
        return f"NOT as stated: {broken}, so this check detects nothing.", 1
    if unmeasured or not detected:
        undetected = "" if detected else f"; {broken}"
        return (
            f"No figure is missed; not measured: {unmeasured} of {total} figures{undetected}. Give "
            "more persons to know.",
            0,
        )
    return "Every figure is inside its band, and the broken calibrator is not.", 0


def conditional_table(covered: dict[str, Array], outcomes: Array) -> str:
    """Coverage given the outcome and within bins of `p_zero`; neither is guaranteed."""
    rows = []
    for h in HORIZONS:
        y, bins = outcomes[:, h - 1], np.digitize(covered["p_zero"][:, h - 1], ZERO_EDGES[1:-1])
        masks = {"zero earnings": y == 0, "positive earnings": y > 0}
        for i, (low, high) in enumerate(pairwise(ZERO_EDGES)):
            masks[f"p_zero {100 * low:g} to {100 * high:g} %"] = (bins == i) & ~np.isnan(y)
        for name, mask in masks.items():
            if mask.any():
                columns = [c[~np.isnan(c)] for c in covered["sets"][mask, h - 1].T]
                shares = [f"{100 * c.mean():.1f}" if len(c) else "not measured" for c in columns]
                error = f"{100 * _standard_error(columns[NINETY]):.1f}"
                rows.append([name, str(h), f"{mask.sum():,}", *shares, error])
    header = ["not guaranteed: given", "h", "test persons", *(f"{100 * c:g} %" for c in COVERAGE)]
    header.append(f"standard error, {100 * COVERAGE[NINETY]:g} %")
    return markdown_table(header, rows)


def _standard_error(covered: Array) -> float:
    """Standard error of a mean; NaN without a value."""
    return float(covered.std() / np.sqrt(len(covered))) if len(covered) else float("nan")
