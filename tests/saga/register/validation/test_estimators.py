"""Statistics against their definitions, and standard errors against repeated samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import ArrayLike

from saga.register.validation.estimators import Estimate, Sample, correlation, slope


def sample(values: ArrayLike, n_persons: int | None = None) -> Sample:
    array = np.asarray(values, float)
    return Sample(array, np.arange(len(array)), n_persons or len(array))


def p90_over_p10(sample: Sample) -> Estimate:
    p10, p90 = sample.quantiles((0.1, 0.9))
    return p90 / p10


STATISTICS: dict[str, Callable[[Sample], Estimate]] = {
    "mean": Sample.mean,
    "share": lambda s: s.share(s.values > 1.5),
    "variance": Sample.variance,
    "median": lambda s: s.quantiles((0.5,))[0],
    "P90/P10": p90_over_p10,
    "decile mean": lambda s: s.mean_between(0.3, 0.4),
    "top 5 %": lambda s: s.mean_between(0.95, 1.0),
    "Gini": Sample.gini,
    "spread": Sample.spread,
    "Kelley": Sample.kelley,
}


@pytest.mark.parametrize("name", STATISTICS)
def test_standard_error_equals_spread_over_repeated_samples(name: str) -> None:
    """400 samples of 1,500 log-normal values.

    The spread of a statistic is known to 1 / sqrt(800) = 3.5 %. The tolerance allows for 4 such
    errors and for a bias of order n ** -1/2 in the density that quantiles use.
    """
    rng = np.random.default_rng(7)
    statistic = STATISTICS[name]
    estimates = [statistic(sample(np.exp(0.6 * rng.standard_normal(1_500)))) for _ in range(400)]
    spread = np.std([estimate.value for estimate in estimates])
    assert np.mean([estimate.se for estimate in estimates]) == pytest.approx(spread, rel=0.18)


def test_statistics_agree_with_their_definitions() -> None:
    x = np.random.default_rng(1).gamma(2.0, size=801)
    s = sample(x)
    assert s.gini().value == pytest.approx(np.abs(x[:, None] - x).mean() / (2 * x.mean()))
    assert [q.value for q in s.quantiles((0.1, 0.5))] == pytest.approx(np.quantile(x, (0.1, 0.5)))
    assert s.mean_between(0.0, 1.0).value == pytest.approx(x.mean())
    assert s.mean().se == pytest.approx(x.std() / np.sqrt(len(x)))
    assert (s.mean() - s.mean()).se == pytest.approx(0.0)
    years = np.arange(5.0)
    means = [sample(x[i::5], 801).mean() for i in range(5)]
    values = [mean.value for mean in means]
    assert slope(years, means).value == pytest.approx(np.polyfit(years, values, 1)[0])
    assert correlation(years, means).value == pytest.approx(np.corrcoef(years, values)[0, 1])


def test_persons_are_the_unit() -> None:
    """A person counted three times carries no more information than once."""
    x = np.random.default_rng(2).standard_normal(500)
    once, thrice = sample(x), Sample(np.tile(x, 3), np.tile(np.arange(500), 3), 500)
    statistics: tuple[Callable[[Sample], Estimate], ...] = (Sample.mean, Sample.variance)
    for statistic in statistics:
        assert statistic(thrice).se == pytest.approx(statistic(once).se)
        assert statistic(thrice).n == 500
    # The quantile's density is taken from a narrower window if there are more observations.
    assert thrice.spread().se == pytest.approx(once.spread().se, rel=0.25)
