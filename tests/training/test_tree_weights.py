"""Weights of trees beside a network: the best ones, and as much shrinkage as noise demands."""

from __future__ import annotations

import numpy as np
from saga.training.tree_member import COMMON, COMMON_SD, OWN_SD, shrunk_weights

from saga.arrays import Floats


def losses_of(best: Floats, n: int, noise: float, rng: np.random.Generator) -> Floats:
    """CRPS (3, n, K) at weights 0, 1/2, 1: quadratics whose mean is least at about `best`."""
    curve = rng.uniform(0.5, 1.5, (n, len(best)))
    slope = -2 * curve * best + noise * rng.normal(size=curve.shape)
    level = rng.uniform(0, 1, curve.shape)
    return np.stack([level + slope * w + curve * w**2 for w in (0.0, 0.5, 1.0)])


def names(n: int) -> list[str]:
    return [f"{i:04d}" for i in range(n)]


def test_many_persons_have_the_weights_with_the_least_loss() -> None:
    """The oracle is a search over all weights for each horizon alone."""
    losses = losses_of(np.array([0.2, 0.45, 0.8]), 20_000, 0.5, np.random.default_rng(0))
    none, half, whole = losses.mean(axis=1)
    w = np.linspace(0, 1, 101)[:, None]
    # Lagrange's polynomial through the three losses.
    searched = 2 * (w - 0.5) * (w - 1) * none - 4 * w * (w - 1) * half + 2 * w * (w - 0.5) * whole
    best = w[searched.argmin(axis=0), 0]
    np.testing.assert_allclose(shrunk_weights(losses, names(20_000)), best, atol=0.011)


def test_without_an_outcome_the_weights_are_one_half() -> None:
    assert shrunk_weights(np.full((3, 8, 2), np.nan), names(8)).tolist() == [0.5, 0.5]


def test_a_horizon_without_outcomes_follows_the_others() -> None:
    losses = losses_of(np.array([0.1, 0.1, 0.1]), 5_000, 0.1, np.random.default_rng(0))
    losses[..., 2] = np.nan
    weights = shrunk_weights(losses, names(5_000))
    assert weights[0] == weights[1] == 0.1
    # Posterior mean of a weight with the prior correlation to two known ones.
    share = 2 * COMMON_SD**2 / (2 * COMMON_SD**2 + OWN_SD**2)
    assert abs(weights[2] - (COMMON + share * (0.1 - COMMON))) < 0.011


def test_shrunk_weights_are_nearer_to_the_truth_than_raw_ones_and_one_half() -> None:
    """Drawn from the prior, the posterior mean has the least squared error on average."""
    rng, errors = np.random.default_rng(1), []
    for _ in range(300):
        common = COMMON + COMMON_SD * rng.normal()
        truth = np.clip(common + OWN_SD * rng.normal(size=4), 0, 1)
        losses = losses_of(truth, 40, 2.5, rng)
        none, half, whole = losses.mean(axis=1)
        curve = 2 * (none + whole - 2 * half)
        raw = np.clip(-(whole - none - curve) / (2 * curve), 0, 1)
        errors.append(
            [
                ((guess - truth) ** 2).mean()
                for guess in (shrunk_weights(losses, names(40)), raw, np.full(4, 0.5))
            ]
        )
    shrunk, raw_error, half_error = np.array(errors).T
    for other in (raw_error, half_error):
        gain = other - shrunk
        assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))


def test_copies_of_a_persons_rows_are_not_evidence() -> None:
    losses = losses_of(np.array([0.9, 0.8]), 30, 3, np.random.default_rng(2))
    once = shrunk_weights(losses, names(30))
    thrice = np.concatenate([losses] * 3, axis=1)
    assert np.array_equal(shrunk_weights(thrice, names(30) * 3), once)
    # Negative control: as other persons they are.
    assert not np.array_equal(shrunk_weights(thrice, names(90)), once)
