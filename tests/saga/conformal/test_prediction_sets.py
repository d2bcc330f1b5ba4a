"""Nested sets: membership is the score, sets are nested, and their mass is as stated."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from saga.conformal.prediction_sets import SMALLEST, grow

SCALE = 24_150.0
SCORES = np.linspace(0.02, 1.3, 33)
Array = NDArray[np.float64]


def samples(
    seed: int = 0, n: int = 300, m: int = 80, zero: float | None = None
) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    p = rng.uniform(0, 0.95, (n, 1)) if zero is None else np.full((n, 1), zero)
    x = np.where(rng.random((n, m)) < p, 0, rng.lognormal(12, 0.7, (n, m)))
    return np.sort(x.astype(np.float32), axis=1)


def contains(lower: Array, upper: Array, zero: NDArray[np.bool_], y: Array) -> NDArray[np.bool_]:
    return np.where(y == 0, zero, (y > 0) & (lower <= y) & (y <= upper))


@pytest.mark.parametrize("atom_width", [0.05, 1.0, 20.0])
def test_an_amount_is_in_the_set_exactly_if_its_score_is_at_most_q(atom_width: float) -> None:
    sets = grow(samples(), SCALE).with_atom(atom_width)
    rng = np.random.default_rng(1)
    y = np.where(rng.random(300) < 0.3, 0, rng.lognormal(12, 1.2, 300))
    score = sets.score(y)
    for q in SCORES:
        decided = np.abs(score - q) > 1e-6  # float32 amounts and exp(log()) blur the edge
        inside = contains(*sets.set_at(q), y)
        np.testing.assert_array_equal(inside[decided], (score <= q)[decided])


def test_sets_are_nested() -> None:
    family = grow(samples(2), SCALE).with_atom(1.0)
    sets = [family.set_at(q) for q in SCORES]
    for (lower, upper, zero), (wider_lower, wider_upper, wider_zero) in pairwise(sets):
        positive = upper > 0
        assert (wider_lower[positive] <= lower[positive]).all()
        assert (wider_upper >= upper).all()
        assert (wider_zero >= zero).all()


def test_a_set_without_zero_starts_above_zero_and_no_set_is_empty() -> None:
    sets = grow(samples(3), SCALE).with_atom(1.0)
    for q in SCORES:
        lower, upper, zero = sets.set_at(q)
        assert (lower[~zero] > 0).all()
        assert (upper >= lower).all()


def test_the_score_is_continuous_in_positive_amounts() -> None:
    sets = grow(samples(4, n=1, zero=0.0), SCALE).with_atom(1.0)
    t = np.linspace(sets.edges[0, 0] - 0.5, sets.edges[0, -1] + 0.5, 20_001)
    score = np.array([sets.score(np.exp(t[k : k + 1]) - SCALE)[0] for k in range(0, 20_001, 40)])
    # On each side of the start the score increases outward; a jump is possible only where the
    # growth changes sides.
    start = 0.5 * (sets.edges[0, sets.start[0]] + sets.edges[0, sets.start[0] + 1])
    right = score[t[::40] > start]
    assert (np.diff(right) >= -1e-9).all()
    assert sets.score(np.exp(np.array([start])) - SCALE)[0] == pytest.approx(0, abs=1e-9)


def test_zero_joins_early_with_a_narrow_atom_and_late_with_a_wide_one() -> None:
    growth = grow(samples(5, zero=0.2), SCALE)
    narrow, wide = growth.with_atom(1e-6).zero_score, growth.with_atom(1e6).zero_score
    assert (narrow == 0).all()
    np.testing.assert_allclose(wide, 1 - growth.p_zero)


def test_the_set_of_a_person_with_only_zeros_is_zero_alone() -> None:
    sets = grow(np.zeros((1, 50), np.float32), SCALE).with_atom(1.0)
    assert sets.score(np.array([0.0]))[0] == 0
    assert sets.score(np.array([50_000.0]))[0] > 1
    assert [float(part[0]) for part in sets.set_at(0.9)] == [0, 0, 1]


def test_a_zero_without_samples_joins_when_the_lower_end_arrives_at_it() -> None:
    sets = grow(samples(6, zero=0.0), SCALE).with_atom(1.0)
    score = sets.score(np.zeros(300))
    assert score.min() > 1
    assert len(np.unique(score)) == 300, "no ties between persons"
    np.testing.assert_allclose(score, sets.score(np.full(300, 1e-9)), atol=1e-9)
    for q in (1.0, float(np.median(score)), score.max()):
        lower, _, zero = sets.set_at(q)
        np.testing.assert_array_equal(zero, score <= q)
        np.testing.assert_array_equal(zero, lower <= SMALLEST)


def test_equal_samples_and_a_single_positive_sample_give_finite_sets() -> None:
    for row in ([0, 0, 0, 7e4], [5e4] * 4, [0, 5e4, 5e4, 5e4]):
        sets = grow(np.array([row], np.float32), SCALE).with_atom(1.0)
        for q in SCORES:
            lower, upper, _ = sets.set_at(q)
            assert np.isfinite([lower, upper]).all()
        assert np.isfinite(sets.score(np.array([6e4])))[0]


def test_a_persons_sets_do_not_depend_on_the_batch() -> None:
    x = samples(8, n=20, m=37)
    together, alone = grow(x, SCALE).with_atom(0.5), grow(x[7:8], SCALE).with_atom(0.5)
    for q in (0.3, 0.9):
        for single, batch in zip(alone.set_at(q), together.set_at(q), strict=True):
            assert single[0] == batch[7]


def test_the_positive_part_is_near_the_shortest_interval() -> None:
    # Lognormal: the density is unimodal in t. Compared with the shortest 80 % of the samples.
    x = samples(9, n=200, m=400, zero=0.0)
    lower, upper, _ = grow(x, SCALE).with_atom(1.0).set_at(0.8)
    t = np.log(x.astype(float) + SCALE)
    shortest = (t[:, 320:] - t[:, :-320]).min(axis=1)
    grown = np.log(upper + SCALE) - np.log(lower + SCALE)
    assert np.median(grown / shortest) < 1.10
