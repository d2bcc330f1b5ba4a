"""`saga train`: panel -> trained bundle. Person split, transforms, Lightning fit with checkpoints, bundle."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import signal
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import (
    Callback,
    EarlyStopping,
    ModelCheckpoint,
    Timer,
    TQDMProgressBar,
    WeightAveraging,
)
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from saga.attention import head_diversity
from saga.bundle import Bundle, check_replaceable, current_version, write_bundle
from saga.data.origins import cut, last_year
from saga.data.panel import Panel
from saga.data.split import SHARES, persons_of
from saga.errors import InputError, Problem, UsageError
from saga.features.calendar import Calendar
from saga.features.sequences import encode
from saga.features.transforms import Transforms
from saga.files.atomic import commit_json, read_json
from saga.keyed_random import uniform_each
from saga.macro.history import MacroHistory, sweden, sweden_as_published
from saga.macro.process import MacroProcess
from saga.model import Saga
from saga.simulation.matmul import has_matrix_units
from training.data import PanelData
from training.module import ForecastModule
from training.train_config import TrainConfig, load_config

_AVERAGED = 1_000  # steps that the weights are averaged over at most
RUN = "run.json"  # what a run was started with, beside its checkpoints
_WIDE = 128  # width from which bfloat16 is faster on a CPU with matrix units
_KINDS = {
    "decoder": "A decoder-only transformer",
    "lstm": "An LSTM",
    "feedforward": "A feed-forward network on the last ten records,",
}


@dataclass(frozen=True)
class TrainReport:
    """What a training run did; goes into the bundle's metrics and model card."""

    parameters: int
    persons: dict[str, int]
    person_years: int
    steps: int
    seconds: float
    validation_nll: float


def train(
    panel: Panel,
    out: Path,
    *,
    config: str | Path | TrainConfig = "small",
    seed: int = 0,
    resume: bool = False,
    devices: int = 1,
    until: int | None = None,
    command: str = "",
    progress: bool = True,
    validation: Sequence[str] | None = None,
) -> Bundle:
    """Train on the panel's training persons, stop on its validation persons, write the bundle `out`.

    `validation` names the persons to stop on instead; everybody else then trains.

    `until` cuts everything that is fitted (persons' records, scalers, macro process) at that year, for forward evaluation. Checkpoints
    and logs are kept in `<out>.run/`; `resume` continues from its last checkpoint, with the batches that the run would have seen. The
    checkpoints go when the bundle is written.

    With several `devices` Lightning starts this program once more for each, and a step sees `batch_persons` persons on each. Files are the
    first process's affair; the others leave (SystemExit) when the fit is over.

    Raises UsageError where there is nothing to resume or the run was started otherwise, InputError for a panel that is too small,
    BundleError where `out` is not a place for a bundle, KeyboardInterrupt when stopped.
    """
    settings = config if isinstance(config, TrainConfig) else load_config(config)
    check_replaceable(out)
    if until is not None:
        panel = cut(panel, until)
    run = out.with_name(out.name + ".run")
    last = run / "last.ckpt"
    if resume and not last.is_file():
        raise UsageError(f"Nothing to resume: {last} does not exist. Start without --resume.")
    asked: dict[str, Any] = {
        "config": settings.as_dict(),
        "seed": seed,
        "until": until,
        "panel": panel.digest,
    }
    asked |= {
        "macro": panel.meta.macro,
        "validation": None if validation is None else sorted(validation),
    }
    if resume:
        started_with = read_json(run / RUN) or asked
        if other := sorted(name for name in asked if started_with.get(name) != asked[name]):
            raise UsageError(
                f"The run in {run} was started with another {', '.join(other)}. Give the same, or start without --resume."
            )
    if getattr(rank_zero_only, "rank", 0) == 0:
        if run.exists() and not resume:
            shutil.rmtree(run)
        run.mkdir(parents=True, exist_ok=True)
        commit_json(run / RUN, asked)

    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    lightning.seed_everything(seed, verbose=False)
    data, network, parts = prepare(panel, settings, seed, validation)
    module = ForecastModule(network, settings)
    best = ModelCheckpoint(
        dirpath=run,
        filename="best",
        monitor="validation",
        save_last=True,
        enable_version_counter=False,
    )
    clock = Timer()  # kept in checkpoints: a run gone on with took as long as all its parts
    trainer = lightning_trainer(
        settings, run, [best, clock], devices, progress, len(data.train) // settings.batch_persons
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        warnings.filterwarnings(
            "ignore", message=".*exists and is not empty.*"
        )  # our own logs, or a run that is resumed
        # Our own checkpoint, written by this run: it holds the optimiser's state beside tensors.
        try:
            trainer.fit(
                module,
                data,
                ckpt_path=str(last) if resume else None,
                weights_only=False if resume else None,
            )
        except SystemExit:  # so Lightning answers Ctrl-C, deaf to a second one
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt from None
    if not trainer.is_global_zero:
        sys.exit()
    chosen = torch.load(best.best_model_path, map_location="cpu", weights_only=False)
    module.load_state_dict(chosen["state_dict"])
    report = TrainReport(
        parameters=network.parameters_count,
        persons={"train": len(data.train), "validation": len(data.validation)},
        person_years=len(data.train.year),
        steps=trainer.global_step,
        seconds=round(clock.time_elapsed(), 1),
        validation_nll=round(chosen["validation_nll"], 6),
    )
    write_bundle(
        out,
        config={
            "model": settings.model.as_dict(),
            "training": settings.as_dict(),
            "until": until or last_year(panel),
        },
        transforms=parts["transforms"].as_dict(),
        macro=parts["macro"],
        split={
            "panel_id": panel.meta.panel_id,
            "scheme": "person" if validation is None else "given",
            "shares": [round(100 * share) for share in SHARES.values()],
        },
        weights={k: v.detach().contiguous() for k, v in network.state_dict().items()},
        metrics={"training": report.__dict__},
        card=model_card(report, settings, panel, command, network),
        seed=seed,
        command=command,
        code_version=current_version(),
    )
    for checkpoint in run.glob("*.ckpt"):
        checkpoint.unlink()
    return Bundle.load(out)


def prepare(
    panel: Panel, settings: TrainConfig, seed: int, validation: Sequence[str] | None = None
) -> tuple[PanelData, Saga, dict[str, Any]]:
    """Split, fit transforms on training persons, encode, build: the batches, the network, and the bundle's transforms and macro."""
    if validation is None:
        training, validating = persons_of(panel, "train"), persons_of(panel, "validation")
    else:
        held = set(validation)
        training, validating = (
            [person for person in panel.persons() if person not in held],
            sorted(held),
        )
    if not training or not validating:
        fix = "Give a panel with some hundreds of persons."
        raise InputError(
            "The panel is too small to train on.",
            [Problem("too-few-persons", "No training or no validation persons", fix)],
        )
    history, macro = None, {"series": None}
    if panel.meta.macro == "sweden":
        history, macro = _economy(last_year(panel))
    calendar = Calendar(history)
    trained = panel.only(training)
    # A keyed choice: ids may be sorted by birth year.
    order = np.argsort(uniform_each(validating, "validation", panel.meta.panel_id))
    judging = sorted(validating[i] for i in order[: settings.validation_persons])
    transforms = Transforms.fit(trained, calendar, settings.model.bins, settings.without)
    data = PanelData(
        encode(trained, transforms, calendar),
        encode(panel.only(judging), transforms, calendar),
        calendar,
        batch_persons=settings.batch_persons,
        seed=seed,
        masking=settings.masking,
    )
    network = Saga(settings.model, transforms)
    return data, network, {"transforms": transforms, "macro": macro}


def _economy(until: int) -> tuple[MacroHistory, dict[str, Any]]:
    """The Swedish economy as known at the end of `until`, and its process for macro.json. UsageError where it is too short."""
    history = sweden().until(until)
    # The law of unemployment's movement is that of the published series, which forecasts it better (docs/decisions).
    process = MacroProcess.fit(history, law=sweden_as_published().until(until))
    return history, {"series": "sweden", **process.as_dict()}


def lightning_trainer(
    settings: TrainConfig,
    run: Path,
    keeping: Sequence[Callback],
    devices: int,
    progress: bool,
    epoch_steps: int,
) -> lightning.Trainer:
    """The Lightning trainer of `train`: `keeping` are further callbacks, `run` has the logs, an epoch has `epoch_steps` batches."""
    gpu = torch.cuda.is_available()
    precision: Any = settings.precision
    if precision == "auto":
        # Without matrix units rounding costs more than it saves, and so it does with them where products are small.
        faster = gpu or (has_matrix_units() and settings.model.width >= _WIDE)
        precision = "bf16-mixed" if faster else "32-true"
    loggers: list[Logger] = [CSVLogger(str(run), name="", version="log")]
    with contextlib.suppress(
        ModuleNotFoundError
    ):  # tensorboard is a convenience, the CSV log is always there
        loggers.append(TensorBoardLogger(str(run), name="", version="tensorboard"))
    callbacks: list[Callback] = [
        WeightAveraging(avg_fn=_recent),
        *keeping,
        EarlyStopping("validation", patience=settings.patience),
    ]
    if progress:
        callbacks.append(TQDMProgressBar(refresh_rate=20))
    return lightning.Trainer(
        accelerator="gpu" if gpu else "cpu",
        devices=devices,
        max_steps=settings.max_steps,
        precision=precision,
        gradient_clip_val=settings.clip,
        val_check_interval=settings.validate_every,
        check_val_every_n_epoch=None,
        reload_dataloaders_every_n_epochs=1,
        logger=loggers,
        callbacks=callbacks,
        enable_progress_bar=progress,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=max(1, min(50, epoch_steps)),
    )


def _recent(average: Tensor, current: Tensor, steps: Tensor | int) -> Tensor:
    """Running average of the weights over the last tenth of the steps so far, at most some thousand.

    A rollout adds the error of a year's level up over all years. Single weights are off by what the last fifty batches happened to hold."""
    return average + (current - average) * max(1 / _AVERAGED, 10 / (10 + int(steps)))


def model_card(
    report: TrainReport, settings: TrainConfig, panel: Panel, command: str, network: Saga
) -> str:
    """The bundle's README.md."""
    first, last = (
        int(y)
        for y in panel.frame.select(
            pl.col("year").min().alias("a"), pl.col("year").max().alias("b")
        ).row(0)
    )
    return f"""# SAGA bundle `{settings.name}`

{_KINDS[settings.model.backbone]} over yearly records, {report.parameters:,} parameters. Trained on {report.persons["train"]:,} persons
({report.person_years:,} person-years, {first}-{last}) of the panel `{panel.meta.panel_id}`; money in {panel.meta.currency} of
{panel.meta.price_year}. {report.steps:,} steps, {report.seconds:,.0f} s; validation log score {report.validation_nll:.4f} nats a year.

Command: `{command or "saga train"}`

Model:

```json
{json.dumps(settings.model.as_dict(), indent=1)}
```

{_heads(network)}

What the forecasts promise, and what not, stands in `calibration.parquet` and in the `guarantee` of every interval. Persons on
whom the bundle was neither trained, tuned nor calibrated are those with split `test` (see `split.json`).
"""


def _heads(network: Saga) -> str:
    """The model card's paragraph on how different the heads of attention are."""
    try:
        index = head_diversity(network).pivot("part", index="layer", values="index").drop_nulls()
    except UsageError:
        return "It has no heads of attention."
    if index.is_empty():
        return "It has one head of attention a layer."
    layers = ", ".join(
        f"{row['queries']:.2f} and {row['outputs']:.2f}" for row in index.iter_rows(named=True)
    )
    chance = 1 - network.config.head_size / network.config.width
    return f"""Diversity of the heads of attention, by layer, in what they ask and in what they write: {layers} (0: all heads use one
subspace, 1: orthogonal ones, {chance:.2f}: random ones)."""
