"""Functions that all training runs share: run folders for resuming, the fit, learning rates."""

from __future__ import annotations

import io
import logging
import math
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import Callback, Timer
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.utilities import rank_zero_only

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.errors import UsageError
from saga.files.atomic import commit, commit_json, read_json
from saga.files.bundle_folder import check_replaceable
from saga.machine import cpu_count, keep_freed_memory

RUN_SETTINGS = "run.json"
_EXPECTED_WARNINGS = (
    ".*does not have many workers.*",
    ".*LeafSpec.*",
    ".*smaller than the logging interval.*",  # pools differ in size
    ".*exists and is not empty.*",  # the log folder, also that of a resumed run
)


@dataclass(frozen=True)
class TimeLimit:
    """When work ends with what it has, and what was left out because of that.

    Args:
        end: Time of `time.monotonic` at which it ends; None: no limit.
        left_out: Part of the work -> what of it was left out first; the parts of a limit share it.
    """

    end: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds that remain, at least 0."""
        return math.inf if self.end is None else max(0.0, self.end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether no time remains."""
        return self.seconds == 0

    def part(self, share: float) -> TimeLimit:
        """A limit that leaves a share of the time that remains."""
        end = None if self.end is None else time.monotonic() + share * self.seconds
        return TimeLimit(end, self.left_out)

    def leave_out(self, part: str, what: str) -> None:
        """Record what is left out of a part of the work, the first time."""
        self.left_out.setdefault(part, what)


@dataclass(frozen=True)
class RunOptions:
    """How a training run is started.

    Attributes:
        resume: Whether to continue from the last checkpoint; the batches are the same as in a
            run without interruption.
        devices: Number of devices; each processes `batch_persons` persons per step.
        command: The command line, for the model card.
        source: Bundle whose weights training starts from.
        report: Receives a line of text after each validation.
        also: Further panels to learn from, each with the economy that its persons lived through;
            all their persons are training persons.
        limit: When training ends with what it has.
        judged: The sibling of a final bundle (`saga.training.ensembles.train_final`).
        privacy: Epsilon of a private training (`saga.training.privacy`).
    """

    resume: bool = False
    devices: int = 1
    command: str = ""
    source: Path | None = None
    report: Callable[[str], None] | None = None
    also: Sequence[Panel] = ()
    limit: TimeLimit = field(default_factory=lambda: TimeLimit())
    judged: Bundle | None = None
    privacy: float | None = None


@dataclass(frozen=True)
class RunFolder:
    """Folder of a training run: its checkpoints, and its settings in run.json."""

    path: Path
    settings: Mapping[str, Any]

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint, which may not exist."""
        return self.path / "last.ckpt"

    def differing_settings(self) -> list[str]:
        """Names of the settings that differ from those of the run in the folder."""
        started = read_json(self.path / RUN_SETTINGS) or {}
        return sorted(name for name in self.settings if started.get(name) != self.settings[name])

    @classmethod
    def beside(cls, out: Path, settings: Mapping[str, Any], *, resume: bool) -> Self:
        """The folder `<out>.run`: begun, or with a run that was started with the same settings.

        Raises UsageError if there is no such run to resume, BundleError if `out` cannot be written.
        """
        check_replaceable(out)
        folder = cls(out.with_name(out.name + ".run"), settings)
        if not resume:
            folder.begin()
        elif not (folder.path / RUN_SETTINGS).is_file():
            raise UsageError(
                f"Nothing to resume: {folder.path} has no run. Start without --resume."
            )
        elif differing := folder.differing_settings():
            raise UsageError(
                f"The run in {folder.path} was started with different settings: "
                f"{', '.join(differing)}. Use the same settings, or start without --resume."
            )
        return folder

    def begin(self) -> None:
        """Delete the folder and create it again; it then contains only the settings.

        With several devices this program runs once for each; the first process does it.
        """
        if getattr(rank_zero_only, "rank", 0) == 0:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path.mkdir(parents=True)
            commit_json(self.path / RUN_SETTINGS, self.settings)


def seed_run(seed: int) -> None:
    """Seed all random numbers of a run, and let Lightning report warnings only.

    PyTorch then uses at most the cores that this process may use.
    """
    keep_freed_memory()
    torch.set_num_threads(min(torch.get_num_threads(), cpu_count()))
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    lightning.seed_everything(seed, verbose=False)


def fit_module(
    trainer: lightning.Trainer,
    module: lightning.LightningModule,
    data: Any,
    checkpoint: Path | None,
) -> None:
    """Fit, from the file `checkpoint` if there is one. Raises KeyboardInterrupt on Ctrl-C.

    Raises UsageError if the checkpoint or its folder belongs to another user.
    """
    if checkpoint is not None and not checkpoint.is_file():
        checkpoint = None
    if checkpoint is not None:
        _check_own(checkpoint)
    with warnings.catch_warnings():
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        try:
            # SAGA writes the checkpoints; they contain more than tensors (the optimiser's state).
            trainer.fit(
                module,
                data,
                ckpt_path=str(checkpoint) if checkpoint else None,
                weights_only=False if checkpoint else None,
            )
        except SystemExit:  # Lightning turns Ctrl-C into an exit, and ignores a second one
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt from None


def _check_own(checkpoint: Path) -> None:
    """Raise UsageError if another user could have written the checkpoint: it can contain code."""
    for path in (checkpoint.parent, checkpoint):
        if sys.platform != "win32" and path.stat().st_uid != os.getuid():
            raise UsageError(
                f"{path} belongs to another user, and a checkpoint can contain code. Write to "
                "another output, or resume as the user who began the run."
            )


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints that are complete, or stay those before.

    Lightning copies each from the folder of temporary files, in the place of the one before: a full
    disk or the end of the process left a part, and the run could not be resumed.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write a checkpoint in one step."""
        del storage_options
        content = io.BytesIO()
        torch.save(checkpoint, content)
        commit(Path(path), partial(Path.write_bytes, data=content.getbuffer()))


class ValidationLines(Callback):
    """Reports a line after each validation: steps, time left and the score."""

    def __init__(self, report: Callable[[str], None], clock: Timer) -> None:
        self.report, self.clock = report, clock
        self.best, self.best_step = math.inf, 0

    def on_validation_end(
        self, trainer: lightning.Trainer, _module: lightning.LightningModule
    ) -> None:
        """Report the validation."""
        step, total = trainer.global_step, int(trainer.max_steps)
        score = float(trainer.callback_metrics["validation"])
        if score < self.best:
            self.best, self.best_step = score, step
        left = self.clock.time_elapsed("train") / max(step, 1) * (total - step)
        self.report(
            f"Step {step:,} of {total:,}, {_duration(left)} left to this network at most: "
            f"validation score {score:.4f} (lower is better; best {self.best:.4f} at step "
            f"{self.best_step:,})."
        )

    def state_dict(self) -> dict[str, Any]:
        """The best score so far; Lightning stores it in the checkpoint."""
        return {"best": self.best, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the best score of the run before."""
        self.best, self.best_step = state_dict["best"], state_dict["best_step"]


def _duration(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def half_cosine(progress: float) -> float:
    """A half cosine, which falls from 1 at `progress` 0 to 0 at 1; 0 beyond."""
    return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def schedule_rate(optimizer: torch.optim.Optimizer, rate: Callable[[int], float]) -> dict[str, Any]:
    """The optimiser for Lightning, with its learning rate multiplied by `rate(step)`."""
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
