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
from saga.data.panel import Panel, PanelMeta
from saga.trees.recent_years import Window
from studies.record_reductions import (
    REDUCTIONS,
    WHOLE,
    ReducedWindow,
    Reduction,
    TreesOnReducedPasts,
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


def disturbed(reduction: str, setting: Setting, seed: int) -> Setting:
    """The setting with hidden columns and years that take the values of random other rows."""
    frame, rows = setting.past.frame, hidden_rows(reduction, setting)
    other = frame[np.random.default_rng(seed).permutation(frame.height)]
    mixed = [
        pl.Series(name, other[name]).zip_with(
            pl.Series(rows | hidden_column(reduction, name)), frame[name]
        )
        for name in frame.columns
        if name not in LABELS
    ]
    return Setting(
        setting.name,
        setting.past.with_frame(frame.with_columns(mixed)),
        setting.origins,
        setting.outcomes,
    )


def leaks(reduction: Reduction, setting: Setting) -> bool:
    """Whether a hidden value changes what is shown."""
    shown = reduction.setting(setting).past.frame
    return not all(
        reduction.setting(disturbed(reduction.name, setting, seed)).past.frame.equals(shown)
        for seed in range(3)
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
def test_hidden_values_do_not_influence_the_rest(reduction: Reduction, setting: Setting) -> None:
    assert not leaks(reduction, setting)


def test_a_leaking_reduction_is_detected(setting: Setting) -> None:
    def filled(past: Panel, origins: Origins) -> Panel:
        """Every second year, with the average of two years."""
        rows = past.frame.with_columns(
            pl.col("earnings").rolling_mean(2, min_samples=1).over("person_id")
        )
        return keep_every_second(past.with_frame(rows), origins)

    def keep_last_four(past: Panel, _origins: Origins) -> Panel:
        start = (
            pl.col("year")
            .filter(pl.col("earnings").is_not_null())
            .sort()
            .tail(4)
            .min()
            .over("person_id")
        )
        return past.with_frame(past.frame.filter(pl.col("year") >= start))

    def renamed(panel: Panel) -> Panel:
        """Occupation is hidden, but another column contains it."""
        copied = pl.col("occupation").str.slice(0, 1).alias("education_field")
        return BY_NAME["no-occupation-industry"].columns(
            panel.with_frame(panel.frame.with_columns(copied))
        )

    leaking = (
        Reduction("every-second", "", years=filled),
        Reduction("last-3", "", years=keep_last_four),
        Reduction("no-occupation-industry", "", renamed),
        Reduction("survey", ""),
        Reduction("earnings", "", BY_NAME["survey"].columns),
    )
    assert all(leaks(reduction, setting) for reduction in leaking)


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


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda r: r.name)
def test_a_reduction_is_idempotent(reduction: Reduction, setting: Setting) -> None:
    once = reduction.setting(setting)
    assert reduction.setting(once).past.frame.equals(once.past.frame)


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda r: r.name)
def test_training_records_lose_columns_but_no_outcomes(
    reduction: Reduction, setting: Setting
) -> None:
    reduced = reduction.training(setting.past).frame
    for name in reduced.columns:
        if hidden_column(reduction.name, name):
            assert reduced[name].null_count() == reduced.height
        else:
            assert reduced[name].equals(setting.past.frame[name])


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


@pytest.mark.thorough
def test_trees_fitted_on_reduced_pasts_forecast_better_from_them() -> None:
    """Log earnings are a moving average: changes of one year predict, those of two do not."""

    def swinging(n: int, seed: int) -> Panel:
        rng = np.random.default_rng(seed)
        noise = rng.normal(0, 0.4, (n, 17))
        log = 12.5 + rng.normal(0, 0.5, (n, 1)) + noise[:, 1:] - 0.9 * noise[:, :-1]
        rows = {
            "person_id": np.repeat([f"{i:05d}" for i in range(n)], 16).tolist(),
            "year": np.tile(np.arange(2000, 2016), n),
            "birth_year": np.repeat(rng.integers(1960, 1976, n), 16),
            "earnings": np.exp(log).ravel(),
        }
        return Panel.of(pl.DataFrame(rows), PanelMeta("swing", floor=1_000.0))

    quick: dict[str, Any] = {"grid": (1,), "leaves": (6,), "rates": (0.1,), "threads": 1}
    training, judged = swinging(1500, 0), swinging(1500, 1)
    origins = draw_origins(judged, max_horizon=5, seed=0)
    past = keep_every_second(history(judged, origins), origins)
    outcomes = np.log(realised_earnings(judged, origins, [1])[:, 0])
    errors = []
    for baseline in (BoostedTrees(**quick), TreesOnReducedPasts(keep_every_second, **quick)):
        paths = baseline.fit(training, seed=0).simulate(
            past, origins, to_horizon=1, n_paths=100, seed=0
        )
        errors.append(np.abs(outcomes - np.median(np.log(paths.earnings[:, 0]), axis=1)))
    gain = errors[0] - errors[1]
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))
