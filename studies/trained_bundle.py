"""A trained bundle for a program that is run again: the one that is there where it is the one that is asked for, else a new one."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from saga.bundle import MANIFEST, Bundle
from saga.data.origins import cut, last_year
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import UsageError
from training.fit import train
from training.train_config import TrainConfig


def found_or_trained(
    panel: Panel,
    out: Path,
    settings: TrainConfig,
    *,
    seed: int,
    until: int | None = None,
    command: str = "",
) -> Bundle:
    """The bundle at `out`, trained where none is there or one of another configuration, seed, last year, economy, panel or persons.

    A training that was stopped goes on where it was started with the same, and begins afresh where not. Arguments and errors of `train`.
    """
    if (out / MANIFEST).is_file():
        found = Bundle.load(out)
        if _trained_with(found) == _asked(panel, settings, seed, until):
            return found
    begin = partial(
        train,
        panel,
        out,
        config=settings,
        seed=seed,
        until=until,
        command=command,
        progress=sys.stderr.isatty(),
    )
    with suppress(UsageError):  # there is nothing to go on with, or it was started otherwise
        return begin(resume=True)
    return begin(resume=False)


def _asked(panel: Panel, settings: TrainConfig, seed: int, until: int | None) -> tuple[object, ...]:
    known = panel if until is None else cut(panel, until)
    persons = persons_of(known, "train")  # a panel's subsets go by its name
    about = (
        panel.meta.panel_id,
        panel.meta.macro is not None,
        len(persons),
        len(known.only(persons)),
    )
    return (settings.as_dict(), seed, until or last_year(panel), *about)


def _trained_with(bundle: Bundle) -> tuple[object, ...]:
    """What `_asked` would be for this bundle."""
    told = bundle.metrics["training"]
    about = (
        bundle.split["panel_id"],
        bundle.macro["series"] is not None,
        told["persons"]["train"],
        told["person_years"],
    )
    return (bundle.config["training"], bundle.manifest["seed"], bundle.config["until"], *about)
