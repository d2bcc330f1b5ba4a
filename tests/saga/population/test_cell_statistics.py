"""Statistics of weighted persons equal textbook formulas, and their variances a known truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from saga.population.cell_statistics import (
    RANDOM_GROUPS,
    PathStatistic,
    PersonPaths,
    earnings_classes,
)

Floats = NDArray[np.float64]


def _statistics(
    earnings: Floats, weights: Floats | None = None, inside: NDArray[np.bool_] | None = None
) -> dict[str, PathStatistic]:
    """Statistics of the persons `inside`, of persons in random groups."""
    n = len(earnings)
    inside = np.ones(n, dtype=np.bool_) if inside is None else inside
    weights, groups = np.ones(n) if weights is None else weights, np.arange(n) % RANDOM_GROUPS
    everybody = PersonPaths(earnings, weights, groups)
    cell = PersonPaths(earnings[inside], weights[inside], groups[inside])
    return cell.statistics(everybody.quantile(0.5), groups)


def test_weights_count_as_so_many_persons_and_formulas_are_those_of_textbooks() -> None:
    rng = np.random.default_rng(1)
    earnings = np.where(rng.random((40, 3)) < 0.2, 0, rng.lognormal(10, 1, (40, 3)))
    weights = rng.integers(1, 4, 40)
    expanded = np.repeat(earnings, weights, axis=0)
    values = {name: s.values for name, s in _statistics(earnings, weights.astype(float)).items()}
    n = len(expanded)
    assert values["persons"] == pytest.approx([n] * 3)
    assert values["total"] == pytest.approx(expanded.sum(0))
    assert values["mean"] == pytest.approx(expanded.mean(0))
    assert values["zero_share"] == pytest.approx((expanded == 0).mean(0))
    medians = np.quantile(expanded, 0.5, axis=0, method="inverted_cdf")
    assert values["p50"] == pytest.approx(medians)
    assert values["poverty_share"] == pytest.approx((expanded < 0.6 * medians).mean(0))
    differences = np.abs(expanded[:, None] - expanded[None]).sum((0, 1))
    assert values["gini"] == pytest.approx(differences / (2 * n**2 * expanded.mean(0)))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_groups_add_up_to_the_whole_on_every_path(seed: int, n_groups: int) -> None:
    rng = np.random.default_rng(seed)
    earnings = rng.lognormal(10, 1, (30, 4)) * (rng.random((30, 4)) < 0.8)
    weights, groups = rng.random(30) + 0.1, np.arange(30) % n_groups
    whole = _statistics(earnings, weights)
    parts = [_statistics(earnings, weights, groups == group) for group in range(n_groups)]
    for name in ("persons", "total"):
        assert sum(part[name].values for part in parts) == pytest.approx(whole[name].values)
        # The influences too, so that an error of the whole is that of its groups together.
        together = sum(part[name].influence for part in parts)
        assert together == pytest.approx(whole[name].influence, abs=1e-6 * whole[name].values.max())


def test_the_variance_of_influences_is_that_over_samples_of_persons() -> None:
    """Of all statistics of a group, and of the ratio and the gap of two groups."""
    n, repetitions = 1000, 200
    rng = np.random.default_rng(3)
    values, variances = [], []
    for _ in range(repetitions):
        earnings = rng.lognormal(10, 0.6, (n, 1)) * (rng.random((n, 1)) < 0.95)
        is_first = rng.random(n) < 0.5
        one, other = (_statistics(earnings, None, part) for part in (is_first, ~is_first))
        found = {name: s for name, s in one.items() if name != "persons"}
        found |= {"ratio": one["mean"].ratio(other["mean"])}
        found |= {"gap": one["p50"].difference(other["p50"])}
        values.append([float(s.values[0]) for s in found.values()])
        variances.append([float((s.influence**2).sum()) for s in found.values()])
    stated = np.sqrt(np.mean(variances, axis=0))
    true = np.std(values, axis=0, ddof=1)
    # The spread of 200 values has the relative error 1 / sqrt(400); a tenth is for densities.
    ratio = dict(zip(found, stated / true, strict=True))
    assert ratio == pytest.approx(dict.fromkeys(found, 1), abs=4 / np.sqrt(400) + 0.1), ratio


def test_classes_are_zero_and_fifths_of_the_positive() -> None:
    earnings = np.array([0.0, 5, 4, 3, 2, 1, np.nan])[:, None]
    assert earnings_classes(earnings)[:, 0].tolist() == [0, 5, 4, 3, 2, 1, -1]
