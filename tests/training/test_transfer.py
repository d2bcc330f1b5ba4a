"""Fine-tuning: training starts from the forecasts of another bundle, whatever the new columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import polars.testing
import pytest
import torch
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.training.ensembles import train_folds, train_members
from saga.training.fit import Preparation, prepare, settings_for, train
from saga.training.harness import RunOptions
from saga.training.train_config import choose_start
from saga.training.transfer import Source
from torch import Tensor

from saga.bundle import Bundle, write_bundle
from saga.data.panel import Panel
from saga.errors import UsageError
from saga.features.sequences import pad
from saga.forecaster import Forecaster
from saga.model import ModelConfig
from saga.requests import ForecastRequest
from tests.toy_training import QUIET, RACE, TOY, UNION, WEALTH, make_panel

CONFIG = replace(TOY, model=replace(TOY.model, light=4), learning_rate=2e-2, scale_free=True)


@pytest.fixture(scope="module")
def source_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("source") / "source"
    train(make_panel(["sex", RACE.name]), path, config=CONFIG, seed=3, run=QUIET)
    return path


@pytest.fixture(scope="module")
def source(source_path: Path) -> Source:
    return Source.open(source_path)


def started(panel: Panel, source: Source) -> Preparation:
    return prepare(panel, settings_for(CONFIG, 100, source), 0, source=source)


def hidden(prepared: Preparation) -> Tensor:
    """Hidden states of the training persons before the first step."""
    network, sequences = prepared.network.eval(), prepared.data.train
    records = pad(sequences, np.arange(20))
    with torch.no_grad():
        states, _ = network.hidden(network.embed(records), torch.from_numpy(records.age))
    return states


@pytest.mark.parametrize(
    "columns",
    [
        [],  # columns of the source that the panel lacks count as missing
        [UNION.name, WEALTH.name],
        ["spouse_earnings"],
        [UNION.name, "sex", WEALTH.name, "spouse_earnings", RACE.name],
    ],
)
def test_new_columns_have_no_effect_before_the_first_step(
    columns: list[str], source: Source
) -> None:
    """With and without them, the states are those of the source for the columns that it has."""
    known = [name for name in columns if name in ("sex", RACE.name)]
    prepared = started(make_panel(columns), source)
    before = prepare(make_panel(["sex", RACE.name]), CONFIG, 0)
    before.network.load_state_dict(source.weights)
    sequences = before.data.train
    for name in {"sex", RACE.name} - set(known):
        sequences.codes[:, before.transforms.categories.index(name)] = 0
    expected = hidden(before)
    torch.testing.assert_close(hidden(prepared), expected, atol=1e-5, rtol=1e-4)
    assert expected.std() > 0.1  # the states differ between persons
    prepared.data.train.codes[:, len(source.transforms.categories) :] = 0
    prepared.data.train.other[:] = np.nan
    torch.testing.assert_close(hidden(prepared), expected, atol=1e-5, rtol=1e-4)


def test_codes_are_matched_by_name(source: Source) -> None:
    """Codes in another order keep their embeddings; a new code is embedded as missing."""
    panel = make_panel(["sex", RACE.name])
    renamed = panel.frame.with_columns(pl.col(RACE.name).replace({"0": "a", "1": "1", "2": "0"}))
    prepared = started(Panel.of(renamed, panel.meta), source)
    assert prepared.transforms.codes[RACE.name] == ("0", "1", "2", "a")
    table = prepared.network.state_dict()["tokens.own_codes.0.weight"]
    torch.testing.assert_close(table[:4], source.weights["tokens.own_codes.0.weight"])
    torch.testing.assert_close(table[4], table[0])


def test_a_source_without_zeros_starts_with_the_share_of_zeros(tmp_path: Path) -> None:
    train(make_panel(zeros=False), tmp_path / "s", config=CONFIG, seed=3, run=QUIET)
    prepared = started(make_panel(), Source.open(tmp_path / "s"))
    network, sequences = prepared.network.eval(), prepared.data.train
    records = pad(sequences, np.arange(100))
    with torch.no_grad():
        states, _ = network.hidden(network.embed(records), torch.from_numpy(records.age))
        gap = torch.ones(states.shape[:2], dtype=torch.long)
        zero = network.head(states, gap, torch.zeros(*gap.shape, 4)).logits.softmax(-1)[..., 0]
    assert 0.03 < float(zero.mean()) < 0.3  # the panel has one zero in ten


def test_without_steps_the_bundle_is_the_source(source_path: Path, tmp_path: Path) -> None:
    """At learning rate 0 the fine-tuned bundle forecasts as the source; both panels are named."""
    panel, still = make_panel(["sex", RACE.name]), replace(CONFIG, learning_rate=0.0)
    run = RunOptions(source=source_path)
    tuned = train(panel, tmp_path / "b", config=still, seed=5, run=run)
    request = ForecastRequest(horizons=(1, 5))
    before, after = (
        Forecaster(bundle).forecast(panel, request).table
        for bundle in (Bundle.load(source_path), tuned)
    )
    polars.testing.assert_frame_equal(before, after, rel_tol=1e-5)
    digest = Bundle.load(source_path).digest
    assert tuned.manifest["parents"] == [digest]
    assert tuned.config["source"] == {"name": "source", "digest": digest, "panel_id": "toy"}
    assert digest in tuned.card
    folds = train_folds(panel, tmp_path / "f", 3, config=still, seed=5, run=run)
    assert folds.manifest["parents"] == [digest]
    assert digest in folds.card
    for name, weight in source_weights(tuned).items():
        torch.testing.assert_close(folds.weights[f"members.0.{name}"], weight)


def source_weights(bundle: Bundle) -> dict[str, Tensor]:
    """Weights that do not depend on the codes of training persons."""
    return {name: w for name, w in bundle.weights.items() if not name.startswith("tokens.")}


def test_bundles_and_configurations_that_do_not_fit_are_refused(
    source: Source, source_path: Path, tmp_path: Path
) -> None:
    one = Bundle.load(source_path)
    several = replace(one, config={**one.config, "members": 3})
    write_bundle(tmp_path / "f", several, seed=0, command="saga train")
    with pytest.raises(UsageError, match=r"has 3 members.*Name a bundle"):
        Source.open(tmp_path / "f")
    file = tmp_path / "mine.yaml"
    file.write_text("model: {width: 16, head: mixture, dropout: 0.1}\nmax_steps: 9\n")
    with pytest.raises(UsageError, match="width is 8, not 16; head is binned, not mixture"):
        settings_for(file, 100, source)
    with pytest.raises(UsageError, match="'toy' has another network"):
        settings_for(replace(CONFIG, model=ModelConfig()), 100, source)
    with pytest.raises(UsageError, match="hides other inputs"):
        settings_for(replace(CONFIG, without=("age",)), 100, source)
    file.write_text(
        "model: {dropout: 0.1}\nmax_steps: 9\nvalidate_every: 3\nlearning_rate: 1.0e-4\n"
    )
    settings = settings_for(file, 100, source)
    assert settings.model == replace(source.model, dropout=0.1)
    assert (settings.max_steps, settings.learning_rate) == (9, 1e-4)


@pytest.mark.parametrize("n_persons", [100, 2_000, 50_000, 1_000_000])
def test_auto_has_a_configuration_for_every_size_and_keeps_the_shape_of_a_source(
    n_persons: int, source: Source
) -> None:
    tuned = settings_for("auto", n_persons, source)
    assert replace(tuned.model, dropout=source.model.dropout) == source.model
    assert tuned.learning_rate < settings_for("auto", n_persons).learning_rate


PRIOR, OTHER = Path("bundles/prior"), Path("other")


@pytest.mark.parametrize(
    ("config", "source", "simulated", "n_persons", "start"),
    [
        (None, None, False, 5_000, ("auto", PRIOR)),
        ("auto", None, False, 5_000, ("auto", PRIOR)),
        (None, "none", False, 5_000, ("auto", None)),
        (None, None, False, 29_999, ("auto", PRIOR)),
        (None, None, False, 30_000, ("auto", None)),
        (None, "other", False, 30_000, ("auto", OTHER)),
        ("tiny", None, False, 5_000, ("tiny", None)),
        (None, None, True, 5_000, ("small", None)),
        (None, "other", True, 5_000, ("auto", OTHER)),
        (None, "absent", False, 5_000, None),
    ],
)
def test_a_panel_starts_from_the_prior_unless_the_user_says_otherwise(
    config: str | None,
    source: str | None,
    simulated: bool,
    n_persons: int,
    start: tuple[str, Path | None] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for bundle in (PRIOR, OTHER):
        bundle.mkdir(parents=True)
    if start is None:
        with pytest.raises(UsageError, match="absent"):
            choose_start(config, source, simulated=simulated, n_persons=n_persons)
    else:
        found = choose_start(config, source, simulated=simulated, n_persons=n_persons)
        assert found == start


@pytest.mark.thorough
@pytest.mark.usefixtures("two_origins")
def test_members_differ_by_seed_and_are_calibrated_together(tmp_path: Path) -> None:
    panel, lines = make_panel(), list[str]()
    config = replace(CONFIG, members=2)
    run = replace(QUIET, report=lines.append)
    bundle = train_members(panel, tmp_path / "b", config=config, seed=3, run=run)
    alone = train(panel, tmp_path / "one", config=CONFIG, seed=4, run=QUIET)
    for name, weight in alone.weights.items():
        torch.testing.assert_close(bundle.weights[f"members.1.{name}"], weight)
    assert len(lines) == 6  # a line for each member, and two validations of each
    calibrated = calibrate_bundle(tmp_path / "b", panel, CalibrationOptions(seed=0, n_paths=20))
    assert calibrated.metrics["calibration"]["method"] == "sets"
    with pytest.raises(UsageError, match="one device"):
        train_members(panel, tmp_path / "c", config=config, run=replace(QUIET, devices=2))
