"""Nested sets: membership is the score, sets are nested, and under the true forecast the mass is what it says."""

from itertools import pairwise

import numpy as np
import pytest

from saga.conformal.prediction_sets import SMALLEST, grow

SCALE = 24_150.0
LEVELS = np.linspace(0.02, 1.3, 33)


def samples(seed=0, n=300, m=80, zero=None) -> np.ndarray:
    rng = np.random.default_rng(seed)
    p = rng.uniform(0, 0.95, (n, 1)) if zero is None else np.full((n, 1), zero)
    x = np.where(rng.random((n, m)) < p, 0, rng.lognormal(12, 0.7, (n, m)))
    return np.sort(x.astype(np.float32), axis=1)


def member(y, lower, upper, zero):
    return np.where(y == 0, zero, (y > 0) & (lower <= y) & (y <= upper))


@pytest.mark.parametrize("atom_width", [0.05, 1.0, 20.0])
def test_an_amount_is_in_the_set_exactly_when_its_score_is_at_most_q(atom_width):
    family = grow(samples(), SCALE).with_atom(atom_width)
    rng = np.random.default_rng(1)
    y = np.where(rng.random(300) < 0.3, 0, rng.lognormal(12, 1.2, 300))
    score = family.score(y)
    for q in LEVELS:
        decided = np.abs(score - q) > 1e-6  # float32 amounts and exp(log()) blur the very edge
        np.testing.assert_array_equal(member(y, *family.at(q))[decided], (score <= q)[decided])


def test_sets_are_nested():
    family = grow(samples(2), SCALE).with_atom(1.0)
    sets = [family.at(q) for q in LEVELS]
    for (low, high, zero), (lower, higher, zeros) in pairwise(sets):
        positive = high > 0
        assert (lower[positive] <= low[positive]).all()
        assert (higher >= high).all()
        assert (zeros >= zero).all()


def test_a_set_without_zero_starts_above_zero_and_no_set_is_empty():
    family = grow(samples(3), SCALE).with_atom(1.0)
    for q in LEVELS:
        lower, upper, zero = family.at(q)
        assert (lower[~zero] > 0).all()
        assert (upper >= lower).all()


def test_the_score_is_continuous_in_positive_amounts():
    family = grow(samples(4, n=1, zero=0.0), SCALE).with_atom(1.0)
    t = np.linspace(family.edges[0, 0] - 0.5, family.edges[0, -1] + 0.5, 20_001)
    score = np.array([family.score(np.exp(t[k : k + 1]) - SCALE)[0] for k in range(0, 20_001, 40)])
    # Inside a side of the start the score rises outward; a jump can only be where the growth changed sides.
    start = 0.5 * (family.edges[0, family.start[0]] + family.edges[0, family.start[0] + 1])
    right = score[t[::40] > start]
    assert (np.diff(right) >= -1e-9).all()
    assert family.score(np.exp(np.array([start])) - SCALE)[0] == pytest.approx(0, abs=1e-9)


def test_zero_joins_early_when_narrow_and_late_when_wide():
    growth = grow(samples(5, zero=0.2), SCALE)
    narrow, wide = growth.with_atom(1e-6).atom, growth.with_atom(1e6).atom
    assert (narrow == 0).all()
    np.testing.assert_allclose(wide, 1 - growth.zero)


def test_a_person_with_zeros_only_gets_zero_alone():
    family = grow(np.zeros((1, 50), np.float32), SCALE).with_atom(1.0)
    assert family.score(np.array([0.0]))[0] == 0
    assert family.score(np.array([50_000.0]))[0] > 1
    assert [float(part[0]) for part in family.at(0.9)] == [0, 0, 1]


def test_a_zero_that_no_sample_shows_joins_when_the_set_has_grown_down_to_it():
    family = grow(samples(6, zero=0.0), SCALE).with_atom(1.0)
    score = family.score(np.zeros(300))
    assert score.min() > 1
    assert len(np.unique(score)) == 300, "no two persons are tied"
    np.testing.assert_allclose(score, family.score(np.full(300, 1e-9)), atol=1e-9)
    for q in (1.0, float(np.median(score)), score.max()):
        lower, _, zero = family.at(q)
        np.testing.assert_array_equal(zero, score <= q)
        np.testing.assert_array_equal(zero, lower <= SMALLEST)


def test_two_equal_samples_or_a_single_positive_one_do_no_harm():
    for row in ([0, 0, 0, 7e4], [5e4] * 4, [0, 5e4, 5e4, 5e4]):
        family = grow(np.array([row], np.float32), SCALE).with_atom(1.0)
        for q in LEVELS:
            lower, upper, _ = family.at(q)
            assert np.isfinite([lower, upper]).all()
        assert np.isfinite(family.score(np.array([6e4])))[0]


def test_a_persons_sets_do_not_depend_on_the_batch():
    x = samples(8, n=20, m=37)
    together, alone = grow(x, SCALE).with_atom(0.5), grow(x[7:8], SCALE).with_atom(0.5)
    for q in (0.3, 0.9):
        for one, other in zip(alone.at(q), together.at(q), strict=True):
            assert one[0] == other[7]


def test_the_positive_part_is_near_the_shortest_interval():
    # Lognormal: in t the density is unimodal; the shortest 80 % interval of the samples is the yardstick.
    x = samples(9, n=200, m=400, zero=0.0)
    lower, upper, _ = grow(x, SCALE).with_atom(1.0).at(0.8)
    t = np.log(x.astype(float) + SCALE)
    shortest = (t[:, 320:] - t[:, :-320]).min(axis=1)
    grown = np.log(upper + SCALE) - np.log(lower + SCALE)
    assert np.median(grown / shortest) < 1.10
