"""The GKOS process estimated on a panel's training persons, beside the published parameters; and its forecasts of validation persons.

    python -m studies.gkos_estimates PANEL [--seed S] [--persons N]

Estimates with their standard errors, what the fit cost, and CRPS of log earnings (200 paths) of `gkos`, `gkos-paper`, `carry` and `groupq`
for N validation persons (0: none), with the standard error of the difference from `groupq`. Test persons are not looked at.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from evaluation.baselines.gkos.gkos import Gkos, GkosPaper
from evaluation.baselines.gkos.gkos_smm import GROWTH, IDLENESS, SHOCKS, Fit, process_values
from evaluation.baselines.naive.carry import CarryForward
from evaluation.baselines.naive.groupq import GroupQuantiles
from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.keyed_random import uniform_each
from saga.register.textbook.gkos_process import GkosProcess
from saga.scores import crps_log

HORIZONS, PATHS = (1, 5, 10, 20), 200


def main(source: Path, seed: int, persons: int) -> None:
    """Prints both tables."""
    panel = read_panel(source)
    training = panel.only(persons_of(panel, "train"))
    print(f"{panel.meta.panel_id}: {len(training.persons()):,} training persons, seed {seed}")
    paper, best = GkosPaper(), Gkos()
    for baseline in (paper, best):
        start = time.process_time()
        baseline.fit(training, seed=seed)
        print(f"{baseline.name}: fitted in {time.process_time() - start:.0f} CPU seconds")
    columns = {
        f"{baseline.name}, {people}": fit
        for baseline in (paper, best)
        for people, fit in baseline.estimates.items()
    }
    estimates(columns)
    if persons:
        forecasts(panel, training, [paper, best], persons, seed)


def estimates(columns: dict[str, Fit]) -> None:
    """Parameters by row and process; a dash where a process does not estimate one."""
    print(f"\n{'parameter':12s}{'published':>10s}" + "".join(f"{name:>30s}" for name in columns))
    for name in {**GROWTH, **SHOCKS, **IDLENESS}:
        cells = [
            f"{fit.values[name]:.3f} ({fit.errors[name]:.3f})" if name in fit.values else "-"
            for fit in columns.values()
        ]
        print(
            f"{name:12s}{process_values(GkosProcess())[name]:10.3f}"
            + "".join(f"{cell:>30s}" for cell in cells)
        )
    print(
        f"{'objective':22s}"
        + "".join(
            f"{f'{fit.objective:.0f} of {len(fit.moments)} moments':>30s}"
            for fit in columns.values()
        )
    )


def forecasts(
    panel: Panel, training: Panel, fitted: list[GkosPaper | Gkos], persons: int, seed: int
) -> None:
    """CRPS by horizon, and its difference from group quantiles."""
    validation = persons_of(panel, "validation")
    order = np.argsort(uniform_each(validation, "gkos-bench", panel.meta.panel_id))
    own = panel.only(sorted(validation[i] for i in order[:persons]))
    origins = draw_origins(own, max_horizon=30, seed=seed, end=last_year(panel))
    past, outcomes = (
        history(own, origins),
        realised_earnings(own, origins, list(HORIZONS), end=last_year(panel)),
    )
    print(
        f"\nCRPS of log earnings, {len(origins)} validation persons, h = {HORIZONS}; difference from groupq (standard error)"
    )
    reference = None
    for baseline in (
        GroupQuantiles().fit(training, seed=seed),
        CarryForward().fit(training, seed=seed),
        *fitted,
    ):
        start = time.process_time()
        drawn = baseline.simulate(
            past, origins, to_horizon=HORIZONS[-1], n_paths=PATHS, seed=seed
        ).earnings[:, np.array(HORIZONS) - 1]
        cost = 1000 * (time.process_time() - start) / len(origins)
        scored = crps_log(drawn, outcomes, panel.meta.floor)
        reference = scored if reference is None else reference
        change = scored - reference
        error = np.nanstd(change, axis=0) / np.sqrt(np.isfinite(change).sum(axis=0))
        cells = zip(np.nanmean(scored, axis=0), np.nanmean(change, axis=0), error, strict=True)
        row = "".join(f"  {value:.4f} {d:+.4f} ({e:.4f})" for value, d, e in cells)
        print(f"{baseline.name:12s}{row}  {cost:5.1f} ms a person", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="GKOS estimates beside the published parameters.")
    parser.add_argument("panel", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--persons", type=int, default=1_000)
    arguments = parser.parse_args()
    main(arguments.panel, arguments.seed, arguments.persons)
