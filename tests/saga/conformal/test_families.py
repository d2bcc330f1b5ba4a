"""Prediction sets: membership is the score, mass is the coverage, sets are nested and coherent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saga.arrays import Bools, Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import FAMILIES, YEAR
from saga.conformal.families.set_family import SetFamily
from saga.conformal.intervals import latest
from saga.conformal.recalibration import Cell
from saga.distributions import Marginals
from saga.requests import COVERAGE


def marginals(seed: int = 0, n: int = 300) -> Marginals:
    """Smooth distributions with atoms from 0 to .99."""
    rng = np.random.default_rng(seed)
    p_zero = np.concatenate([np.zeros(20), rng.uniform(0, 0.99, n - 20)])[:, None]
    points = np.linspace(-4, 4, 201)
    grid = 12 + rng.normal(size=(n, 1, 1)) + rng.uniform(0.2, 1, (n, 1, 1)) * points
    inside = 1 / (1 + np.exp(-2.5 * points))
    inside = (inside - inside[0]) / (inside[-1] - inside[0])
    cdf = p_zero[..., None] + (1 - p_zero[..., None]) * inside
    years = np.zeros(n, dtype=np.int64)
    return Marginals(np.arange(n).astype(str), years, years, grid, cdf, p_zero, recalibrated=True)


def contains(lower: Floats, upper: Floats, zero: Bools, y: Floats) -> Bools:
    return np.where(y == 0, zero, (y > 0) & (lower <= y) & (y <= upper))


def mass(m: Marginals, lower: Floats, upper: Floats, zero: Bools) -> Floats:
    """The probability (n, L) of sets with ends (n, 1, L), under the distributions."""
    inside = m.probability(upper) - np.where(zero, 0.0, m.probability(lower))
    return inside[:, 0] if inside.ndim == 3 else inside


@pytest.mark.parametrize("coverage", COVERAGE)
@pytest.mark.parametrize(
    "family", [YEAR, *(f for f in FAMILIES.values() if not f.of_paths)], ids=lambda f: f.kind
)
def test_an_outcome_is_in_the_set_exactly_if_its_score_is_at_most_q(
    family: SetFamily, coverage: float
) -> None:
    m, rng = marginals(), np.random.default_rng(1)
    y = m.quantiles(rng.random((len(m), 1, 1)))[..., 0]
    y[::3] = 0
    scores = family.scores(m, y, coverage)
    decided_often = 0
    for q in np.linspace(0.02, 0.995, 25):
        lower, upper, zero = family.ends(m, np.full((len(m), 1, 1), q), [coverage])
        inside = contains(lower[..., 0], upper[..., 0], zero[..., 0], y)
        decided = np.abs(scores - q) > 1e-6  # NaN: the family says nothing of zero
        np.testing.assert_array_equal(inside[decided], (scores <= q)[decided])
        decided_often += int(decided.sum())
    assert decided_often > 24 * np.isfinite(scores).sum()


@pytest.mark.parametrize("coverage", COVERAGE)
def test_a_set_holds_its_coverage_of_the_persons_own_distribution_unless_the_atom_is_larger(
    coverage: float,
) -> None:
    m = marginals(2)
    lower, upper, zero = YEAR.ends(m, np.full((len(m), 1, 1), coverage), [coverage])
    expected = np.maximum(coverage, m.p_zero)
    np.testing.assert_allclose(mass(m, lower, upper, zero)[:, :1], expected, atol=1e-6)


def test_zero_is_included_exactly_if_the_lower_quantile_is_zero() -> None:
    m = marginals(3)
    q = np.broadcast_to(np.array(COVERAGE), (len(m), 1, len(COVERAGE)))
    lower, _, zero = YEAR.ends(m, q, COVERAGE)
    for j, coverage in enumerate(COVERAGE):
        lowest = m.quantiles([(1 - coverage) / 2])[:, 0, 0]
        np.testing.assert_array_equal(zero[:, 0, j], lowest == 0)
    np.testing.assert_array_equal(zero, lower == 0)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=6), st.booleans(), st.booleans()
)
def test_a_longer_horizon_never_has_more_guarantee_than_a_shorter_one(
    outcomes: list[tuple[bool, int]], extrapolated: bool, always: bool
) -> None:
    """Whether outcomes at the first horizons are enough, and of how many origin years, in any
    pattern; then none are known."""
    has_enough, origin_years = [enough for enough, _ in outcomes], [n for _, n in outcomes]
    fitted = [(h, h if enough else None, n) for h, (enough, n) in enumerate(outcomes, start=1)]
    words = ("none", "extrapolated", "assumption")
    found = [latest(fitted, h, extrapolated, always=always) for h in range(1, 11)]
    rank = np.array([words.index(guarantee) for _, guarantee in found])
    first = int((rank > 0).argmax())
    assert (np.diff(rank[first:]) <= 0).all()
    assert (rank > 0).any() == (any(has_enough) if always else has_enough[:1] == [True])
    for h, (used, guarantee) in enumerate(found, start=1):
        assert (used is None) == (guarantee == "none")
        assert guarantee != "assumption" or (used == (h, h) and not extrapolated)
        assert guarantee != "assumption" or min(origin_years[:h]) > 1
        assert always or used is None or all(has_enough[:h])


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 50),
    thresholds=st.lists(st.floats(0.0, 0.999), min_size=6, max_size=6),
)
def test_a_median_lies_in_its_sets_of_half_and_more_at_every_horizon(
    seed: int, thresholds: list[float]
) -> None:
    # Whatever the thresholds are: those of 50 % end below the median where a set begins at zero.
    coverage = (0.2, 0.4, 0.5, 0.8, 0.9, 0.95)
    m = spread_over_years(marginals(seed))
    cells = {
        (h, ALL): Cell(np.empty(0), np.empty(0), 0, dict(zip(coverage, q, strict=True)), 2_000)
        for h, q in ((1, sorted(thresholds)), (2, thresholds), (3, coverage))
    }
    calibrator = Calibrator(cells)
    sets, plain = calibrator.intervals(m, coverage), calibrator.sets(YEAR, m, coverage)
    median = m.quantiles([0.5])
    for j, share in enumerate(coverage):
        lower, upper, zero = (
            sets.lower[..., [j]],
            sets.upper[..., [j]],
            sets.includes_zero[..., [j]],
        )
        has_set = ~np.isnan(lower)
        if share >= 0.5:
            assert (contains(lower, upper, zero, median) | ~has_set).all()
        unchanged = contains(plain.lower[..., [j]], plain.upper[..., [j]], zero, median) | ~has_set
        for ours, before in ((lower, plain.lower), (upper, plain.upper)):
            np.testing.assert_array_equal(ours[unchanged], before[..., [j]][unchanged])
    with np.errstate(invalid="ignore"):
        assert not (np.diff(sets.lower, axis=-1) > 0).any()
        assert not (np.diff(sets.upper, axis=-1) < 0).any()


def spread_over_years(m: Marginals) -> Marginals:
    """Persons with one year each as a third as many persons with three years."""
    n = len(m) // 3
    columns = (x.reshape(n, 3, *x.shape[2:]) for x in (m.grid, m.cdf, m.p_zero))
    return Marginals(
        m.person_id[:n], m.birth_year[:n], m.origin_year[:n], *columns, recalibrated=True
    )
