"""What all training runs share: folders for resuming, the fit, learning rates."""

from __future__ import annotations

import logging
import math
import shutil
import signal
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import TQDMProgressBar

from saga.files.atomic import commit_json, read_json

_SETTINGS = "run.json"
_EXPECTED_WARNINGS = (
    ".*does not have many workers.*",
    ".*LeafSpec.*",
    ".*exists and is not empty.*",  # the folder of our own logs, or of a resumed run
)


@dataclass(frozen=True)
class RunOptions:
    """How a training run is started.

    Attributes:
        resume: whether to continue from the last checkpoint, with the same batches as without
            the interruption.
        devices: number of devices; a step sees `batch_persons` persons on each.
        command: the command line, for the model card.
        progress: whether to show progress.
    """

    resume: bool = False
    devices: int = 1
    command: str = ""
    progress: bool = True


@dataclass(frozen=True)
class RunFolder:
    """Folder of a training run: its checkpoints, and in run.json the settings of its start."""

    path: Path
    settings: Mapping[str, Any]

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint, which may not exist."""
        return self.path / "last.ckpt"

    def differing_settings(self) -> list[str]:
        """Names of the settings with which another run was started in the folder."""
        started = read_json(self.path / _SETTINGS) or {}
        return sorted(name for name in self.settings if started.get(name) != self.settings[name])

    def begin(self) -> None:
        """Make the folder anew, with the settings and nothing else."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        commit_json(self.path / _SETTINGS, self.settings)


def seed_run(seed: int) -> None:
    """Seed all random numbers of a run, and let Lightning report warnings only."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    lightning.seed_everything(seed, verbose=False)


def fit_module(
    trainer: lightning.Trainer,
    module: lightning.LightningModule,
    data: Any,
    checkpoint: Path | None,
) -> None:
    """Fit from `checkpoint`, None: from the start. Raises KeyboardInterrupt on Ctrl-C."""
    with warnings.catch_warnings():
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        try:
            # The checkpoint is SAGA's own; beside tensors it holds the optimiser's state.
            trainer.fit(
                module,
                data,
                ckpt_path=str(checkpoint) if checkpoint else None,
                weights_only=False if checkpoint else None,
            )
        except SystemExit:  # Lightning turns Ctrl-C into an exit, and ignores a second one
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt from None


def progress_bars(progress: bool) -> list[TQDMProgressBar]:
    """The callbacks that show progress."""
    return [TQDMProgressBar(refresh_rate=20)] if progress else []


def half_cosine(progress: float) -> float:
    """Falls from 1 to 0 while `progress` grows from 0 to 1; 0 after that."""
    return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def schedule_rate(optimizer: torch.optim.Optimizer, rate: Callable[[int], float]) -> dict[str, Any]:
    """An optimiser for Lightning whose learning rate is multiplied by `rate(step)`."""
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
