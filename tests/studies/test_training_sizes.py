"""The study of the prior's worth: who learns, who is judged, and what the table says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.evaluation.contest import ContestOptions
from saga.evaluation.fold_training import FoldTraining
from saga.evaluation.scoring.comparison import BUNDLE_NAME
from saga.evaluation.scoring.evaluation_settings import Sample
from saga.training.fit import train
from saga.training.harness import RunOptions

from saga.bundle import Bundle
from saga.data.panel import Panel
from studies.training_sizes import FOLDS, SCRATCH, draw_sizes, judge_size, size_table
from tests.evaluation.conftest import TOY

CONFIG = replace(TOY, max_steps=4, validate_every=2)


@pytest.mark.thorough
def test_models_learn_from_nested_persons_outside_the_judged_fold(
    random_walk: Callable[..., Panel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel, options = random_walk(600), ContestOptions((1, 5), n_paths=20)
    train(panel, tmp_path / "b", config=CONFIG, run=RunOptions())
    bundle = calibrate_bundle(tmp_path / "b", panel, CalibrationOptions(n_paths=20))
    learnt_from: dict[str, list[set[str]]] = {BUNDLE_NAME: [], SCRATCH: []}

    def stored_bundle(self: FoldTraining, outside: Panel, folder: Path, **_: object) -> Bundle:
        learnt_from[folder.name].append(set(outside.persons()))
        assert (self.source is None) == (folder.name == SCRATCH)
        return bundle

    monkeypatch.setattr(FoldTraining, "bundle", stored_bundle)
    for size in (100, 300):
        tables = judge_size(
            panel,
            size,
            tmp_path / str(size),
            options,
            source=tmp_path,
            baselines=["carry"],
            privacy=[],
        )
    small, large = learnt_from[BUNDLE_NAME]
    assert learnt_from[SCRATCH] == [small, large]
    assert (len(small), len(large)) == (100, 300)
    judged = set(next(Sample.of_folds(panel, FOLDS, seed=0)).test.persons())
    assert small < large
    assert not large & judged
    rows = size_table(tables["metrics"], tables["comparisons"])
    assert rows.height == 3 * 2
    of_bundle = rows.filter(model=BUNDLE_NAME)
    assert of_bundle["p_holm"].null_count() == 2
    # The same bundle under both names: no difference.
    assert rows.filter(model=SCRATCH)["difference"].to_list() == [0.0, 0.0]
    draw_sizes(rows.with_columns(size=pl.lit(300)), tmp_path / "sizes.svg")
    assert "5 years ahead" in (tmp_path / "sizes.svg").read_text()
