"""A panel of an economy has the rhythm, the gaps and the errors that its design says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from saga.evaluation.economies.observation import LAST_YEAR, Observation
from saga.evaluation.economies.random_draws import ParameterDraws, random_stream
from saga.evaluation.textbook.gkos_process import Mixture

PERSONS, FIRST = 3_000, 2003
YEARS = range(FIRST, LAST_YEAR + 1)
EXACT = Mixture(0.5, 0.0, (0.0, 0.0))
REGISTER = Observation(
    first_year=FIRST,
    ages=(16, 64),
    waves=tuple(YEARS),
    attrition=0.0,
    late=0.0,
    longest=50,
    missed=0.0,
    unknown=0.0,
    zeros=True,
    error=EXACT,
    digits=0,
    top=0.0,
    floor=0.0,
    hidden=(),
)


@pytest.fixture(scope="module")
def economy() -> pl.DataFrame:
    """Every person in every year; a fifth of the amounts are zero."""
    rng = random_stream("observed")
    n = PERSONS * len(YEARS)
    earnings = np.exp(rng.normal(10.0, 0.7, n)) * (rng.random(n) > 0.2)
    return pl.DataFrame(
        {
            "person_id": np.repeat([f"{k:05d}" for k in range(PERSONS)], len(YEARS)),
            "year": pl.Series(np.tile(np.array(YEARS), PERSONS), dtype=pl.Int32),
            "birth_year": pl.Series(np.full(n, 1970), dtype=pl.Int32),
            "earnings": earnings,
            "sex": pl.Series(np.full(n, "female")),
        }
    )


def observe(economy: pl.DataFrame, design: Observation) -> pl.DataFrame:
    return design.observe(economy, random_stream("design"))


def test_a_register_records_everything(economy: pl.DataFrame) -> None:
    assert observe(economy, REGISTER).equals(economy)


def test_attrition_is_geometric(economy: pl.DataFrame) -> None:
    observed = observe(economy, replace(REGISTER, attrition=0.1))
    by_year = observed.group_by("year").len().sort("year")["len"].to_numpy() / PERSONS
    expected = 0.9 ** np.arange(len(YEARS))
    error = 4 * np.sqrt(expected * (1 - expected) / PERSONS)
    assert (np.abs(by_year - expected) <= error).all()
    # Nobody comes back.
    gaps = observed.group_by("person_id").agg(pl.col("year").diff().max())["year"].drop_nulls()
    assert set(gaps) == {1}


def test_waves_missed_years_and_rotation(economy: pl.DataFrame) -> None:
    waves = tuple(range(FIRST + 1, LAST_YEAR + 1, 2))
    every_second = observe(economy, replace(REGISTER, waves=waves))
    assert set(every_second["year"]) == set(waves)
    missed = observe(economy, replace(REGISTER, missed=0.3))
    share = missed.height / economy.height
    assert share == pytest.approx(0.7, abs=4 * np.sqrt(0.21 / economy.height))
    rotating = observe(economy, replace(REGISTER, longest=4, late=0.5))
    spans = rotating.group_by("person_id").agg(pl.col("year").max() - pl.col("year").min())
    assert spans["year"].max() == 3
    starts = rotating.group_by("person_id").agg(pl.col("year").min())["year"].to_numpy()
    assert 0.4 < (starts > FIRST).mean() < 0.55


def test_amounts_are_measured_with_error_rounded_and_cut(economy: pl.DataFrame) -> None:
    true = economy["earnings"].to_numpy()
    noisy = observe(economy, replace(REGISTER, error=Mixture(0.5, 0.0, (0.2, 0.2))))
    error = np.log(noisy["earnings"].to_numpy()[true > 0] / true[true > 0])
    assert error.std() == pytest.approx(0.2, rel=4 / np.sqrt(2 * len(error)))
    assert (noisy["earnings"].to_numpy()[true == 0] == 0).all()
    rounded = observe(economy, replace(REGISTER, digits=2))["earnings"].to_numpy()
    assert all(len(f"{x:.0f}".rstrip("0")) <= 2 for x in rounded)
    assert np.abs(rounded / np.where(true > 0, true, 1) - (true > 0)).max() <= 0.05 + 1e-9
    cut = observe(economy, replace(REGISTER, top=0.05, floor=0.05))
    known = cut["earnings"].drop_nulls().to_numpy()
    assert (known == known.max()).mean() == pytest.approx(0.05 * 0.8, abs=0.005)
    assert known[known > 0].min() >= np.quantile(true[true > 0], 0.05) * (1 - 1e-12)
    assert (known == 0).sum() == (true == 0).sum()


def test_all_rhythms_and_lengths_are_drawn() -> None:
    draws = ParameterDraws(random_stream("designs"))
    designs = [Observation.draw(draws) for _ in range(400)]
    gaps = [set(np.diff(design.waves).tolist()) for design in designs]
    assert all(design.waves[-1] == LAST_YEAR for design in designs)
    for rhythm in ({1}, {2}, {3}, {1, 2}):
        assert rhythm in gaps
    lengths = [LAST_YEAR - design.first_year + 1 for design in designs]
    assert min(lengths) <= 5
    assert max(lengths) >= 49
