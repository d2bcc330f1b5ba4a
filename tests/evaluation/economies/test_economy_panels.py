"""Panels and pools of economies: reproducible, different from each other, usable as any panel."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from saga.evaluation.economies.economy_panels import draw_panel
from saga.evaluation.economies.economy_pools import Economies, concatenate, take
from saga.evaluation.economies.random_draws import ParameterDraws, random_stream
from saga.evaluation.economies.register_economy import VARIED, RegisterEconomy

from saga import schema
from saga.data.panel import Panel
from saga.features.sequences import POSITIVE, Sequences
from saga.features.transforms import Transforms

N_PANELS, PERSONS = 40, 150
ECONOMIES = Economies(seed=3, persons=60, pool_size=20)


@pytest.fixture(scope="module")
def panels() -> list[Panel]:
    return [draw_panel(3, number, PERSONS) for number in range(1, N_PANELS + 1)]


def test_a_number_is_an_economy(panels: list[Panel]) -> None:
    again = [draw_panel(3, number, PERSONS) for number in (1, 2)]
    assert [panel.digest for panel in again] == [panel.digest for panel in panels[:2]]
    digests = {panel.digest for panel in panels}
    assert len(digests | {draw_panel(4, 1, PERSONS).digest}) == N_PANELS + 1


def test_rows_are_valid(panels: list[Panel]) -> None:
    for panel in panels:
        frame = panel.frame
        assert frame.select("person_id", "year").is_unique().all()
        assert frame.equals(frame.sort("person_id", "year"))
        assert (
            (frame["year"] - frame["birth_year"]).is_between(schema.MIN_AGE, schema.MAX_AGE).all()
        )
        earnings = frame["earnings"].drop_nulls()
        assert earnings.is_finite().all()
        assert (earnings >= 0).all()
        assert panel.meta.simulated


def test_economies_differ(panels: list[Panel]) -> None:
    """In their volatility, zeros, rhythm, lengths of records, level and columns."""
    known = [panel.frame.filter(pl.col("earnings") > 0) for panel in panels]
    logs = [frame.with_columns(log=pl.col("earnings").log()) for frame in known]
    changes = [
        frame.select(pl.col("log").diff().over("person_id")).to_series().std() for frame in logs
    ]
    volatility = np.array([change for change in changes if change is not None], dtype=float)
    assert np.quantile(volatility, 0.9) > 2 * np.quantile(volatility, 0.1)
    zeros = np.array([(panel.frame["earnings"] == 0).mean() or 0.0 for panel in panels])
    assert 0.2 < (zeros == 0).mean() < 0.8
    assert zeros.max() > 0.3
    levels = [frame["log"].mean() for frame in logs]
    assert np.ptp(np.array(levels, dtype=float)) > 5
    lengths = np.concatenate([panel.frame.group_by("person_id").len()["len"] for panel in panels])
    assert lengths.min() == 1
    assert lengths.max() > 40
    hidden = {panel.frame["education_level"].null_count() == len(panel) for panel in panels}
    assert hidden == {True, False}


def test_a_register_is_one_of_the_economies() -> None:
    panel = draw_panel(3, 0, 60)
    assert panel.frame["children"].null_count() < len(panel)
    assert panel.frame["occupation"].null_count() == len(panel)
    first, second = (
        RegisterEconomy.draw(ParameterDraws(random_stream("register", k))).parameters.careers
        for k in range(2)
    )
    # Mechanisms that are switched off have the same neutral values.
    assert sum(getattr(first, name) != getattr(second, name) for name in VARIED) > len(VARIED) / 2


@pytest.fixture(scope="module")
def reference() -> Transforms:
    return ECONOMIES.reference(32)


@pytest.fixture(scope="module")
def pool(reference: Transforms) -> Sequences:
    return ECONOMIES.pool(0, reference)


@pytest.mark.thorough
def test_a_pool_has_the_units_of_each_economy(reference: Transforms, pool: Sequences) -> None:
    z = pool.z[pool.state == POSITIVE]
    assert np.isfinite(pool.z).all()
    assert abs(np.median(z)) < 0.05
    low, high = np.quantile(z, [0.25, 0.75])
    assert high - low == pytest.approx(1.35, abs=0.1)  # that of a standard normal variable
    assert reference.knots[0] < -2 < 2 < reference.knots[-1]
    assert set(reference.codes["sex"]) == {"female", "male"}
    assert len(np.unique(pool.person_id)) < len(pool)  # ids repeat: economies do not share persons
    assert pool.offsets[-1] == len(pool.year)


@pytest.mark.thorough
def test_persons_keep_their_records_when_pools_are_joined_and_divided(pool: Sequences) -> None:
    joined = concatenate([pool, pool])
    chosen = np.array([5, len(pool) + 5, 0])
    part = take(joined, chosen)
    first, second, third = (slice(*part.offsets[k : k + 2]) for k in range(3))
    assert (part.z[first] == part.z[second]).all()
    assert (part.z[third] == pool.z[: pool.offsets[1]]).all()
    assert part.birth_year.tolist() == joined.birth_year[chosen].tolist()
    assert part.year[first].tolist() == pool.year[pool.offsets[5] : pool.offsets[6]].tolist()
