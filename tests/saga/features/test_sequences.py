"""A panel becomes tokens: gaps, missing cells, zeros and padding stay distinct."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from saga.features.sequences import POSITIVE, UNKNOWN, ZERO, pad
from saga.features.transforms import Transforms
from tests.saga.features.token_panels import CALENDAR, fit_transforms, panel_of, person, tokens_of


@pytest.fixture(scope="module")
def transforms() -> Transforms:
    return fit_transforms()


def test_a_null_a_zero_and_a_missing_year_stay_distinct(transforms: Transforms) -> None:
    _, tokens = tokens_of(person("a", {2000: 1e5, 2001: None, 2002: 0.0, 2004: 2e5}), transforms)
    assert tokens.year[0].tolist() == [2000, 2001, 2002, 2004]
    assert tokens.state[0].tolist() == [POSITIVE, UNKNOWN, ZERO, POSITIVE]


@pytest.mark.parametrize(
    ("years", "rhythm"),
    [
        (range(1990, 2010), 1),
        # The NLSY79 as of 1998: yearly records for long, every second year at the end.
        ([*range(1979, 1995), 1996, 1998], 2),
        (range(1990, 2011, 5), 5),
    ],
)
def test_rhythm_is_the_usual_distance_of_records_at_the_end_of_the_panel(
    years: Sequence[int], rhythm: int
) -> None:
    """One person with another gap, and records missed at random, do not change it."""
    rows = [r for i in range(200) for r in person(f"t{i}", dict.fromkeys(years, 100000.0 + i))]
    rng = np.random.default_rng(0)
    rows = [row for row in rows if rng.random() < 0.9]
    rows += person("gap", {years[-1] - 3: 1e5, years[-1]: 2e5})
    assert Transforms.fit(panel_of(rows), CALENDAR, 4).rhythm == rhythm


def test_padding_does_not_change_a_record(transforms: Transforms) -> None:
    long = person("a", dict.fromkeys(range(2000, 2010), 100000.0))
    short = person("b", {2005: 2e5, 2006: 0.0})
    sequences, together = tokens_of(long + short, transforms)
    alone = pad(sequences, np.array([1]))
    assert together.valid[1].sum() == 2
    for name in ("year", "state", "z", "codes"):
        np.testing.assert_array_equal(getattr(together, name)[1, :2], getattr(alone, name)[0])
