"""A bundle is used again if its settings are exactly equal, and trained again otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from saga.training.module import ForecastModule

import studies.trained_bundle
from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.split import persons_of
from studies.trained_bundle import path_of, train_or_load
from tests.toy_training import TOY, make_panel

pytestmark = pytest.mark.thorough
CONFIG = replace(TOY, max_steps=6, warmup_steps=1, validate_every=2)
SEED = 3


@pytest.fixture(scope="module")
def panel() -> Panel:
    return make_panel()


@pytest.fixture(scope="module")
def bundle(panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle that was trained without interruption, until 2012."""
    return train_or_load(
        panel, tmp_path_factory.mktemp("trained") / "b", CONFIG, seed=SEED, until=2012
    )


def test_the_same_request_loads_the_bundle(
    panel: Panel, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        studies.trained_bundle, "train", lambda *_, **__: pytest.fail("trained again")
    )
    out = bundle.path.with_name("b")
    assert train_or_load(panel, out, CONFIG, seed=SEED, until=2012).digest == bundle.digest


def _without_a_person(panel: Panel) -> Panel:
    first = persons_of(panel, "train")[0]
    return panel.only([person for person in panel.persons() if person != first])


def _without_a_row(panel: Panel) -> Panel:
    first = pl.struct("person_id", "year") == pl.struct(
        person_id=pl.lit(persons_of(panel, "train")[0]), year=pl.lit(2005, pl.Int32)
    )
    return panel.with_frame(panel.frame.filter(~first))


@pytest.mark.parametrize(
    ("changed", "change"),
    [
        ({"until": 2011}, None),
        ({"seed": SEED + 1}, None),
        ({"config": replace(CONFIG, learning_rate=1e-3)}, None),
        ({}, _without_a_person),
        ({}, _without_a_row),
        ({}, lambda panel: replace(panel, meta=replace(panel.meta, panel_id="other"))),
        ({}, lambda panel: replace(panel, meta=replace(panel.meta, macro=None))),
    ],
)
def test_a_changed_request_has_another_folder(
    panel: Panel,
    bundle: Bundle,
    changed: dict[str, Any],
    change: Callable[[Panel], Panel] | None,
) -> None:
    options = {"config": CONFIG, "seed": SEED, "until": 2012, **changed}
    path = path_of(change(panel) if change else panel, bundle.path.with_name("b"), **options)
    assert path.parent == bundle.path.parent
    assert path != bundle.path


def test_an_interrupted_run_resumes(
    panel: Panel, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    original_step = ForecastModule.training_step

    def counting_step(
        self: ForecastModule, batch: dict[str, torch.Tensor], index: int
    ) -> torch.Tensor:
        steps.append(self.global_step)
        if len(steps) == 5:
            raise KeyboardInterrupt
        return original_step(self, batch, index)

    monkeypatch.setattr(ForecastModule, "training_step", counting_step)
    with pytest.raises(KeyboardInterrupt):
        train_or_load(panel, tmp_path / "b", CONFIG, seed=SEED, until=2012)
    again = train_or_load(panel, tmp_path / "b", CONFIG, seed=SEED, until=2012)
    assert steps[5:] == [4, 5]
    assert all(torch.equal(tensor, bundle.weights[name]) for name, tensor in again.weights.items())
