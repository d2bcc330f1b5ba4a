"""The study of the model's error in drawn histories: stored, it is a part of every group table."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from saga.bundle import Bundle
from saga.model_error import ModelError
from saga.register.simulation import generation
from studies import history_errors

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = 3


@pytest.mark.thorough
def test_each_history_is_a_vintage_that_the_bundle_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {1965: 25, 1975: 25, 1985: 25, 1995: 25}
    monkeypatch.setattr(generation, "cohort_sizes", lambda *_: few)
    bundle = tmp_path / "small"
    shutil.copytree(ROOT / "bundles" / "small", bundle)
    sizes = {"histories": HISTORIES, "futures": 2, "persons": 100, "paths": 10}
    arguments = [str(bundle), "--store", "--out", str(tmp_path / "kept")]
    arguments += [f"--{name}={value}" for name, value in sizes.items()]
    monkeypatch.setattr(sys, "argv", ["history_errors", *arguments])
    history_errors.main()
    stored = Bundle.load(bundle).vintages
    assert stored is not None
    assert stored["history"].n_unique() == HISTORIES
    error = ModelError.fit(stored)
    assert error.separate["20"] == HISTORIES  # futures of one history are not separate
    assert error.sd("mean", "everybody", {10: 1.0}, 1.0) is not None
    assert f"{HISTORIES} drawn histories" in capsys.readouterr().out
    kept = len(list((tmp_path / "kept").rglob("history-*.parquet")))
    assert kept == HISTORIES
