"""`saga train`: fit a network on a panel, and write it as a bundle.

Persons are split, transforms fitted on training persons, the network fitted by Lightning with
checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import (
    Callback,
    EarlyStopping,
    ModelCheckpoint,
    Timer,
    WeightAveraging,
)
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from saga.training.data import PanelData
from saga.training.harness import (
    RunFolder,
    RunOptions,
    ValidationLines,
    WholeCheckpoints,
    fit_module,
    seed_run,
)
from saga.training.head_subspaces import head_diversity
from saga.training.module import ForecastModule
from saga.training.person_parts import PersonParts
from saga.training.privacy import (
    PrivacyPlan,
    PrivateModule,
    check_promise,
    private_settings,
)
from saga.training.train_config import (
    AUTO,
    TrainConfig,
    check_shape,
    choose_config,
    load_config,
)
from saga.training.transfer import Source, fill_unseen
from torch import Tensor

from saga.bundle import PROMISE, Bundle, BundleContents, recorded_command, write_bundle
from saga.data.origins import cut
from saga.data.panel import Panel
from saga.data.split import SPLIT_SHARES, Shares, described_salt, percents_of, persons_of
from saga.errors import InputError, Problem, UsageError
from saga.features.calendar import Calendar
from saga.features.sequences import UNKNOWN, ZERO, Sequences, encode
from saga.features.transforms import Transforms
from saga.files.atomic import sweep
from saga.forecast_warnings import SIMULATED
from saga.keyed_random import sample_persons
from saga.machine import cpu_count
from saga.macro.history import MacroHistory, histories_of
from saga.macro.process import MacroProcess
from saga.macro.wage_trends import with_moving_mean
from saga.model import Saga
from saga.simulation.matmul import has_matrix_units
from saga.simulation.pool import single_threaded
from saga.training_records import TrainingRecords
from saga.version import current_version

_MAX_AVERAGED_STEPS = 1_000  # over which weights are averaged
_Tensors = tuple[Tensor, ...] | list[Tensor]
_ZERO_SHARE = 0.1  # of earnings, at the start of a private training
_MIN_BFLOAT16_WIDTH = 128  # narrower networks are faster in float32, also with matrix units
_BACKBONES = {
    "decoder": "A decoder-only transformer",
    "lstm": "An LSTM",
    "feedforward": "A feed-forward network on the last ten observed years,",
}


@dataclass(frozen=True)
class TrainReport:
    """Size, effort and result of a training run, for the bundle's metrics and model card."""

    parameters: int
    persons: dict[str, int]
    person_years: int
    steps: int
    seconds: float
    validation_nll: float


class Preparation(NamedTuple):
    """What is fixed before the fit: batches, the network, and parts of the bundle.

    `macro` is the content of macro.json, `records` what the training persons' records span.
    """

    data: PanelData
    network: Saga
    transforms: Transforms
    macro: dict[str, Any]
    records: TrainingRecords


def run_settings(
    panel: Panel,
    settings: TrainConfig,
    seed: int,
    until: int | None,
    source: Source | None,
    also: Sequence[Panel] = (),
) -> dict[str, Any]:
    """What a run and a resumed run must have in common, see `saga.training.harness.RunFolder`."""
    return {
        "config": settings.as_dict(),
        "seed": seed,
        "until": until,
        "panel": panel.digest,
        **described_salt(panel),
        "source": None if source is None else source.digest,
        "also": [further.digest for further in also],
        "code": current_version(),
    }


def train(
    panel: Panel,
    out: Path,
    *,
    config: str | Path | TrainConfig = "small",
    seed: int = 0,
    until: int | None = None,
    validation: Sequence[str] | None = None,
    shares: Shares = SPLIT_SHARES,
    run: RunOptions | None = None,
) -> Bundle:
    """Train a network on the panel and write it as the bundle `out`.

    Checkpoints and logs are in `<out>.run/`; the checkpoints are removed when the bundle is
    written. With several `devices` Lightning starts this program once per device. The first
    process writes all files; the others end with SystemExit after the fit.

    Args:
        panel: Persons to train on.
        out: The bundle.
        config: A configuration, its built-in name, its file, or "auto" (by size of the panel).
        seed: Seed of the initial weights, the batches and the masks.
        until: Last year that anything fitted may use (records, transforms, macro process), for
            forward evaluation.
        validation: Persons whose loss decides when training stops and which weights are kept;
            all other persons are training persons. By default both come from the panel's split.
        shares: Shares of the panel's split.
        run: How the run is started. With a source, training starts from its weights.

    Raises:
        UsageError: There is nothing to resume, the run was started with other settings, or the
            source has another network than the configuration.
        InputError: The panel is too small.
        BundleError: No bundle can be written to `out`.
        KeyboardInterrupt: The run was stopped.
    """
    run = run or RunOptions()
    source = None if run.source is None else Source.open(run.source)
    settings = settings_for(config, len(persons_of(panel, "train", shares)), source, run.privacy)
    also = run.also
    if until is not None:
        panel, also = cut(panel, until), [cut(further, until) for further in also]
    check_promise(settings, panel, run, source)
    folder = RunFolder.beside(
        out,
        {
            **run_settings(panel, settings, seed, until, source, also),
            "validation": None if validation is None else sorted(validation),
            "shares": list(shares.values()),
        },
        resume=run.resume,
    )
    seed_run(seed)
    prepared = prepare(panel, settings, seed, validation, shares, source, also)
    data, network = prepared.data, prepared.network
    plan = None if settings.privacy is None else PrivacyPlan.of(settings, data.n_train)
    report = fit_best(network, data, settings, folder, run, plan)
    promise = None if plan is None else plan.after(report.steps)
    fill_unseen(
        network, prepared.records if source is None else prepared.records.joined(source.records)
    )
    contents = BundleContents(
        config={
            "model": settings.model.as_dict(),
            "training": settings.as_dict(),
            "records": asdict(prepared.records),
            **({} if source is None else {"source": source.as_dict()}),
            **({} if promise is None else {PROMISE: promise.as_dict()}),
        },
        transforms=prepared.transforms.as_dict(),
        macro=prepared.macro,
        split={
            "panel_id": panel.meta.panel_id,
            "scheme": "person" if validation is None else "given",
            "shares": percents_of(shares),
            **described_salt(panel),
        },
        weights=dict(network.state_dict()),
        metrics={"training": asdict(report)},
        card=model_card(
            report,
            settings,
            panel,
            run.command,
            network,
            person_split=validation is None,
            source=source,
            also=also,
        )
        + ("" if promise is None else promise.paragraph()),
    )
    bundle = write_bundle(
        out,
        contents,
        seed=seed,
        command=run.command,
        parents=[] if source is None else [source.digest],
    )
    for file in folder.path.glob("*.ckpt"):
        file.unlink()
    sweep(folder.path)
    return bundle


def settings_for(
    config: str | Path | TrainConfig,
    n_persons: int,
    source: Source | None = None,
    privacy: float | None = None,
) -> TrainConfig:
    """The configuration, which has the shape of the source if there is one.

    `n_persons` is the number of training persons, for the configuration "auto" and a training with
    the epsilon `privacy`. Raises UsageError if the configuration cannot be used, or the source has
    another shape.
    """
    shape = None if source is None else source.model
    if isinstance(config, TrainConfig):
        settings = config
        if shape is not None:
            check_shape(config.model.as_dict(), shape, config.name)
    elif config == AUTO:
        settings = choose_config(n_persons, shape)
    else:
        settings = load_config(config, shape)
    if source is not None:
        settings = _with_inputs_of(source, settings)
    return settings if privacy is None else private_settings(settings, privacy, n_persons)


def _with_inputs_of(source: Source, settings: TrainConfig) -> TrainConfig:
    """The configuration with the inputs that a source has. Raises UsageError if it hides others."""
    without = source.transforms.without
    if settings.without and set(settings.without) != set(without):
        raise UsageError(
            f"Configuration '{settings.name}' hides other inputs than the bundle that training "
            f"starts from ({', '.join(without) or 'none'}). Leave `without` out."
        )
    return replace(settings, without=without, scale_free=True)


def fit_best(
    network: Saga,
    data: PanelData,
    settings: TrainConfig,
    folder: RunFolder,
    run: RunOptions,
    plan: PrivacyPlan | None = None,
) -> TrainReport:
    """Fit the network; afterwards it has the weights with the best validation.

    With a `plan` the fit is private.

    Raises:
        KeyboardInterrupt: The run was stopped.
    """
    if run.report is not None:
        run.report(
            f"Training on {data.n_train:,} persons ({data.n_records:,} records), "
            f"validating on {len(data.validation):,}: {settings.max_steps:,} steps at most, a "
            f"validation every {settings.validate_every:,}."
        )
    parts = None
    if run.devices == 1 and plan is None and not torch.cuda.is_available():
        parts = PersonParts(min(torch.get_num_threads(), cpu_count()), data.seed)
    module = (
        ForecastModule(network, settings, parts)
        if plan is None
        else PrivateModule(network, settings, plan)
    )
    best = ModelCheckpoint(
        dirpath=folder.path,
        filename="best",
        monitor="validation",
        save_last=True,
        enable_version_counter=False,
    )
    seconds = run.limit.seconds
    # At least one step, after which Lightning validates.
    duration = timedelta(seconds=max(seconds, 1e-3)) if math.isfinite(seconds) else None
    # Stored in checkpoints, so a resumed run reports the time of all its parts.
    clock = Timer(duration, verbose=False)
    epoch_steps = data.n_train // settings.batch_persons
    callbacks: list[Callback] = [best, clock]
    if run.report is not None:
        callbacks.append(ValidationLines(run.report, clock))
    trainer = lightning_trainer(settings, folder.path, callbacks, run, epoch_steps)
    with contextlib.nullcontext() if parts is None else single_threaded():
        fit_module(trainer, module, data, folder.checkpoint if run.resume else None)
    if not trainer.is_global_zero:
        sys.exit()
    if trainer.global_step < settings.max_steps and run.limit.is_over:
        steps = f"step {trainer.global_step:,} of {settings.max_steps:,}"
        run.limit.leave_out("networks", f"stopped early, the first at {steps}")
    checkpoint = torch.load(best.best_model_path, map_location="cpu", weights_only=False)
    module.load_state_dict(checkpoint["state_dict"])
    return TrainReport(
        parameters=network.parameters_count,
        persons={"train": data.n_train, "validation": len(data.validation)},
        person_years=data.n_records,
        steps=trainer.global_step,
        seconds=round(clock.time_elapsed(), 1),
        validation_nll=round(checkpoint["validation_nll"], 6),
    )


def prepare(
    panel: Panel,
    settings: TrainConfig,
    seed: int,
    validation: Sequence[str] | None = None,
    shares: Shares = SPLIT_SHARES,
    source: Source | None = None,
    also: Sequence[Panel] = (),
) -> Preparation:
    """Split the persons, fit transforms on training persons, encode, build the network.

    `validation` names the validation persons, and `shares` the split, see `train`. The network has
    the weights of `source` if there is one. Panels `also` learned from get the transforms of the
    first, and their own calendars. Raises InputError if there are no training or no
    validation persons.
    """
    if validation is None:
        training, validating = (persons_of(panel, part, shares) for part in ("train", "validation"))
    else:
        held_out = set(validation)
        validating = sorted(held_out)
        training = [person for person in panel.persons() if person not in held_out]
    if not training or not validating:
        fix = "Use a panel of at least a few hundred persons, or --folds 5 to train on more of it."
        problem = Problem("too-few-persons", "No training or no validation persons", fix)
        raise InputError("The panel is too small to train on.", [problem])
    history, macro = macro_of(panel)
    calendar = Calendar(history)
    training_panel = panel.only(training)
    # The sample is random, because persons may be sorted by birth year.
    validation_sample = sample_persons(
        validating, settings.validation_persons, "validation", panel.meta.panel_id
    )
    transforms = Transforms.fit(
        training_panel,
        calendar,
        settings.model.bins,
        settings.without,
        scale_free=settings.scale_free,
        like=None if source is None else source.transforms,
    )
    data = PanelData(
        encode(training_panel, transforms, calendar),
        encode(panel.only(validation_sample), transforms, calendar),
        calendar,
        batch_persons=settings.batch_persons,
        seed=seed,
        masking=settings.masking,
        also=[_records_of(further, transforms) for further in also],
        private=settings.privacy is not None,
    )
    if source is None:
        network = Saga(settings.model, transforms)
    else:
        known = data.train.state[data.train.state != UNKNOWN]
        # The start of private weights must not depend on persons.
        zero_share = _ZERO_SHARE if data.private else float((known == ZERO).mean())
        network = source.network(settings.model, transforms, zero_share)
    return Preparation(data, network, transforms, macro, TrainingRecords.of(training_panel))


def _records_of(panel: Panel, transforms: Transforms) -> tuple[Sequences, Calendar]:
    calendar = Calendar(macro_of(panel)[0])
    return encode(panel, transforms, calendar), calendar


def macro_of(panel: Panel) -> tuple[MacroHistory | None, dict[str, Any]]:
    """The panel's macro history as known in its last year, and the content of macro.json."""
    histories, facts = histories_of(panel), panel.meta.facts
    if histories is None:
        return None, {"series": None}
    history, dynamics = histories
    process = with_moving_mean(MacroProcess.fit(history, dynamics=dynamics), dynamics).as_dict()
    if panel.meta.macro_rows is not None:
        return history, {**process, "source": panel.meta.macro}
    used = {} if facts is None else {"facts": facts.provenance()}
    return history, {"series": "sweden", **used, **process}


def lightning_trainer(
    settings: TrainConfig,
    logs: Path,
    further_callbacks: Sequence[Callback],
    run: RunOptions,
    epoch_steps: int,
) -> lightning.Trainer:
    """The Lightning trainer of `train`.

    Args:
        settings: The configuration.
        logs: Folder of the logs.
        further_callbacks: Callbacks in addition to weight averaging and early stopping.
        run: How the run is started.
        epoch_steps: Batches of an epoch.
    """
    gpu = torch.cuda.is_available()
    precision: Any = settings.precision
    if precision == "auto":
        # On a CPU, bfloat16 is faster only with matrix units and large matrices.
        faster = gpu or (has_matrix_units() and settings.model.width >= _MIN_BFLOAT16_WIDTH)
        precision = "bf16-mixed" if faster else "32-true"
    loggers: list[Logger] = [CSVLogger(str(logs), name="", version="log")]
    with contextlib.suppress(ModuleNotFoundError):  # tensorboard is optional
        loggers.append(TensorBoardLogger(str(logs), name="", version="tensorboard"))
    callbacks: list[Callback] = [
        WeightAveraging(multi_avg_fn=_average_recent),
        *further_callbacks,
        EarlyStopping("validation", patience=settings.patience),
    ]
    return lightning.Trainer(
        accelerator="gpu" if gpu else "cpu",
        devices=run.devices,
        max_steps=settings.max_steps,
        precision=precision,
        gradient_clip_val=settings.clip if settings.privacy is None else None,
        val_check_interval=settings.validate_every,
        check_val_every_n_epoch=None,
        reload_dataloaders_every_n_epochs=1,
        logger=loggers,
        callbacks=callbacks,
        plugins=[WholeCheckpoints()],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=max(1, min(50, epoch_steps)),
    )


def _average_recent(averages: _Tensors, current: _Tensors, steps: Tensor | int) -> None:
    """Running averages of the weights over the last tenth of the steps, 1,000 steps at most.

    Without averaging, the weights depend on the noise of the last fifty batches, and a rollout
    accumulates the resulting bias over all years.
    """
    share = max(1 / _MAX_AVERAGED_STEPS, 10 / (10 + int(steps)))
    # All weights in one call: a call for each weight takes a seventh of what threads cannot share.
    torch._foreach_lerp_(averages, current, share)


def model_card(
    report: TrainReport,
    settings: TrainConfig,
    panel: Panel,
    command: str,
    network: Saga,
    *,
    person_split: bool = True,
    source: Source | None = None,
    also: Sequence[Panel] = (),
) -> str:
    """The bundle's README.md; `person_split` says whether test persons were set aside."""
    years, backbone = panel.frame["year"].to_numpy(), _BACKBONES[settings.model.backbone]
    unused = (
        "Persons with split `test` (see `split.json`) were not used to train, tune or calibrate "
        "the\nbundle."
        if person_split
        else "All persons except the validation persons were used for training."
    )
    simulated = f"{SIMULATED}\n\n" if panel.meta.simulated else ""
    return f"""# SAGA bundle `{settings.name}`

{simulated}{backbone} over yearly records, {report.parameters:,} parameters. Trained on
{report.persons["train"]:,} persons ({report.person_years:,} person-years, {years.min()} to
{years.max()}) of {_panels_text(panel, also)}; money in {panel.meta.currency} of
{panel.meta.price_year}.
{report.steps:,} steps, {report.seconds:,.0f} s; validation log score {report.validation_nll:.4f}
nats a year.
{"" if source is None else source.paragraph()}
Command: `{recorded_command(command, panel.meta.panel_id) or "saga train"}`

Model:

```json
{json.dumps(settings.model.as_dict(), indent=1)}
```

{_head_diversity_text(network)}

`calibration.parquet` and the `guarantee` of every interval state what the intervals guarantee.
{unused}
"""


def _panels_text(panel: Panel, also: Sequence[Panel]) -> str:
    text = f"the panel `{panel.meta.panel_id}`"
    if also:
        text += f" and of {len(also)} panels that lived through other economies"
    return text


def _head_diversity_text(network: Saga) -> str:
    """The model card's paragraph on how different the attention heads are."""
    try:
        index = head_diversity(network).pivot("part", index="layer", values="index").drop_nulls()
    except UsageError:
        return "It has no attention heads."
    if index.is_empty():
        return "It has one attention head a layer."
    layers = ", ".join(
        f"{row['queries']:.2f} and {row['outputs']:.2f}" for row in index.iter_rows(named=True)
    )
    chance = 1 - network.config.head_size / network.config.width
    return f"""Diversity of the attention heads, by layer, of queries and outputs: {layers}
(0: all heads use one subspace, 1: orthogonal heads, {chance:.2f}: random heads)."""
