"""`saga circumstances`: fit the state network and add it to a bundle.

The state network uses the bundle's forecast network to summarise records. The forecast network does
not change, so its earnings forecasts and their calibration stay valid.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, Timer
from saga.training.data import Batch, ResumableLoader
from saga.training.harness import (
    RunFolder,
    WholeCheckpoints,
    fit_module,
    half_cosine,
    schedule_rate,
    seed_run,
)
from saga.training.states.state_data import StateBatches, StateRecords, make_state_batch
from torch import Tensor
from torch.nn.functional import cross_entropy

from saga.bundle import PROMISE, Bundle, recorded_command, replace_parts
from saga.data.origins import cut
from saga.data.panel import Panel
from saga.data.split import Shares, persons_of, shares_of
from saga.errors import UsageError
from saga.files.bundle_folder import check_replaceable
from saga.forecast_checks import check_money
from saga.forecaster import Forecaster
from saga.model import Saga
from saga.requests import Progress
from saga.states.codes import COLUMNS, code_sizes
from saga.states.state_network import WIDTH, StateInputs, StateNetwork
from saga.version import current_version

_WARMUP_STEPS = 100
_NO_EXIT = -1e4  # logit of an exit that no training person has; finite, so that it is stored
_HEADING = "## Circumstances"  # heading of this part of the model card


@dataclass(frozen=True)
class StateFitOptions:
    """How the state network is fitted by AdamW (Loshchilov and Hutter 2019)."""

    width: int = WIDTH
    steps: int = 4_000
    batch_persons: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 0.01


@torch.no_grad()
def read_records(network: Saga, batch: Batch) -> StateInputs:
    """The inputs of the state network for a batch's target years, by the forecast network."""
    age = batch["token_age"]
    record = (batch[f"token_{name}"] for name in ("state", "z", "other", "codes"))
    hidden, _ = network.hidden(network.tokens(*record, age), age)
    earnings = {
        name: network.tokens.encode_earnings(batch[f"{name}_state"], batch[f"{name}_z"])
        for name in ("before", "now", "after")
    }
    rest = {name: batch[name] for name in StateInputs._fields if name in batch}
    rest["origin"] = hidden[batch["person"], batch["origin"]]
    return StateInputs(**earnings, **rest)


class StateModule(lightning.LightningModule):
    """Maximum likelihood of exits and of the seven state columns."""

    def __init__(
        self, state_network: StateNetwork, network: Saga, options: StateFitOptions
    ) -> None:
        super().__init__()
        self.state_network, self.options = state_network, options
        # Not an attribute that is a network: the forecast network is not trained, and neither part
        # of this module nor of its checkpoints.
        self.read = partial(read_records, network)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Mean negative log-likelihood per year: of emigration, death and each column."""
        inputs = self.read(batch)
        leave, die, features = self.state_network.exits(inputs)
        count = max(1, len(leave))

        def mean_loss(logits: Tensor, outcome: Tensor) -> Tensor:
            return cross_entropy(logits, outcome, ignore_index=-1, reduction="sum") / count

        # A death is possible only if all later earnings of the path are zero.
        deaths = torch.where(inputs.zero_to_end, batch["dies"], -1)
        losses = {"leaving": mean_loss(leave, batch["emigrates"]), "dying": mean_loss(die, deaths)}

        def observe(column: int, logits: Tensor) -> Tensor:
            outcome = batch["next_codes"][:, column]
            losses[COLUMNS[column]] = mean_loss(logits, outcome)
            return outcome.clamp(min=0)

        self.state_network.columns(features, inputs.codes, observe)
        return losses

    @torch.no_grad()
    def mean_losses(self, records: StateRecords, until: int) -> dict[str, float]:
        """Mean losses per year over all persons, each year seen from one random origin."""
        self.eval()
        sums, n_years = dict[str, float](), 0
        rng, n_persons = np.random.default_rng(0), len(records.sequences)
        for start in range(0, n_persons, self.options.batch_persons):
            persons = np.arange(start, min(start + self.options.batch_persons, n_persons))
            batch = make_state_batch(records, persons, until, rng)
            count = len(batch["person"])
            for name, value in self.losses(batch).items():
                sums[name] = sums.get(name, 0.0) + float(value) * count
            n_years += count
        return {name: round(value / n_years, 6) for name, value in sums.items()}

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """The sum of a batch's losses, which is logged."""
        total = torch.stack(list(self.losses(batch).values())).sum()
        self.log("nll", total, prog_bar=True, batch_size=1)
        return total

    def configure_optimizers(self) -> Any:
        """AdamW; the learning rate rises over 100 steps and falls as a half cosine to zero."""
        options = self.options
        optimizer = torch.optim.AdamW(
            self.state_network.parameters(),
            lr=options.learning_rate,
            weight_decay=options.weight_decay,
        )

        def rate(step: int) -> float:
            return min(1.0, (step + 1) / _WARMUP_STEPS) * half_cosine(step / options.steps)

        return schedule_rate(optimizer, rate)


def fit_state_network(
    source: Path,
    panel: Panel,
    *,
    out: Path | None = None,
    options: StateFitOptions | None = None,
    seed: int = 0,
    command: str = "",
    progress: Progress | None = None,
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
        progress: Called with the steps done and the steps in all.

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
    if PROMISE in bundle.config:
        raise UsageError(
            "This bundle was trained with --privacy, and states would be trained without noise on "
            "the same persons. Use a bundle without the promise."
        )
    last_training_year = bundle.training_records.last_year
    panel = cut(bundle.salted(panel), last_training_year)
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
    fit_module(trainer, module, ResumableLoader(batches, batch_size=None), run.checkpoint)
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
        card=bundle.card.split(_HEADING)[0].rstrip()
        + "\n\n"
        + _card(report, recorded_command(command, bundle.panel_id) or "saga circumstances"),
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


class _StepProgress(Callback):
    """Reports the steps that are done."""

    def __init__(self, report: Progress) -> None:
        self.report = report

    def on_train_batch_end(self, trainer: lightning.Trainer, *_of_batch: Any) -> None:
        """Report the step."""
        self.report(trainer.global_step, int(trainer.max_steps))


def _state_trainer(
    folder: Path, steps: int, clock: Timer, progress: Progress | None
) -> lightning.Trainer:
    callbacks: list[Callback] = [
        ModelCheckpoint(dirpath=folder, save_last=True, save_top_k=0, every_n_train_steps=100),
        clock,
    ]
    if progress is not None:
        callbacks.append(_StepProgress(progress))
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        gradient_clip_val=1.0,
        logger=False,
        callbacks=callbacks,
        plugins=[WholeCheckpoints()],
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _card(report: dict[str, Any], command: str) -> str:
    """The part of the model card on the state network."""
    return f"""{_HEADING}

Employment state, industry, occupation, county and family along paths of earnings, deaths and
emigration: {report["parameters"]:,} parameters, {report["steps"]:,} steps,
{report["seconds"]:,.0f} s. Command: `{command}`
"""
