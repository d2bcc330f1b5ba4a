"""What quasi-random paths would save: the Monte-Carlo variance of a person's figures by independent paths, over that by Sobol paths.

    python -m studies.quasi_random PANEL [--bundle bundles/small] [--persons 60] [--paths 500] [--repeats 16] [--seed 0]

A path takes one number a year from a person's stream and three from the economy's. Here they are the coordinates of scrambled Sobol points
(Owen 1998), one point a path, shifted modulo 1 by a number of the person's or the economy's own: each path is as random as before, but
paths of a person, or of an economy, no longer lie together by chance. Variances are over --repeats seeds, means over persons.
A ratio of 2 says that half as many such paths are as good. Figures of people aged below 44 in the panel's last year.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.keyed_random import uniforms
from saga.requests import Draws
from studies.cross_section import followed
from studies.harness import code_commit, command_line, study_parser

Array = NDArray[np.float64]
HORIZONS = (1, 5, 10, 20)
FIGURES = (
    "mean of logs",
    "5 % quantile",
    "median",
    "95 % quantile",
    "chance of zero",
    "mean log of the sum",
)
OLDEST = 43  # so that all years ahead are below 65


def main() -> None:
    """Prints the table."""
    parser = study_parser(__doc__, n_persons=60, n_paths=500)
    parser.add_argument("panel", type=Path)
    parser.add_argument("--repeats", type=int, default=16)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle)
    who = people(read_panel(args.panel), forecaster, args.persons)
    seeds = range(args.seed, args.seed + args.repeats)
    independent = variance(forecaster, who, args.paths, seeds, uniforms)
    sobol = variance(forecaster, who, args.paths, seeds, quasi_random(args.paths, last_year(who)))
    print(
        f"`{command_line(__file__)}`\nCommit {code_commit()}, bundle {forecaster.bundle.digest[:12]}.\n"
    )
    print(f"| h | {' | '.join(FIGURES)} |\n|---|{'---|' * len(FIGURES)}")
    for h, row in zip(HORIZONS, independent / sobol, strict=True):
        print(f"| {h} | {' | '.join(f'{ratio:.1f}' for ratio in row)} |")


def people(panel: Panel, forecaster: Forecaster, persons: int) -> Panel:
    """So many who can be forecast from the panel's last year, evenly over the sorted ids."""
    who = followed(panel, trained_on=forecaster.bundle.split["panel_id"])
    young = who.origins.person_id[last_year(panel) - who.born <= OLDEST].tolist()
    return who.past.only(young[:: max(1, len(young) // persons)][:persons])


def quasi_random(paths: int, origin: int) -> Callable[..., Array]:
    """`saga.keyed_random.uniforms` with the numbers of paths and economies replaced."""
    points = (
        qmc.Sobol(4 * max(HORIZONS), rng=0)
        .random(1 << (paths - 1).bit_length())[:paths]
        .reshape(paths, max(HORIZONS), 4)
    )

    def drawn(n: int, *key: int | str) -> Array:
        ahead = int(key[-1]) - origin - 1
        if key[0] not in ("path", "macro") or not 0 <= ahead < max(HORIZONS):
            return uniforms(n, *key)
        coordinates = slice(0, 1) if key[0] == "path" else slice(1, 4)
        shift = uniforms(n // paths, *key)
        return np.asarray((points[:, ahead, coordinates] + shift) % 1).ravel()

    return drawn


def variance(
    forecaster: Forecaster, who: Panel, paths: int, seeds: range, source: Callable[..., Array]
) -> Array:
    """Mean over persons of the variances over seeds of FIGURES, (H, figures)."""
    figures = []
    with (
        patch("saga.simulation.rollout.uniforms", source),
        patch("saga.macro.process.uniforms", source),
    ):
        for seed in seeds:
            earnings = forecaster.simulate(
                who, Draws(paths, seed), to_horizon=max(HORIZONS)
            ).earnings.astype(np.float64)
            asked = earnings[:, np.array(HORIZONS) - 1]
            logs = np.log(np.maximum(asked, forecaster.transforms.floor or 1.0))
            quantiles = np.quantile(logs, (0.05, 0.5, 0.95), axis=-1)
            sums = np.stack([np.log1p(earnings[:, :h].sum(1)).mean(-1) for h in HORIZONS], -1)
            figures.append(np.stack([logs.mean(-1), *quantiles, (asked == 0).mean(-1), sums], -1))
    return np.asarray(np.var(figures, axis=0, ddof=1).mean(0), dtype=np.float64)


if __name__ == "__main__":
    main()
