"""Covariate shift: weighted thresholds cover in the target population, unweighted ones do not."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from saga.calibration.fit.covariate_shift import REST, Target, join_strata, labels_of
from saga.calibration.fit.person_scores import conformal_quantile, effective_persons, rank_needed
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold
from saga.calibration.fit.thresholds import fit_thresholds
from scipy import stats
from typer.testing import CliRunner

from saga.bundle import Bundle
from saga.cli import app
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.data.groups import Grouping, last_record_origins
from saga.data.origins import draw_origins, history
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.distributions import Marginals
from saga.errors import UsageError
from saga.requests import COVERAGE
from tests.calibration.worlds import draw_paths, lognormal_marginals

Array = NDArray[np.float64]
P = 1e-6
NINETY = COVERAGE.index(0.9)
SHARE = {
    "calibration": 0.15,
    "target": 0.75,
}  # of persons whose earnings spread more than any forecast knows


def draw(n: int, seed: int, share: float) -> tuple[Marginals, Array, NDArray[np.str_]]:
    """Persons in two groups that forecasts ignore; in one, outcomes spread three times as much."""
    rng = np.random.default_rng(seed)
    wild = rng.random(n) < share
    outcomes = np.exp(12.3 + np.where(wild, 1.2, 0.4)[:, None] * rng.normal(size=(n, 2)))
    one = np.ones((n, 2))
    marginals = lognormal_marginals(0 * one, 12.3 * one, 0.6 * one, str(seed))
    return marginals, outcomes, np.where(wild, "wild", "calm")


Shifted = tuple[Calibrator, Calibrator, Calibrator, Marginals, Array, int]


@pytest.fixture(scope="module")
def shifted() -> Shifted:
    """Calibrators without weights, with weights, with inverse weights; persons of the target."""
    marginals, outcomes, group = draw(4_000, 1, SHARE["calibration"])
    _, _, target_group = draw(4_000, 2, SHARE["target"])
    target = Target({"sex": target_group}, np.full(len(target_group), 40), ("sex",), "target")
    weights, _ = target.weights({"sex": group}, outcomes, in_map_fold(marginals.person_id, 0))
    paths = draw_paths(marginals.take(~in_map_fold(marginals.person_id, 0)), 50)

    def fit(weights: Array | None) -> Calibrator:
        return fit_thresholds(
            fit_calibration(marginals, outcomes, seed=0, weights=weights),
            marginals,
            outcomes,
            seed=0,
            paths=paths,
            weights=weights,
        )

    fresh, truth, _ = draw(4_000, 3, SHARE["target"])
    fitted = fit(weights)
    return (
        fit(None),
        fitted,
        fit(1 / weights),
        fitted.recalibrate(fresh),
        truth,
        fitted.cells[1, ALL].n_threshold,
    )


def plausible(hits: Array, n: int, stated: float) -> bool:
    """Whether the hits fit a threshold at or a little above the k-th of n effective scores."""
    k = rank_needed(n, stated)
    low, high = (
        stats.betabinom(len(hits), k, n + 1 - k),
        stats.betabinom(len(hits), k + 40, max(n - 39 - k, 1)),
    )
    return bool(low.cdf(hits.sum()) > P and high.sf(hits.sum() - 1) > P)


def test_weighted_sets_hold_in_the_target_and_unweighted_ones_do_not(
    shifted: Shifted,
) -> None:
    plain, weighted, wrong, marginals, truth, n = shifted
    for stated in COVERAGE:
        j = COVERAGE.index(stated)
        covered = {
            name: calibrator.intervals(marginals, COVERAGE).covered(truth)[:, 0, j]
            for name, calibrator in (("plain", plain), ("weighted", weighted), ("wrong", wrong))
        }
        assert plausible(covered["weighted"], n, stated), (stated, covered["weighted"].mean())
        assert not plausible(covered["plain"], n, stated), (stated, covered["plain"].mean())
        assert not plausible(covered["wrong"], n, stated), (stated, covered["wrong"].mean())


def test_bands_and_sums_cover_in_the_target_too(
    shifted: Shifted,
) -> None:
    from saga.conformal.families.present_value import SimulatedValues
    from saga.conformal.published_sets import band_intervals, value_intervals
    from saga.conformal.recalibration import map_paths
    from saga.lifetime import present_value, realised_value
    from saga.requests import RATE

    plain, weighted, _, marginals, truth, n = shifted
    paths = map_paths(draw_paths(draw(4_000, 3, SHARE["target"])[0], 50, seed=1), marginals)
    values = SimulatedValues.of(paths, partial(present_value, years=2))
    total = realised_value(truth, rate=RATE)
    for calibrator, good in ((weighted, True), (plain, False)):
        bands = band_intervals(calibrator, marginals, 2, COVERAGE)
        together = bands.covered(truth)[:, :, NINETY].min(axis=1)
        sums = value_intervals(calibrator, values, np.full(len(values), 2), COVERAGE, RATE)
        inside = (sums.lower[:, NINETY] <= total) & (total <= sums.upper[:, NINETY])
        assert plausible(together, n, 0.9) == good
        assert plausible(inside.astype(float), n, 0.9) == good


def test_weights_of_one_give_the_unweighted_calibration_to_the_last_bit() -> None:
    marginals, outcomes, group = draw(1_200, 5, 0.3)
    outcomes[::7, 1] = np.nan
    ones = np.ones_like(outcomes)
    paths = draw_paths(marginals.take(~in_map_fold(marginals.person_id, 0)), 30)
    plain = fit_thresholds(
        fit_calibration(marginals, outcomes, seed=0), marginals, outcomes, seed=0, paths=paths
    )
    same = fit_thresholds(
        fit_calibration(marginals, outcomes, seed=0, weights=ones),
        marginals,
        outcomes,
        seed=0,
        paths=paths,
        weights=ones,
    )
    assert same.digest == plain.digest
    # A target composed as the map fold has weights of 1, and so the same thresholds.
    in_map = in_map_fold(marginals.person_id, 0)
    both = outcomes[~np.isnan(outcomes).any(axis=1)]
    a, complete = group[in_map], ~np.isnan(outcomes[in_map]).any(axis=1)
    target = Target({"sex": a[complete]}, np.full(int(complete.sum()), 40), ("sex",), "same")
    weights, _ = target.weights(
        {"sex": group}, np.where(np.isnan(outcomes[:, 1:]), np.nan, outcomes), in_map
    )
    assert len(both)
    assert set(weights.ravel().tolist()) == {0.0, 1.0}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 4)), min_size=1, max_size=40),
    st.sampled_from([0.5, 0.8, 0.9]),
)
@settings(max_examples=200, deadline=None)
def test_integer_weights_equal_repeated_persons(
    weighted_scores: list[tuple[float, int]], stated: float
) -> None:
    scores, times = (
        np.array(column, dtype=np.float64) for column in zip(*weighted_scores, strict=True)
    )
    repeated = np.repeat(scores, times.astype(int))
    weighted = conformal_quantile(scores, stated, weights=times)
    enough = int(effective_persons(times) + 1e-9)
    if rank_needed(enough, stated) <= enough:
        assert weighted == conformal_quantile(repeated, stated)
    else:
        assert weighted == np.inf


def test_the_weighted_quantile_covers_and_without_the_new_persons_weight_it_does_not() -> None:
    rng, stated, n, times = np.random.default_rng(4), 0.8, 12, 20_000
    weight = np.array([1.0, 6.0])
    light = rng.random((times, n)) < 0.8
    scores = rng.random((times, n)) + np.where(light, 0, 0.5)
    new_scores = rng.random(times) + np.where(rng.random(times) < 0.8 / (0.8 + 0.2 * 6), 0, 0.5)
    order = np.argsort(scores, axis=1)
    cumulated = np.cumsum(np.take_along_axis(np.where(light, *weight), order, axis=1), axis=1)
    ordered = np.column_stack([np.take_along_axis(scores, order, axis=1), np.full(times, np.inf)])

    def covered(heaviest: float) -> float:
        rank = (cumulated < stated * (cumulated[:, -1:] + heaviest) - 1e-9).sum(axis=1)
        return float((new_scores <= ordered[np.arange(times), rank]).mean())

    error = 4.9 * (stated * (1 - stated) / times) ** 0.5  # p = 1e-6
    assert covered(float(weight.max())) >= stated - error
    assert covered(0.0) < stated - error, "the broken version"


def test_the_quantile_is_the_one_of_that_argument() -> None:
    """The rank that the test above computes by hand."""
    rng = np.random.default_rng(8)
    scores, weights = rng.random(300), rng.choice([0.0, 0.5, 2.0], 300)
    q = conformal_quantile(scores, 0.8, weights=weights, heaviest=2.0)
    total = weights.sum() + 2.0
    assert weights[scores <= q].sum() >= 0.8 * total
    assert weights[scores < q].sum() < 0.8 * total
    assert conformal_quantile(scores, 0.8, weights=weights, heaviest=2.0, neighbours=10) > q


def test_few_persons_in_effect_give_no_interval_however_many_there_are() -> None:
    scores = np.linspace(0, 1, 5_000)
    assert np.isfinite(conformal_quantile(scores, 0.9, weights=np.ones(5_000), neighbours=10))
    heavy = np.where(np.arange(5_000) % 500 == 0, 1.0, 1e-4)
    assert effective_persons(heavy) < 20
    assert conformal_quantile(scores, 0.9, weights=heavy, heaviest=1.0, neighbours=10) == np.inf
    assert effective_persons(np.full(7, 3.0)) == pytest.approx(7)
    assert effective_persons(np.zeros(3)) == 0


def test_a_cell_of_its_own_needs_a_thousand_persons_in_effect() -> None:
    marginals, outcomes, group = draw(4_600, 6, 0.5)
    grouped = replace(marginals, groups={"quintile": np.where(group == "wild", "1", "2")})
    rng = np.random.default_rng(0)
    even = np.ones_like(outcomes)
    uneven = np.where(
        (group == "wild")[:, None] & (rng.random(len(group)) < 0.95)[:, None], 0.01, even
    )
    assert (1, "quintile=1") in fit_calibration(grouped, outcomes, seed=0, weights=even).cells
    cells = fit_calibration(grouped, outcomes, seed=0, weights=uneven).cells
    assert (1, "quintile=1") not in cells
    assert (1, "quintile=2") in cells


def test_small_strata_are_joined_and_nobody_is_lost() -> None:
    rng = np.random.default_rng(2)
    labels = [
        rng.choice(["20-29", "30-39"], 400),
        rng.choice(["f", "m"], 400),
        rng.choice(list("abcd"), 400, p=[0.6, 0.34, 0.04, 0.02]),
    ]
    target_labels = [
        rng.choice(["20-29", "30-39"], 300),
        rng.choice(["f", "m"], 300),
        rng.choice(list("abe"), 300, p=[0.5, 0.49, 0.01]),
    ]
    in_map = rng.random(400) < 0.5
    strata, target_strata = join_strata(labels, target_labels, in_map)
    assert len(strata) == 400
    assert any(REST in stratum for stratum in strata)
    names, counts = np.unique(strata[in_map].astype(str), return_counts=True)
    assert all(n >= 20 for name, n in zip(names, counts, strict=True) if name != REST)
    _, counts = np.unique(target_strata.astype(str), return_counts=True)
    target = Target(
        dict(zip("xyz", target_labels, strict=True)), np.full(300, 9), tuple("xyz"), "t"
    )
    outcomes = np.ones((400, 1))
    weights, (support,) = target.weights(dict(zip("xyz", labels, strict=True)), outcomes, in_map)
    assert weights[in_map].mean() == pytest.approx(1 - support.unsupported), (
        "weights are shares of the target over shares of the map fold"
    )
    assert min(support.persons.values()) >= 20


def test_a_target_is_described_by_groups_known_at_the_origin(register_panel: Panel) -> None:
    grouping = Grouping.fit(register_panel.only(persons_of(register_panel, "train")))
    people = register_panel.only(persons_of(register_panel, "calibration"))
    origins = draw_origins(people, max_horizon=5, seed=0)
    labels = labels_of(history(people, origins), grouping, origins, ("cohort", "sex"))
    born = dict(people.frame.select("person_id", "birth_year").unique().iter_rows())
    assert [label[:3] for label in labels["cohort"]] == [
        str(born[p])[:3] for p in origins.person_id
    ]
    target = Target.of(register_panel, grouping)
    ages = last_record_origins(register_panel).year - np.array(
        [born_in(register_panel)[p] for p in last_record_origins(register_panel).person_id]
    )
    assert len(target.years_left) == (ages < 64).sum()
    with pytest.raises(UsageError, match="cannot be described"):
        Target.of(register_panel, grouping, ("wealth",))


def born_in(panel: Panel) -> dict[str, int]:
    return dict(panel.frame.select("person_id", "birth_year").unique().iter_rows())


def test_the_command_weights_for_another_panel_and_says_so(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    test_persons = register_panel.only(persons_of(register_panel, "test"))
    young = test_persons.frame.filter((pl.col("birth_year") > 1985) & (pl.col("sex") == "female"))
    young.write_parquet(tmp_path / "young.parquet")
    register_panel.frame.write_parquet(tmp_path / "panel.parquet")
    options = (
        f"--panel {tmp_path}/panel.parquet --target {tmp_path}/young.parquet --target-by sex"
        f" --out {tmp_path}/out --paths 25 --threads 1 --prices 2022 --json"
    )
    done = CliRunner().invoke(app, ["calibrate", str(tiny_bundle), *options.split()])
    assert done.exit_code == 0, done.stderr
    bundle = Bundle.load(json.loads(done.stdout)["out"])
    about = bundle.metrics["calibration"]["target"]
    assert (about["by"], about["persons"]) == (["sex"], young["person_id"].n_unique())
    table = bundle.calibration
    assert table is not None
    assert (about["cells"]["1"], about["unsupported"]["1"]) == (1, 0)
    assert Calibrator.from_table(table).to_table().equals(table)
    plain = Bundle.load(tiny_bundle).calibration
    assert plain is not None
    is_threshold = (pl.col("kind") == "threshold") & (pl.col("horizon") == 1)
    assert table.filter(is_threshold)["n"].max() < plain.filter(is_threshold)["n"].max()  # type: ignore[operator]
