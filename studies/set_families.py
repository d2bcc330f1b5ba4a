"""Which family of prediction sets should be published?

    python -m studies.set_families PANEL [--bundle bundles/small] [--persons 20000] [--seed 0]
        [--report FILE]

Families of sets are compared on validation persons of the panel, so the choice does not see the
test persons. Marginals are recalibrated by a map that is fitted on one third of the persons. The
threshold of each family, horizon and coverage is fitted on another third, and the last third is
judged. The score is the mean interval score (Winkler 1972): width plus 2 / (1 - coverage) x the
distance of an outcome outside. Coverage is also given by bins of the probability of zero.
`too much` is the probability of the set under the person's own distribution beyond the threshold
and beyond the probability of zero, as the 95 % quantile over persons.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import conformal_quantile
from saga.calibration.fit.split_conformal import fit_map, pit
from saga.evaluation.scoring.metrics import ZERO_EDGES

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import YEAR
from saga.conformal.recalibration import Cell
from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.pages.format import markdown_table
from saga.requests import COVERAGE, MAX_HORIZON
from saga.scores import pit_uniforms
from studies.study_page import bundle_parser, page_head, publish_page

Array = NDArray[np.float64]
HORIZONS = (1, 2, 5, 10, 20)
_QS = np.concatenate([np.linspace(0.005, 0.985, 99), [0.99, 0.995, 0.999]])  # of the nested sets


class Sets(NamedTuple):
    """Sets (n, H): zero if `zero`, and amounts from `lower` to `upper`."""

    lower: Array
    upper: Array
    zero: NDArray[np.bool_]


# From marginals, q (0 to 1) and the nominal coverage to sets; q replaces the coverage.
Family = Callable[[Marginals, float, float], Sets]


def by_atom(marginals: Marginals, q: float, coverage: float) -> Sets:
    """The published family: `saga.conformal.families.year`."""
    shape = (*marginals.p_zero.shape, 1)
    lower, upper, zero = YEAR.ends(marginals, np.full(shape, q), [coverage])
    return Sets(lower[..., 0], upper[..., 0], zero[..., 0])


def central(marginals: Marginals, q: float, coverage: float) -> Sets:
    """Between the quantiles of both tails; zero belongs to it if the lower quantile is zero."""
    del coverage
    lower, upper = np.moveaxis(marginals.quantiles([(1 - q) / 2, (1 + q) / 2]), -1, 0)
    return Sets(lower, upper, lower == 0)


def nested_by_atom(marginals: Marginals, q: float, coverage: float) -> Sets:
    """As published, but the upper tail grows with the atom from (1 - q) / 2 to 1 - q."""
    del coverage
    a = 1 - q
    tail = np.clip(marginals.p_zero, a / 2, a)
    zero = marginals.p_zero >= a / 2
    lower = marginals.quantiles([a / 2])[..., 0]
    upper = marginals.quantiles((1 - tail)[..., None])[..., 0]
    return Sets(np.where(zero, 0.0, lower), upper, zero)


def with_transition(marginals: Marginals, q: float, coverage: float) -> Sets:
    """As published, but the upper end is continuous in the probability of zero.

    With a = 1 - coverage, the upper tail's share of 1 - q grows from a half to all of it while the
    probability of zero grows from a / 4 to 3 a / 4.
    """
    a = 1 - coverage
    share = np.clip(2 * marginals.p_zero / a, 0.5, 1.5) / 2 + 0.25
    zero = marginals.p_zero >= a / 2
    lower = marginals.quantiles([(1 - q) / 2])[..., 0]
    upper = marginals.quantiles((1 - share * (1 - q))[..., None])[..., 0]
    return Sets(np.where(zero, 0.0, lower), upper, zero)


def shortest(marginals: Marginals, q: float, coverage: float) -> Sets:
    """Zero, if its probability is at least (1 - coverage) / 2, and the shortest interval."""
    p_zero = marginals.p_zero
    zero = p_zero >= (1 - coverage) / 2
    mass = np.clip(np.where(zero, q - p_zero, q), 0.0, 1 - p_zero)
    free = 1 - p_zero - mass
    share = np.linspace(0.0, 1.0, 41)
    start = p_zero[..., None] + free[..., None] * share
    lower = marginals.quantiles(np.maximum(start, p_zero[..., None] + 1e-9))
    upper = marginals.quantiles(start + mass[..., None])
    best = (upper - lower).argmin(axis=-1)[..., None]
    lower, upper = (np.take_along_axis(end, best, -1)[..., 0] for end in (lower, upper))
    only_zero = mass <= 0
    return Sets(np.where(only_zero, 0.0, lower), np.where(only_zero, 0.0, upper), zero)


FAMILIES: dict[str, Family] = {
    "by atom (published)": by_atom,
    "with transition": with_transition,
    "nested by atom": nested_by_atom,
    "central": central,
    "shortest": shortest,
}


def main() -> None:
    """Print the comparison."""
    parser = bundle_parser(__doc__, n_persons=20_000, n_paths=None)
    parser.add_argument("panel", type=Path)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle)
    panel = read_panel(args.panel)
    chosen = sample_persons(
        persons_of(panel, "validation"), args.persons, "set-families", panel.meta.panel_id
    )
    people, end = panel.only(chosen), last_year(panel)
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=args.seed, end=end)
    records = history(people, origins)
    outcomes = realised_earnings(people, origins, range(1, MAX_HORIZON + 1), end=end)
    raw = Marginals.joined(list(forecaster.marginals(records, recalibrate=False)))
    raw, outcomes = raw.at_horizons(HORIZONS), outcomes[:, np.array(HORIZONS) - 1]
    part = np.arange(len(raw)) % 3
    marginals = recalibrated(raw, outcomes, part == 0)
    head = page_head(
        "Families of prediction sets",
        __file__,
        bundle=forecaster.bundle.digest[:12],
        persons=len(raw),
        panel=panel.meta.panel_id,
    )
    sections = [judge(marginals, outcomes, part, coverage) for coverage in COVERAGE]
    publish_page("\n\n".join([head, *sections]), args.report)


def recalibrated(raw: Marginals, outcomes: Array, rows: NDArray[np.bool_]) -> Marginals:
    """The marginals after maps that are fitted on `rows`."""
    u = pit(raw.take(rows), outcomes[rows], pit_uniforms(raw.take(rows)))
    cells = {}
    for h in range(raw.n_horizons):
        known = u[~np.isnan(u[:, h]), h]
        cells[h + 1, ALL] = Cell(*fit_map(known), len(known), {}, 0)
    return Calibrator(cells).recalibrate(raw)


def family_scores(family: Family, marginals: Marginals, y: Array, coverage: float) -> Array:
    """Smallest q of _QS whose set contains the outcome, (n, H); 1 if none does."""
    scores = np.ones(y.shape)
    for q in _QS[::-1]:
        scores = np.where(contains(family(marginals, float(q), coverage), y), q, scores)
    return np.where(np.isnan(y), np.nan, scores)


def contains(sets: Sets, y: Array) -> NDArray[np.bool_]:
    """Whether the sets (n, H) contain the outcomes."""
    inside = (y > 0) & (sets.lower <= y) & (y <= sets.upper)
    return np.asarray(np.where(y == 0, sets.zero, inside))


def mass_of(sets: Sets, marginals: Marginals) -> Array:
    """Probability (n, H) of the sets under the person's own distribution."""
    above_zero = np.maximum(marginals.probability(sets.lower), marginals.p_zero)
    mass: Array = marginals.probability(sets.upper) - above_zero + sets.zero * marginals.p_zero
    return mass


def judge(marginals: Marginals, outcomes: Array, part: NDArray[np.int64], coverage: float) -> str:
    """The tables of one coverage."""
    fit, test = part == 1, part == 2
    scores: list[list[str]] = []
    bins: list[list[str]] = []
    for name, family in FAMILIES.items():
        fitted = family_scores(family, marginals.take(fit), outcomes[fit], coverage)
        row, inside = [name], np.full(outcomes[test].shape, np.nan)
        excess = []
        for h in range(len(HORIZONS)):
            q = conformal_quantile(fitted[~np.isnan(fitted[:, h]), h], coverage)
            tested, y = marginals.take(test).at_horizon(h + 1), outcomes[test][:, h : h + 1]
            sets = family(tested, min(q, 0.999), coverage)
            known = ~np.isnan(y[:, 0])
            inside[:, h] = np.where(known, contains(sets, y)[:, 0], np.nan)
            row.append(f"{winkler(sets, y, coverage)[known].mean() / 1000:,.1f}")
            excess.append((mass_of(sets, tested) - np.maximum(q, tested.p_zero))[known])
        row.append(f"{np.quantile(np.concatenate(excess), 0.95):.3f}")
        scores.append(row)
        p_zero = marginals.take(test).p_zero
        cells = [np.digitize(p_zero, ZERO_EDGES[1:-1]) == k for k in range(len(ZERO_EDGES) - 1)]
        bins.append([name, *(_share(inside, cell) for cell in cells)])
    return "\n\n".join(
        [
            f"## Coverage {coverage:.0%}",
            "Mean interval score, thousand SEK, by years ahead.",
            markdown_table(["family", *map(str, HORIZONS), "too much"], scores),
            "Share of outcomes inside (%), by probability of zero, all horizons.",
            markdown_table(["family", *(f"from {low:g}" for low in ZERO_EDGES[:-1])], bins),
        ]
    )


def _share(inside: Array, cell: NDArray[np.bool_]) -> str:
    known = cell & ~np.isnan(inside)
    return f"{100 * inside[known].mean():.1f}" if known.sum() >= 50 else ""


def winkler(sets: Sets, y: Array, coverage: float) -> Array:
    """Interval score (n,) of sets (n, 1): length plus the distance to the nearest point."""
    outside = np.maximum(sets.lower - y, 0) + np.maximum(y - sets.upper, 0)
    outside = np.where(sets.zero, np.minimum(outside, y), outside)
    score = sets.upper - sets.lower + 2 / (1 - coverage) * outside
    return np.asarray(score[:, 0])


if __name__ == "__main__":
    main()
