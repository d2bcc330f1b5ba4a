"""Vintages: models trained and calibrated up to earlier years, judged by what groups earned later.

Each is made as a user would have made it in its last year (`cutoff`): nothing fitted has seen a
later record. Its forecasts are of persons that it was not trained on, from records up to then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from saga.calibration.diagnostics.simple_rules import GrowthRule
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.evaluation.group_errors import judge_groups
from saga.training.ensembles import train_folds, train_members
from saga.training.fit import run_settings, settings_for
from saga.training.harness import RUN_SETTINGS, RunFolder, RunOptions
from saga.training.train_config import TrainConfig
from saga.training.transfer import Source

from saga.bundle import Bundle, write_bundle
from saga.data.origins import Origins, cut, history, origins_at, realised_earnings
from saga.data.panel import Panel, named_panel
from saga.data.split import FOLDS_SCHEME, Part, assign_folds, persons_of, shares_of, units_of
from saga.errors import InputError, UsageError
from saga.files.atomic import commit
from saga.files.bundle_folder import MANIFEST
from saga.files.folders import check_new_folder
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.model_error import MIN_VINTAGES
from saga.paths import Paths
from saga.population.scored_paths import last_known
from saga.requests import Draws, Progress

ERRORS = "errors.parquet"  # the last file of a complete vintage
_QUIET = RunOptions()
_MIN_YEARS = 10  # of records up to a cut-off


@dataclass(frozen=True, kw_only=True)
class VintageOptions:
    """How vintages are made and judged.

    Attributes:
        config: Configuration of the training, as in `saga.training.ensembles.train_members`.
        folds: Members that have each not seen a fold; then all persons of the folds are judged,
            each by the member that has not seen the person. None: the test persons are.
        horizons: Years ahead.
        by: Groups: columns of the panel, age, cohort, birth_year.
        draws: Paths and seed.
        persons: Most persons judged in a vintage, chosen by key; None: all.
        run: How training is started.
    """

    config: str | Path | TrainConfig
    folds: int | None = None
    horizons: Sequence[int] = (1, 2, 5, 10, 20)
    by: Sequence[str] = ("sex", "education_level", "age")
    draws: Draws = Draws(200)
    persons: int | None = None
    run: RunOptions = _QUIET


def choose_cutoffs(panel: Panel, every: int, horizon: int) -> list[int]:
    """Years of the panel, `every` years or more apart, from the last with outcomes backwards.

    Ten years of records lie before each, and outcomes `horizon` years after it. Raises InputError
    if the panel is too short.
    """
    years = panel.frame["year"].unique().sort(descending=True).to_list()
    cutoffs: list[int] = []
    for year in years:
        reaches = year - years[-1] >= _MIN_YEARS and year + horizon <= years[0]
        if reaches and (not cutoffs or cutoffs[0] - year >= every):
            cutoffs.insert(0, year)
    if not cutoffs:
        raise InputError(
            f"The panel has the years {years[-1]}-{years[0]}: too few for a vintage, which needs "
            f"{_MIN_YEARS} years of records and outcomes {horizon} later. Give a longer panel, or "
            "name the last years of training with --cutoffs."
        )
    return cutoffs


def make_vintages(
    panel: Panel,
    out: Path,
    cutoffs: Sequence[int],
    options: VintageOptions,
    *,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Train, calibrate and judge a model for each cut-off; the errors of all.

    Their columns are `cutoff` and those of `saga.evaluation.group_errors.judge_groups`.

    A folder of `out` for each cut-off has its bundle and errors. A vintage that is complete there
    is not made again, and a training that was interrupted continues.

    Raises:
        UsageError: If `out` has something else, or vintages of another panel or other options.
        InputError: If the panel is too small to train on.
    """
    source = None if options.run.source is None else Source.open(options.run.source)
    config = settings_for(options.config, panel.n_persons, source)
    settings = {
        **run_settings(panel, config, options.draws.seed, None, source),
        "folds": options.folds,
        "horizons": list(options.horizons),
        "by": list(options.by),
        "paths": options.draws.n_paths,
        "persons": options.persons,
    }
    folder = RunFolder(out, settings)
    if not (out / RUN_SETTINGS).is_file():
        check_new_folder(out)
        folder.begin()
    elif differing := folder.differing_settings():
        raise UsageError(
            f"{out} has vintages with other settings: {', '.join(differing)}. Use the same "
            "settings, or name a new folder."
        )
    tables = []
    for done, cutoff in enumerate(cutoffs):
        if progress and not (out / str(cutoff) / ERRORS).is_file():
            progress(done, len(cutoffs))
        tables.append(_vintage(panel, out / str(cutoff), cutoff, options))
    errors = pl.concat(tables)
    commit(out / "vintages.parquet", errors.write_parquet)
    return errors


def _vintage(panel: Panel, path: Path, cutoff: int, options: VintageOptions) -> pl.DataFrame:
    """The errors of the vintage in the folder `path`, which is completed if it is not."""
    if (path / ERRORS).is_file():
        return pl.read_parquet(path / ERRORS, glob=False)
    trained, seed = path / "trained", options.draws.seed
    if not (trained / MANIFEST).is_file():
        begun = (path / "trained.run" / RUN_SETTINGS).is_file()
        run = replace(options.run, resume=begun)
        if options.folds is None:
            train_members(panel, trained, config=options.config, seed=seed, until=cutoff, run=run)
        else:
            train_folds(
                panel,
                trained,
                options.folds,
                config=options.config,
                seed=seed,
                until=cutoff,
                run=run,
            )
    calibration = CalibrationOptions(n_paths=options.draws.n_paths, seed=seed, until=cutoff)
    calibrated = calibrate_bundle(trained, panel, calibration, out=path / "bundle")
    errors = judge_vintage(Forecaster(calibrated), panel, cutoff, options)
    commit(path / ERRORS, errors.write_parquet)
    return errors


def judge_vintage(
    forecaster: Forecaster, panel: Panel, cutoff: int, options: VintageOptions
) -> pl.DataFrame:
    """The errors of a model that was trained on records up to `cutoff`."""
    in_folds = forecaster.bundle.split["scheme"] == FOLDS_SCHEME
    part: Part = "train" if in_folds else "test"
    judged = persons_of(panel, part, shares_of(forecaster.bundle.split))
    people = panel.only(sample_persons(judged, options.persons, "vintages", panel.meta.panel_id))
    origins = origins_at(people, cutoff)
    if not len(origins):
        raise InputError(
            f"None of the persons to judge has a record in {cutoff} and three up to then, at an "
            "age of 20 to 60. Name other years with --cutoffs."
        )
    records = history(people, origins)
    persons = records.persons()
    model, folds = forecaster.model, np.zeros(len(persons), dtype=np.int64)
    models = [model]
    if in_folds:
        models = [replace(model, members=(member,)) for member in model.members]
        folds = assign_folds(panel.meta.split_key, units_of(people, persons), len(models))
    blocks: list[Paths] = []
    for k, of_fold in enumerate(models):
        unseen = np.array(persons)[folds == k].tolist()
        if unseen:
            blocks += forecaster.with_model(of_fold).blocks(
                records.only(unseen), options.draws, to_horizon=max(options.horizons)
            )
    known = cut(panel, cutoff)
    paths = Paths.joined(blocks)
    of_paths = Origins(paths.person_id, paths.origin_year)
    outcomes = realised_earnings(people, of_paths, list(options.horizons))
    errors = judge_groups(
        paths,
        outcomes,
        last_known(known, options.by),
        GrowthRule.fit(known),
        options.horizons,
        options.by,
    )
    return errors.select(pl.lit(cutoff, pl.Int32).alias("cutoff"), pl.all())


def store_vintages(errors: pl.DataFrame, bundle: Path, panel_id: str, command: str) -> Bundle:
    """The bundle with the errors of vintages of its panel, written in its place.

    Raises UsageError if it was trained on another panel, or the vintages are too few.
    """
    opened = Bundle.load(bundle)
    n_vintages = errors.select({"history", "cutoff"} & set(errors.columns)).n_unique()
    if opened.panel_id != panel_id:
        raise UsageError(
            f"{bundle} was trained on {named_panel(opened.panel_id)}, and these vintages are of "
            f"{named_panel(panel_id)}. Name a bundle of the same panel with --store."
        )
    if n_vintages < MIN_VINTAGES:
        raise UsageError(
            f"{n_vintages} vintages say too little about a model's error; a bundle stores "
            f"{MIN_VINTAGES} or more. Make more with --every or --cutoffs."
        )
    return write_bundle(
        bundle,
        replace(opened, vintages=errors, audit=None),
        seed=opened.manifest["seed"],
        command=command,
        parents=(*opened.manifest["parents"], opened.digest),
    )
