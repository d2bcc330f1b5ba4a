"""Attacks against scores whose leak is known."""

import numpy as np
import pytest
from saga.evaluation.audit.audit_signals import SIGNALS
from saga.evaluation.audit.membership import attack_numbers, judge, pooled
from saga.evaluation.audit.shadow_models import INSIDE, OUTSIDE
from scipy.stats import norm

N, K = 3_000, 12


def simulated(leak: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores of a target and of shadows: difficulty of a person, less `leak` if trained on."""
    rng = np.random.default_rng(3)
    inside = rng.random((K + 1, N)) < 0.5
    noise = rng.normal(size=(K + 1, N, len(SIGNALS)))
    scores = rng.normal(0, 5, (N, 1)) + noise - leak * inside[..., None]
    parts = np.where(inside, INSIDE, OUTSIDE)
    return scores[0], scores[1:], inside[0], parts[1:]


def areas(leak: float) -> dict[str, tuple[float, float, float]]:
    scores, shadows, inside, parts = simulated(leak)
    results = judge(
        attack_numbers(scores, shadows, parts),
        inside,
        ~inside,
        {"all": np.ones(N, dtype=bool)},
        np.arange(N),
        "bundle",
    )
    return {result.attack: (result.auc, result.lower, result.upper) for result in results}


def test_without_a_leak_no_attack_beats_a_guess() -> None:
    """The standard error of an area of independent scores is sqrt(1 / (3 n)) with n in each."""
    for area, lower, upper in areas(0.0).values():
        assert abs(area - 0.5) < 4 * np.sqrt(1 / (3 * N / 2))
        assert lower < area < upper


def test_the_likelihood_ratio_reaches_what_theory_says() -> None:
    """Of normal scores whose means differ by d standard deviations the area is Phi(d / sqrt 2)."""
    leak, found = 1.0, areas(1.0)
    best = norm.cdf(leak / np.sqrt(2))  # with the mean of each person known
    for attack in ("record, offline", "record, online"):
        assert best - 0.06 < found[attack][0] < best + 0.02  # about K / 2 shadows estimate it
    assert found["record, threshold"][0] < 0.6  # the difficulty of persons hides the leak


def test_rates_are_printed_where_ten_false_positives_are_expected() -> None:
    _, shadows, _, parts = simulated(1.0)
    numbers, members, others, person = pooled(shadows, parts)
    assert (members ^ others).all()
    groups = {"all": np.ones(N * K, dtype=bool), "few": person < 200}
    results = judge(numbers, members, others, groups, person, "shadows")
    of = {(result.attack, result.group): result for result in results}
    assert set(of["record, offline", "all"].rates) == {"0.1", "0.01", "0.001"}
    assert set(of["record, offline", "few"].rates) == {"0.1", "0.01"}
    shift = norm.ppf(0.9) - 1.0
    assert of["record, offline", "all"].rates["0.1"] == pytest.approx(norm.sf(shift), abs=0.08)
