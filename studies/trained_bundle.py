"""A trained bundle for a study that may be run again."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from saga.training.fit import train
from saga.training.harness import RunOptions
from saga.training.train_config import TrainConfig

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.files.atomic import digest_json
from saga.files.bundle_folder import MANIFEST


def path_of(
    panel: Panel, out: Path, config: TrainConfig, *, seed: int, until: int | None = None
) -> Path:
    """`out`, with the digest of all that a training depends on in the folder's name."""
    inputs = [config.as_dict(), seed, until, panel.digest, panel.meta.macro]
    return out.with_name(f"{out.name}-{digest_json(inputs)[:12]}")


def train_or_load(
    panel: Panel,
    out: Path,
    config: TrainConfig,
    *,
    seed: int,
    until: int | None = None,
    command: str = "",
) -> Bundle:
    """The bundle in `path_of` these arguments: that of an earlier run, or trained now.

    An interrupted training is continued. Errors are those of `saga.training.fit.train`.
    """
    path = path_of(panel, out, config, seed=seed, until=until)
    if (path / MANIFEST).is_file():
        return Bundle.load(path)
    started = (path.with_name(f"{path.name}.run") / "last.ckpt").is_file()
    run = RunOptions(resume=started, command=command, report=partial(print, file=sys.stderr))
    return train(panel, path, config=config, seed=seed, until=until, run=run)
