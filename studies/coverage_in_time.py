"""Do the bundle's sets cover as often as they state? One year, groups, bins of p_zero, ten years.

    python -m studies.coverage_in_time [--bundle bundles/small] [--register DIR [DIR ...]]
        [--persons N] [--seed 0] [--workers 1] [--report FILE]

Persons come from generated registers that neither trained nor calibrated the bundle (of the
register of its training only the test persons count), with origins drawn as `saga calibrate` draws
them: a coverage holds for persons and origins drawn like those. The tables count the persons of all
registers. A share lies within its simultaneous band with 99 % for all figures of a kind if the
coverage is as stated; bands allow for the persons behind a threshold. Of groups the table does not
say how many these are: here they have the group's share of the judged persons. Sets that contain 90
% of a person's raw distribution are judged likewise, to know whether the check detects wrong sets.

Exit 1 if a share is out of its band, if nothing was measured, or if the raw sets pass although
50,000 persons were judged. Without --register a small register is generated. `saga evaluate` judges
coverage in true futures, and that of lifetimes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from saga.calibration.diagnostics.verdicts import coverage_band
from saga.evaluation.scoring.metrics import ZERO_EDGES
from saga.evaluation.scoring.year_forecasts import nominal_sets

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.published_sets import band_intervals
from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import unseen_persons
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.pages.format import in_percent, markdown_table
from saga.register import RegisterSettings, generate_register
from saga.requests import COVERAGE, MAX_HORIZON
from saga.scores import covered
from studies.study_page import bundle_parser, page_head, publish_page, say

YEARS, HORIZONS = 10, (1, 5, 10)
MAIN_GROUPS = ("quintile", "sex", "education_level")
SIMULTANEOUS = 0.99  # probability that all figures of a faultless table are in their bands
NINETY = COVERAGE.index(0.9)
ENOUGH = 50_000  # persons with which wrong sets are detected
_BLOCK_PERSONS = 2_000
HEADER = (
    *("sets", "h or K", "coverage, %", "persons", "calibrated on"),
    *("covered, %", "simultaneous 99 % band", "verdict"),
)


@dataclass(frozen=True, eq=False)
class JudgedPersons:
    """n persons: which sets contain their outcomes (1, 0; NaN if unknown), and their groups.

    Args:
        sets: (n, YEARS, coverage).
        raw: (n, YEARS), by sets that contain 90 % of the raw distribution.
        band: (n, coverage), of all YEARS together.
        outcomes: (n, YEARS).
        p_zero: (n, YEARS), forecast.
        groups: Name -> labels (n,).
    """

    sets: Floats
    raw: Floats
    band: Floats
    outcomes: Floats
    p_zero: Floats
    groups: Mapping[str, NDArray[np.str_]]

    @classmethod
    def joined(cls, parts: Sequence[JudgedPersons]) -> JudgedPersons:
        """All persons of the parts."""
        names = ("sets", "raw", "band", "outcomes", "p_zero")
        arrays = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
        groups = {name: np.concatenate([p.groups[name] for p in parts]) for name in MAIN_GROUPS}
        return cls(**arrays, groups=groups)


@dataclass(frozen=True)
class Figure:
    """One line of a table; `holds` is None if its coverage was not measured."""

    row: list[str]
    holds: bool | None


def judge_register(
    forecaster: Forecaster, panel: Panel, ids: list[str], seed: int
) -> JudgedPersons:
    """The bundle's sets for the persons `ids`, one drawn origin each."""
    end, calibrator, parts = last_year(panel), forecaster.calibrator, []
    for start in range(0, len(ids), _BLOCK_PERSONS):
        persons = panel.only(ids[start : start + _BLOCK_PERSONS])
        origins = draw_origins(persons, max_horizon=MAX_HORIZON, seed=seed, end=end)
        if not len(origins):  # persons too young for one; ids are sorted by birth year
            continue
        blocks = forecaster.marginals(
            history(persons, origins), recalibrate=False, n_horizons=YEARS
        )
        raw = Marginals.joined([block.first(YEARS) for block in blocks])
        y = realised_earnings(persons, origins, range(1, YEARS + 1), end=end)
        marginals = calibrator.recalibrate(raw)
        band = band_intervals(calibrator, marginals, YEARS, COVERAGE).covered(y).min(axis=1)
        band[np.isnan(y).any(axis=1)] = np.nan
        lower, upper, zero = nominal_sets(raw, (0.9,))
        sets = calibrator.intervals(marginals, COVERAGE).covered(y)
        of_raw = covered(y, lower[..., 0], upper[..., 0], zero[..., 0])
        p_zero = marginals.p_zero.astype(np.float64)
        parts.append(JudgedPersons(sets, of_raw, band, y, p_zero, raw.groups))
    return JudgedPersons.joined(parts)


def judge_coverage(
    name: str, horizon: int, coverage: float, inside: Floats, calibrated_on: int, n_figures: int
) -> Figure:
    """Compare a share with its simultaneous band.

    Args:
        name: Sets or group.
        horizon: Years ahead, or number of years together.
        coverage: Stated coverage.
        inside: 1, 0 or NaN, (n,).
        calibrated_on: Persons behind the threshold.
        n_figures: Number of figures that share the simultaneous band.
    """
    measured = inside[~np.isnan(inside)]
    row = [name, str(horizon), f"{100 * coverage:g}", f"{len(measured):,}", f"{calibrated_on:,}"]
    if not len(measured) or not calibrated_on:
        return Figure([*row, "", "", "not measured"], None)
    probability = 1 - (1 - SIMULTANEOUS) / n_figures
    low, high = coverage_band(coverage, len(measured), calibrated_on, probability=probability)
    share = float(measured.mean())
    holds = low - 1e-12 <= share <= high + 1e-12
    row += [f"{100 * share:.2f} ({100 * (share - coverage):+.2f})"]
    return Figure(
        [*row, f"{100 * low:.2f}-{100 * high:.2f}", "in band" if holds else "OUT OF BAND"], holds
    )


def figures_of(calibrator: Calibrator, judged: JudgedPersons) -> list[Figure]:
    """Sets of everybody, bands of YEARS, and 90 % sets of the main groups."""
    behind = {h: calibrator.cells[h, ALL].n_threshold for h in HORIZONS}
    band = calibrator.thresholds_of_kind["band", YEARS].n
    products = [("sets, all", h, judged.sets[:, h - 1], behind[h], len(HORIZONS)) for h in HORIZONS]
    products.append(("band of K years", YEARS, judged.band, band, 1))
    groups = [
        (f"{name}={label}", judged.groups[name] == label)
        for name in MAIN_GROUPS
        for label in np.unique(judged.groups[name]).tolist()
        if label != "unknown"
    ]
    return [
        judge_coverage(name, h, coverage, inside[:, j], n, len(COVERAGE) * n_kinds)
        for name, h, inside, n, n_kinds in products
        for j, coverage in enumerate(COVERAGE)
    ] + [
        judge_coverage(
            name,
            h,
            0.9,
            judged.sets[members, h - 1, NINETY],
            round(behind[h] * float(members.mean())),
            len(groups) * len(HORIZONS),
        )
        for name, members in groups
        for h in HORIZONS
    ]


def raw_figures(calibrator: Calibrator, judged: JudgedPersons) -> list[Figure]:
    """Sets of 90 % of the raw distributions."""
    return [
        judge_coverage(
            "raw sets", h, 0.9, judged.raw[:, h - 1], calibrator.cells[h, ALL].n_threshold, 3
        )
        for h in HORIZONS
    ]


def conclusion(holds: Sequence[bool | None], detected: bool, persons: int) -> tuple[str, int]:
    """The last line and the exit status.

    Args:
        holds: Of each figure whether it holds; None: not measured.
        detected: Whether some figure of the raw sets is out of its band.
        persons: Number of persons judged.
    """
    missed, unmeasured, total = holds.count(False), holds.count(None), len(holds)
    if missed or unmeasured == total:
        return f"NOT as stated: of {total} figures {missed} missed, {unmeasured} not measured.", 1
    if not detected and persons >= ENOUGH:
        return "NOT as stated: raw sets are in their bands too, so this check detects nothing.", 1
    if unmeasured or not detected:
        raw = "" if detected else "; raw sets are in their bands too"
        return (
            f"No figure is missed, {unmeasured} of {total} not measured{raw}. Give more persons.",
            0,
        )
    return "Every figure is inside its band, and raw sets are not.", 0


def conditional_rows(judged: JudgedPersons) -> Iterator[list[str]]:
    """Coverage given the outcome and within bins of `p_zero`; neither is guaranteed."""
    for h in HORIZONS:
        y = judged.outcomes[:, h - 1]
        bins = np.digitize(judged.p_zero[:, h - 1], ZERO_EDGES[1:-1])
        masks = {"zero earnings": y == 0, "positive earnings": y > 0}
        for i, (low, high) in enumerate(pairwise(ZERO_EDGES)):
            masks[f"p_zero {100 * low:g} to {100 * high:g} %"] = (bins == i) & ~np.isnan(y)
        for name, mask in masks.items():
            inside = judged.sets[mask, h - 1]
            inside = inside[~np.isnan(inside).any(axis=1)]
            if len(inside):
                error = inside[:, NINETY].std() / np.sqrt(len(inside))
                shares = map(in_percent, inside.mean(axis=0))
                yield [name, str(h), f"{len(inside):,}", *shares, in_percent(error)]


def main() -> int:
    """Run the study on given or a temporary register; the exit status."""
    parser = bundle_parser(__doc__, n_persons=None, n_paths=None)
    parser.add_argument("--register", type=Path, nargs="+", help="generated registers")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle, threads=args.workers, workers=args.workers)
    parts = []
    with tempfile.TemporaryDirectory() as scratch:
        registers = args.register or [Path(scratch) / "register"]
        if not args.register:
            generate_register(registers[0], RegisterSettings(persons=2_000, seed=11))
        for register in registers:
            panel = read_panel(register)
            unseen = unseen_persons(panel, forecaster.bundle.panel_id).persons()
            ids = sample_persons(unseen, args.persons, "coverage", args.seed)
            parts.append(judge_register(forecaster, panel, ids, args.seed))
            say(f"{panel.meta.panel_id}: {len(ids):,} persons")
    judged, calibrator = JudgedPersons.joined(parts), forecaster.calibrator
    figures, raw = figures_of(calibrator, judged), raw_figures(calibrator, judged)
    detected = any(figure.holds is False for figure in raw)
    verdict, status = conclusion(
        [figure.holds for figure in figures], detected, len(judged.outcomes)
    )
    levels = [f"{100 * coverage:g} %" for coverage in COVERAGE]
    conditions = ["not guaranteed: given", "h", "persons", *levels, "standard error, 90 %"]
    digest, seed = forecaster.bundle.calibration_digest or "", args.seed
    sections = [
        page_head("Coverage in time", __file__, calibration=digest[:12], seed=seed),
        markdown_table(HEADER, [figure.row for figure in figures + raw]),
        markdown_table(conditions, conditional_rows(judged)),
        verdict,
    ]
    publish_page("\n\n".join(sections), args.report)
    return status


if __name__ == "__main__":
    sys.exit(main())
