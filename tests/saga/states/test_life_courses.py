"""Life courses: possible, along unchanged earnings, and independent of the other persons."""

from __future__ import annotations

from itertools import product, takewhile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.features.sequences import encode
from saga.forecaster import Forecaster
from saga.requests import Draws
from saga.states.codes import (
    CATEGORIES,
    COLUMNS,
    MAX_SPELL,
    SOURCES,
    Spells,
    code_labels,
    code_numbers,
    state_of,
)
from saga.states.life_courses import (
    ABROAD_STATE,
    DEAD_STATE,
    LifeCourses,
    LifeCourseSimulator,
    ZeroRuns,
)
from saga.states.state_network import MAX_LOOKAHEAD, StateNetwork

PATHS = 40


def test_the_state_is_the_largest_source_of_income() -> None:
    sums = list(SOURCES.values())
    rows = [
        ([300.0, 0, 0, 0, 0, 0], "employed"),
        ([100.0, 150, 0, 0, 0, 0], "unemployed"),
        ([100.0, 0, 101, 0, 0, 0], "parental_leave"),
        ([0.0, 0, 0, 5, 0, 0], "sick"),
        ([0.0, 0, 0, 5, 6, 0], "disabled"),
        ([50.0, 0, 0, 0, 0, 70], "retired"),
        ([0.0, 0, 0, 0, None, 0], None),  # the missing sum may be the largest
        ([0.0, 0, 0, 0, 0, 0], "other"),
        ([100.0, 100, 0, 0, 0, 0], "employed"),  # of equal sums the first
        ([None, 100, 0, 0, 0, 0], None),
        ([100.0, None, None, None, None, None], None),
    ]
    frame = pl.DataFrame(
        [values for values, _ in rows], schema=dict.fromkeys(sums, pl.Float64), orient="row"
    )
    assert state_of(frame).to_list() == [state for _, state in rows]


def test_spells_keep_the_last_known_codes_and_their_first_years() -> None:
    codes = np.array([[1, 5, 0, 2, 1, 1, 1], [1, 0, 0, 2, 0, 1, 1], [2, 6, 3, 2, 1, 1, 1]])
    spells = Spells.unknown(np.array([2000]))
    for year, row in zip((2000, 2001, 2003), codes, strict=True):
        spells = spells.after(np.array([year]), row[None])
    assert spells.codes.tolist() == [[2, 6, 3, 2, 1, 1, 1]]
    assert spells.workplace.tolist() == [True]
    assert spells.durations(np.array([2003])).tolist() == [[0, 0, 0, 3, 3, 3, 3, 0]]
    assert spells.durations(np.array([2100])).max() == MAX_SPELL


def test_zero_runs_are_counted_to_the_end_of_the_path() -> None:
    """Every pattern of six years, after a run of zeros that is longer than the lookahead.

    Death is allowed in a year if it and all later years of the path are zero, and only then.
    """
    patterns = np.array(list(product([False, True], repeat=6)))
    before = np.ones((len(patterns), MAX_LOOKAHEAD + 2), bool)
    paths = np.hstack([before, patterns])
    runs = ZeroRuns.of_paths(paths.T)
    steps = paths.shape[1]
    for t in range(steps):
        for k, path in enumerate(paths[:, t:].tolist()):
            run = len(list(takewhile(bool, path)))
            left = steps - 1 - t if path[0] else 0
            assert runs.zero_years[t, k] == min(run, MAX_LOOKAHEAD + 1)
            assert runs.years_left[t, k] == min(left, MAX_LOOKAHEAD)
            assert runs.zero_to_end[t, k] == all(path)


@pytest.fixture(scope="module")
def people(register_panel: Panel) -> Panel:
    frame = register_panel.only(persons_of(register_panel, "test")).frame
    last = frame.group_by("person_id").agg(
        age=(pl.col("year") - pl.col("birth_year")).max(),
        exit=pl.col("exit_year").first(),
        last=pl.col("year").max(),
    )
    eligible = (
        last.filter(
            pl.col("age").is_between(20, 62), pl.col("exit").is_null(), pl.col("last") == 2022
        )["person_id"]
        .sort()
        .to_list()
    )
    return register_panel.only(eligible[:: len(eligible) // 12][:12])  # ids follow birth years


@pytest.fixture(scope="module")
def forecaster(living_bundle: Path) -> Forecaster:
    return Forecaster.load(living_bundle, threads=2)


@pytest.fixture(scope="module")
def courses(forecaster: Forecaster, people: Panel) -> LifeCourses:
    (block,) = forecaster.life_courses(people, Draws(PATHS))
    return block


def test_earnings_are_those_of_the_paths(
    forecaster: Forecaster, people: Panel, courses: LifeCourses
) -> None:
    (block,) = forecaster.blocks(people, Draws(PATHS), to_horizon=None)
    np.testing.assert_array_equal(courses.paths.earnings, block.earnings)
    (other,) = forecaster.life_courses(people, Draws(PATHS, seed=1))
    assert (other.numbers["state"] != courses.numbers["state"]).any()


def test_impossible_states_never_occur(courses: LifeCourses) -> None:
    state, earnings = courses.numbers["state"], courses.paths.earnings
    simulated = np.isfinite(earnings)
    assert (state[simulated] > 0).all()
    assert (state[~simulated] == 0).all()
    for exit_state in (DEAD_STATE, ABROAD_STATE):  # permanent
        is_gone = (state == exit_state) | ~simulated
        assert (np.diff(is_gone.astype(int), axis=1) >= 0)[
            (state == exit_state).any(1)[:, None].repeat(state.shape[1] - 1, 1)
        ].all()
    later = np.cumsum(np.nan_to_num(earnings)[:, ::-1], axis=1)[:, ::-1]
    assert (later[state == DEAD_STATE] == 0).all(), "the dead earn nothing"
    exited = state >= DEAD_STATE
    for name in CATEGORIES:
        assert (courses.numbers[name][exited] == 0).all(), name
        assert courses.numbers[name].max() <= len(courses.codes[name])
    resident = simulated & ~exited
    for name in ("county", "marital_status", "children", "youngest_child"):
        assert (courses.numbers[name][resident] > 0).all(), name
    children, youngest = (courses.numbers[name] for name in ("children", "youngest_child"))
    childless = children == courses.codes["children"].index("0") + 1
    assert ((youngest == courses.codes["youngest_child"].index("none") + 1) == childless)[
        resident
    ].all(), "a youngest child if there are children"
    without_workplace = resident & (courses.numbers["industry"] == 0)
    assert (courses.numbers["occupation"][without_workplace] == 0).all(), (
        "no occupation without a workplace"
    )


def test_an_earlier_last_age_changes_no_number(
    forecaster: Forecaster, people: Panel, courses: LifeCourses
) -> None:
    born = people.frame.group_by("person_id").agg(pl.col("birth_year").first())
    young = people.only(born.filter(pl.col("birth_year") > 2022 - 50)["person_id"].to_list())
    rows = np.isin(courses.paths.person_id, young.persons())
    (short,) = forecaster.life_courses(young, Draws(PATHS), to_age=50)
    within = np.isfinite(short.paths.earnings)
    age = short.paths.years - short.paths.birth_year[:, None]
    assert age[within.any(2)].max() == 50
    for name in COLUMNS:
        whole = courses.numbers[name][rows][:, : short.paths.n_horizons]
        np.testing.assert_array_equal(short.numbers[name][within], whole[within], err_msg=name)


def test_a_code_that_was_never_observed_has_no_known_duration(
    living_bundle: Path, people: Panel
) -> None:
    forecaster = Forecaster.load(living_bundle)
    labels = code_labels(forecaster.transforms)
    sizes = tuple(len(codes) + 1 for codes in labels.values())
    frame = people.frame.with_columns(
        pl.lit(400_000.0).alias("earnings"),
        pl.lit(None, pl.String).alias("county"),
        pl.lit(None, pl.String).alias("industry"),
    )
    without_pay = frame.with_columns(pl.lit(0.0).alias("earnings"))
    for name, panel in (
        ("paid", people.with_frame(frame)),
        ("unpaid", people.with_frame(without_pay)),
    ):
        sequences = encode(panel, forecaster.transforms, forecaster.calendar)
        simulator = LifeCourseSimulator(
            StateNetwork.from_weights(forecaster.bundle.state_weights(), sizes),
            forecaster.network,
            sequences,
            code_numbers(panel.frame, forecaster.transforms),
            labels,
            n_paths=2,
            seed=0,
            last_training_year=2022,
        )
        last = sequences.year[sequences.offsets[1:] - 1]
        durations = simulator.spells_at_origin(np.arange(len(sequences))).durations(last)
        assert (durations[:, COLUMNS.index("county")] == 0).all()
        workplace = durations[:, [COLUMNS.index("industry"), -1]]
        if name == "paid":
            assert (workplace == 0).all()
        else:
            longest = np.minimum(MAX_SPELL, sequences.lengths[:, None] - 1)
            assert (workplace == longest).any()


def test_a_bundle_without_a_state_network_raises_an_error_with_the_fix(
    tiny_bundle: Path, people: Panel
) -> None:
    with pytest.raises(UsageError, match="saga circumstances BUNDLE"):
        next(Forecaster.load(tiny_bundle).life_courses(people))
