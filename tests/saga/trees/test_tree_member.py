"""Trees beside a network: averages of distributions, stored bit by bit, weighted by evidence."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.training.ensembles import train_members
from saga.training.harness import RunOptions
from saga.training.train_config import TrainConfig
from saga.training.tree_member import fit_tree_member

from saga.bundle import Bundle
from saga.data.origins import history, last_year, origins_at, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.data.split import Part, persons_of
from saga.distributions import Marginals
from saga.errors import BundleError
from saga.files.stored_values import faults_of
from saga.forecaster import Forecaster
from saga.model import ModelConfig
from saga.requests import ForecastRequest
from saga.scores import marginal_scores
from saga.trees.mixture import TreeMember, mixed
from saga.trees.recent_years import Window
from saga.trees.tree_forecast import TreeForecast, TreeOptions, increasing, probability_up_to
from tests.panels import yearly_panel

YEARS = np.arange(2000, 2014)
CONFIG = TrainConfig(
    name="toy",
    model=ModelConfig(width=8, layers=1, heads=1, bins=16, head_width=8),
    batch_persons=64,
    max_steps=20,
    warmup_steps=2,
    validate_every=10,
    precision="32-true",
    scale_free=True,
    trees=True,
)
QUIET = RunOptions()
FEW = TreeOptions(grid=(1, 2, 5), leaves=(6,), rates=(0.1,), threads=1)


def panel_of(n: int, seed: int, macro: str | None = None) -> Panel:
    """Persons with a level of their own, known from the record, and some years of zeros.

    A network of twenty steps does not know the levels, trees do. `extra_team` says who has a
    bonus in every year.
    """
    rng = np.random.default_rng(seed)
    level, team = rng.normal(12, 0.7, n), rng.random(n) < 0.5
    logs = level[:, None] + 0.3 * team[:, None] + rng.normal(0, 0.15, (n, len(YEARS)))
    zero = rng.random(logs.shape) < 0.08
    earnings, born = np.where(zero, 0.0, np.exp(logs)), rng.integers(1960, 1976, n)
    sex = np.where(rng.random(n) < 0.5, "female", "male")
    meta = PanelMeta("levels", floor=1_000.0, macro=macro)
    return yearly_panel(earnings, YEARS, born, meta, sex=sex)


@pytest.fixture(scope="module")
def panel() -> Panel:
    return panel_of(600, 0)


@pytest.fixture(scope="module")
def trees(panel: Panel) -> TreeForecast:
    held_out = set(panel.persons()[::10])
    return TreeForecast.fit(panel, held_out, Window(panel), FEW, seed=0)


@pytest.fixture(scope="module")
def bundle(panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return train_members(
        panel, tmp_path_factory.mktemp("trees") / "b", config=CONFIG, seed=1, run=QUIET
    )


def some_marginals(n: int, horizons: int, seed: int) -> Marginals:
    rng = np.random.default_rng(seed)
    samples = np.exp(rng.normal(12, 0.6, (n, horizons, 400)))
    samples[rng.random(samples.shape) < 0.1] = 0
    return Marginals.from_samples(samples)


def some_trees(network: Marginals, horizons: int, seed: int) -> Marginals:
    """Distributions of trees on the grid of a network's marginals, at its first horizons."""
    rng, first = np.random.default_rng(seed), network.first(horizons)
    logs = increasing(rng.normal(12.2, 0.4, (len(network), horizons, 9)))
    zero = rng.uniform(0, 0.3, (len(network), horizons))
    cdf = zero[..., None] + (1 - zero[..., None]) * probability_up_to(
        first.grid.astype(np.float64), logs
    )
    return replace(first, cdf=cdf, p_zero=zero)


def test_a_mixture_is_the_average_of_probabilities() -> None:
    network = some_marginals(40, 3, 0)
    of_trees = some_trees(network, 3, 1)
    weights = np.array([0.1, 0.4, 0.9])  # of each horizon
    both = mixed(network, of_trees, weights)
    amounts = np.exp(network.grid[:, :, 20:100:20].astype(float))
    expected = network.probability(amounts) * (1 - weights)[:, None]
    expected += of_trees.probability(amounts) * weights[:, None]
    np.testing.assert_allclose(both.probability(amounts), expected, atol=1e-9)
    p_zero = (1 - weights) * network.p_zero + weights * of_trees.p_zero
    np.testing.assert_allclose(both.p_zero, p_zero)
    assert (np.diff(both.cdf, axis=-1) >= 0).all()
    assert np.array_equal(mixed(network, of_trees, 0.0).cdf, network.cdf)


def test_trees_go_on_beyond_their_last_horizon(trees: TreeForecast, panel: Panel) -> None:
    """If the network says the same of all years, so does the mixture after the trees' last one."""
    member = TreeMember.of(trees.to_table(), {"1": 0.2, "2": 0.3, "5": 0.6})
    np.testing.assert_allclose(member.weights_at([1, 2, 3, 4, 7]), [0.2, 0.3, 0.4, 0.5, 0.6])
    people, last = panel.only(panel.persons()[:20]), int(trees.grid[-1])
    always = some_marginals(20, 1, 0).at_horizons([1] * (last + 4))
    both = member.mix_with(people)(np.arange(20), always)
    for h in range(last, last + 4):
        np.testing.assert_array_equal(both.cdf[:, h], both.cdf[:, last - 1])
        np.testing.assert_array_equal(both.p_zero[:, h], both.p_zero[:, last - 1])
    assert (both.p_zero[:, last - 1] != always.p_zero[:, last - 1]).all()


def test_no_distribution_stays_none() -> None:
    network = some_marginals(4, 3, 0)
    network.p_zero[1, 2], network.cdf[1, 2] = np.nan, np.nan
    both = mixed(network, some_trees(network, 3, 1), 0.5)
    assert np.isnan(both.cdf[1, 2]).all()
    assert not both.exists[1, 2]
    assert both.exists.sum() == 11


def test_stored_trees_forecast_the_same_bits(trees: TreeForecast, panel: Panel) -> None:
    origins, stored = origins_at(panel), TreeForecast.from_table(trees.to_table())
    features = stored.window.features(panel, origins)
    before, after = (t.predict(features, origins, (1, 3, 5)) for t in (trees, stored))
    for fitted, read in zip(before, after, strict=True):
        assert np.array_equal(fitted, read)


def in_window(*place: str | int, value: Any) -> Callable[[str], str]:
    """A change of one value of the window, which is JSON."""

    def change(text: str) -> str:
        window = at = json.loads(text)
        for name in place[:-1]:
            at = at[name]
        at[place[-1]] = value
        return json.dumps(window)

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("window", in_window("floor", value=-1)),
        ("window", in_window("floor", value={})),
        ("window", in_window("others", value=2**70)),
        ("window", in_window("others", value=["sex"])),
        ("window", in_window("codes", "sex", 0, value=[])),
        ("window", in_window("names", value=["age"])),
        ("window", in_window("reference", "growth", value=1e308)),
        ("window", in_window("reference", "last", value=2050)),
        ("window", in_window("reference", "cuts", 1, 1, value=[1.0])),
        ("window", in_window("reference", "median", 0, value=float("nan"))),
        ("simple", in_window("linear", value=None)),
        ("simple", in_window("linear", value=[1.0, 2.0])),
        ("simple", in_window("linear", 0, value=1e308)),
        ("simple", in_window("share", value=float("nan"))),
    ],
)
def test_trees_of_other_values_are_refused_when_they_are_read(
    trees: TreeForecast, name: str, change: Callable[[str], str]
) -> None:
    """Some were found at the first forecast, as an internal error, and some gave NaN."""
    table = trees.to_table()
    at = table["name"].index_of(name)
    assert at is not None
    table[at, "content"] = change(table[at, "content"])
    with pytest.raises(BundleError, match=r"trees\.parquet"), faults_of("trees.parquet"):
        TreeForecast.from_table(table)


def test_a_table_of_no_trees_is_refused(trees: TreeForecast) -> None:
    with pytest.raises(ValueError, match="no models"):
        TreeForecast.from_table(trees.to_table().filter(name="window"))


def test_the_table_names_no_person_and_no_extreme_value(trees: TreeForecast, panel: Panel) -> None:
    """Neither the ranges that LightGBM stores nor its thresholds are values of single persons."""
    text = "".join(trees.to_table()["content"])
    assert not any(f'"{person}"' in text for person in panel.persons())
    features = trees.window.features(panel, origins_at(panel))
    highest = np.nanmax(features[:, trees.window.names.index("highest_level")])

    def ranges(text: str) -> set[str]:
        lines = [line for line in text.splitlines() if line.startswith("feature_infos=")]
        assert lines
        return {part for line in lines for part in re.findall(r"\[[^]]*\]", line)}

    assert not any(
        f":{highest:.3f}" in r for r in ranges(trees.models[0].quantiles[0].model_to_string())
    )
    assert ranges(text) == {"[0:1]"}


def tree_member(bundle: Bundle, panel: Panel) -> tuple[pl.DataFrame, dict[int, float]]:
    """Trees of three horizons beside the bundle's network."""
    networks = replace(bundle, trees=None)
    training, validation = (persons_of(panel, part) for part in ("train", "validation"))
    fitted = fit_tree_member(
        networks, panel, CONFIG, training=training, validation=validation, seed=1
    )
    assert fitted is not None
    return fitted


def with_other_amounts(panel: Panel, *parts: Part) -> Panel:
    """The panel, with other earnings of the persons of these parts of the split."""
    persons = [person for part in parts for person in persons_of(panel, part)]
    changed = pl.when(pl.col("person_id").is_in(persons)).then(pl.col("earnings") * 1.7 + 9)
    return panel.with_frame(
        panel.frame.with_columns(changed.otherwise(pl.col("earnings")).alias("earnings"))
    )


@pytest.mark.thorough
def test_trees_learn_from_validation_persons_but_from_no_later_part(
    bundle: Bundle, panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings and numbers of trees come from training persons, weights from validation persons."""
    monkeypatch.setattr("saga.training.tree_member.TreeOptions", lambda threads: FEW)
    fitted, weights = tree_member(bundle, panel)
    unseen = tree_member(bundle, with_other_amounts(panel, "calibration", "test"))
    assert unseen[0].equals(fitted)
    assert unseen[1] == weights
    # Negative control: validation persons count, and only for leaves and weights.
    seen, _ = tree_member(bundle, with_other_amounts(panel, "validation"))
    assert not seen.equals(fitted)
    stored, other = map(TreeForecast.from_table, (fitted, seen))
    for models, others in zip(stored.models, other.models, strict=True):
        assert [m.num_trees() for m in models.quantiles] == [
            m.num_trees() for m in others.quantiles
        ]


@pytest.mark.thorough
@pytest.mark.slow
def test_training_adds_trees_where_they_help(bundle: Bundle, panel: Panel) -> None:
    assert bundle.trees is not None
    weights = bundle.config["tree_weights"]
    assert set(weights) == {"1", "2", "5", "10"}
    assert min(weights.values()) >= 0.5  # a network of twenty steps knows little
    assert "Boosted trees" in bundle.card
    forecaster = Forecaster(bundle)
    test = panel.only(persons_of(panel, "test"))
    origins = origins_at(test, last_year(panel) - 2)
    outcomes = realised_earnings(test, origins, [1, 2])
    alone = Forecaster(replace(bundle, trees=None))
    crps = [
        np.nanmean(
            marginal_scores(
                Marginals.joined(list(f.marginals(history(test, origins), n_horizons=2))), outcomes
            )["crps_log"]
        )
        for f in (forecaster, alone)
    ]
    assert crps[0] < crps[1]


@pytest.mark.thorough
def test_a_person_alone_has_the_same_bits(bundle: Bundle, panel: Panel) -> None:
    forecaster, ids = Forecaster(bundle), panel.persons()[:40]
    request = ForecastRequest(horizons=(1, 2, 5), unrounded=True, beyond_span=True)
    together = forecaster.forecast(panel.only(ids), request).table
    for person in (ids[0], ids[17]):
        alone = forecaster.forecast(panel.only([person]), request).table
        assert alone.equals(together.filter(pl.col("person_id") == person))


@pytest.mark.thorough
def test_no_trees_beside_an_economy_or_with_few_outcomes(
    panel: Panel, tmp_path: Path, bundle: Bundle
) -> None:
    swedish = panel_of(300, 0, macro="sweden")
    assert train_members(swedish, tmp_path / "b", config=CONFIG, run=QUIET).trees is None
    few = panel.only(panel.persons()[:15])
    ids = few.persons()
    assert fit_tree_member(bundle, few, CONFIG, training=ids, validation=ids, seed=0) is None


def test_an_own_column_that_is_missing_is_unknown(trees: TreeForecast, panel: Panel) -> None:
    window = Window.from_dict(trees.window.as_dict())
    window.others, window.codes = (
        [*window.others, "extra_hours"],
        {**window.codes, "extra_team": ["a"]},
    )
    window.names = [*window.names, "extra_hours", "extra_team"]
    features = window.features(panel, origins_at(panel))
    assert np.isnan(features[:, -2:]).all()


def test_without_lightgbm_the_error_says_what_to_install(
    trees: TreeForecast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(BundleError, match=r"saga-forecast\[trees\]"):
        TreeMember.of(trees.to_table(), {})
