"""Leaks that are planted in copies, to show that the audit would find them.

What must be caught is fixed here, before any audit: a canary at or above `MUST_COPIES` copies, and
the overfitted model, must give an area whose 95 % interval lies above one half; findings of a scan
must be complete, because a scan has no chance in it.

- repeated: persons whose whole record is in the training part 1, 4 or 16 times. One copy is the
  ordinary case, and is not expected to be caught. Sixteen copies are what a panel with undetected
  duplicates, or one person over many files, looks like: an audit that misses them has no power.
  A promise of differential privacy hides some copies too, so then none need be caught.
- overfitted: few persons, no regularisation, no promise, stopped by the loss on the training
  persons.
- id column: a copy of the panel with an own column that numbers the persons.
- cell of two: a copy of the diagnostics in which a cell has two persons.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.audit.audit_signals import Queries
from saga.evaluation.audit.bundle_scan import scan_bundle
from saga.evaluation.audit.membership import area_with_interval, attack_numbers
from saga.evaluation.audit.shadow_models import (
    OUTSIDE,
    SHARES,
    Recipe,
    shadow_panel,
    shadow_parts,
)
from saga.training.fit import train
from saga.training.harness import RunOptions
from saga.training.train_config import TrainConfig

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.forecaster import Forecaster
from saga.schema import FAMILY, extra_column

COPIES = (1, 4, 16)
MUST_COPIES = 16
GRADE_PERSONS = 60  # canaries of each number of copies; as many as tell .5 from .62
OVERFIT_PERSONS, OVERFIT_STEPS = 200, 3  # and the factor on the steps
ATTACK = "record, offline"  # the attack that must catch them


@dataclass(frozen=True)
class Canary:
    """A planted leak: what was found, whether it must be caught, and whether it was."""

    name: str
    result: str
    must: bool
    caught: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def plant_canaries(
    recipe: Recipe,
    bundle: Bundle,
    queries: Queries,
    shadows: tuple[NDArray[np.float64], NDArray[np.int64]],
    folder: Path,
    seed: int,
) -> list[Canary]:
    """Plant each leak in a copy, and look for it; `shadows` are scores and parts of all persons."""
    panel = queries.panel
    return [
        *_repeated(recipe, queries, shadows, folder, seed),
        _overfitted(recipe, queries, shadows, folder, seed),
        _id_column(bundle, panel),
        _small_cell(bundle, panel),
    ]


def _scores(queries: Queries, bundle: Bundle, folder: Path) -> NDArray[np.float64]:
    file = folder.with_suffix(".npy")
    if not file.is_file():
        np.save(file, queries.scores(Forecaster(bundle)))
    return np.asarray(np.load(file))


def _repeated(
    recipe: Recipe,
    queries: Queries,
    shadows: tuple[NDArray[np.float64], NDArray[np.int64]],
    folder: Path,
    seed: int,
) -> list[Canary]:
    panel = shadow_panel(queries.panel, seed, -1)
    persons, parts = np.array(panel.persons()), shadow_parts(panel)
    outside = np.flatnonzero(parts == OUTSIDE)
    size = min(GRADE_PERSONS, len(outside) // (2 * len(COPIES)))
    chosen_rows = np.random.default_rng(seed).permutation(outside)[: size * len(COPIES)]
    grades = dict(zip(COPIES, np.split(chosen_rows, len(COPIES)), strict=True))
    rows = [panel.frame.filter(~pl.col("person_id").is_in(persons[chosen_rows].tolist()))]
    for copies, chosen in grades.items():
        frame = panel.frame.filter(pl.col("person_id").is_in(persons[chosen].tolist()))
        rows += [_renamed(frame, f"{k} of {copies}") for k in range(copies)]
    planted = panel.with_frame(pl.concat(rows).sort("person_id", "year"))
    # The copies train whatever the split says: their part is given, not chosen_rows.
    inside = persons_of(panel, "train", SHARES)
    validation = persons_of(panel, "validation", SHARES)
    copies_of = set(planted.persons()) - set(persons.tolist())
    people = planted.only([*inside, *validation, *sorted(copies_of)])
    trained = _train(recipe, people, set(validation), folder / "repeated", seed)
    numbers = attack_numbers(_scores(queries, trained, folder / "repeated"), *shadows)[ATTACK]
    others = np.setdiff1d(outside, chosen_rows)
    canaries = []
    for copies, chosen in grades.items():
        area, lower, upper = _area(numbers, chosen, others, seed)
        result = f"area {area:.3f} ({lower:.3f} to {upper:.3f}), {len(chosen)} persons"
        name = "persons in training once" if copies == 1 else f"persons repeated {copies} times"
        must = copies >= MUST_COPIES and recipe.config.privacy is None
        canaries.append(Canary(name, result, must, lower > 0.5))
    return canaries


def _overfitted(
    recipe: Recipe,
    queries: Queries,
    shadows: tuple[NDArray[np.float64], NDArray[np.int64]],
    folder: Path,
    seed: int,
) -> Canary:
    panel = queries.panel
    persons = np.random.default_rng(seed + 1).permutation(np.arange(panel.n_persons))
    chosen, others = persons[:OVERFIT_PERSONS], persons[OVERFIT_PERSONS:]
    frame = panel.only(np.array(panel.persons())[chosen].tolist()).frame
    twins = _renamed(frame, "twin")
    doubled = panel.with_frame(pl.concat([frame, twins]).sort("person_id", "year"))
    config = recipe.config
    steps = OVERFIT_STEPS * config.max_steps
    overfitting = replace(
        config,
        model=replace(config.model, dropout=0.0),
        weight_decay=0.0,
        privacy=None,
        max_steps=steps,
        validate_every=max(1, steps // 4),
        patience=1_000,
        batch_persons=min(config.batch_persons, 32),
    )
    validation = set(twins["person_id"].unique().to_list())
    out = folder / "overfitted"
    bundle = _train(recipe, doubled, validation, out, seed, overfitting)
    numbers = attack_numbers(_scores(queries, bundle, out), *shadows)[ATTACK]
    area, lower, upper = _area(numbers, chosen, others, seed)
    result = f"area {area:.3f} ({lower:.3f} to {upper:.3f}), {len(chosen)} persons"
    return Canary("a model overfitted to few persons", result, must=True, caught=lower > 0.5)


def _train(
    recipe: Recipe,
    panel: Panel,
    validation: set[str],
    out: Path,
    seed: int,
    config: TrainConfig | None = None,
) -> Bundle:
    if (out / "manifest.json").is_file():
        return Bundle.load(out)
    return train(
        panel,
        out,
        config=config or recipe.config,
        seed=seed,
        validation=sorted(validation),
        run=RunOptions(command="saga audit", source=recipe.source),
    )


def _renamed(frame: pl.DataFrame, mark: str) -> pl.DataFrame:
    columns = [pl.concat_str(pl.lit(f"copy {mark} "), "person_id").alias("person_id")]
    if FAMILY.name in frame.columns:
        columns.append(pl.lit(None, frame.schema[FAMILY.name]).alias(FAMILY.name))
    return frame.with_columns(columns)


def _area(
    numbers: NDArray[np.float64], members: NDArray[np.int64], others: NDArray[np.int64], seed: int
) -> tuple[float, float, float]:
    rows = np.concatenate([members, others])
    is_member = np.arange(len(rows)) < len(members)
    known = np.isfinite(numbers[rows])
    return area_with_interval(numbers[rows][known], is_member[known], rows[known], seed)


def _id_column(bundle: Bundle, panel: Panel) -> Canary:
    number = extra_column("number", "number", static=True)
    meta = replace(panel.meta, extra=(*panel.meta.extra, number))
    column = pl.Series(number.name, panel.person_numbers.astype(np.float64))
    described = {"name": number.name, "kind": "number", "static": True, "lasting": False}
    transforms = dict(bundle.transforms)
    transforms["extra"] = [*transforms.get("extra", ()), described]
    for scale in ("location", "spread"):
        transforms[scale] = {**transforms[scale], number.name: 1.0}
    copy = replace(bundle, transforms=transforms)
    planted = Panel(panel.frame.with_columns(column).select(list(meta.schema)), meta)
    findings = scan_bundle(copy, planted, planted)
    caught = any(f.passed is False and number.name in f.result for f in findings)
    return Canary("a column that numbers the persons", "scan of the columns", True, caught)


def _small_cell(bundle: Bundle, panel: Panel) -> Canary:
    cell = pl.DataFrame({"group": ["planted"], "n": [2]})
    findings = scan_bundle(replace(bundle, diagnostics=cell), panel, panel)
    caught = any(f.check == "cells of diagnostics" and f.passed is False for f in findings)
    return Canary("a cell of two persons", "scan of the tables", True, caught)
