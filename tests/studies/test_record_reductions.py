"""Reductions of records: hidden values have no influence, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.evaluation.baselines.trees.gbt import BoostedTrees
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.scoring.evaluation_settings import Setting

from saga.data.groups import last_record_origins
from saga.data.origins import Origins, draw_origins, eligible_origins, history, realised_earnings
from saga.data.panel import Panel
from saga.trees.recent_years import Window
from studies.record_reductions import (
    REDUCTIONS,
    WHOLE,
    ReducedWindow,
    Reduction,
    keep_every_second,
    keep_last_three,
)

Make = Callable[..., Panel]
BY_NAME = {reduction.name: reduction for reduction in REDUCTIONS}
# Columns that say whose and of which years a record is.
LABELS = {"person_id", "year", "birth_year", "entry_year", "exit_year", "exit_reason"}
SURVEY = {
    *("earnings", "sex", "birth_region", "education_level", "occupation", "industry", "county"),
    *("marital_status", "children", "employment_rate", "full_time"),
}


def hidden_column(reduction: str, name: str) -> bool:
    """Whether a reduction hides a column: an independent statement of the rule."""
    if name in LABELS:
        return False
    shown = {"survey": SURVEY, "earnings": {"earnings", "sex"}}
    if reduction in shown:
        return name not in shown[reduction]
    return reduction == "no-occupation-industry" and name in ("occupation", "industry")


def hidden_year(reduction: str, year: int, origin: int, known_years: list[int]) -> bool:
    """`known_years`: the person's years with known earnings up to the origin, ascending."""
    if reduction == "last-3":
        return year < known_years[-3]
    return reduction == "every-second" and year != origin and (known_years[-1] - year) % 2 == 1


def years_of(setting: Setting) -> dict[str, tuple[int, list[int]]]:
    """Person -> origin and known years."""
    known_years = (
        setting.past.frame.filter(pl.col("earnings").is_not_null())
        .group_by("person_id")
        .agg(pl.col("year").sort())
    )
    years = dict(known_years.iter_rows())
    return {
        p: (o, years[p])
        for p, o in zip(
            setting.origins.person_id.tolist(), setting.origins.year.tolist(), strict=True
        )
    }


def hidden_rows(reduction: str, setting: Setting) -> np.ndarray:
    """Rows of the whole past that the reduced record must not show, (n_row,)."""
    years = years_of(setting)
    return np.array(
        [
            hidden_year(reduction, year, *years[person])
            for person, year in setting.past.frame.select("person_id", "year").iter_rows()
        ]
    )


@pytest.fixture(scope="module")
def setting(register_panel: Panel) -> Setting:
    """Random origins in a generated register with unknown earnings in a tenth of the years."""
    panel = register_panel.only(register_panel.persons()[:400])
    gaps = np.random.default_rng(0).random(panel.frame.height) < 0.1
    panel = panel.with_frame(
        panel.frame.with_columns(
            pl.when(pl.Series(gaps)).then(None).otherwise("earnings").alias("earnings")
        )
    )
    origins = draw_origins(panel, max_horizon=20, seed=0)
    return Setting(
        "in-time",
        history(panel, origins),
        origins,
        [(None, realised_earnings(panel, origins, [1, 5]))],
    )


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda r: r.name)
def test_a_reduction_hides_exactly_its_columns_and_years(
    reduction: Reduction, setting: Setting
) -> None:
    whole, shown = setting.past.frame, reduction.setting(setting).past.frame
    rows = hidden_rows(reduction.name, setting)
    remaining = whole.filter(pl.Series(~rows))
    assert rows.any() == (reduction.years is not None)
    for name in whole.columns:
        if hidden_column(reduction.name, name):
            assert whole[name].null_count() < whole.height, f"nothing to hide in {name}"
            assert shown[name].null_count() == shown.height, name
        elif name != "entry_year" or reduction.years is None:  # entry_year changes with the years
            assert shown[name].equals(remaining[name]), name


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda r: r.name)
def test_persons_origins_and_outcomes_do_not_change(reduction: Reduction, setting: Setting) -> None:
    poorer = reduction.setting(setting)
    assert poorer.origins is setting.origins
    assert poorer.outcomes is setting.outcomes
    # A forecast's origin is the last row of a record: every record has it, and known earnings.
    origins = last_record_origins(poorer.past)
    assert origins.person_id.tolist() == setting.origins.person_id.tolist()
    assert origins.year.tolist() == setting.origins.year.tolist()
    counts = poorer.past.frame.group_by("person_id").agg(pl.col("earnings").count())["earnings"]
    assert counts.min() >= (3 if reduction.name == "last-3" else 1)  # type: ignore[operator]


def test_the_whole_record_is_the_setting_of_the_contest(random_walk: Make) -> None:
    """Scores that `saga evaluate --cache` kept are used again, and no others."""
    contest = Contest(random_walk(300), ContestOptions(horizons=(1,), n_paths=10))
    (whole,) = contest.settings()
    assert WHOLE.setting(whole).digest == whole.digest
    assert BY_NAME["last-3"].setting(whole).digest != whole.digest
    trees = BoostedTrees()
    assert WHOLE.baseline(trees) is trees
    assert (
        contest.baseline(trees, WHOLE.training(contest.sample.training)).key
        == contest.baseline(trees).key
    )
    keys = {
        contest.baseline(r.baseline(trees), r.training(contest.sample.training)).key
        for r in (BY_NAME["last-3"], BY_NAME["every-second"])
    }
    assert len(keys | {contest.baseline(trees).key}) == 3


@pytest.mark.parametrize("years", [keep_last_three, keep_every_second])
def test_trees_are_fitted_on_reduced_pasts(years: Any, setting: Setting) -> None:
    panel = setting.past
    window, plain = ReducedWindow(panel, years), Window(panel)
    rows = eligible_origins(panel)[::7]  # several a person
    origins = Origins(
        np.array(rows["person_id"].to_list(), dtype=np.str_),
        rows["year"].to_numpy().astype(np.int64),
    )
    assert len(np.unique(origins.person_id)) < len(origins)
    features = window.features(panel, origins)
    for i in range(0, len(origins), 25):
        origin = origins.take(slice(i, i + 1))
        expected = plain.features(years(history(panel, origin), origin), origin)
        assert np.array_equal(features[i : i + 1], expected, equal_nan=True)
    assert not np.array_equal(features, plain.features(panel, origins), equal_nan=True)
    # Records that are reduced already, as the judged ones are, give the same features.
    past = history(panel, setting.origins)
    assert np.array_equal(
        window.features(past, setting.origins),
        window.features(years(past, setting.origins), setting.origins),
        equal_nan=True,
    )
