"""Weights for a target population: strata, cells, and the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from saga.calibration.fit.covariate_shift import REST, Target, join_strata, labels_of
from saga.calibration.fit.split_conformal import in_map_fold

from saga.arrays import Floats
from saga.bundle import Bundle
from saga.conformal.calibrator import Calibrator
from saga.data.groups import Grouping, last_record_origins
from saga.data.origins import draw_origins, history
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.distributions import Marginals
from saga.errors import UsageError
from tests.calibration.worlds import lognormal_marginals
from tests.command_line import answer
from tests.conftest import quick_calibration


def draw(n: int, seed: int, share: float) -> tuple[Marginals, Floats, NDArray[np.str_]]:
    """Persons in two groups that forecasts ignore; in one, outcomes spread three times as much."""
    rng = np.random.default_rng(seed)
    wild = rng.random(n) < share
    outcomes = np.exp(12.3 + np.where(wild, 1.2, 0.4)[:, None] * rng.normal(size=(n, 2)))
    one = np.ones((n, 2))
    marginals = lognormal_marginals(0 * one, 12.3 * one, 0.6 * one, str(seed))
    return marginals, outcomes, np.where(wild, "wild", "calm")


def test_a_target_composed_as_the_map_fold_has_weights_of_one() -> None:
    marginals, outcomes, group = draw(1_200, 5, 0.3)
    outcomes[::7] = np.nan
    in_map = in_map_fold(marginals.person_id, 0)
    composed = group[in_map & ~np.isnan(outcomes[:, 0])]
    target = Target({"sex": composed}, np.full(len(composed), 40), ("sex",), "same")
    weights, _ = target.weights({"sex": group}, outcomes, in_map)
    assert np.array_equal(weights, np.where(np.isnan(outcomes), 0.0, 1.0))
    wild = np.full(len(composed), "wild")
    other = Target({"sex": wild}, target.years_left, ("sex",), "other")
    assert set(other.weights({"sex": group}, outcomes, in_map)[0][group == "calm"].ravel()) == {0}


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
    weights, support = target.weights(dict(zip("xyz", labels, strict=True)), outcomes, in_map)
    n_strata, unsupported = support[1]
    assert weights[in_map].mean() == pytest.approx(1 - unsupported), (
        "weights are shares of the target over shares of the map fold"
    )
    weighted, counts = np.unique(
        strata[in_map & (weights[:, 0] > 0)].astype(str), return_counts=True
    )
    assert len(weighted) == n_strata
    assert counts.min() >= 20


def test_a_target_is_described_by_groups_known_at_the_origin(register_panel: Panel) -> None:
    grouping = Grouping.fit(register_panel.only(persons_of(register_panel, "train")))
    people = register_panel.only(persons_of(register_panel, "calibration"))
    origins = draw_origins(people, max_horizon=5, seed=0)
    labels = labels_of(history(people, origins), grouping, origins, ("cohort", "sex"))
    born = dict(register_panel.frame.select("person_id", "birth_year").unique().iter_rows())
    assert [label[:3] for label in labels["cohort"]] == [
        str(born[p])[:3] for p in origins.person_id
    ]
    target = Target.of(register_panel, grouping)
    last = last_record_origins(register_panel)
    ages = last.year - np.array([born[p] for p in last.person_id])
    assert len(target.years_left) == (ages < 64).sum()
    with pytest.raises(UsageError, match="cannot be described"):
        Target.of(register_panel, grouping, ("wealth",))


@pytest.mark.thorough
def test_the_command_weights_for_another_panel_and_says_so(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    test_persons = register_panel.only(persons_of(register_panel, "test"))
    young = test_persons.frame.filter((pl.col("birth_year") > 1985) & (pl.col("sex") == "female"))
    young.write_parquet(tmp_path / "young.parquet")
    register_panel.frame.write_parquet(tmp_path / "panel.parquet")
    options = (
        f"--panel {tmp_path}/panel.parquet --target {tmp_path}/young.parquet --target-by sex"
        f" --out {tmp_path}/out --paths 25 --threads 1 --prices 2022"
    )
    with quick_calibration():
        bundle = Bundle.load(answer("calibrate", tiny_bundle, options)["out"])
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
