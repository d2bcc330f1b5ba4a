"""Reliability of p_zero: of those who were told a chance of no earnings, how many had none, in the panel's years and in true futures.

    python -m studies.zero_reliability REGISTER [--bundle bundles/small] [--horizons 1,5,10,20] [--persons N] [--paths 500] [--seed 0]

REGISTER is a generated register of another seed than the bundle's, with `future/draw=k`. Its test persons are asked as in the contest:
in-time from an origin each, forward from the last year. ± is the standard error: over persons in-time; forward over persons, each with
the share of futures, and over futures, whose economies are shared. The Brier score is split as by Murphy (1973), within these bins.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.scoring.evaluation_settings import Sample, Setting
from saga.cli.options import parse_horizons
from saga.data.origins import history
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.requests import PATHS, Draws, ForecastRequest, check_horizons
from studies.harness import code_commit, command_line, study_parser

Array = NDArray[np.float64]
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
FEWEST = 30  # persons of a bin that is shown


def main() -> None:
    """Prints a table a setting."""
    parser = study_parser(__doc__, n_persons=None, n_paths=PATHS)
    parser.add_argument("register", type=Path)
    parser.add_argument("--horizons", default="1,5,10,20")
    args = parser.parse_args()
    horizons = check_horizons(parse_horizons(args.horizons))
    forecaster, panel = Forecaster.load(args.bundle), read_panel(args.register)
    sample = Sample.of(
        panel, seed=args.seed, persons=args.persons, until=forecaster.bundle.config["until"]
    )
    about = f"bundle {forecaster.bundle.digest[:12]}, register {panel.meta.panel_id}, {args.paths} paths"
    print(f"`{command_line(__file__)}`\nCommit {code_commit()}, {about}.")
    for setting in sample.settings(horizons, args.register):
        told = chances(forecaster, setting, horizons, paths=args.paths, seed=args.seed)
        came = np.stack(
            [outcomes for _, outcomes in setting.outcomes]
        )  # (draws, persons, horizons)
        print(
            f"\n{setting.name}\n\n| h | chance forecast | persons | mean chance, % | without earnings, % |\n|---|---|---|---|---|"
        )
        totals = []
        for j, h in enumerate(horizons):
            known = ~np.isnan(came[:, :, j]).all(0)
            zero = np.where(np.isnan(came[:, known, j]), np.nan, came[:, known, j] == 0)
            rows, brier, misfit = reliability(told[known, j], zero)
            for low, high, n, chance, share, error in rows:
                print(
                    f"| {h} | {low:.0%} to {high:.0%} | {n:,} | {100 * chance:.1f} | {100 * share:.1f} ± {100 * error:.1f} |"
                )
            totals.append(f"h = {h}: Brier {brier:.4f}, of which miscalibration {misfit:.5f}")
        print("\n" + "; ".join(totals) + ".", flush=True)


def chances(
    forecaster: Forecaster, setting: Setting, horizons: tuple[int, ...], *, paths: int, seed: int
) -> Array:
    """Forecast chance of no earnings of the setting's persons, in its order, (n, H); NaN beyond age 64."""
    table = forecaster.forecast(
        history(setting.past, setting.origins),
        ForecastRequest(horizons=horizons),
        Draws(paths, seed),
    )
    at = {person: i for i, person in enumerate(setting.origins.person_id.tolist())}
    out = np.full((len(at), len(horizons)), np.nan)
    rows = [at[person] for person in table["person_id"]]
    out[rows, np.searchsorted(horizons, table["horizon"].to_numpy())] = table["p_zero"].to_numpy()
    return out


def reliability(
    told: Array, zero: Array
) -> tuple[list[tuple[float, float, int, float, float, float]], float, float]:
    """Rows (from, to, persons, mean chance, share, its standard error) of bins, the Brier score, and its part of miscalibration.

    `told` (n,) chances, `zero` (draws, n) 1 where there were no earnings, NaN where not known.
    """
    bins = np.clip(np.searchsorted(EDGES, told, side="right") - 1, 0, len(EDGES) - 2)
    known, rows, misfit = ~np.isnan(zero), [], 0.0
    for j in np.unique(bins):
        part = zero[:, bins == j]
        share, chance, n = float(np.nanmean(part)), float(told[bins == j].mean()), part.shape[1]
        misfit += known[:, bins == j].sum() / known.sum() * (share - chance) ** 2
        persons = np.nanmean(part, 0).std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        futures = np.nanmean(part, 1).std(ddof=1) / np.sqrt(len(part)) if len(part) > 1 else 0.0
        if n >= FEWEST:
            rows.append(
                (EDGES[j], EDGES[j + 1], n, chance, share, float(np.hypot(persons, futures)))
            )
    return rows, float(np.nanmean((told - zero) ** 2)), misfit


if __name__ == "__main__":
    main()
