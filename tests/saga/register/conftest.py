"""One simulated panel for the whole folder: few cohorts, with enough persons in each."""

from __future__ import annotations

import polars as pl
import pytest

from saga.register.simulation.cohort_simulation import RegisterSettings, simulate_chunk
from saga.register.simulation.parameters import Parameters
from tests.saga.register.panels import Simulate


@pytest.fixture(scope="session")
def simulate() -> Simulate:
    """Panel rows 1990-2022 of equal cohorts."""

    def panel_of(
        parameters: Parameters | None = None,
        *,
        seed: int = 11,
        cohorts: range = range(1927, 2006, 4),
        persons: int = 600,
    ) -> pl.DataFrame:
        settings = RegisterSettings(persons=0, seed=seed, parameters=parameters or Parameters())
        return pl.concat(
            [simulate_chunk(settings, birth_year, 0, persons)[1] for birth_year in cohorts]
        )

    return panel_of


@pytest.fixture(scope="session")
def panel(simulate: Simulate) -> pl.DataFrame:
    return simulate()
