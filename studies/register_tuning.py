"""Which values of the register's free parameters fit the table of targets best?

    python -m studies.register_tuning [--persons 40000] [--seed 101] [--steps 1] [--workers 2]
        [--ridge 1]

Gauss-Newton steps for parameters with mark C. The study prints the proposed values; they are then
rounded and written into
`saga/register/simulation/tables/parameters.csv` by hand. The criterion
is the distance to the targets of `saga register check` in units of their bands; targets that are
not enforced, most of them from memory, have a lower weight (`UNENFORCED_WEIGHT`). No forecasting
model is involved. All registers have the same random numbers (one seed), so differences are smooth.
Registers of other seeds show what was fitted to noise.
"""

from __future__ import annotations

import argparse
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from saga.register import RegisterSettings
from saga.register.simulation.parameters import Parameters
from studies.register_targets import generate_and_check
from studies.study_page import study_parser

# section.field[.index] -> step of the difference quotient, which is also the unit of a change.
STEPS: dict[str, float] = {
    "economy.loss_scale": 0.04, "economy.finding_at_two": 0.03, "economy.finding_slope": 0.4,
    "population.mother_leave.2": 4.0, "careers.base": 0.01, "careers.women": 0.015,
    "careers.women_trend": 0.0008, "careers.ability_sd.0": 0.01, "careers.ability_sd.1": 0.01,
    "careers.slope_sd": 0.0007, "careers.top_start": 0.04, "careers.top_stretch": 0.25,
    "careers.floor_start": 0.08, "careers.floor_slope": 0.07, "careers.persistence": 0.006,
    "careers.small_shock_sd": 0.005, "careers.large_shock_sd": 0.015,
    "careers.large_shock_share": 0.01, "careers.large_shock_cycle": 1.0, "careers.loud_sd": 0.04,
    "careers.loud_share": 0.015, "careers.scar_loss": 0.02, "careers.care_first": 0.03,
    "careers.cycle_by_industry": 0.15, "careers.duration_dependence": 0.04,
    "careers.to_outside": 0.012, "careers.outside_finding": 0.03, "careers.outside_duration": 0.04,
    "careers.activation": 0.1, "careers.quit_outside": 0.0008, "careers.part_time.0": 0.02,
    "careers.part_time.1": 0.02, "careers.part_time_mother": 0.04, "careers.part_time_fall": 0.005,
    "careers.casual.1": 0.06, "careers.casual.2": 0.05, "careers.casual.3": 0.05,
    "careers.casual_prime": 0.1, "careers.casual_weeks.0": 3.0, "careers.casual_weeks.1": 2.5,
    "careers.casual_hours": 0.05, "careers.disability_at_45": 0.0006,
    "careers.job_change_sd": 0.015, "self_employment.start.0": 0.0015,
    "self_employment.start.1": 0.0010, "self_employment.level": 0.08,
    "self_employment.start_sd": 0.07, "self_employment.persistence": 0.04, "benefits.insured": 0.06,
    "benefits.disability_rate": 0.05, "benefits.pension_rate": 0.06,
}  # fmt: skip
# First words of the keys of the targets that are fitted.
FITTED_TARGETS = (
    *("level", "bins", "assessed2019", "employment", "wage_ratio"),
    *("gap44", "premium", "sign", "grid", "child_penalty"),
)
UNENFORCED_WEIGHT = 0.3  # of a target that is not enforced
MAX_CHANGE = 2.0  # of a parameter in a Gauss-Newton step, in units of STEPS
Values = dict[str, float]


def read_parameter(parameters: Parameters, name: str) -> float:
    """The value at `section.field[.index]`."""
    section, field, *index = name.split(".")
    value = getattr(getattr(parameters, section), field)
    return float(value[int(index[0])] if index else value)


def with_values(parameters: Parameters, values: Values) -> Parameters:
    """The parameters with other values at these names."""
    changed: dict[str, Any] = {}
    for name, number in values.items():
        section, field, *index = name.split(".")
        key = f"{section}.{field}"
        if index:
            items = list(changed.get(key, getattr(getattr(parameters, section), field)))
            items[int(index[0])] = number
            changed[key] = tuple(items)
        else:
            changed[key] = number
    return parameters.changed(changed)


def residuals(values: Values, persons: int, seed: int) -> Values:
    """Target -> weighted distance of a register with these parameters."""
    parameters = with_values(Parameters(), values)
    settings = RegisterSettings(persons=persons, seed=seed, parameters=parameters)
    table = generate_and_check(settings, only=FITTED_TARGETS).drop_nulls("value")
    distances = {row["key"]: distance(row) for row in table.iter_rows(named=True)}
    return {key: value for key, value in distances.items() if value is not None}


def distance(row: dict[str, Any]) -> float | None:
    """(value - target) / tolerance, weighted; None without a band.

    The tolerance is half the band's width without its allowance for sampling error (3 standard
    errors). If a band has no target, only what is beyond 80 % of the tolerance from its middle
    counts. With one limit only, the value must be inside it by 0.9 standard errors; what is missing
    is divided by 1.5 standard errors.
    """
    weight = 1.0 if row["enforced"] else UNENFORCED_WEIGHT
    sampling = 3.0 * (row["se"] or 0.0)
    value, target, low, high = (row[name] for name in ("value", "target", "low", "high"))
    if low is not None and high is not None:
        middle = 0.5 * (low + high) if target is None else target
        half = max(0.5 * (high - low) - sampling, 1e-9)
        if target is not None:
            return float(weight * (value - middle) / half)
        excess = max(abs(value - middle) - 0.8 * half, 0.0)
        return float(weight * np.sign(value - middle) * excess / half)
    if low is None and high is None:
        return None
    shortfall = (low - value if low is not None else value - high) + 0.3 * sampling
    return float(weight * max(shortfall, 0.0) / max(sampling, 1e-9) * 2.0)


def main() -> None:
    """Print the values of each step; stop at a step that does not help."""
    parser = study_parser(__doc__)
    parser.add_argument("--persons", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--ridge", type=float, default=1.0, help="weight of staying near the current values"
    )
    args = parser.parse_args()
    initial = {name: read_parameter(Parameters(), name) for name in STEPS}
    values = initial
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        for step in range(args.steps):
            proposed, line = gauss_newton_step(pool, values, args)
            print(f"step {step}: {line}", flush=True)
            if proposed is None:
                break
            values = proposed
            for name, number in values.items():
                print(f"  {name:32s} {initial[name]:9.5f} -> {number:9.5f}", flush=True)


def gauss_newton_step(
    pool: Executor, values: Values, args: argparse.Namespace
) -> tuple[Values | None, str]:
    """The better of a whole and a half step (None if neither helps), and a line on the losses."""

    def submit(trial: Values) -> Any:
        return pool.submit(residuals, trial, args.persons, args.seed)

    base_job = submit(values)
    jobs = [submit(values | {name: values[name] + size}) for name, size in STEPS.items()]
    base, shifted = base_job.result(), [job.result() for job in jobs]
    keys = [key for key in base if all(key in distances for distances in shifted)]
    start = np.array([base[key] for key in keys])
    jacobian = np.array([[distances[key] - base[key] for key in keys] for distances in shifted]).T
    change = np.clip(
        np.linalg.solve(
            jacobian.T @ jacobian + args.ridge * np.eye(len(STEPS)), -jacobian.T @ start
        ),
        -MAX_CHANGE,
        MAX_CHANGE,
    )
    trials = {
        fraction: {
            name: values[name] + fraction * change[i] * size
            for i, (name, size) in enumerate(STEPS.items())
        }
        for fraction in (1.0, 0.5)
    }
    trial_jobs = {fraction: submit(trial) for fraction, trial in trials.items()}
    losses = {
        fraction: sum(job.result().get(key, 0.0) ** 2 for key in keys)
        for fraction, job in trial_jobs.items()
    }
    best = min(losses, key=losses.__getitem__)
    loss = float(start @ start)
    linear = float(((start + jacobian @ change) ** 2).sum())
    line = f"{loss:.1f} -> {losses} (linear: {linear:.1f})"
    return (trials[best] if losses[best] < loss else None), line


if __name__ == "__main__":
    main()
