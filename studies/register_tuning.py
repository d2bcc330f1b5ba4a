"""How the register's free parameters (marked C) were set: Gauss-Newton steps towards the table of targets, and nothing else.

    python -m studies.register_tuning --persons 40000 --steps 1 --workers 2

Prints the proposed values; they are then rounded and written into `saga/register/simulation/parameters.py` by hand. The criterion is the
distance to the targets of `saga register check` in units of their bands; figures from memory weigh a third. No forecasting model is
involved. Common random numbers (one seed) make the differences smooth; the check on other seeds shows what was fitted to noise.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from saga.register import RegisterSettings, generate_register
from saga.register.simulation.parameters import Parameters
from saga.register.validation.register_check import check_register

# section.field[.index] -> step of the difference quotient; also the scale on which a change counts as moderate.
STEPS: dict[str, float] = {
    "economy.loss_scale": 0.04, "economy.finding_at_two": 0.03, "economy.finding_slope": 0.4,
    "population.mother_leave.2": 4.0,
    "careers.base": 0.01, "careers.women": 0.015, "careers.women_trend": 0.0008, "careers.ability_sd.0": 0.01,
    "careers.ability_sd.1": 0.01, "careers.slope_sd": 0.0007, "careers.top_start": 0.04, "careers.top_stretch": 0.25,
    "careers.floor_start": 0.08, "careers.floor_slope": 0.07, "careers.persistence": 0.006, "careers.small_shock_sd": 0.005,
    "careers.large_shock_sd": 0.015, "careers.large_shock_share": 0.01, "careers.large_shock_cycle": 1.0, "careers.loud_sd": 0.04,
    "careers.loud_share": 0.015, "careers.scar_loss": 0.02, "careers.care_first": 0.03, "careers.cycle_by_industry": 0.15,
    "careers.duration_dependence": 0.04, "careers.to_outside": 0.012, "careers.outside_finding": 0.03, "careers.outside_duration": 0.04,
    "careers.activation": 0.1, "careers.quit_outside": 0.0008, "careers.part_time.0": 0.02, "careers.part_time.1": 0.02,
    "careers.part_time_mother": 0.04, "careers.part_time_fall": 0.005, "careers.casual.1": 0.06, "careers.casual.2": 0.05,
    "careers.casual.3": 0.05, "careers.casual_prime": 0.1, "careers.casual_weeks.0": 3.0, "careers.casual_weeks.1": 2.5,
    "careers.casual_hours": 0.05, "careers.disability_at_45": 0.0006, "careers.job_change_sd": 0.015,
    "self_employment.start.0": 0.0015, "self_employment.start.1": 0.0010, "self_employment.level": 0.08, "self_employment.start_sd": 0.07,
    "self_employment.persistence": 0.04, "benefits.insured": 0.06, "benefits.disability_rate": 0.05, "benefits.pension_rate": 0.06,
}  # fmt: skip
AIMED = (
    "level",
    "bins",
    "assessed2019",
    "employment",
    "wage_ratio",
    "gap44",
    "premium",
    "sign",
    "grid",
    "child_penalty",
)


def value(p: Parameters, name: str) -> float:
    section, field, *index = name.split(".")
    found = getattr(getattr(p, section), field)
    return float(found[int(index[0])] if index else found)


def changed(p: Parameters, values: dict[str, float]) -> Parameters:
    for name, number in values.items():
        section, field, *index = name.split(".")
        part = getattr(p, section)
        if index:
            items = list(getattr(part, field))
            items[int(index[0])] = number
            p = replace(p, **{section: replace(part, **{field: tuple(items)})})
        else:
            p = replace(p, **{section: replace(part, **{field: number})})
    return p


def residuals(values: dict[str, float], persons: int, seed: int) -> dict[str, float]:
    """(value - target) / tolerance of every target, hinges for one-sided ones."""
    folder = Path(tempfile.mkdtemp())
    try:
        generate_register(
            folder / "r",
            RegisterSettings(persons=persons, seed=seed, parameters=changed(Parameters(), values)),
        )
        rows = check_register(folder / "r", only=AIMED).to_dicts()
    finally:
        shutil.rmtree(folder)
    out = {}
    for row in rows:
        if row["value"] is None or (row["low"] is None and row["high"] is None):
            continue
        weight = 1.0 if row["enforced"] else 0.3
        band = 3.0 * (row["se"] or 0.0)
        low, high = row["low"], row["high"]
        if low is not None and high is not None:
            middle = row["target"] if row["target"] is not None else 0.5 * (low + high)
            half = max(0.5 * (high - low) - band, 1e-9)
            if row["target"] is None:  # inside a remembered band any value is as good as another
                excess = max(abs(row["value"] - middle) - 0.8 * half, 0.0)
                out[row["key"]] = weight * float(np.sign(row["value"] - middle)) * excess / half
            else:
                out[row["key"]] = weight * (row["value"] - middle) / half
        else:
            # One-sided: want to clear the bound by half the allowance for sampling error.
            gap = (
                (low + 0.3 * band - row["value"])
                if low is not None
                else (row["value"] - high + 0.3 * band)
            )
            out[row["key"]] = weight * max(gap, 0.0) / max(band, 1e-9) * 2.0
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--ridge", type=float, default=1.0, help="weight of staying near the present values"
    )
    args = parser.parse_args()
    now = {name: value(Parameters(), name) for name in STEPS}
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        for step in range(args.steps):
            base = pool.submit(residuals, now, args.persons, args.seed)
            moved = {
                n: pool.submit(residuals, now | {n: now[n] + s}, args.persons, args.seed)
                for n, s in STEPS.items()
            }
            r = base.result()
            keys = [k for k in r if all(k in m.result() for m in moved.values())]
            start = np.array([r[k] for k in keys])
            jacobian = np.array([[moved[n].result()[k] - r[k] for k in keys] for n in STEPS]).T
            move = np.linalg.solve(
                jacobian.T @ jacobian + args.ridge * np.eye(len(STEPS)), -jacobian.T @ start
            )
            move = np.clip(move, -2.0, 2.0)
            trial = {n: now[n] + move[i] * STEPS[n] for i, n in enumerate(STEPS)}
            shorter = {
                f: {n: now[n] + f * move[i] * STEPS[n] for i, n in enumerate(STEPS)} for f in (0.5,)
            }
            tried = {1.0: pool.submit(residuals, trial, args.persons, args.seed)}
            tried |= {
                f: pool.submit(residuals, v, args.persons, args.seed) for f, v in shorter.items()
            }
            loss = {f: sum(t.result().get(k, 0.0) ** 2 for k in keys) for f, t in tried.items()}
            best = min(loss, key=loss.__getitem__)
            predicted = float(((start + jacobian @ move) ** 2).sum())
            print(
                f"step {step}: {float(start @ start):.1f} -> {loss} (linear: {predicted:.1f})",
                flush=True,
            )
            if loss[best] >= float(start @ start):
                break
            now = trial if best == 1.0 else shorter[best]
            for name, number in now.items():
                print(f"  {name:32s} {value(Parameters(), name):9.5f} -> {number:9.5f}", flush=True)


if __name__ == "__main__":
    main()
