"""From how many persons does a recalibration map help, and does it ever do harm?

    python -m studies.map_sizes [--seed 0] [--report FILE]
    python -m studies.map_sizes --bundle BUNDLE --panel PANEL [--mapping NAME]

The map as it is published (`fit_map`, shrunk by cross-validated log score) and the map that is not
shrunk (`empirical_map`) are compared:

- with known truth: the forecast and the true law of log earnings are known, and the expected CRPS
  before and after a map is an integral, without sampling error of test persons;
- on a panel: maps are fitted on random subsets of the calibration persons, and the other
  calibration persons are judged. No test person is used.

A change is in per cent of the CRPS of the raw forecast; above 0 the map does harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.split_conformal import empirical_map, fit_map, pit
from scipy import stats

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.recalibration import Cell
from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.reading import read_panel
from saga.data.split import persons_of, shares_of
from saga.distribution_scores import marginal_scores
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table
from saga.requests import MAX_HORIZON
from saga.scores import pit_uniforms
from studies.study_page import page_head, publish_page, study_parser

Array = NDArray[np.float64]
Fit = Callable[[Array], tuple[Array, Array]]
SIZES = (100, 350, 1_000, 3_500, 10_000, 100_000)
SUBSETS = (100, 350)  # of a panel's calibration persons
FLOOR = -4.0  # of log earnings
GRID = np.linspace(-8.0, 8.0, 16_001)
HORIZONS = (1, 2, 5, 10)
REPEATS = 10
FITS: dict[str, Fit] = {"shrunk": lambda u: fit_map(u, 10), "not shrunk": empirical_map}


@dataclass(frozen=True)
class Law:
    """A distribution of earnings: zero with probability `zero`, else the log is `positive`.

    Logs are in units of their spread. Zeros count as FLOOR, as in scores.
    """

    positive: stats.rv_continuous
    zero: float = 0.0

    def cdf(self, x: Array) -> Array:
        """Distribution function of log earnings with a floor."""
        above = x >= FLOOR
        return np.where(above, self.zero + (1 - self.zero) * self.positive.cdf(x), 0.0)


_NORMAL = stats.norm()
_T = stats.t(4, scale=stats.norm.ppf(0.75) / stats.t(4).ppf(0.75))  # same quartiles as the normal
# name -> (forecast, truth)
CASES: dict[str, tuple[Law, Law]] = {
    "right": (Law(_NORMAL), Law(_NORMAL)),
    "right, with zeros": (Law(_NORMAL, 0.15), Law(_NORMAL, 0.15)),
    "spread 5 % too small": (Law(stats.norm(0, 0.95)), Law(_NORMAL)),
    "spread 20 % too small": (Law(stats.norm(0, 0.8)), Law(_NORMAL)),
    "median a tenth of the spread low": (Law(_NORMAL), Law(stats.norm(0.1, 1))),
    "true tails heavier (t, 4 df)": (Law(_NORMAL), Law(_T)),
    "zero 10 %, true 15 %": (Law(_NORMAL, 0.10), Law(_NORMAL, 0.15)),
}


def expected_crps(forecast: Array, truth: Law) -> float:
    """Expected CRPS of the distribution function `forecast` on GRID: the integral of F^2 - 2FG + G.

    Below FLOOR both functions are 0.
    """
    g = truth.cdf(GRID)
    return float(np.trapezoid(forecast**2 - 2 * forecast * g + g, GRID))


def draw_pit(forecast: Law, truth: Law, n: int, rng: np.random.Generator) -> Array:
    """Randomised PIT values (n,) of outcomes of `truth` in `forecast`."""
    zero = rng.random(n) < truth.zero
    amounts = truth.positive.ppf(rng.random(n))
    below = forecast.zero + (1 - forecast.zero) * forecast.positive.cdf(amounts)
    return np.where(zero, rng.random(n) * forecast.zero, below)


def change_by_map(case: str, fit: Fit, n: int, repeats: int, seed: int) -> Array:
    """Changes (repeats,) of the expected CRPS by maps from n persons, per cent."""
    forecast, truth = CASES[case]
    raw = forecast.cdf(GRID)
    before = expected_crps(raw, truth)
    changes = []
    for repeat in range(repeats):
        rng = np.random.default_rng([seed, n, repeat])
        mapped = np.interp(raw, *fit(draw_pit(forecast, truth, n, rng)))
        changes.append(100 * (expected_crps(mapped, truth) / before - 1))
    return np.array(changes)


def known_truth_rows(sizes: Sequence[int], seed: int) -> list[list[str]]:
    """A row per case and size: mean change and its 95 % quantile over repeats, by kind of map."""
    rows = []
    for case in CASES:
        for n in sizes:
            repeats = max(4, min(200, 100_000 // n))
            cells = []
            for fit in FITS.values():
                change = change_by_map(case, fit, n, repeats, seed)
                cells += [f"{change.mean():+.2f}", f"{np.quantile(change, 0.95):+.2f}"]
            rows.append([case, f"{n:,}", str(repeats), *cells])
    return rows


def panel_rows(
    marginals: Marginals, outcomes: Array, floor: float | None, seed: int
) -> list[list[str]]:
    """A row per horizon and size: mean change on persons outside the map's fit, by kind of map.

    Args:
        marginals: Raw forecasts (n, H) of the calibration persons.
        outcomes: (n, H), NaN if unknown.
        floor: Floor of log earnings in scores.
        seed: Seed of the random subsets.
    """
    u = pit(marginals, outcomes, pit_uniforms(marginals))
    raw = marginal_scores(marginals, outcomes, floor)["crps_log"]
    rows = []
    for column, horizon in enumerate(HORIZONS):
        known = np.flatnonzero(np.isfinite(raw[:, column]))
        for n in (size for size in SUBSETS if size <= len(known) // 2):
            changes: dict[str, list[float]] = {name: [] for name in FITS}
            for repeat in range(REPEATS):
                order = np.random.default_rng([seed, n, repeat]).permutation(known)
                fitted, judged = order[:n], order[n:]
                at = marginals.at_horizons([column + 1]).take(judged)
                before = raw[judged, column].mean()
                for name, fit in FITS.items():
                    cell = Cell(*fit(u[fitted, column]), n, {}, 0)
                    mapped = Calibrator({(1, ALL): cell}).recalibrate(at)
                    after = marginal_scores(mapped, outcomes[judged][:, [column]], floor)
                    changes[name].append(100 * (float(after["crps_log"].mean()) / before - 1))
            cells = [f"{value:+.2f}" for c in changes.values() for value in (np.mean(c), max(c))]
            rows.append([str(horizon), f"{n:,}", f"{len(known) - n:,}", *cells])
    return rows


def _calibration_forecasts(
    bundle: Path, panel_file: Path, mapping: str | None, seed: int
) -> tuple[Marginals, Array, float | None]:
    """Raw forecasts and outcomes (n, H) of the calibration persons at HORIZONS, and the floor."""
    forecaster = Forecaster.load(bundle, threads=1)
    panel = read_panel(panel_file, mapping=mapping, on_error="drop")
    shares = shares_of(forecaster.bundle.split)
    people, end = panel.only(persons_of(panel, "calibration", shares)), last_year(panel)
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=seed, end=end)
    outcomes = realised_earnings(people, origins, list(HORIZONS), end=end)
    blocks = forecaster.marginals(history(people, origins), recalibrate=False)
    marginals = Marginals.joined([block.at_horizons(HORIZONS) for block in blocks])
    return marginals, outcomes, panel.meta.floor


def main() -> None:
    """Print both tables."""
    parser = study_parser(__doc__)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--panel", type=Path)
    parser.add_argument("--mapping")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, help="Markdown file to write as well.")
    args = parser.parse_args()
    page = page_head("Recalibration maps by number of persons", __file__) + "\n\n"
    kinds = [f"{name}: {value}" for name in FITS for value in ("mean", "95 %")]
    if args.panel is None:
        rows = known_truth_rows(SIZES, args.seed)
        page += markdown_table(["forecast", "persons", "repeats", *kinds], rows)
    else:
        forecasts = _calibration_forecasts(args.bundle, args.panel, args.mapping, args.seed)
        head = ["h", "persons", "judged", *(kind.replace("95 %", "largest") for kind in kinds)]
        page += f"Calibration persons, {REPEATS} random subsets.\n\n"
        page += markdown_table(head, panel_rows(*forecasts, args.seed))
    publish_page(page, args.report)


if __name__ == "__main__":
    main()
