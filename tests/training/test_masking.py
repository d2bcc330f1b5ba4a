"""Masking and targets: what is hidden, what is predicted, and no bias in the hazard of death."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from saga.training.masking import Masking, hide_inputs, make_targets, thin_years

from saga.data.panel import Panel, PanelMeta
from saga.features.sequences import POSITIVE, UNKNOWN, ZERO, Sequences, Tokens, encode, pad
from saga.features.transforms import Transforms
from saga.schema import CATEGORICAL, extra_column
from saga.simulation.rollout import future_codes, future_values
from tests.saga.features.token_panels import CALENDAR, fit_transforms, person, tokens_of

HAZARD = 0.1


@pytest.fixture(scope="module")
def transforms() -> Transforms:
    return fit_transforms()


def test_targets_skip_unknown_years_and_have_the_gap(transforms: Transforms) -> None:
    sequences, tokens = tokens_of(
        person("a", {2000: 1e5, 2001: None, 2002: 0.0, 2004: 2e5, 2012: 1e5}), transforms
    )
    targets = make_targets(tokens, sequences.dead_year, CALENDAR)
    # 2000 -> 2002 (null between), 2001 -> 2002, 2002 -> 2004. No target: 2004 -> 2012 is more
    # than five years, 2012 is the last year.
    assert targets.gap[0].tolist() == [2, 1, 2, 0, 0]
    assert targets.state[0].tolist() == [ZERO, ZERO, POSITIVE, UNKNOWN, UNKNOWN]
    expected = np.log(2e5) - CALENDAR.wage_index(np.array([2004]))[0]
    assert targets.z[0, 2] == pytest.approx(expected, abs=1e-5)


def test_death_is_a_target_and_emigration_is_not(transforms: Transforms) -> None:
    dead = person("a", {2000: 1e5, 2001: 1e5}, exit_year=2002, exit_reason="dead")
    gone = person("b", {2000: 1e5, 2001: 1e5}, exit_year=2002, exit_reason="emigrated")
    sequences, tokens = tokens_of(dead + gone, transforms)
    targets = make_targets(tokens, sequences.dead_year, CALENDAR)
    assert targets.dead.tolist() == [[False, True], [False, False]]
    assert targets.gap.tolist() == [[1, 1], [1, 0]]
    assert targets.state[0, 1] == UNKNOWN


@pytest.mark.parametrize("seed", range(5))
def test_thinning_keeps_the_order_of_years(transforms: Transforms, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        r
        for i in range(50)
        for r in person(f"a{i:02d}", {y: 1e5 + y for y in range(2000, 2000 + 1 + i % 12)})
    ]
    _, tokens = tokens_of(rows, transforms)
    thin, _ = thin_years(
        tokens, np.zeros(50, dtype=np.int64), 2012, Masking(drop_years=1.0, late_start=1.0), rng
    )
    for i in range(50):
        years = thin.year[i, thin.valid[i]]
        assert (np.diff(years) > 0).all()
        assert set(years) <= set(tokens.year[i, tokens.valid[i]])
        assert (thin.age[i, thin.valid[i]] == years - 1970).all()


@pytest.fixture(scope="module")
def mortal(transforms: Transforms) -> tuple[Sequences, Tokens]:
    """4,000 persons from 2000 until 2011 or an earlier death."""
    rng, rows = np.random.default_rng(0), []
    for i in range(4_000):
        years = min(int(rng.geometric(HAZARD)), 12)
        exit_labels = (
            {"exit_year": 2000 + years, "exit_reason": "dead"}
            if years < 12
            else {"exit_year": None, "exit_reason": None}
        )
        rows += person(f"a{i:04d}", dict.fromkeys(range(2000, 2000 + years), 1e5), **exit_labels)
    return tokens_of(rows, transforms)


def test_hidden_origins_do_not_bias_the_hazard_of_death(mortal: tuple[Sequences, Tokens]) -> None:
    """At every distance from the origin, because a rollout uses the hazard year by year."""
    sequences, tokens = mortal
    targets = make_targets(tokens, sequences.dead_year, CALENDAR)
    _, origin = hide_inputs(tokens, 2011, Masking(), np.random.default_rng(1))
    since = np.arange(tokens.valid.shape[1]) - origin[:, None]
    for distance in (1, 2, 5):
        dead = targets.dead[(targets.gap == 1) & (tokens.year < 2011) & (since == distance)]
        assert dead.mean() == pytest.approx(HAZARD, abs=4 * (HAZARD / dead.size) ** 0.5)


def test_thinning_does_not_bias_the_hazard_of_death(mortal: tuple[Sequences, Tokens]) -> None:
    rng, (sequences, tokens) = np.random.default_rng(0), mortal
    for masking in (
        Masking(drop_years=1.0, late_start=0.0),
        Masking(drop_years=0.0, late_start=1.0),
        Masking(),
    ):
        thin, dead_year = thin_years(tokens, sequences.dead_year, 2011, masking, rng)
        targets = make_targets(thin, dead_year, CALENDAR)
        dead = targets.dead[(targets.gap == 1) & (thin.year < 2011)]
        assert dead.mean() == pytest.approx(HAZARD, abs=4 * (HAZARD / dead.size) ** 0.5)


def test_after_the_hidden_origin_a_record_continues_as_in_a_rollout() -> None:
    """Static codes, and lasting codes and values as last known; all else but earnings is missing.

    Columns are those of the schema, and own ones of each kind.
    """
    rng = np.random.default_rng(0)
    levels = ["compulsory", "compulsory", None, "upper_secondary", "upper_secondary", None]
    own = (
        extra_column("race", "category", static=True),
        extra_column("wealth", "number", lasting=True),
        extra_column("enrolled", "category"),
        extra_column("hours", "number"),
    )
    rows = [
        {
            **{"person_id": f"a{i:03d}", "year": 2000 + t, "birth_year": 1970, "earnings": 1e5},
            **{"sex": "female", "county": "01", "transfers": 1e4, "extra_race": str(i % 2)},
            "education_level": level,
            "extra_wealth": float(rng.normal()) if rng.random() < 0.5 else None,
            "extra_enrolled": str(rng.integers(2)),
            "extra_hours": 40.0 + t,
        }
        for i in range(200)
        for t, level in enumerate(levels[i % 3 :])
    ]
    panel = Panel.of(pl.DataFrame(rows, infer_schema_length=None), PanelMeta("p", extra=own))
    sequences = encode(panel, Transforms.fit(panel, CALENDAR, 16), CALENDAR)
    tokens = pad(sequences, np.arange(len(sequences)))
    only_origin = Masking(survey_only=0, drop_columns=0, cells=0, origin=1.0)
    visible, origin = hide_inputs(tokens, 2005, only_origin, rng)
    np.testing.assert_array_equal(visible.z, tokens.z)
    assert len(np.unique(origin)) > 3
    for i, last in enumerate(origin.tolist()):
        seen, after = slice(0, last + 1), slice(last + 1, tokens.valid[i].sum())
        codes = future_codes(tokens.codes[i, seen], tokens.continued)
        values = future_values(tokens.other[i, seen], tokens.continued)
        np.testing.assert_array_equal(visible.codes[i, seen], tokens.codes[i, seen])
        np.testing.assert_array_equal(visible.other[i, seen], tokens.other[i, seen])
        assert (visible.codes[i, after] == codes).all()
        for later in visible.other[i, after]:
            np.testing.assert_array_equal(later, values)
    survey = Masking(survey_only=1.0, drop_columns=0, cells=0, origin=0)
    visible, _ = hide_inputs(tokens, 2005, survey, rng)
    sex = np.arange(visible.codes.shape[2]) == CATEGORICAL.index("sex")
    assert (visible.codes[..., ~sex] == 0).all()
    assert np.isnan(visible.other).all()
