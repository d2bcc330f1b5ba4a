"""Do the intervals cover as often as they state? One year, groups, sums and whole paths.

    python -m studies.coverage_in_time [--bundle bundles/small] [--register DIR] [--forward DIR]
        [--persons N] [--out DIR] [--paths 25] [--workers 1] [--rollout exact|light]

Split conformal prediction holds for any number of paths, so few are drawn; sets from few paths are
wider, but they cover as often. Persons come from a generated register. The bundle's training
persons take no part. A tenth of the persons fixes the cut-offs of groups; a keyed hash divides the
rest into calibration and test persons. If the register (or another one, --forward) has true
futures, test persons are also forecast from its last year and compared with each future: mean and
spread of coverage over futures.

Exit 1 if a stated coverage is missed, or if a calibrator that is known to be broken passes although
there are enough persons to see it. A cell without outcomes or without intervals counts neither as
held nor as missed; the last line says so.

Paths are kept in --out in parts of 10,000 persons: after an interruption the same command resumes.
For the bounds of the project give a register of 500,000 persons and some hours (seconds per person
are printed). Without --register a small register is generated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.diagnostics.sampling_bands import coverage_band
from calibration.fit.cqr import fit_cqr
from calibration.fit.split_conformal import DEFAULT_ATOM_WIDTH, fit_calibration, in_map_fold
from calibration.fit.thresholds import fit_thresholds
from evaluation.scoring.futures import true_futures
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.path_bands import band_intervals
from saga.conformal.prediction_sets import grow
from saga.conformal.present_value import value_intervals
from saga.data.groups import Grouping
from saga.data.origins import Origins, draw_origins, last_year, origins_at
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.files.markdown import markdown_table
from saga.forecaster import Forecaster
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.register import RegisterSettings, generate_register
from saga.requests import COVERAGE, RATE, Draws
from studies.coverage_paths import (
    YEARS,
    Sample,
    open_folder,
    persons_by_role,
    simulate_sample,
    unseen_and_training,
)
from studies.study_page import study_parser

Array = NDArray[np.float64]
Rows = list[list[str]]
HORIZONS = (1, 5, 10)
MAIN_GROUPS = ("quintile", "sex", "education_level")
P_ZERO_CUTS = (0.05, 0.2, 0.5, 0.8, 0.95)
SIMULTANEOUS = 0.99
NINETY = COVERAGE.index(0.9)
MIN_PAIR_PERSONS = 1_000
HEADER = (
    *("product", "h or K", "coverage, %", "test persons", "calibrated on"),
    *("covered, %", "simultaneous 99 % band", "verdict"),
)


@dataclass(frozen=True)
class Bound:
    """The largest deviation, in points, that is allowed with so many persons on each side."""

    points: float
    persons: int


EVERYBODY, GROUP, VALUE, BAND = (
    Bound(0.3, 200_000),
    Bound(1.0, 50_000),
    Bound(0.5, 50_000),
    Bound(1.0, 50_000),
)


@dataclass(frozen=True)
class Cell:
    """One line of the table; `holds` is None if the cell was not measured."""

    row: list[str]
    holds: bool | None


def covered_by_product(calibrator: Calibrator, cqr: Calibrator, sample: Sample) -> dict[str, Array]:
    """Whether each product covers the outcome (1, 0; NaN if unknown), and `p_zero`.

    "sets" (n, n_horizon, n_coverage); "band" and "value" (n, n_coverage); "cqr" and "uncalibrated"
    (n, n_horizon) at 90 %; "p_zero" (n, n_horizon).
    """
    parts: list[dict[str, Array]] = []
    for _, raw, y in sample.blocks():
        paths = calibrator.recalibrate(raw)
        complete = ~np.isnan(y).any(axis=1)
        band = band_intervals(calibrator, paths, YEARS, COVERAGE).covered(y).min(axis=1)
        band[~complete] = np.nan
        parts.append(
            {
                "sets": calibrator.intervals(paths, COVERAGE).covered(y),
                "band": band,
                "value": value_covered(calibrator, paths, y),
                "cqr": cqr.intervals(cqr.recalibrate(raw), (0.9,)).covered(y)[..., 0],
                "uncalibrated": covered_by_own_mass(calibrator, raw, y),
                "p_zero": (paths.earnings == 0).mean(axis=2),
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def value_covered(
    calibrator: Calibrator, paths: Paths, outcomes: Array, coverage: Sequence[float] = COVERAGE
) -> Array:
    """Whether intervals of the present value cover the realised one, (n, n_coverage)."""
    complete = ~np.isnan(outcomes).any(axis=1)
    value = realised_value(outcomes, rate=RATE)[complete, None]
    simulated = present_value(paths, rate=RATE, years=YEARS)[complete]
    years = np.full(len(simulated), YEARS)
    interval = value_intervals(calibrator, simulated, years, coverage, RATE)
    covered = np.full((len(outcomes), len(coverage)), np.nan)
    inside = (interval.lower <= value) & (value <= interval.upper)
    covered[complete] = np.where(np.isnan(interval.lower), np.nan, inside)
    return covered


def covered_by_own_mass(calibrator: Calibrator, raw: Paths, outcomes: Array) -> Array:
    """The broken calibrator: sets that hold 90 % of a person's own raw paths, (n, n_horizon)."""
    covered = np.full(outcomes.shape, np.nan)
    for h in range(YEARS):
        rows = np.flatnonzero(~np.isnan(outcomes[:, h]))
        growth = grow(np.sort(raw.earnings[rows, h], axis=1), calibrator.scale)
        sets = growth.with_atom(DEFAULT_ATOM_WIDTH)
        covered[rows, h] = sets.score(outcomes[rows, h]) <= 0.9
    return covered


def judge_cell(
    name: str,
    horizon: int,
    coverage: float,
    covered: Array,
    *,
    calibrated_on: int,
    cells: int,
    bound: Bound | None,
) -> Cell:
    """Compare a share with its simultaneous band and its bound.

    Args:
        name: product or group.
        horizon: years ahead, or number of years together.
        coverage: stated coverage.
        covered: 1, 0 or NaN, (n,).
        calibrated_on: persons behind the threshold.
        cells: number of cells that share the simultaneous band.
        bound: allowed deviation, or None.
    """
    measured = covered[~np.isnan(covered)]
    row = [name, str(horizon), f"{100 * coverage:g}", f"{len(measured):,}", f"{calibrated_on:,}"]
    if not len(measured) or not calibrated_on:
        return Cell([*row, "", "", "not measured"], None)
    low, high = coverage_band(
        coverage, len(measured), calibrated_on, probability=1 - (1 - SIMULTANEOUS) / cells
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
    return Cell(row, in_band and in_bound)


class CoverageTables:
    """The tables of one calibration: products, groups, pairs of groups, comparisons."""

    def __init__(
        self, covered: dict[str, Array], calibration: Sample, test: Sample, seed: int
    ) -> None:
        self.covered, self.calibration, self.test = covered, calibration, test
        self.fold = ~in_map_fold(calibration.paths.person_id, seed)
        self.observed = ~np.isnan(calibration.outcomes)

    def calibrated_on(self, horizon: int, members: NDArray[np.bool_] | None = None) -> int:
        """Persons of the threshold fold with an outcome at the horizon."""
        rows = self.fold & self.observed[:, horizon - 1]
        return int((rows if members is None else rows & members).sum())

    def products(self) -> list[Cell]:
        """Sets of all persons, present values and bands."""
        cells = [
            judge_cell(
                "sets, all",
                h,
                coverage,
                self.covered["sets"][:, h - 1, j],
                calibrated_on=self.calibrated_on(h),
                cells=len(HORIZONS) * len(COVERAGE),
                bound=EVERYBODY if coverage == 0.9 else None,
            )
            for h in HORIZONS
            for j, coverage in enumerate(COVERAGE)
        ]
        complete = int((self.fold & self.observed.all(axis=1)).sum())
        for name, title, bound in (
            ("value", "present value of K years", VALUE),
            ("band", "band of K years", BAND),
        ):
            cells += [
                judge_cell(
                    title,
                    YEARS,
                    coverage,
                    self.covered[name][:, j],
                    calibrated_on=complete,
                    cells=2 * len(COVERAGE),
                    bound=bound if coverage == 0.9 else None,
                )
                for j, coverage in enumerate(COVERAGE)
            ]
        return cells

    def groups(self) -> list[tuple[str, str]]:
        """The main groups with their labels, without "unknown"."""
        return [
            (group, label)
            for group in MAIN_GROUPS
            for label in np.unique(self.test.paths.groups[group]).tolist()
            if label != "unknown"
        ]

    def by_group(self) -> list[Cell]:
        """90 % sets within each main group."""
        groups = self.groups()
        return [
            judge_cell(
                f"{group}={label}",
                h,
                0.9,
                self.covered["sets"][self.test.paths.groups[group] == label, h - 1, NINETY],
                calibrated_on=self.calibrated_on(h, self.calibration.paths.groups[group] == label),
                cells=len(groups) * len(HORIZONS),
                bound=GROUP,
            )
            for group, label in groups
            for h in HORIZONS
        ]

    def pairs_line(self) -> str:
        """How sets cover within pairs of main groups, for all horizons and coverages."""
        pairs = []
        for (one, a), (two, b) in combinations(self.groups(), 2):
            rows, calibration_rows = (
                (paths.groups[one] == a) & (paths.groups[two] == b)
                for paths in (self.test.paths, self.calibration.paths)
            )
            if one != two and rows.sum() >= MIN_PAIR_PERSONS:
                pairs += [
                    (f"{one}={a}, {two}={b}", h, j, rows, self.calibrated_on(h, calibration_rows))
                    for h in HORIZONS
                    for j in range(len(COVERAGE))
                ]
        outside, unmeasured, worst = 0, 0, (0.0, "no cell")
        for name, h, j, rows, n in pairs:
            covered, coverage = self.covered["sets"][rows, h - 1, j], COVERAGE[j]
            cell = judge_cell(
                name, h, coverage, covered, calibrated_on=n, cells=len(pairs), bound=None
            )
            if cell.holds is None:
                unmeasured += 1
                continue
            outside += not cell.holds
            deviation = abs(float(np.nanmean(covered)) - coverage)
            worst = max(worst, (deviation, f"{name}, h={h}, {100 * coverage:g} %"))
        return (
            f"Pairs of groups of {MIN_PAIR_PERSONS:,} and more test persons, all coverages and "
            f"horizons: {outside} of {len(pairs)} cells out of the band, {unmeasured} not "
            f"measured; worst {100 * worst[0]:.2f} points ({worst[1]}). Bands of groups count the "
            "group's persons of the threshold fold."
        )

    def comparisons(self) -> tuple[list[Cell], bool]:
        """CQR and the broken calibrator, and whether the check detects the broken one."""
        cells, detected = [], False
        for name in ("cqr", "uncalibrated"):
            for h in HORIZONS:
                n = self.calibrated_on(h)
                if name == "cqr":  # it has no folds
                    n = int(self.observed[:, h - 1].sum())
                cell = judge_cell(
                    name,
                    h,
                    0.9,
                    self.covered[name][:, h - 1],
                    calibrated_on=n,
                    cells=len(HORIZONS),
                    bound=EVERYBODY,
                )
                detected |= name == "uncalibrated" and cell.holds is False
                cells.append(cell)
        return cells, detected


def conclusion(holds: Sequence[bool | None], detected: bool, persons: int) -> tuple[str, int]:
    """The last line and the exit status.

    Args:
        holds: of each cell whether it holds; None: not measured.
        detected: whether the broken calibrator was detected.
        persons: number of persons on the smaller side.
    """
    missed, unmeasured = holds.count(False), holds.count(None)
    if missed or unmeasured == len(holds):
        return (
            f"NOT as stated: of {len(holds)} cells {missed} missed, {unmeasured} not measured.",
            1,
        )
    if not detected and persons >= EVERYBODY.persons:
        return (
            "NOT as stated: the broken calibrator is inside its band too, so this check detects "
            "nothing.",
            1,
        )
    if unmeasured or not detected:
        blind = "" if detected else " The broken calibrator is inside its band too."
        return (
            f"No cell is missed; not measured: {unmeasured} of {len(holds)} cells.{blind} Give "
            "more persons to know.",
            0,
        )
    return "Every cell is inside its band, and the broken calibrator is not.", 0


def conditional_table(covered: dict[str, Array], outcomes: Array) -> str:
    """Coverage given the outcome and within bins of `p_zero`; neither is guaranteed."""
    rows: Rows = []
    for h in HORIZONS:
        y, bins = outcomes[:, h - 1], np.digitize(covered["p_zero"][:, h - 1], P_ZERO_CUTS)
        masks = {"zero earnings": y == 0, "positive earnings": y > 0}
        for i, (low, high) in enumerate(pairwise((0.0, *P_ZERO_CUTS, 1.0))):
            masks[f"p_zero {100 * low:g} to {100 * high:g} %"] = (bins == i) & ~np.isnan(y)
        for name, mask in masks.items():
            if mask.any():
                columns = [c[~np.isnan(c)] for c in covered["sets"][mask, h - 1].T]
                shares = [f"{100 * c.mean():.1f}" if len(c) else "not measured" for c in columns]
                rows.append([name, str(h), f"{mask.sum():,}", *shares])
    header = ["not guaranteed: given", "h", "test persons", *(f"{100 * c:g} %" for c in COVERAGE)]
    return markdown_table(header, rows)


def forward_coverage(calibrator: Calibrator, sample: Sample, futures: Array) -> dict[str, Array]:
    """Coverage at 90 % in each of the `futures` (n_future, n, YEARS).

    "sets" and "sets, quintile=..." (n_future, YEARS); "band" and "value" (n_future, 1).
    """
    parts: dict[str, list[Array]] = {"sets": [], "band": [], "value": []}
    for rows, raw, _ in sample.blocks():
        paths, outcomes = calibrator.recalibrate(raw), futures[:, rows]
        sets = calibrator.intervals(paths, [0.9])
        band = band_intervals(calibrator, paths, YEARS, [0.9])
        parts["sets"].append(np.stack([sets.covered(y)[:, :, 0] for y in outcomes]))
        bands = [band.covered(y)[:, :, 0].min(axis=1, keepdims=True) for y in outcomes]
        parts["band"].append(np.stack(bands))
        values = [value_covered(calibrator, paths, y, (0.9,)) for y in outcomes]
        parts["value"].append(np.stack(values))
    covered = {name: np.concatenate(arrays, axis=1) for name, arrays in parts.items()}
    quintile = sample.paths.groups.get("quintile", np.empty(0, dtype=str))
    for label in np.unique(quintile).tolist():
        if label != "unknown":
            covered[f"sets, quintile={label}"] = covered["sets"][:, quintile == label]
    return {name: np.nanmean(values, axis=1) for name, values in covered.items()}


def forward_table(covered: dict[str, Array]) -> str:
    """Mean, spread and range of coverage over the futures."""
    titles = {
        "value": "present value of K years",
        "band": "band of K years",
        "sets": "sets, all",
    }
    rows: Rows = []
    for name, shares in covered.items():
        for h in HORIZONS if shares.shape[1] > 1 else (YEARS,):
            c = 100 * shares[:, h - 1 if shares.shape[1] > 1 else 0]
            spread = f"{c.std(ddof=1):.2f}" if len(c) > 1 else ""
            mean = f"{c.mean():.2f} ({c.mean() - 90:+.2f})"
            rows.append(
                [titles.get(name, name), str(h), mean, spread, f"{c.min():.2f}", f"{c.max():.2f}"]
            )
    return markdown_table(
        ["product", "h or K", "mean, %", "SD over futures", "lowest", "highest"], rows
    )


def main() -> int:
    """Simulate, fit, judge, print; the exit status."""
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        register = args.register or Path(scratch) / "register"
        folder = args.out or Path(scratch) / "paths"
        if args.register is None:
            settings = RegisterSettings(
                persons=2_000, seed=11, future_to=2022 + YEARS, future_draws=3
            )
            generate_register(register, settings)
        return judge_register(args, register, folder)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = study_parser(__doc__, n_persons=None, n_paths=25)
    parser.add_argument("--register", type=Path, help="a generated register")
    parser.add_argument(
        "--forward", type=Path, help="a register with futures; by default the register itself"
    )
    parser.add_argument("--forward-persons", type=int, default=20_000)
    parser.add_argument("--out", type=Path, help="where paths are kept, to resume later")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rollout", choices=["exact", "light"])
    return parser.parse_args()


def judge_register(args: argparse.Namespace, register: Path, folder: Path) -> int:
    """Print all tables of one register; the exit status."""
    start = time.perf_counter()
    panel = read_panel(register)
    forecaster = Forecaster.load(args.bundle, threads=1, workers=args.workers, rollout=args.rollout)
    about = {
        "model": forecaster.bundle.model_digest,
        "rollout": forecaster.rollout,
        "panel": panel.meta.panel_id,
        "persons": args.persons,
        "paths": args.paths,
        "seed": args.seed,
    }
    open_folder(folder, about)
    trained_on, end = forecaster.bundle.split.get("panel_id"), last_year(panel)
    persons = persons_by_role(panel, trained_on, args.seed, args.persons)
    grouping, draws = Grouping.fit(panel.only(persons["cut"])), Draws(args.paths, args.seed)

    def one_origin(part: Panel) -> Origins:
        return draw_origins(part, max_horizon=YEARS, seed=args.seed, end=end)

    def simulate(role: str, ids: list[str], conditions: Draws) -> Sample:
        return simulate_sample(
            forecaster,
            panel,
            ids,
            one_origin,
            grouping=grouping,
            folder=folder / role,
            draws=conditions,
        )

    calibration = simulate("calibration", persons["calibration"], draws)
    test = simulate("test", persons["test"], draws)
    simulated = time.perf_counter()
    ids = calibration.paths.person_id
    map_fold = sorted(ids[in_map_fold(ids, args.seed)].tolist())
    economy = forecaster.realised_macro(panel, end)
    realised = None
    if economy is not None and map_fold:
        conditioned = replace(draws, scenario=economy)
        realised = simulate("calibration-economy", map_fold, conditioned).paths
    conditioned_end = time.perf_counter()
    calibrator = fit_calibration(
        calibration.paths, calibration.outcomes, seed=args.seed, realised=realised
    )
    calibrator = fit_thresholds(calibrator, calibration.paths, calibration.outcomes, seed=args.seed)
    cqr = fit_cqr(calibration.paths, calibration.outcomes)
    covered = covered_by_product(calibrator, cqr, test)
    tables = CoverageTables(covered, calibration, test, args.seed)
    cells = [*tables.products(), *tables.by_group()]
    comparisons, detected = tables.comparisons()
    sizes = (len(calibration.paths), len(test.paths))
    verdict, status = conclusion([cell.holds for cell in cells], detected, min(sizes))
    print(
        f"{args.bundle} on {panel.meta.panel_id}: {sizes[0]:,} calibration and {sizes[1]:,} test "
        f"persons,\n{args.paths} paths of {YEARS} years ({forecaster.rollout} rollout), seed "
        f"{args.seed};\n{simulated - start:,.0f} s to read and simulate "
        f"({1_000 * (simulated - start) / sum(sizes):.1f} ms per person), "
        f"{conditioned_end - simulated:,.0f} s for the map fold given realised macro,\n"
        f"{time.perf_counter() - conditioned_end:,.0f} s to fit and judge. Cells of groups: "
        f"{sum(group != ALL for _, group in calibrator.cells)}.\n"
    )
    parts = [
        markdown_table(HEADER, [cell.row for cell in cells]),
        tables.pairs_line(),
        markdown_table(("for comparison", *HEADER[1:]), [cell.row for cell in comparisons]),
        conditional_table(covered, test.outcomes),
        verdict,
    ]
    print("\n\n".join(parts), flush=True)
    forward = args.forward or register
    if (forward / "future").is_dir():
        if forward != register:
            panel = read_panel(forward)
            persons["test"] = unseen_and_training(panel, trained_on, args.seed)[0]
        followed = panel.only(sorted(persons["test"][: args.forward_persons]))
        year = last_year(panel)
        origins = origins_at(followed, year)
        sample = simulate_sample(
            forecaster,
            followed,
            [str(person) for person in origins.person_id],
            lambda part: origins_at(part, year),
            grouping=grouping,
            folder=folder / f"forward-{panel.meta.panel_id}-{args.forward_persons}",
            draws=draws,
        )
        years = range(1, YEARS + 1)
        drawn_futures = true_futures(forward, origins, years, price_year=panel.meta.price_year)
        futures = np.stack([outcomes for _, outcomes in drawn_futures])
        print(
            f"\nForward: {len(origins):,} test persons from the last year, in each of "
            f"{len(futures)} drawn macro futures, 90 %.\n"
        )
        print(forward_table(forward_coverage(calibrator, sample, futures)))
    return status


if __name__ == "__main__":
    sys.exit(main())
