"""The share of the gap closed: unbiased, with valid errors, and only if there is a gap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.scoring.gap import CLAIRVOYANT, measure_gap_closed
from saga.evaluation.selection import select_clairvoyant
from scipy import stats

from saga.errors import InputError, UsageError

RUNS = 400
TRUE = 0.6  # of a gap of 0.2, from 0.5 to 0.3


def _scores(unit: str, units: int) -> pl.DataFrame:
    """RUNS models that close 60 % of the gap, scored on the same persons or futures."""
    rng = np.random.default_rng(0)
    common = rng.normal(
        0, 0.1, (RUNS, units)
    )  # what makes a person or a future hard for all of them
    means = {"groupq": 0.5, CLAIRVOYANT: 0.3, "saga": 0.5 - TRUE * 0.2}
    parts = [
        pl.DataFrame(
            {
                "model": model,
                "setting": "in-time",
                "horizon": np.repeat(np.arange(RUNS), units).astype(
                    np.int32
                ),  # each run a horizon of its own
                "group": "all",
                unit: np.tile(np.arange(units), RUNS),
                "crps_log": (mean + common + rng.normal(0, 0.05, (RUNS, units))).ravel(),
            }
        )
        for model, mean in means.items()
    ]
    return pl.concat(parts)


@pytest.mark.parametrize(("unit", "units"), [("person_id", 200), ("draw", 20)])
def test_the_share_is_right_and_its_errors_cover(unit: str, units: int) -> None:
    table = measure_gap_closed(_scores(unit, units).lazy(), unit)
    assert table["model"].unique().to_list() == ["saga"]
    value, se = table["value"].to_numpy(), table["se"].to_numpy()
    assert value.mean() == pytest.approx(TRUE, abs=4 * value.std() / np.sqrt(RUNS))
    covered = (np.abs(value - TRUE) < stats.t.ppf(0.975, units - 1) * se).mean()
    assert covered == pytest.approx(0.95, abs=4 * np.sqrt(0.05 * 0.95 / RUNS))
    assert (table["sd_futures"].is_null().all()) == (unit == "person_id")


@pytest.mark.parametrize("absent", [CLAIRVOYANT, "groupq"])
def test_without_both_ends_there_is_no_gap(absent: str) -> None:
    assert measure_gap_closed(
        _scores("person_id", 20).filter(pl.col("model") != absent).lazy(), "person_id"
    ).is_empty()


def test_there_is_no_share_if_the_bound_is_not_better() -> None:
    names = {"groupq": CLAIRVOYANT, CLAIRVOYANT: "groupq", "saga": "saga"}
    assert measure_gap_closed(
        _scores("person_id", 50).with_columns(pl.col("model").replace(names)).lazy(), "person_id"
    ).is_empty()


def test_the_clairvoyant_takes_part_if_the_register_is_given(
    register_dir: Path, tmp_path: Path
) -> None:
    assert [model.name for model in select_clairvoyant(["all"], register_dir)] == [CLAIRVOYANT]
    assert [model.name for model in select_clairvoyant(["carry", CLAIRVOYANT], register_dir)] == [
        CLAIRVOYANT
    ]
    assert select_clairvoyant(["carry"], register_dir) == []
    assert select_clairvoyant(["all"], None) == []
    assert select_clairvoyant(["all"], tmp_path) == []
    with pytest.raises(UsageError, match="generated registers"):
        select_clairvoyant([CLAIRVOYANT], None)
    with pytest.raises(InputError, match="no full register"):
        select_clairvoyant([CLAIRVOYANT], tmp_path)
