"""How should a marginal be computed: samples, averaged laws, or the direct forecast?

    python -m studies.marginal_estimators PANEL [--bundle bundles/small] [--persons 1000]
        [--noise-persons 60] [--paths 500] [--seed 0] [--report FILE]

All estimators use one network, without recalibration, and are judged on validation persons:

- samples: the last draws of simulated paths;
- averaged laws: given a path up to year h - 1 the head gives the distribution of year h, and these
  distributions are averaged over paths (Rao-Blackwell: Gelfand and Smith 1990);
- direct: the direct forecast, averaged over macro nodes.

CRPS is that of log earnings, with the standard error of the paired difference to the first
estimator. Noise is the standard deviation over seeds of a log quantile (floored), root mean square
over persons. Times are of one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.distribution_scores import marginal_scores
from saga.distributions import Marginals
from saga.features.sequences import encode
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.pages.format import markdown_table
from saga.requests import MAX_HORIZON, Draws
from saga.scores import crps_log, log_earnings
from saga.simulation.marginals import marginal_grid
from saga.simulation.rollout import Rollout, RolloutOptions
from studies.study_page import bundle_parser, page_head, publish_page

Array = NDArray[np.float64]
HORIZONS = (1, 2, 5, 10, 20)
LEVELS = (0.5, 0.75, 0.95)
Estimate = Callable[[Panel, int], Marginals]


def main() -> None:
    """Print the comparison."""
    parser = bundle_parser(__doc__, n_persons=1_000, n_paths=500)
    parser.add_argument("panel", type=Path)
    parser.add_argument("--noise-persons", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    forecaster = Forecaster.load(args.bundle, threads=1)
    panel = read_panel(args.panel)
    chosen = sample_persons(
        persons_of(panel, "validation"), args.persons, "estimators", panel.meta.panel_id
    )
    people, end = panel.only(chosen), last_year(panel)
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=args.seed, end=end)
    records = history(people, origins)
    outcomes = realised_earnings(people, origins, range(1, MAX_HORIZON + 1), end=end)
    few = records.only(records.persons()[: args.noise_persons])
    estimators: dict[str, Estimate | None] = {
        f"samples, {args.paths}": None,
        f"averaged laws, {args.paths}": lambda p, s: averaged_laws(forecaster, p, args.paths, s),
        "averaged laws, 100": lambda p, s: averaged_laws(forecaster, p, 100, s),
        "direct": lambda p, _: Marginals.joined(list(forecaster.marginals(p, recalibrate=False))),
    }
    floor = forecaster.transforms.floor
    rows, first = [], None
    for name, estimate in estimators.items():
        start = time.process_time()
        if estimate is None:
            samples = _samples(forecaster, records, args.paths, args.seed)
            seconds = time.process_time() - start
            scores = crps_log(samples, outcomes, floor)
            noise = [
                np.quantile(_samples(forecaster, few, args.paths, s), LEVELS, -1) for s in (1, 2, 3)
            ]
            quantiles = np.stack([np.moveaxis(q, 0, -1) for q in noise])
        else:
            marginals = estimate(records, args.seed)
            seconds = time.process_time() - start
            scores = marginal_scores(marginals, outcomes, floor)["crps_log"]
            quantiles = np.stack([estimate(few, s).quantiles(LEVELS) for s in (1, 2, 3)])
        first = scores if first is None else first
        spread = log_earnings(quantiles, floor).std(axis=0, ddof=1)
        rows.append(
            [
                name,
                *(_difference(scores, first, h) for h in HORIZONS),
                *(f"{np.sqrt(np.nanmean(spread[:, 4, j] ** 2)):.3f}" for j in range(3)),
                f"{1000 * seconds / len(records.persons()):.1f}",
            ]
        )
    head = page_head("Estimators of marginals", __file__, bundle=forecaster.bundle.digest[:12])
    titles = [f"CRPS, h = {h}" for h in HORIZONS]
    noise_titles = [f"noise of q{round(100 * p)}, h = 5" for p in LEVELS]
    table = markdown_table(["estimator", *titles, *noise_titles, "ms a person"], rows)
    publish_page(f"{head}\n\n{table}", args.report)


def _difference(scores: Array, first: Array, h: int) -> str:
    difference = (scores - first)[:, h - 1]
    known = difference[~np.isnan(difference)]
    error = known.std() / max(1, len(known)) ** 0.5
    mean = np.nanmean(scores[:, h - 1])
    return f"{mean:.4f}" if scores is first else f"{mean:.4f} ({known.mean():+.4f} ± {error:.4f})"


def _samples(forecaster: Forecaster, panel: Panel, n_paths: int, seed: int) -> NDArray[np.float32]:
    draws = Draws(n_paths, seed)
    return forecaster.simulate(panel, draws, to_horizon=MAX_HORIZON, recalibrate=False).earnings


def averaged_laws(forecaster: Forecaster, panel: Panel, n_paths: int, seed: int) -> Marginals:
    """Averages over paths of the head's distributions of each year."""
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    rollout = Rollout(
        forecaster.network,
        forecaster.calendar,
        forecaster.process,
        RolloutOptions(n_paths, seed, light=forecaster.rollout == "light"),
    )
    origin = sequences.year[sequences.offsets[1:] - 1]
    steps = np.clip(64 - (origin - sequences.birth_year), 0, MAX_HORIZON)
    grid = marginal_grid(forecaster.transforms)
    shape = (len(sequences), MAX_HORIZON, len(grid))
    grids, cdf = np.full(shape, np.nan), np.full(shape, np.nan)
    p_zero = np.full(shape[:2], np.nan)
    for i in np.flatnonzero(steps > 0).tolist():
        futures = rollout.macro_futures(int(origin[i]))
        with _laws(rollout) as laws:
            rollout.simulate(sequences, np.array([i]), steps[i : i + 1])
        survival = torch.ones(n_paths)
        for h, (distribution, alive) in enumerate(laws):
            wage = futures.wage[h, :n_paths]
            level = wage.mean()
            grids[i, h] = grid + float(level)
            z = torch.from_numpy(grid.astype(np.float32)) - (wage - level)[:, None]
            survival = alive[0, :n_paths].float()
            law = type(distribution)(*(part[0, :n_paths] for part in distribution))
            zero, inside = rollout.head.cdf(law, z)
            stays = survival * torch.sigmoid(-law.death)
            p_zero[i, h] = float((1 - stays * (1 - zero)).mean())
            cdf[i, h] = (1 - stays[:, None] * (1 - inside)).mean(0).numpy()
            cdf[i, h, 0], cdf[i, h, -1] = p_zero[i, h], 1.0
    return Marginals(
        sequences.person_id,
        sequences.birth_year,
        origin,
        grids,
        np.maximum.accumulate(cdf, -1),
        p_zero,
    )


@contextmanager
def _laws(rollout: Rollout) -> Iterator[list[tuple[Any, torch.Tensor]]]:
    """The distributions of each simulated year, and which paths were alive before it."""
    laws: list[tuple[Any, torch.Tensor]] = []
    sample = rollout.head.sample
    alive: list[torch.Tensor | None] = [None]

    def record(distribution: Any, u: torch.Tensor) -> Any:
        outcome = sample(distribution, u)
        before = alive[0] if alive[0] is not None else torch.ones_like(outcome[0])
        laws.append((distribution, before))
        alive[0] = before & ~outcome[0]
        return outcome

    with patch.object(rollout.head, "sample", record):
        yield laws


if __name__ == "__main__":
    main()
