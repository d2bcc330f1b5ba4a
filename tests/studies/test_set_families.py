"""Families of sets: mass, membership and scores on distributions with known numbers."""

from __future__ import annotations

import numpy as np
import pytest

from saga.distributions import Marginals
from studies.set_families import FAMILIES, Sets, contains, family_scores, judge, mass_of, winkler

N = 900


def _sample(rng: np.random.Generator) -> tuple[Marginals, np.ndarray]:
    """Marginals at five horizons with atoms from 0 to .9, and outcomes drawn from them."""
    p_zero = rng.choice([0.0, 0.03, 0.2, 0.6, 0.9], N)[:, None, None]
    level = rng.normal(12, 0.5, (N, 1, 1))

    def draws(count: int) -> np.ndarray:
        zero = rng.random((N, 5, count)) < p_zero
        return np.where(zero, 0.0, np.exp(level + rng.normal(0, 0.4, (N, 5, count))))

    return Marginals.from_samples(draws(400), recalibrated=True), draws(1)[..., 0]


@pytest.mark.parametrize("name", FAMILIES)
def test_sets_have_the_asked_mass_unless_the_atom_forces_more(name: str) -> None:
    marginals, _ = _sample(np.random.default_rng(0))
    q = 0.8
    sets = FAMILIES[name](marginals, q, q)
    mass = mass_of(sets, marginals)
    # In two families, sets with zero may have mass up to (1 + q) / 2; the others have q.
    most = (1 + q) / 2 if name in ("central", "nested by atom") else q
    # In the transition, mass deviates by up to a quarter of 1 - q.
    slack = (1 - q) / 4 if name == "with transition" else 0.01
    assert (mass > q - slack).all()
    assert (mass < np.maximum(most, marginals.p_zero) + slack).all()


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "shortest"])
def test_the_score_of_nested_sets_is_the_smallest_q_whose_set_contains_the_outcome(
    name: str,
) -> None:
    marginals, outcomes = _sample(np.random.default_rng(1))
    family = FAMILIES[name]
    scores = family_scores(family, marginals, outcomes, 0.8)
    inside = contains(family(marginals, 0.805, 0.8), outcomes)
    assert (inside[scores < 0.8]).all()
    assert abs(inside.mean() - (scores <= 0.805).mean()) < 0.01


def test_the_interval_score_of_a_set_with_a_gap_counts_the_nearest_point() -> None:
    sets = Sets(np.array([[10.0]] * 3), np.array([[20.0]] * 3), np.array([[True]] * 3))
    y = np.array([[0.0], [4.0], [25.0]])
    assert winkler(sets, y, 0.9) == pytest.approx([10.0, 10 + 20 * 4, 10 + 20 * 5])


def test_the_tables_name_every_family() -> None:
    marginals, outcomes = _sample(np.random.default_rng(2))
    page = judge(marginals, outcomes, np.arange(N) % 3, 0.9)
    assert all(page.count(f"| {name} |") == 2 for name in FAMILIES)
