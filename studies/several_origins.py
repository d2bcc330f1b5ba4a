"""Are intervals better if each of few calibration persons has several origins?

    python -m studies.several_origins --bundle BUNDLE --panel PANEL [--mapping NAME] [--prices YEAR]
        [--persons 3600] [--calibrated-on 700] [--repeats 16] [--seed 0] [--report FILE]

A calibration is fitted on a random subset of the panel's persons, with one origin or several for
each, and judged on all other persons. Means and standard deviations are over the subsets. The
subsets do not depend on the bundle, so it does not matter which persons it was trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.split_conformal import fit_calibration

from saga.conformal.calibrator import Calibrator
from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.distribution_scores import marginal_scores
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table
from saga.requests import MAX_HORIZON
from saga.scores import covered
from studies.study_page import page_head, publish_page, say, study_parser

Array = NDArray[np.float64]
HORIZONS, COVERAGE = (1, 2, 5, 10), 0.9
N_ORIGINS, JUDGED_ORIGINS = 10, (0, 4, 8)


def main() -> None:
    """Print a row per horizon."""
    parser = study_parser(__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--mapping")
    parser.add_argument("--prices", type=int)
    parser.add_argument("--persons", type=int, default=3_600, help="Persons of the panel.")
    parser.add_argument("--calibrated-on", type=int, default=700)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, help="Markdown file to write as well.")
    args = parser.parse_args()
    panel = read_panel(args.panel, mapping=args.mapping, prices=args.prices, on_error="drop")
    rng = np.random.default_rng(args.seed)
    panel = panel.only(sorted(rng.permutation(panel.persons())[: args.persons].tolist()))
    forecasts = list(draws_of(panel, Forecaster.load(args.bundle, threads=1)))
    results: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for repeat in range(args.repeats):
        order = rng.permutation(len(forecasts[0][0]))
        chosen, judged = np.sort(order[: args.calibrated_on]), order[args.calibrated_on :]
        for n_origins in (1, N_ORIGINS):
            calibrator = calibrate(forecasts[:n_origins], chosen, args.seed + repeat)
            for h, scores in judge(calibrator, forecasts, judged, panel.meta.floor).items():
                results.setdefault((h, n_origins), []).append(scores)
        say(f"subset {repeat + 1} of {args.repeats}")
    page = page_head(
        "Several origins per calibration person", __file__, persons=len(forecasts[0][0])
    )
    names = ["subsets with sets", "coverage of 90 % sets", "its sd", "CRPS of log earnings"]
    columns = [f"{name}, {n} origin{'s' * (n > 1)}" for n in (1, N_ORIGINS) for name in names]
    rows = []
    for h in HORIZONS:
        cells = [str(h)]
        for n_origins in (1, N_ORIGINS):
            shares, scores = np.array(results[h, n_origins]).T
            has_sets = np.isfinite(shares)  # else the persons with an outcome were too few
            cells += [
                f"{has_sets.mean():.0%}",
                f"{100 * np.mean(shares[has_sets]):.1f}",
                f"{100 * np.std(shares[has_sets]):.1f}",
                f"{scores.mean():.4f}",
            ]
        rows.append(cells)
    publish_page(page + "\n\n" + markdown_table(["years ahead", *columns], rows), args.report)


def draws_of(panel: Panel, forecaster: Forecaster) -> Iterator[tuple[Marginals, Array]]:
    """Raw forecasts (n, H) without groups, and outcomes, at each of N_ORIGINS draws of origins."""
    forecaster = forecaster.with_calibrator(Calibrator.identity())
    end, longest = last_year(panel), max(HORIZONS)
    for number in range(N_ORIGINS):
        origins = draw_origins(panel, max_horizon=MAX_HORIZON, seed=number, end=end)
        blocks = forecaster.marginals(history(panel, origins), recalibrate=False)
        marginals = Marginals.joined([block.first(longest) for block in blocks])
        outcomes = realised_earnings(panel, origins, range(1, longest + 1), end=end)
        yield replace(marginals, groups={}), outcomes
        say(f"forecasts {number + 1} of {N_ORIGINS}")


def calibrate(
    draws: list[tuple[Marginals, Array]], persons: NDArray[np.int64], seed: int
) -> Calibrator:
    """The calibration fitted on these persons, each with one origin of every draw."""
    marginals = Marginals.joined([forecast.take(persons) for forecast, _ in draws])
    outcomes = np.concatenate([y[persons] for _, y in draws])
    return fit_calibration(
        marginals, outcomes, seed=seed, coverage=(COVERAGE,), n_origins=len(draws)
    )


def judge(
    calibrator: Calibrator,
    draws: list[tuple[Marginals, Array]],
    persons: NDArray[np.int64],
    floor: float | None,
) -> dict[int, tuple[float, float]]:
    """Horizon -> share of outcomes inside the sets, and mean CRPS, of the judged persons."""
    inside, crps = [], []
    for marginals, outcomes in (draws[number] for number in JUDGED_ORIGINS):
        y, mapped = outcomes[persons], calibrator.recalibrate(marginals.take(persons))
        sets = calibrator.intervals(mapped, (COVERAGE,))
        ends = sets.lower[..., 0], sets.upper[..., 0], sets.includes_zero[..., 0]
        inside.append(covered(y, *ends))
        crps.append(marginal_scores(mapped, y, floor)["crps_log"])
    shares, scores = (np.nanmean(np.concatenate(values), axis=0) for values in (inside, crps))
    return {h: (float(shares[h - 1]), float(scores[h - 1])) for h in HORIZONS}


if __name__ == "__main__":
    main()
