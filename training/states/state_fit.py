"""`saga circumstances`: fit the state network and add it to a bundle.

The state network uses the bundle's forecast network to summarise records. The forecast network does
not change, so its earnings forecasts and their calibration stay valid.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, Timer
from saga.training.data import ResumableLoader
from saga.training.harness import RunFolder, RunOptions, fit_module, progress_callbacks, seed_run
from saga.training.states.state_data import StateBatches, StateRecords
from saga.training.states.state_module import StateFitOptions, StateModule

from saga.bundle import Bundle, replace_parts
from saga.data.origins import cut
from saga.data.panel import Panel
from saga.data.split import Shares, persons_of, shares_of
from saga.errors import UsageError
from saga.files.bundle_folder import check_replaceable
from saga.forecast_checks import check_money
from saga.forecaster import Forecaster
from saga.states.codes import code_sizes
from saga.states.state_network import StateNetwork
from saga.version import current_version

_NO_EXIT = -1e4  # logit of an exit that no training person has; finite, so that it is stored
_HEADING = "## Circumstances"  # heading of this part of the model card


def fit_state_network(
    source: Path,
    panel: Panel,
    *,
    out: Path | None = None,
    options: StateFitOptions | None = None,
    seed: int = 0,
    command: str = "",
    progress: bool = True,
) -> Bundle:
    """Fit the state network on the panel's training persons, and write the bundle with it.

    After an interruption the same call continues from the last checkpoint in
    `<out>.circumstances.run/`. The metrics "circumstances" describe the fit; `validation_nll` in
    them is the mean negative log-likelihood per year, of each column and exit, on validation
    persons.

    Args:
        source: The bundle to which the state network is added.
        panel: The panel that the bundle was trained on.
        out: The new bundle; by default it replaces `source`.
        options: Size and optimisation of the state network.
        seed: Seed of the initial weights and the batches.
        command: The command line, for the model card.
        progress: Whether to show progress.

    Raises:
        UsageError: The panel does not fit the bundle (name, money) or has no training or no
            validation persons; the bundle's records are not yearly, or it is an ensemble; or `out`
            cannot be replaced.
        BundleError: The bundle cannot be trusted.
    """
    options, out = options or StateFitOptions(), out or source
    check_replaceable(out)
    forecaster = Forecaster.load(source)
    bundle, network = forecaster.bundle, forecaster.network
    _check_panel(panel, forecaster)
    last_training_year = int(bundle.config["until"])
    panel = cut(panel, last_training_year)
    training, validating = _divide(panel, shares_of(bundle.split))
    run = RunFolder(
        out.with_name(out.name + ".circumstances.run"),
        {
            "options": asdict(options),
            "seed": seed,
            "model": bundle.model_digest,
            "code": current_version(),
            "panel": panel.digest,
        },
    )
    if not run.checkpoint.is_file() or run.differing_settings():
        run.begin()

    seed_run(seed)
    records = StateRecords.from_panel(training, forecaster)
    state_network = _new_network(forecaster, records, options.width)
    module = StateModule(state_network, network, options)
    batches = StateBatches(records, last_training_year, options.batch_persons, options.steps, seed)
    clock = Timer()  # stored in checkpoints
    trainer = _state_trainer(run.path, options.steps, clock, progress)
    checkpoint = run.checkpoint if run.checkpoint.is_file() else None
    fit_module(trainer, module, ResumableLoader(batches, batch_size=None), checkpoint)
    _rule_out_unseen_exits(state_network, records)
    report = {
        "parameters": sum(p.numel() for p in state_network.parameters()),
        "persons": training.frame["person_id"].n_unique(),
        "steps": trainer.global_step,
        "seconds": round(clock.time_elapsed(), 1),
        "validation_nll": module.mean_losses(
            StateRecords.from_panel(validating, forecaster), last_training_year
        ),
    }
    result = replace_parts(
        bundle,
        out,
        command=command,
        circumstances=dict(state_network.state_dict()),
        metrics={**bundle.metrics, "circumstances": report},
        card=bundle.card.split(_HEADING)[0].rstrip() + "\n\n" + _card(report, command),
    )
    shutil.rmtree(run.path)
    return result


def _divide(panel: Panel, shares: Shares) -> tuple[Panel, Panel]:
    """The training and the validation persons. UsageError if there are none of either."""
    training, validating = (
        panel.only(persons_of(panel, part, shares)) for part in ("train", "validation")
    )
    if not len(training) or not len(validating):
        raise UsageError(
            "The panel has no training or no validation persons. "
            "Use the panel that the bundle was trained on."
        )
    return training, validating


def _new_network(forecaster: Forecaster, records: StateRecords, width: int) -> StateNetwork:
    """A state network that never draws a column without codes in training."""
    network = forecaster.network
    state_network = StateNetwork(
        network.config.width,
        network.tokens.earnings_size,
        code_sizes(forecaster.transforms),
        width,
    )
    in_training = (records.codes > 0).any(0)  # of codes (n_row, 7)
    state_network.told.copy_(torch.from_numpy(in_training))
    return state_network


def _rule_out_unseen_exits(state_network: StateNetwork, records: StateRecords) -> None:
    """Set the probability of an exit that no training person has to zero: it is not identified."""
    exits = (
        (state_network.leave, records.emigration_year),
        (state_network.die, records.sequences.dead_year),
    )
    for exit_layer, exit_years in exits:
        if not exit_years.any():
            exit_layer.bias.data[1] = _NO_EXIT  # logit 0 is to stay or survive, 1 the exit


def _check_panel(panel: Panel, forecaster: Forecaster) -> None:
    trained_on = forecaster.bundle.panel_id
    if forecaster.transforms.rhythm != 1:
        raise UsageError(
            "The state network needs a panel with a record for every year; this bundle was trained "
            "on a panel without yearly records. Do not run `saga circumstances` for it."
        )
    check_money(panel, forecaster.transforms)
    if panel.meta.panel_id != trained_on:
        raise UsageError(
            f"The bundle was trained on the panel {trained_on!r}; the given panel is "
            f"{panel.meta.panel_id!r}. The persons of the given panel are split differently, so "
            "persons reserved for calibration and tests would be used for training. Use the panel "
            f"{trained_on!r}."
        )


def _state_trainer(folder: Path, steps: int, clock: Timer, progress: bool) -> lightning.Trainer:
    callbacks: list[Callback] = [
        ModelCheckpoint(dirpath=folder, save_last=True, save_top_k=0, every_n_train_steps=100),
        clock,
        *progress_callbacks(RunOptions(progress=progress), clock),
    ]
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        gradient_clip_val=1.0,
        logger=False,
        callbacks=callbacks,
        enable_progress_bar=progress,
        enable_model_summary=False,
    )


def _card(report: dict[str, Any], command: str) -> str:
    """The part of the model card on the state network."""
    return f"""{_HEADING}

Employment state, industry, occupation, county and family along paths of earnings, deaths and
emigration: {report["parameters"]:,} parameters, {report["steps"]:,} steps,
{report["seconds"]:,.0f} s. Command: `{command or "saga circumstances"}`
"""
