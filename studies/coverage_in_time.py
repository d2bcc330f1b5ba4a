"""Do the intervals cover as often as they state? One year, groups, sums and whole paths.

    python -m studies.coverage_in_time [--bundle bundles/small] [--register DIR] [--forward DIR]
        [--persons N] [--out DIR] [--paths 25] [--workers 1] [--rollout exact|light]

The guarantee of split conformal prediction holds for any number of paths, so few are simulated; the
sets are wider, but cover as often. Persons come from a generated register, without the bundle's
training persons. A tenth of them fixes the cut-offs of groups; a keyed hash divides the others into
calibration and test persons. If the register (or another one, --forward) has true futures, test
persons are also forecast from its last year; a table gives mean and spread of coverage over the
futures.

Exit 1 if a stated coverage is missed, or if a calibrator that is known to be broken passes although
there are enough persons to detect it. A figure without outcomes or intervals counts neither as held
nor as missed, and the last line says so.

Paths are stored in --out in parts of 10,000 persons: after an interruption the same command
resumes. The bounds of the project need a register of 500,000 persons and some hours (the time per
person is printed). Without --register a small register is generated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
from studies.coverage_verdicts import (
    HEADER,
    CoverageTables,
    conclusion,
    conditional_table,
    forward_table,
)
from studies.study_page import bundle_parser

Array = NDArray[np.float64]


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
                "uncalibrated": covered_by_raw_sets(calibrator, raw, y),
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


def covered_by_raw_sets(calibrator: Calibrator, raw: Paths, outcomes: Array) -> Array:
    """The broken calibrator: sets that contain 90 % of a person's raw paths, (n, n_horizon)."""
    covered = np.full(outcomes.shape, np.nan)
    for h in range(YEARS):
        rows = np.flatnonzero(~np.isnan(outcomes[:, h]))
        growth = grow(np.sort(raw.earnings[rows, h], axis=1), calibrator.scale)
        sets = growth.with_atom(DEFAULT_ATOM_WIDTH)
        covered[rows, h] = sets.score(outcomes[rows, h]) <= 0.9
    return covered


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


def main() -> int:
    """Run the study on a given or a temporary register; the exit status."""
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
    parser = bundle_parser(__doc__, n_persons=None, n_paths=25)
    parser.add_argument("--register", type=Path, help="a generated register")
    forward = "a register with futures; by default the register itself"
    parser.add_argument("--forward", type=Path, help=forward)
    parser.add_argument("--forward-persons", type=int, default=20_000)
    parser.add_argument("--out", type=Path, help="folder of the paths, to resume later")
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
    figures = [*tables.products(), *tables.by_group()]
    comparisons, detected = tables.comparisons()
    sizes = (len(calibration.paths), len(test.paths))
    verdict, status = conclusion([figure.holds for figure in figures], detected, min(sizes))
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
        markdown_table(HEADER, [figure.row for figure in figures]),
        tables.pairs_line(),
        markdown_table(("for comparison", *HEADER[1:]), [figure.row for figure in comparisons]),
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
