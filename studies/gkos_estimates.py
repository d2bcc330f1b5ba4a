"""How do estimates of the GKOS process compare with the published parameters?

    python -m studies.gkos_estimates PANEL [--seed S] [--persons N]

Prints the estimates with standard errors and the cost of the fit. For N validation persons (0: no
second table) it also prints the CRPS of log earnings (200 paths) of `gkos`, `gkos-paper`, `carry`
and `groupq`, and the difference from `groupq` with its standard error. Test persons are not used.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from evaluation.baselines.gkos.gkos import Gkos, GkosPaper
from evaluation.baselines.gkos.gkos_smm import GROWTH, IDLENESS, PUBLISHED, SHOCKS, Fit
from evaluation.baselines.naive.carry import CarryForward
from evaluation.baselines.naive.groupq import GroupQuantiles
from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.keyed_random import sample_persons
from saga.scores import crps_log
from studies.study_page import study_parser

HORIZONS, PATHS = (1, 5, 10, 20), 200


def main() -> None:
    """Print both tables."""
    parser = study_parser(__doc__)
    parser.add_argument("panel", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--persons", type=int, default=1_000)
    args = parser.parse_args()
    panel, seed = read_panel(args.panel), args.seed
    training = panel.only(persons_of(panel, "train"))
    print(f"{panel.meta.panel_id}: {len(training.persons()):,} training persons, seed {seed}")
    published_form, robust_form = GkosPaper(), Gkos()
    for baseline in (published_form, robust_form):
        start = time.process_time()
        baseline.fit(training, seed=seed)
        print(f"{baseline.name}: fitted in {time.process_time() - start:.0f} CPU seconds")
    columns = {
        f"{baseline.name}, {group}": fit
        for baseline in (published_form, robust_form)
        for group, fit in baseline.fits.items()
    }
    print_estimates(columns)
    if args.persons:
        print_forecasts(panel, training, [published_form, robust_form], args.persons, seed)


def print_estimates(columns: dict[str, Fit]) -> None:
    """Print parameters by row and fit; a dash if a fit does not estimate the parameter."""
    print(f"\n{'parameter':12s}{'published':>10s}" + "".join(f"{name:>30s}" for name in columns))
    for name in {**GROWTH, **SHOCKS, **IDLENESS}:
        cells = [
            f"{fit.values[name]:.3f} ({fit.errors[name]:.3f})" if name in fit.values else "-"
            for fit in columns.values()
        ]
        print(f"{name:12s}{PUBLISHED[name]:10.3f}" + "".join(f"{cell:>30s}" for cell in cells))
    objectives = (f"{fit.objective:.0f} of {len(fit.moments)} moments" for fit in columns.values())
    print(f"{'objective':22s}" + "".join(f"{text:>30s}" for text in objectives))


def print_forecasts(
    panel: Panel, training: Panel, fitted: list[GkosPaper | Gkos], persons: int, seed: int
) -> None:
    """Print CRPS by horizon, and its difference from group quantiles."""
    validation = persons_of(panel, "validation")
    sample = panel.only(sample_persons(validation, persons, "gkos-bench", panel.meta.panel_id))
    end = last_year(panel)
    origins = draw_origins(sample, max_horizon=30, seed=seed, end=end)
    past = history(sample, origins)
    outcomes = realised_earnings(sample, origins, list(HORIZONS), end=end)
    print(
        f"\nCRPS of log earnings, {len(origins)} validation persons, h = {HORIZONS}; "
        "difference from groupq (standard error)"
    )
    reference = None  # scores of the first baseline
    for baseline in (
        GroupQuantiles().fit(training, seed=seed),
        CarryForward().fit(training, seed=seed),
        *fitted,
    ):
        start = time.process_time()
        paths = baseline.simulate(past, origins, to_horizon=HORIZONS[-1], n_paths=PATHS, seed=seed)
        cost = 1000 * (time.process_time() - start) / len(origins)
        earnings = paths.earnings[:, np.array(HORIZONS) - 1]
        crps = crps_log(earnings, outcomes, panel.meta.floor)
        reference = crps if reference is None else reference
        change = crps - reference
        error = np.nanstd(change, axis=0) / np.sqrt(np.isfinite(change).sum(axis=0))
        cells = zip(np.nanmean(crps, axis=0), np.nanmean(change, axis=0), error, strict=True)
        row = "".join(f"  {mean:.4f} {diff:+.4f} ({se:.4f})" for mean, diff, se in cells)
        print(f"{baseline.name:12s}{row}  {cost:5.1f} ms per person", flush=True)


if __name__ == "__main__":
    main()
