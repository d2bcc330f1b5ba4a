"""The naive baselines: right where they are the truth, reproducible, blind to the future."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
import pytest
from saga.evaluation.baselines import (
    BASELINES,
    LSTM,
    MEANINGS,
    CarryForward,
    FeedForward,
    GroupQuantiles,
)
from saga.evaluation.baselines.trees.gbt import BoostedTrees
from saga.evaluation.protocol import Baseline
from saga.evaluation.scoring.ensemble_scores import crps_log
from saga.evaluation.scoring.year_forecasts import nominal_sets
from saga.training.train_config import TrainConfig

from saga.data.origins import Origins, draw_origins, eligible_origins, history, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.distributions import Marginals
from saga.errors import InputError
from saga.model import ModelConfig
from saga.model.config import BackboneName
from saga.scores import covered
from tests.evaluation.baselines.short_fits import short_fits
from tests.panels import yearly_panel

Make = Callable[..., Panel]
HORIZONS = [1, 5, 10]


def _short(backbone: BackboneName) -> TrainConfig:
    model = ModelConfig(backbone=backbone, width=16, layers=1, bins=16, head_width=16)
    return TrainConfig(
        "short",
        model,
        batch_persons=64,
        max_steps=24,
        warmup_steps=2,
        learning_rate=1e-2,
        validate_every=12,
    )


QUICK: dict[str, Callable[[], Baseline]] = {
    **BASELINES,
    "gbt": lambda: BoostedTrees(grid=(1, 5), leaves=(6,), rates=(0.1,), threads=1),
    "deepar": lambda: BASELINES["deepar"](width=16, passes=1),  # type: ignore[call-arg]
    "lstm": lambda: LSTM(_short("lstm")),
    "ff": lambda: FeedForward(_short("feedforward")),
}
HERE = sorted(name for name in BASELINES if name != "deepar" or importlib.util.find_spec("gluonts"))


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with short_fits():
        yield


@pytest.fixture(scope="module")
def walk(random_walk: Make, part: Make) -> tuple[Panel, Panel, CarryForward]:
    panel = random_walk(4000)
    train = part(panel, "train")
    return panel, part(panel, "test"), CarryForward().fit(train, seed=0)


@pytest.fixture(scope="module")
def groups(grouped: Make, part: Make) -> tuple[Panel, Panel, GroupQuantiles]:
    panel = grouped(4000)
    return panel, part(panel, "test"), GroupQuantiles().fit(part(panel, "train"), seed=0)


# Those that take seconds to fit.
SLOW = ("gkos", "abb", "ff", "lstm", "gbt")
CONTESTANTS = [pytest.param(name, marks=[pytest.mark.thorough] * (name in SLOW)) for name in HERE]


@pytest.fixture(scope="module", params=CONTESTANTS)
def fitted(request: pytest.FixtureRequest, random_walk: Make) -> tuple[Panel, Baseline]:
    panel = random_walk(300, seed=3)
    return panel, QUICK[request.param]().fit(panel, seed=0)


def test_every_baseline_has_its_words_on_the_page() -> None:
    assert MEANINGS.keys() == BASELINES.keys()


def test_carry_is_calibrated_and_nearly_sharp_if_growth_is_independent(
    walk: tuple[Panel, Panel, CarryForward],
) -> None:
    _, test, carry = walk
    origins = draw_origins(test, max_horizon=10, seed=1)
    outcomes = realised_earnings(test, origins, HORIZONS)
    samples = carry.simulate(
        history(test, origins), origins, to_horizon=10, n_paths=200, seed=0
    ).earnings[:, np.array(HORIZONS) - 1]
    for column, h in enumerate(HORIZONS):
        y, x = outcomes[:, column], samples[:, column]
        seen = np.isfinite(y)
        lower, upper, zero = nominal_sets(Marginals.from_samples(x[seen, None]), (0.9,), 200)
        share = covered(y[seen, None], lower[..., 0], upper[..., 0], zero[..., 0]).mean()
        assert abs(share - 0.9) < 4 * np.sqrt(0.09 / seen.sum())
        # The exact forecaster's expected CRPS is sd / sqrt(pi); tolerance 4 standard errors.
        score = crps_log(x[seen, None], y[seen, None])[:, 0]
        exact = 0.15 * np.sqrt(h / np.pi)
        assert abs(score.mean() - exact) < 0.03 * exact + 4 * score.std() / np.sqrt(seen.sum())


def test_group_quantiles_are_calibrated_in_every_group_that_makes_the_outcomes(
    groups: tuple[Panel, Panel, GroupQuantiles],
) -> None:
    _, test, baseline = groups
    origins = draw_origins(test, max_horizon=5, seed=1)
    outcomes = realised_earnings(test, origins, [1, 5])
    samples = baseline.simulate(
        history(test, origins), origins, to_horizon=5, n_paths=200, seed=0
    ).earnings[:, [0, 4]]
    lower, upper, zero = nominal_sets(Marginals.from_samples(samples), (0.9,), 200)
    inside = covered(outcomes, lower[..., 0], upper[..., 0], zero[..., 0])
    last = history(test, origins).frame.group_by("person_id", maintain_order=True).last()
    for (sex, level), rows in last.with_row_index().group_by("sex", "education_level"):
        own_scores = inside[rows["index"].to_numpy()]
        assert abs(np.nanmean(own_scores) - 0.9) < 4 * np.sqrt(
            0.09 / np.isfinite(own_scores).sum()
        ), (sex, level)
        zeros = (samples[rows["index"].to_numpy()] == 0).mean()
        truth = 0.25 if sex == "female" else 0.05
        assert abs(zeros - truth) < 0.02


def test_paths_are_joint_and_keep_the_autocorrelation_of_a_random_walk(
    walk: tuple[Panel, Panel, CarryForward],
) -> None:
    _, test, carry = walk
    origins = draw_origins(test, max_horizon=10, seed=1).take(slice(0, 100))
    paths = carry.simulate(history(test, origins), origins, to_horizon=10, n_paths=400, seed=0)
    log = np.log(paths.earnings)
    log = log[np.isfinite(log).all(axis=(1, 2))]
    correlation = np.mean([np.corrcoef(person[4], person[9])[0, 1] for person in log])
    assert correlation == pytest.approx(
        np.sqrt(5 / 10), abs=0.05
    )  # of a random walk at h = 5 and 10


def test_the_shape_is_persons_horizons_paths_and_nothing_follows_age_64(
    fitted: tuple[Panel, Baseline],
) -> None:
    panel, baseline = fitted
    origins = draw_origins(panel, max_horizon=5, seed=0)
    paths = baseline.simulate(history(panel, origins), origins, to_horizon=12, n_paths=7, seed=0)
    assert paths.earnings.shape == (len(origins), 12, 7)
    assert np.array_equal(
        np.isfinite(paths.earnings),
        np.broadcast_to(paths.within_age[..., None], paths.earnings.shape),
    )
    assert np.array_equal(paths.person_id, origins.person_id)


def test_paths_do_not_depend_on_the_other_persons_or_on_the_order(
    fitted: tuple[Panel, Baseline],
) -> None:
    panel, baseline = fitted
    origins = draw_origins(panel, max_horizon=5, seed=0)
    together = baseline.simulate(history(panel, origins), origins, to_horizon=5, n_paths=9, seed=4)
    subset = np.array([11, 3, 7])
    alone = baseline.simulate(
        history(panel, origins.take(subset)), origins.take(subset), to_horizon=5, n_paths=9, seed=4
    )
    assert np.array_equal(alone.earnings, together.earnings[subset], equal_nan=True)
    other = baseline.simulate(history(panel, origins), origins, to_horizon=5, n_paths=9, seed=5)
    assert not np.array_equal(other.earnings, together.earnings, equal_nan=True)


def test_a_second_fit_with_the_same_seed_gives_the_same_paths(
    fitted: tuple[Panel, Baseline],
) -> None:
    panel, baseline = fitted
    origins = draw_origins(panel, max_horizon=5, seed=0)
    again = QUICK[baseline.name]().fit(panel, seed=0)
    first, second = (
        b.simulate(history(panel, origins), origins, to_horizon=5, n_paths=9, seed=0).earnings
        for b in (baseline, again)
    )
    assert np.array_equal(first, second, equal_nan=True)


def test_the_forecast_does_not_depend_on_the_outcome(fitted: tuple[Panel, Baseline]) -> None:
    """Numbers do not change with the whole panel as history or other later outcomes."""
    panel, baseline = fitted
    origins = draw_origins(panel, max_horizon=5, seed=0)
    later = panel.frame.join(origins.frame(), on="person_id", how="inner", maintain_order="left")
    forged = later.with_columns(
        pl.when(pl.col("year") > pl.col("origin")).then(1.0).otherwise("earnings").alias("earnings")
    )
    from_history = baseline.simulate(
        history(panel, origins), origins, to_horizon=5, n_paths=9, seed=0
    ).earnings
    for peeking in (panel, panel.with_frame(forged.select(panel.frame.columns))):
        assert np.array_equal(
            baseline.simulate(peeking, origins, to_horizon=5, n_paths=9, seed=0).earnings,
            from_history,
            equal_nan=True,
        )


def test_horizons_beyond_the_longest_record_are_reached(fitted: tuple[Panel, Baseline]) -> None:
    panel, baseline = fitted
    young = draw_origins(panel, max_horizon=5, seed=0, among=eligible_origins(panel, ages=(20, 25)))
    paths = baseline.simulate(history(panel, young), young, to_horizon=38, n_paths=50, seed=0)
    assert np.isfinite(paths.earnings[paths.within_age]).all()
    spread = np.log(
        np.quantile(paths.earnings[:, 30], 0.9, axis=1)
        / np.quantile(paths.earnings[:, 30], 0.1, axis=1)
    )
    assert (spread > 0.5).all()


@pytest.mark.parametrize("name", CONTESTANTS)
def test_a_panel_without_zeros_covariates_or_odd_horizons_works(name: str) -> None:
    """Every second year, no sex, education or floor: the rhythm of the NLSY79 after 1994."""
    rng = np.random.default_rng(0)
    n, years = 200, np.arange(1994, 2020, 2)
    log = 2.5 + rng.normal(0, 0.4, (n, 1)) + rng.normal(0, 0.1, (n, len(years))).cumsum(axis=1)
    meta = PanelMeta("biennial", currency="USD", floor=None, macro=None)
    panel = yearly_panel(np.exp(log), years, rng.integers(1957, 1965, n), meta)
    origins = draw_origins(panel, max_horizon=10, seed=0)
    fitted = QUICK[name]().fit(panel, seed=0)
    paths = fitted.simulate(history(panel, origins), origins, to_horizon=10, n_paths=20, seed=0)
    assert (paths.earnings[paths.within_age] > 0).all()


def test_forecasts_start_from_the_last_known_year(random_walk: Make) -> None:
    """The horizon then counts from the last known year: the spread is that of h + 2 years."""
    panel = random_walk(1000, seed=5)
    carry = CarryForward().fit(panel, seed=0)
    among = eligible_origins(panel, ages=(30, 40))
    origins = draw_origins(panel, max_horizon=10, seed=0, among=among).take(slice(0, 60))
    past = history(panel, origins)
    hidden = past.with_frame(
        past.frame.join(origins.frame(), on="person_id", maintain_order="left")
        .with_columns(
            pl.when(pl.col("year") > pl.col("origin") - 2)
            .then(None)
            .otherwise("earnings")
            .alias("earnings")
        )
        .select(past.frame.columns)
    )
    spread = {}
    for name, records in (("all", past), ("hidden", hidden)):
        log = np.log(carry.simulate(records, origins, to_horizon=3, n_paths=300, seed=0).earnings)
        spread[name] = log.std(axis=2).mean(axis=0)
    assert spread["hidden"][0] == pytest.approx(0.15 * np.sqrt(3), rel=0.1)
    assert spread["hidden"][0] == pytest.approx(spread["all"][2], rel=0.05)


def test_a_person_without_any_record_is_refused(fitted: tuple[Panel, Baseline]) -> None:
    panel, baseline = fitted
    stranger = Origins(np.array(["nobody"]), np.array([2010]))
    with pytest.raises(InputError, match="no record"):
        baseline.simulate(panel, stranger, to_horizon=2, n_paths=3, seed=0)
