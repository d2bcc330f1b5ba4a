"""A trained bundle for a study that may be run again."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from saga.training.fit import train
from saga.training.harness import RunOptions
from saga.training.train_config import TrainConfig

from saga.bundle import Bundle
from saga.data.origins import cut, last_year
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.files.bundle_folder import MANIFEST


def train_or_load(
    panel: Panel,
    out: Path,
    config: TrainConfig,
    *,
    seed: int,
    until: int | None = None,
    command: str = "",
) -> Bundle:
    """The bundle at `out` if it is the requested one; otherwise a newly trained bundle.

    A bundle is the requested one if configuration, seed, last year, economy, panel and persons
    agree. An interrupted training is resumed if it was started with the same, and else restarted.
    Arguments and errors are those of `saga.training.fit.train`.
    """
    if (out / MANIFEST).is_file():
        bundle = Bundle.load(out)
        if _training_of(bundle) == _requested_training(panel, config, seed, until):
            return bundle
    run = RunOptions(command=command, progress=sys.stderr.isatty())
    start = partial(train, panel, out, config=config, seed=seed, until=until)
    with suppress(UsageError):  # there is no checkpoint, or it belongs to another training
        return start(run=replace(run, resume=True))
    return start(run=run)


def _requested_training(
    panel: Panel, config: TrainConfig, seed: int, until: int | None
) -> tuple[object, ...]:
    past = panel if until is None else cut(panel, until)
    persons = persons_of(past, "train")  # subsets of a panel have the panel's name
    return (
        config.as_dict(),
        seed,
        until or last_year(panel),
        panel.meta.panel_id,
        panel.meta.macro is not None,
        len(persons),
        len(past.only(persons)),
    )


def _training_of(bundle: Bundle) -> tuple[object, ...]:
    """What `_requested_training` would return for this bundle."""
    training = bundle.metrics["training"]
    return (
        bundle.config["training"],
        bundle.manifest["seed"],
        bundle.config["until"],
        bundle.panel_id,
        bundle.macro["series"] is not None,
        training["persons"]["train"],
        training["person_years"],
    )
