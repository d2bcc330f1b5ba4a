"""How many paths would quasi-random numbers save?

    python -m studies.quasi_random PANEL [--bundle bundles/small] [--persons 60] [--paths 500]
        [--repeats 16] [--seed 0] [--report FILE]

The table gives the Monte-Carlo variance of a person's figures with independent paths, divided by
that with Sobol paths: at a ratio of 2, half as many Sobol paths are as good. Each year of a path
uses one random number of the person and three of the economy. Here they are coordinates of
scrambled Sobol points (Owen 1998), one point per path, shifted modulo 1 by a number of the person
or the economy: each path has the same distribution as before, but paths no longer cluster by
chance. Variances are over --repeats seeds, means over persons below age 44 in the panel's last
year.
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
from saga.files.markdown import markdown_table
from saga.forecaster import Forecaster
from saga.keyed_random import uniforms
from saga.requests import Draws
from studies.cross_section import follow_persons
from studies.study_page import bundle_parser, page_head, publish_page

Array = NDArray[np.float64]
HORIZONS = (1, 5, 10, 20)
FIGURES = (
    *("mean of logs", "5 % quantile", "median", "95 % quantile"),
    *("p_zero", "mean log of the sum"),
)
MAX_ORIGIN_AGE = 43  # so that all forecast years are before age 65


def main() -> None:
    """Print the table."""
    parser = bundle_parser(__doc__, n_persons=60, n_paths=500)
    parser.add_argument("panel", type=Path)
    parser.add_argument("--repeats", type=int, default=16)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle)
    panel = young_persons(read_panel(args.panel), forecaster, args.persons)
    seeds = range(args.seed, args.seed + args.repeats)
    independent = variances(forecaster, panel, args.paths, seeds, uniforms)
    sobol = variances(
        forecaster, panel, args.paths, seeds, sobol_uniforms(args.paths, last_year(panel))
    )
    rows = [
        [str(h), *(f"{ratio:.1f}" for ratio in ratios)]
        for h, ratios in zip(HORIZONS, independent / sobol, strict=True)
    ]
    head = page_head("Sobol paths", __file__, bundle=forecaster.bundle.digest[:12])
    publish_page(f"{head}\n\n{markdown_table(['h', *FIGURES], rows)}", args.report)


def young_persons(panel: Panel, forecaster: Forecaster, n_persons: int) -> Panel:
    """Persons who can be forecast from the last year, spread evenly over the sorted ids."""
    persons = follow_persons(panel, trained_on=forecaster.bundle.split["panel_id"])
    young = last_year(panel) - persons.born <= MAX_ORIGIN_AGE
    ids = persons.origins.person_id[young].tolist()
    return persons.past.only(ids[:: max(1, len(ids) // n_persons)][:n_persons])


def sobol_uniforms(n_paths: int, origin: int) -> Callable[..., Array]:
    """`saga.keyed_random.uniforms` with the numbers of paths and economies replaced."""
    points = (
        qmc.Sobol(4 * max(HORIZONS), rng=0)
        .random(1 << (n_paths - 1).bit_length())[:n_paths]
        .reshape(n_paths, max(HORIZONS), 4)
    )

    def uniforms_of(n: int, *key: int | str) -> Array:
        ahead = int(key[-1]) - origin - 1
        if key[0] not in ("path", "macro") or not 0 <= ahead < max(HORIZONS):
            return uniforms(n, *key)
        coordinates = slice(0, 1) if key[0] == "path" else slice(1, 4)
        shift = uniforms(n // n_paths, *key)
        return np.asarray((points[:, ahead, coordinates] + shift) % 1).ravel()

    return uniforms_of


def variances(
    forecaster: Forecaster,
    panel: Panel,
    n_paths: int,
    seeds: range,
    source: Callable[..., Array],
) -> Array:
    """Mean over persons of the variance over seeds of each figure, (n_horizon, n_figure)."""
    figures = []
    with (
        patch("saga.simulation.rollout.uniforms", source),
        patch("saga.macro.process.uniforms", source),
    ):
        for seed in seeds:
            paths = forecaster.simulate(panel, Draws(n_paths, seed), to_horizon=max(HORIZONS))
            earnings = paths.earnings.astype(np.float64)
            at_horizons = earnings[:, np.array(HORIZONS) - 1]
            logs = np.log(np.maximum(at_horizons, forecaster.transforms.floor or 1.0))
            quantiles = np.quantile(logs, (0.05, 0.5, 0.95), axis=-1)
            p_zero = (at_horizons == 0).mean(-1)
            sums = np.stack([np.log1p(earnings[:, :h].sum(1)).mean(-1) for h in HORIZONS], -1)
            figures.append(np.stack([logs.mean(-1), *quantiles, p_zero, sums], -1))
    return np.asarray(np.var(figures, axis=0, ddof=1).mean(0), dtype=np.float64)


if __name__ == "__main__":
    main()
