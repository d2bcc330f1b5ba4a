"""Are the exact forecasters of the textbook processes exact, and what do they cost?

    python -m studies.exact_forecasters [PERSONS] [SEED]

Do the forecasts of the particle filter change with its number of particles? Are both forecasters
calibrated? Persons have records from age 25 to 44 and are forecast to 64. CRPS is that of log
earnings with 200 paths. Changes are from the largest number of particles, with the same random
numbers, and have standard errors over persons.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np
from saga.evaluation.textbook import Process
from saga.evaluation.textbook.exact_forecaster import ExactForecaster, earnings_by_age
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess
from saga.evaluation.textbook.gkos_process import FEW_ZEROS, GkosProcess
from saga.evaluation.textbook.kalman_filter import KalmanFilter
from saga.evaluation.textbook.particle_filter import GkosFilter
from saga.evaluation.textbook.textbook_register import Cohort
from scipy.stats import kstest

from saga.data.origins import Origins, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.scores import crps_log, pit, pit_uniforms
from studies.study_page import study_parser

HORIZONS, PATHS, PARTICLES = (1, 5, 10, 20), 200, (125, 250, 500, 1_000)
BORN, AGE = 1950, 44


def main() -> None:
    """Print the three tables."""
    parser = study_parser(__doc__)
    parser.add_argument("persons", type=int, nargs="?", default=200)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    args = parser.parse_args()
    persons, seed = args.persons, args.seed
    gkos, gaussian = replace(GkosProcess(), last_age=64), replace(GaussianProcess(), last_age=64)
    print(f"{persons} persons, seed {seed}, origin at {AGE}, h = {HORIZONS}")
    print_cost(gaussian, gkos, seed)
    print_particles(gkos, persons, seed)
    print_calibration(gaussian, gkos, persons, seed)


def print_calibration(
    gaussian: GaussianProcess, gkos: GkosProcess, persons: int, seed: int
) -> None:
    """Print the PIT of forecasters with the true parameters, and of two with a wrong one."""
    print("\nPIT: p-values of Kolmogorov's test, by horizon")
    few_zeros = replace(gkos, nonemployment=FEW_ZEROS.nonemployment)
    rows: list[tuple[str, Process, KalmanFilter | GkosFilter]] = [
        ("gaussian", gaussian, KalmanFilter(gaussian)),
        ("gkos", gkos, GkosFilter(gkos, 250)),
        ("gaussian, wrong sd of eta .3", gaussian, KalmanFilter(replace(gaussian, sd_eta=0.3))),
        ("gkos, wrong: few zeros", gkos, GkosFilter(few_zeros, 250)),
    ]
    for name, process, filter_ in rows:
        panel, origins = sample(process, persons, seed)
        paths = ExactForecaster(filter_).simulate(
            panel, origins, to_horizon=HORIZONS[-1], n_paths=PATHS, seed=seed
        )
        outcomes = realised_earnings(panel, origins, range(1, HORIZONS[-1] + 1))
        u = pit(paths.earnings, outcomes, pit_uniforms(paths))
        p_values = (f"{kstest(u[:, h - 1], 'uniform').pvalue:10.2g}" for h in HORIZONS)
        print(f"{name:30s}" + "".join(p_values), flush=True)


def print_cost(gaussian: GaussianProcess, gkos: GkosProcess, seed: int) -> None:
    """Print the CPU time of a forecast, without the tables that a filter makes once."""
    print(f"\nCPU milliseconds per person: 25 years of history, {PATHS} paths to h = 20")
    rows: list[tuple[str, Process, KalmanFilter | GkosFilter]] = [
        ("gaussian", gaussian, KalmanFilter(gaussian))
    ]
    rows += [(f"gkos, {n} particles", gkos, GkosFilter(gkos, n)) for n in PARTICLES]
    for name, process, filter_ in rows:
        panel, origins = sample(process, 100, seed, age=49)
        forecast = partial(
            ExactForecaster(filter_).simulate, panel, to_horizon=20, n_paths=PATHS, seed=seed
        )
        forecast(origins.take(slice(0, 2)))
        start = time.process_time()
        forecast(origins)
        print(f"{name:30s}{10 * (time.process_time() - start):10.1f}", flush=True)


def print_particles(process: GkosProcess, persons: int, seed: int) -> None:
    """Print CRPS and posterior means by number of particles."""
    panel, origins = sample(process, persons, seed)
    outcomes = realised_earnings(panel, origins, range(1, HORIZONS[-1] + 1))
    earnings = earnings_by_age(panel, origins, process)[2]
    columns = np.array(HORIZONS) - 1
    crps, means = {}, {}
    for n in PARTICLES:
        filter_ = GkosFilter(process, n)
        paths = ExactForecaster(filter_).simulate(
            panel, origins, to_horizon=HORIZONS[-1], n_paths=PATHS, seed=seed
        )
        crps[n] = crps_log(paths.earnings, outcomes)[:, columns]
        posteriors = [filter_.posterior(record, AGE) for record in earnings[:50]]
        means[n] = np.array(
            [[*(p.effects @ p.weight), p.weight @ p.density @ p.z] for p in posteriors]
        )
    largest = PARTICLES[-1]
    print(
        "\nparticles  CRPS, change (standard error) by horizon; "
        "largest change of a person's posterior mean of alpha, beta, z"
    )
    for n in PARTICLES:
        change = crps[n] - crps[largest]
        error = change.std(axis=0) / np.sqrt(persons)
        by_horizon = zip(crps[n].mean(axis=0), change.mean(axis=0), error, strict=True)
        cells = "  ".join(f"{c:.4f} {d:+.4f} ({e:.4f})" for c, d, e in by_horizon)
        alpha, beta, z = np.abs(means[n] - means[largest]).max(axis=0)
        print(f"{n:9d}  {cells}   {alpha:.5f} {beta:.5f} {z:.5f}")


def sample(process: Process, persons: int, seed: int, age: int = AGE) -> tuple[Panel, Origins]:
    """Complete records of one cohort, and an origin at `age` for everybody."""
    rng = np.random.default_rng(seed)
    rows = Cohort.at_start(process, BORN, np.arange(persons), rng).simulate(
        BORN + process.last_age, rng
    )
    ids = rows["person_id"].unique().sort().to_list()
    return Panel.of(rows, PanelMeta("textbook")), Origins(
        np.array(ids), np.full(persons, BORN + age)
    )


if __name__ == "__main__":
    main()
