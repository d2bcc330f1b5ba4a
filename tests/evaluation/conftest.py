"""Toy processes whose best forecast is known, as panels, and a toy network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from saga.evaluation.contestants import SampledContestant
from scipy import stats

from saga.data.origins import Origins
from saga.data.panel import Panel, PanelMeta
from saga.data.split import assign_parts
from saga.keyed_random import uniform_rows
from saga.paths import Paths
from tests import toy_training
from tests.panels import yearly_panel

YEARS = np.arange(1995, 2023)
TOY = replace(toy_training.TOY, batch_persons=64, max_steps=8, validate_every=4)


def _panel(earnings: np.ndarray, born: np.ndarray, meta: PanelMeta, **static: np.ndarray) -> Panel:
    """Panel of (n, T) earnings over YEARS, NaN: no row; ages outside 16-64 are left out."""
    return yearly_panel(earnings, YEARS[: earnings.shape[1]], born, meta, **static)


@pytest.fixture(scope="session")
def random_walk() -> Callable[..., Panel]:
    """log earnings with independent yearly growth (0.01, 0.15): carry-forward is exact."""

    def make(n: int = 1500, seed: int = 0, floor: float | None = 24_150.0) -> Panel:
        rng = np.random.default_rng(seed)
        growth = rng.normal(0.01, 0.15, (n, len(YEARS)))
        log = 13.5 + rng.normal(0, 0.5, (n, 1)) + growth.cumsum(axis=1)
        return _panel(np.exp(log), rng.integers(1950, 1985, n), PanelMeta("walk", floor=floor))

    return make


@pytest.fixture(scope="session")
def grouped() -> Callable[..., Panel]:
    """Earnings drawn every year from the person's group (sex x education), with zeros."""

    def make(n: int = 2000, seed: int = 0) -> Panel:
        rng = np.random.default_rng(seed)
        sex, level = rng.integers(0, 2, n), rng.integers(0, 2, n)
        zero = rng.random((n, len(YEARS))) < (0.05 + 0.2 * sex)[:, None]
        log = (
            12
            + 0.7 * level[:, None]
            + (0.3 + 0.3 * sex)[:, None] * rng.normal(size=(n, len(YEARS)))
        )
        names = {
            "sex": np.array(["male", "female"])[sex],
            "education_level": np.array(["compulsory", "long_tertiary"])[level],
        }
        return _panel(
            np.where(zero, 0.0, np.exp(log)),
            rng.integers(1950, 1985, n),
            PanelMeta("grouped"),
            **names,
        )

    return make


@pytest.fixture(scope="session")
def part() -> Callable[[Panel, str], Panel]:
    """The persons of one part of the split."""

    def take(panel: Panel, name: str) -> Panel:
        persons = panel.persons()
        return panel.only(
            [
                p
                for p, part_of_person in zip(
                    persons, assign_parts(panel.meta.panel_id, persons), strict=True
                )
                if part_of_person == name
            ]
        )

    return take


@pytest.fixture(scope="session")
def panel_from() -> Callable[..., Panel]:
    """Panels from arrays of earnings over YEARS: see `_panel`."""
    return _panel


class Walker(SampledContestant):
    """A contestant that knows the random walk; `spread` 1 is exact, other values are wrong.

    It sees histories only, counts in `calls` how often it forecasts, and is interrupted after
    `until` blocks of `block` persons.
    """

    def __init__(
        self, name: str, spread: float = 1.0, until: int | None = None, block: int = 20
    ) -> None:
        self.name, self.spread, self.until, self.block, self.calls = name, spread, until, block, 0

    def paths(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Iterator[Paths]:
        self.calls += 1
        last = past.frame.group_by("person_id", maintain_order=True).last()
        assert last["person_id"].to_list() == origins.person_id.tolist()
        for count, start in enumerate(range(0, len(origins), self.block)):
            if count == self.until:
                raise KeyboardInterrupt
            in_block = origins.take(slice(start, start + self.block))
            rows = last.slice(start, self.block)
            shocks = stats.norm.ppf(
                uniform_rows(to_horizon * n_paths, in_block.person_id.tolist(), self.name, seed)
            )
            growth = (
                (0.01 + 0.15 * self.spread * shocks)
                .reshape(len(in_block), to_horizon, n_paths)
                .cumsum(axis=1)
            )
            earnings = (rows["earnings"].to_numpy()[:, None, None] * np.exp(growth)).astype(
                np.float32
            )
            paths = Paths(
                in_block.person_id, rows["birth_year"].to_numpy(), in_block.year, earnings
            )
            paths.earnings[~paths.within_age] = np.nan
            yield paths


@pytest.fixture(scope="session")
def walker() -> type[Walker]:
    """Contestants for panels of `random_walk`: `walker(name, spread=1.0, until=None)`."""
    return Walker


@pytest.fixture(autouse=True)
def _few_origins(two_origins: None) -> None:
    """Calibrate with two origins a person."""
