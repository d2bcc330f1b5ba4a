"""Training: who is fitted on, reproducible weights, and runs that are resumed after a stop."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from saga.training import ensembles
from saga.training.fit import prepare, train
from saga.training.harness import RunOptions
from saga.training.masking import Masking
from saga.training.module import ForecastModule
from saga.training.train_config import built_in_configs, load_config

from saga.bundle import Bundle
from saga.data.origins import cut
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import assign_parts, salt_beside, with_salt
from saga.errors import BundleError, InputError, UsageError
from saga.forecaster import Forecaster
from saga.macro.process import MacroProcess
from saga.requests import ForecastRequest
from tests.panels import panel_of
from tests.toy_training import QUIET, TOY, ctrl_c_before

RESUMED = replace(QUIET, resume=True)
EPOCH = 13  # batches of 16 among the 210 or so training persons
CONFIG = replace(TOY, max_steps=30, learning_rate=5e-3, validate_every=5, patience=100)


@pytest.fixture(scope="module")
def panel() -> Panel:
    """300 persons with 5 to 12 years of earnings in 2005-2016, zeros, deaths in 2015 among them."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(300):
        level = rng.normal(12.4, 0.4)
        last = 2014 if i % 10 == 0 else 2016
        for year in range(2005 + int(rng.integers(0, 6)), last + 1):
            earnings = 0.0 if rng.random() < 0.1 else float(np.exp(level + rng.normal(0, 0.2)))
            rows.append(
                (
                    f"p{i:03d}",
                    year,
                    1970,
                    earnings,
                    *((2015, "dead") if last == 2014 else (None, None)),
                )
            )
    return panel_of(rows, "exit_year", "exit_reason")


def assert_same(a: Bundle, b: Bundle) -> None:
    assert a.weights.keys() == b.weights.keys()
    for name, tensor in a.weights.items():
        torch.testing.assert_close(tensor, b.weights[name], rtol=0, atol=0, msg=name)


@pytest.fixture(scope="module")
def whole(panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A run without interruption."""
    torch.set_num_threads(1)
    return train(panel, tmp_path_factory.mktemp("whole") / "b", config=CONFIG, seed=3, run=QUIET)


# Stopped in the first epoch; in the second; with the last checkpoint right at the end of an epoch.
@pytest.mark.parametrize(
    ("step", "every"),
    [
        pytest.param(8, 5, marks=pytest.mark.thorough),
        (22, 5),
        pytest.param(15, EPOCH, marks=pytest.mark.thorough),
    ],
)
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    panel: Panel, tmp_path: Path, step: int, every: int
) -> None:
    config = replace(CONFIG, validate_every=every)
    whole = train(panel, tmp_path / "whole", config=config, seed=3, run=QUIET)
    out = tmp_path / "resumed"
    with ctrl_c_before(step):
        train(panel, out, config=config, seed=3, run=QUIET)
    assert not out.exists()
    before = torch.load(out.with_name("resumed.run") / "last.ckpt", weights_only=False)[
        "callbacks"
    ]["Timer"]["time_elapsed"]["train"]
    resumed = train(panel, out, config=config, seed=3, run=RESUMED)
    assert resumed.metrics["training"]["seconds"] > before  # of all parts of the run
    assert resumed.metrics["training"]["steps"] == CONFIG.max_steps
    assert_same(whole, resumed)
    assert (
        whole.metrics["training"]["validation_nll"] == resumed.metrics["training"]["validation_nll"]
    )


def test_a_checkpoint_for_which_there_is_no_room_leaves_those_before(
    panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the folder of temporary files is on another disk, from which files are copied."""
    full = OSError(errno.ENOSPC, "No space left on device")
    whole = Path.write_bytes

    def half(content: bytes, target: str | Path) -> None:
        whole(Path(target), content[:1_000])
        raise full

    def write(path: Path, data: bytes) -> None:
        half(data, path) if ".ckpt" in path.name else whole(path, data)

    with ctrl_c_before(12):
        train(panel, tmp_path / "b", config=CONFIG, seed=3, run=QUIET)
    before = {file: file.read_bytes() for file in (tmp_path / "b.run").glob("*.ckpt")}
    assert len(before) == 2
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        patch.setattr(shutil, "move", lambda source, to: half(Path(source).read_bytes(), to))
        with pytest.raises(OSError, match="No space left"):
            train(panel, tmp_path / "b", config=CONFIG, seed=3, run=RESUMED)
    assert {file: file.read_bytes() for file in before} == before
    train(panel, tmp_path / "b", config=CONFIG, seed=3, run=RESUMED)
    assert not list((tmp_path / "b.run").glob("*.ckpt"))


def test_a_run_is_resumed_with_the_settings_that_it_was_started_with(
    panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that was stopped before its first checkpoint; a run that never began is none."""
    settings: dict[str, Any] = {"panel": panel, "config": CONFIG, "seed": 3}
    with pytest.raises(UsageError, match="Start without --resume"):
        train(out=tmp_path / "b", run=RESUMED, **settings)
    with ctrl_c_before(2):
        train(out=tmp_path / "b", run=QUIET, **settings)
    changed = {
        "panel": panel.with_frame(panel.frame.with_columns(pl.col("earnings") + 1)),
        "config": replace(CONFIG, clip=2.0),
        "seed": 4,
        "validation": panel.persons()[:20],
    }
    for name, value in changed.items():
        with pytest.raises(UsageError, match=rf"different settings: .*{name}"):
            train(out=tmp_path / "b", run=RESUMED, **settings | {name: value})
    with monkeypatch.context() as patch:
        patch.setattr("saga.training.fit.current_version", lambda: "another")
        with pytest.raises(UsageError, match="different settings: code"):
            train(out=tmp_path / "b", run=RESUMED, **settings)
    short = settings | {"config": CONFIG}
    assert train(out=tmp_path / "b", run=RESUMED, **short).metrics["training"]["steps"] == 30


def test_a_checkpoint_of_another_user_is_not_read(
    panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ctrl_c_before(12):
        train(panel, tmp_path / "b", config=CONFIG, seed=3, run=QUIET)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        train(panel, tmp_path / "b", config=CONFIG, seed=3, run=RESUMED)


@pytest.mark.thorough
def test_the_first_of_several_processes_fits_the_trees(
    panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first process returns from the fit of the network."""
    fitted: list[Bundle] = []

    def fit_network(*arguments: Any, run: RunOptions, **options: Any) -> Bundle:
        assert run.devices == 2
        return train(*arguments, run=replace(run, devices=1), **options)

    monkeypatch.setattr(ensembles, "train", fit_network)
    monkeypatch.setattr(ensembles, "fit_tree_member", lambda of, *_, **__: fitted.append(of))
    alone = replace(panel, meta=replace(panel.meta, macro=None))
    config = replace(CONFIG, max_steps=5, trees=True)
    run = replace(QUIET, devices=2)
    bundle = ensembles.train_members(alone, tmp_path / "b", config=config, seed=3, run=run)
    assert [network.weights.keys() for network in fitted] == [bundle.weights.keys()]


@pytest.mark.thorough
def test_two_devices_make_one_bundle(panel: Panel, tmp_path: Path) -> None:
    """Each device runs the whole program in a process; one process writes files and reports."""
    panel.frame.write_parquet(tmp_path / "panel.parquet")
    (tmp_path / "toy.yaml").write_text(
        "model: {width: 8, layers: 1, heads: 1, bins: 8, head_width: 8}\n"
        "batch_persons: 16\nmax_steps: 4\nvalidate_every: 2\nwarmup_steps: 1\nprecision: 32-true\n"
        "trees: true\n"
    )
    (tmp_path / "mapping.yaml").write_text("macro: none\n")
    script = tmp_path / "program.py"
    script.write_text("from saga.cli import main\n\nif __name__ == '__main__':\n    main()\n")
    options = (
        "--panel panel.parquet --prices 2022 --mapping mapping.yaml --config toy.yaml --devices 2 "
        "--out b --json"
    )
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = subprocess.run(
        [sys.executable, script.name, "train", *options.split()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)  # one report
    bundle = Bundle.load(tmp_path / "b")
    assert report["bundle"] == bundle.digest
    assert report["steps"] == 4
    settings = load_config(tmp_path / "toy.yaml")
    mapping = tmp_path / "mapping.yaml"
    trained = read_panel(tmp_path / "panel.parquet", prices=2022, mapping=mapping)
    salted = with_salt(trained, salt_beside(bundle.path))
    data, network, *_ = prepare(salted, settings, seed=0)
    network.load_state_dict(bundle.weights)
    module = ForecastModule(network, settings)
    with torch.no_grad():
        scored = [module.losses(batch) for batch in data.val_dataloader()]
    expected = sum(float(losses.nll) for losses in scored) / sum(
        int(losses.n_targets) for losses in scored
    )
    assert bundle.metrics["training"]["validation_nll"] == pytest.approx(expected, abs=1e-4)


def test_training_lowers_the_validation_score_and_logs_it(whole: Bundle) -> None:
    with (whole.path.with_name("b.run") / "log" / "metrics.csv").open() as file:
        logged = [
            float(row["validation_nll"]) for row in csv.DictReader(file) if row["validation_nll"]
        ]
    assert len(logged) == CONFIG.max_steps // CONFIG.validate_every
    assert min(logged) < logged[0]
    assert whole.metrics["training"]["validation_nll"] == pytest.approx(min(logged), abs=1e-5)
    assert not list(whole.path.with_name("b.run").glob("*.ckpt"))


def test_training_stops_early_without_improvement(panel: Panel, tmp_path: Path) -> None:
    still = replace(CONFIG, learning_rate=0.0, weight_decay=0.0, patience=2)
    assert (
        train(panel, tmp_path / "b", config=still, run=QUIET).metrics["training"]["steps"]
        == 3 * CONFIG.validate_every
    )


def test_training_and_validation_persons_are_disjoint_parts_of_the_split(panel: Panel) -> None:
    data = prepare(panel, CONFIG, seed=0).data
    for sequences, part in ((data.train, "train"), (data.validation, "validation")):
        assert set(assign_parts("toy", sequences.person_id)) == {part}
    assert len(data.train) // CONFIG.batch_persons == EPOCH


def test_calibration_and_test_persons_do_not_change_the_bundle(
    panel: Panel, whole: Bundle, tmp_path: Path
) -> None:
    ids = np.array(panel.persons())
    reserved = ids[np.isin(assign_parts("toy", ids), ["calibration", "test"])].tolist()
    doubled = (
        pl.when(pl.col("person_id").is_in(reserved))
        .then(pl.col("earnings") * 2)
        .otherwise("earnings")
        .alias("earnings")
    )
    other = train(
        panel.with_frame(panel.frame.with_columns(doubled)),
        tmp_path / "b",
        config=CONFIG,
        seed=3,
        run=QUIET,
    )
    assert_same(whole, other)
    assert whole.transforms == other.transforms


def test_until_cuts_records_exits_and_macro(panel: Panel, tmp_path: Path) -> None:
    past = cut(panel, 2012)
    assert past.frame["year"].max() == 2012
    assert past.frame["exit_year"].is_null().all()
    assert cut(panel, 2015).frame["exit_reason"].drop_nulls().unique().to_list() == ["dead"]
    bundle = train(
        panel, tmp_path / "b", config=replace(CONFIG, max_steps=5), until=2012, run=QUIET
    )
    assert bundle.training_records.last_year == 2012
    process = MacroProcess.from_dict(bundle.macro)
    assert process.history.last_year == 2012
    assert process.moving is not None
    assert len(process.moving.growth.state_mean) == 2012 - process.moving.first_year + 1
    part = assign_parts("toy", past.frame["person_id"])
    assert bundle.metrics["training"]["person_years"] == (part == "train").sum()
    assert not bundle.transforms["has_death"]
    with pytest.raises(UsageError, match="later --until"):
        cut(panel, 1999)


@pytest.mark.parametrize("name", built_in_configs())
def test_built_in_configurations_can_be_read(name: str) -> None:
    assert load_config(name).name == name


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("learning_rat: 0.1", "learning_rat"),
        ("model: {depth: 3}", "depth"),
        ("model: {width: 10, heads: 4}", "width"),
        ("batch_persons: 0", "batch_persons"),
        ("batch_persons: 1.5", "batch_persons"),
        ("learning_rate: -1", "learning_rate"),
        ("learning_rate: fast", "learning_rate"),
        ("learning_rate: .inf", "learning_rate"),
        ("{max_steps: 10, validate_every: 20}", "validate_every"),
        ("masking: {origins: 0.5}", "origins"),
        ("masking: {origin: 1.5}", "origin"),
        ("masking: {cells: often}", "cells"),
        ("without: [earnings]", "earnings"),
        ("without: occupation", "without"),
        ("model: {backbone: gru}", "'decoder', 'lstm' or 'feedforward'"),
        ("model: {backbone: lstm, light: 8}", "light"),
        ("model: {head: normal}", "'binned', 'mixture' or 'quantiles'"),
        ("model: 3", "'model' is no table"),
        ("extends: tiny\nmodel: 3", "'model' is no table"),
        ("extends: tiny\nmasking: null", "'masking' is no table"),
        ("learning_rate: null", "learning_rate"),
        ("learning_rat: null", "learning_rat"),
        ("learning_rate:", "line 1: learning_rate has no content"),
        ("extends: huge", "huge"),
        ("extends: [tiny]", "extends"),
        ("[1]", "mapping"),
        ("a: [", "YAML"),
    ],
)
def test_invalid_configurations_are_refused(text: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=named):
        load_config(file)


def test_a_configuration_extends_another_but_not_itself(tmp_path: Path) -> None:
    derived, loop = tmp_path / "mine.yaml", tmp_path / "loop.yaml"
    derived.write_text(
        "{extends: tiny, model: {head: mixture}, masking: {cells: 0}, max_steps: 400, "
        "without: [county]}"
    )
    tiny = load_config("tiny")
    expected = replace(
        tiny,
        name="mine",
        model=replace(tiny.model, head="mixture"),
        max_steps=400,
        without=("county",),
    )
    assert load_config(derived) == replace(expected, masking=Masking(cells=0))
    loop.write_text(f"extends: {loop}")
    for source in (loop, tmp_path / "absent.yaml"):
        with pytest.raises(UsageError, match=source.stem):
            load_config(source)


def test_other_backbones_have_as_many_parameters_as_the_shipped_decoder(panel: Panel) -> None:
    def parameters(name: str) -> int:
        settings = load_config(name)
        without_light = replace(settings, model=replace(settings.model, light=0))
        return prepare(panel, without_light, seed=0).network.parameters_count

    sizes = {name: parameters(name) for name in ("small", "lstm", "feedforward")}
    assert all(round(100 * abs(size / sizes["small"] - 1), 1) <= 1 for size in sizes.values()), (
        sizes
    )  # 1.0 %, as the configurations say
    small, lstm = load_config("small"), load_config("lstm")
    assert replace(lstm, name="small", model=small.model) == small


@pytest.mark.thorough
def test_the_configuration_of_the_papers_size_trains_and_forecasts(
    panel: Panel, tmp_path: Path
) -> None:
    base = load_config("base")
    settings = replace(
        base, max_steps=2, validate_every=2, warmup_steps=1, batch_persons=16, validation_persons=16
    )
    train(panel, tmp_path / "b", config=settings, seed=3, run=QUIET)
    bundle = Bundle.load(tmp_path / "b")
    assert bundle.config["model"] == base.model.as_dict()
    assert bundle.metrics["training"]["steps"] == 2
    # The first year is by the decoder, those after it by the cell.
    forecaster = Forecaster(bundle, threads=1, rollout="light")
    request = ForecastRequest(horizons=(1, 3), beyond_span=True)  # the records are short
    means = forecaster.forecast(panel.only(["p001", "p002"]), request).table["mean"]
    assert means.is_finite().sum() == 4


def test_the_masking_of_a_configuration_reaches_the_batches(panel: Panel) -> None:
    masking = Masking(drop_years=1.0, late_start=0.0)
    assert prepare(panel, replace(CONFIG, masking=masking), seed=0).data.masking == masking


def test_what_cannot_be_trained_is_refused_before_training(panel: Panel, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    few = panel.only(panel.persons()[:3])
    for people, out, error in ((few, "b", InputError), (panel, "mine", BundleError)):
        with pytest.raises(error):
            train(people, tmp_path / out, config=CONFIG, run=QUIET)
    assert not (tmp_path / "mine.run").exists()
