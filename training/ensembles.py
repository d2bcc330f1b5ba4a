"""Ensembles: networks that differ by seed alone, or that are each trained without one fold.

Their forecasts are averaged. Path k of a simulation follows member k mod K, so paths cost no more
than those of one network.

Members by seed have one split and one set of transforms. With folds (`saga train --folds K`) every
person except the test persons is used to train, and every person can be used to calibrate, because
one member has not seen the person (`saga.calibration.fit.cross_fitting`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.training.fit import macro_of, run_settings, settings_for, train
from saga.training.group_fit import with_groups
from saga.training.harness import RUN_SETTINGS, RunFolder, RunOptions
from saga.training.train_config import TrainConfig
from saga.training.transfer import Source
from saga.training.tree_member import allows_trees, fit_tree_member

from saga.bundle import JUDGED, Bundle, BundleContents, recorded_command, write_bundle
from saga.data.origins import cut
from saga.data.panel import Panel, named_panel
from saga.data.split import (
    FOLDS_SCHEME,
    SPLIT_SHARES,
    Shares,
    assign_folds,
    described_salt,
    percents_of,
    persons_of,
    units_of,
)
from saga.diagnostics_tables import Diagnostics
from saga.errors import InputError, Problem, UsageError
from saga.features.calendar import Calendar
from saga.features.transforms import Transforms
from saga.files.bundle_folder import MANIFEST
from saga.keyed_random import uniform_each
from saga.model.members import MEMBERS, joined_weights
from saga.training_records import TrainingRecords
from saga.trees.mixture import WEIGHTS, described_weights, joined_tables

MemberProgress = Callable[[int, int, Bundle], None]
MIN_FOLDS, MAX_FOLDS = 3, 20  # with two folds, a member trains on half of the persons
# With fewer, folds are better: half are the threshold fold, and ten of these must lie beyond a 90 %
# interval.
MIN_CALIBRATION_PERSONS = 200
_FOLD_SHARES: Shares = {"train": 0.9, "validation": 0.0, "calibration": 0.0, "test": 0.1}
_EVERYBODY: Shares = {"train": 1.0, "validation": 0.0, "calibration": 0.0, "test": 0.0}
_FINAL_FOLDS = 5  # of a final bundle, if its judged sibling has none
_UNUSED = " Test persons were not used to train, tune or calibrate."
_VALIDATION_SHARE = 0.1  # of the persons in the folds, whose loss stops the training of a member


def train_members(
    panel: Panel,
    out: Path,
    *,
    config: str | Path | TrainConfig,
    seed: int = 0,
    until: int | None = None,
    shares: Shares = SPLIT_SHARES,
    run: RunOptions | None = None,
    progress: MemberProgress | None = None,
) -> Bundle:
    """Train the members that the configuration asks for and write them as the bundle `out`.

    Each member is first an ordinary bundle in `<out>.run/`; a resumed run keeps finished members.
    One member without trees is an ordinary bundle (`fit.train`, which has the arguments
    and errors). With several devices, the first process fits the trees.

    Args:
        panel: Persons to train on.
        out: The bundle.
        config: A configuration, its built-in name, its file, or "auto" (by size of the panel).
        seed: Seed of the first member; the others have the next numbers.
        until: Last year that anything fitted may use.
        shares: Shares of the panel's split.
        run: How the run is started; several members need one device.
        progress: Called with the number of each trained member, from 0, and of all members.

    Raises:
        UsageError: Several devices were asked for, or the errors of `saga.training.fit.train`.
    """
    run = run or RunOptions()
    source = None if run.source is None else Source.open(run.source)
    settings = settings_for(config, len(persons_of(panel, "train", shares)), source, run.privacy)
    with_trees = allows_trees(panel, settings)
    if settings.members == 1 and not with_trees:
        bundle = train(panel, out, config=settings, seed=seed, until=until, shares=shares, run=run)
        return with_groups(bundle, panel, command=run.command)
    _require_one_device(run, settings.members)
    folder = RunFolder.beside(
        out,
        {
            **run_settings(panel, settings, seed, until, source, run.also),
            "shares": list(shares.values()),
        },
        resume=run.resume,
    )
    members = []
    for k in range(settings.members):
        members.append(
            _train_member(
                panel,
                folder.path / f"member-{k}",
                _shared(run, settings.members - k),
                config=replace(settings, members=1),
                seed=seed + k,
                until=until,
                shares=shares,
            )
        )
        if progress and settings.members > 1:
            progress(k, settings.members, members[-1])
    contents = _by_seed(members, settings) if len(members) > 1 else members[0]
    if with_trees and run.limit.is_over:
        run.limit.leave_out("boosted trees", "none")
    elif with_trees:
        known = panel if until is None else cut(panel, until)
        networks = folder.path / "networks"
        joined = write_bundle(networks, contents, seed=seed, command=run.command)
        fitting, weighing = (persons_of(known, part, shares) for part in ("train", "validation"))
        contents = _with_trees(joined, known, settings, fitting, weighing, seed, run)
    bundle = with_groups(_write(out, contents, seed, run, source), panel, command=run.command)
    for file in list(folder.path.rglob(MANIFEST)):  # the logs stay
        shutil.rmtree(file.parent)
    return bundle


def train_folds(
    panel: Panel,
    out: Path,
    n_folds: int,
    *,
    config: str | Path | TrainConfig = "small",
    seed: int = 0,
    until: int | None = None,
    run: RunOptions | None = None,
    progress: MemberProgress | None = None,
) -> Bundle:
    """Train K members, each without one fold of the persons, and write them as the bundle `out`.

    Member k sees no person of fold k: neither its transforms, its weights and its stopping nor its
    trees and their weights depend on them. Runs, arguments and errors are those of `train_members`;
    an InputError says that the panel is too small for the folds. All members are trained on one
    device. With `run.judged` the bundle is final (`train_final`).
    """
    run = run or RunOptions()
    judged = run.judged
    source = None if run.source is None else Source.open(run.source)
    shares = _FOLD_SHARES if judged is None else _EVERYBODY
    n_persons = round(len(panel.persons()) * shares["train"] * (1 - 1 / n_folds))
    settings = replace(settings_for(config, n_persons, source, run.privacy), members=1)
    if settings.privacy is not None:
        raise UsageError(
            "Each person would train several members, and the promise of --privacy would be spent "
            "by each. Leave --folds or --privacy out."
        )
    if not MIN_FOLDS <= n_folds <= MAX_FOLDS:
        raise UsageError(f"--folds must be {MIN_FOLDS} to {MAX_FOLDS}, not {n_folds}. Use 5.")
    _require_one_device(run, n_folds)
    if run.also:
        raise UsageError("Members by fold learn from one panel. Leave --also or --folds out.")
    if until is not None:
        panel = cut(panel, until)
    folder = RunFolder.beside(
        out,
        {
            **run_settings(panel, settings, seed, until, source),
            "folds": n_folds,
            "judged": None if judged is None else judged.digest,
        },
        resume=run.resume,
    )
    persons, folds = _persons_in_folds(panel, n_folds, shares)
    stopping = uniform_each(
        units_of(panel, persons.tolist()), "fold-validation", panel.meta.split_key
    )
    members = []
    for k in range(n_folds):
        seen, stops = folds != k, stopping < _VALIDATION_SHARE
        fitting, validating = persons[seen & ~stops].tolist(), persons[seen & stops].tolist()
        if not validating:
            fix = "Use a panel of at least a hundred persons."
            problem = Problem("too-few-persons", f"No validation persons without fold {k}", fix)
            raise InputError("The panel is too small to train on.", [problem])
        people = panel.only(persons[seen].tolist())
        member = _train_member(
            people,
            folder.path / f"member-{k}",
            _shared(run, n_folds - k),
            config=settings,
            seed=seed + k,
            validation=validating,
        )
        if allows_trees(panel, settings):
            path = folder.path / f"member-{k}-with-trees"
            if run.limit.is_over:
                run.limit.leave_out("boosted trees", f"none from network {k + 1} on")
            elif (path / MANIFEST).is_file():
                member = Bundle.load(path)
            else:
                parts = _with_trees(member, people, settings, fitting, validating, seed + k, run)
                member = write_bundle(path, parts, seed=seed + k, command=run.command)
        members.append(member)
        if progress:
            progress(k, n_folds, member)
    people = panel.only(persons.tolist())
    contents = _by_fold(panel, people, members, settings, run.command, source, shares)
    if judged is not None:
        contents = _final(contents, judged)
    bundle = with_groups(_write(out, contents, seed, run, source), panel, command=run.command)
    shutil.rmtree(folder.path)
    return bundle


def train_final(
    panel: Panel,
    out: Path,
    judged: Bundle,
    *,
    run: RunOptions | None = None,
    progress: MemberProgress | None = None,
) -> Bundle:
    """Train with the recipe of the bundle `judged` on every person of its panel.

    Nobody is left to judge the result, so its report is that of `judged`. Members by fold
    (`train_folds`) let every person train and calibrate. Configuration, seed and the bundle that
    training starts from are those of `judged`; `run.source` says where that bundle is.

    Raises:
        UsageError: `judged` has no report, or was trained on another panel or from other weights,
            or the errors of `train_folds`.
    """
    judged.check_judgeable()
    Diagnostics.of_bundle(judged)
    if judged.panel_id != panel.meta.panel_id:
        raise UsageError(
            f"The judged bundle was trained on {named_panel(judged.panel_id)}, not on "
            f"{named_panel(panel.meta.panel_id)}. Give the panel and the mapping of its training."
        )
    run = run or RunOptions()
    start = judged.config.get("source")
    digest = None if run.source is None else Source.open(run.source).digest
    if (start and start["digest"]) != digest:
        needed = f"those of {start['name']} ({start['digest'][:12]})" if start else "random"
        raise UsageError(
            f"The weights that the judged bundle started from are {needed}. Name the same with "
            "--from."
        )
    return train_folds(
        panel,
        out,
        judged.split.get("folds", _FINAL_FOLDS),
        config=TrainConfig(**judged.config["training"]),
        seed=judged.manifest["seed"] or 0,  # not recorded of real persons
        run=replace(run, judged=judged),
        progress=progress,
    )


def _final(contents: BundleContents, judged: Bundle) -> BundleContents:
    """The contents with the name and the report of the judged sibling."""
    name, digest = judged.path.name, judged.digest
    sentence = (
        f"The bundle that contains this report has learnt from every person, so nobody is left to "
        f"judge it. These are the results of its sibling {name} ({digest[:12]}), which has the "
        "same recipe and has not seen the persons judged."
    )
    report = Diagnostics.of_bundle(judged).tables
    row = pl.DataFrame({"name": ["final"], "text": [sentence]}, report["provenance"].schema)
    report = {**report, "provenance": pl.concat([report["provenance"], row])}
    card = f"""{contents.card.rstrip()}

## Judged sibling

{sentence}
"""
    return replace(
        contents,
        split={**contents.split, JUDGED: {"name": name, "digest": digest}},
        diagnostics=Diagnostics(report).to_table(),
        vintages=judged.vintages,
        card=card,
    )


def _require_one_device(run: RunOptions, n_members: int) -> None:
    if run.devices > 1 and n_members > 1:
        raise UsageError(
            "Several members are trained on one device. Leave --devices out, or set `members: 1`."
        )


def _write(
    out: Path, contents: BundleContents, seed: int, run: RunOptions, source: Source | None
) -> Bundle:
    parents = [contents.split[JUDGED]["digest"]] if JUDGED in contents.split else []
    parents += [] if source is None else [source.digest]
    return write_bundle(out, contents, seed=seed, command=run.command, parents=parents)


def _shared(run: RunOptions, n_left: int) -> RunOptions:
    """The run of the next of `n_left` members, with its share of the time."""
    return replace(run, limit=run.limit.part(1 / n_left))


def _train_member(
    panel: Panel,
    path: Path,
    run: RunOptions,
    *,
    config: TrainConfig,
    seed: int,
    until: int | None = None,
    validation: Sequence[str] | None = None,
    shares: Shares = SPLIT_SHARES,
) -> Bundle:
    """The finished member at `path`, or one that is trained now, see `saga.training.fit.train`."""
    if (path / MANIFEST).is_file():
        return Bundle.load(path)
    started = (path.with_name(path.name + ".run") / RUN_SETTINGS).is_file()
    return train(
        panel,
        path,
        config=config,
        seed=seed,
        until=until,
        validation=validation,
        shares=shares,
        run=replace(run, resume=run.resume and started),
    )


def _joined_report(members: Sequence[Bundle]) -> dict[str, Any]:
    """The training report of all members, for the metrics of the bundle that joins them."""
    reports = [member.metrics["training"] for member in members]
    return {
        **reports[0],
        MEMBERS: len(members),
        "parameters": sum(report["parameters"] for report in reports),
        "steps": sum(report["steps"] for report in reports),
        "seconds": round(sum(report["seconds"] for report in reports), 1),
        "validation_nll": round(float(np.mean([r["validation_nll"] for r in reports])), 6),
        "by_member": reports,
    }


def _by_seed(members: Sequence[Bundle], settings: TrainConfig) -> BundleContents:
    """The parts of the bundle that joins members by seed."""
    first, n_members = members[0], len(members)
    scores = ", ".join(f"{m.metrics['training']['validation_nll']:.4f}" for m in members)
    card = f"""{first.card.rstrip()}

## Members

The bundle has {n_members} networks of this kind, trained with different seeds on the same persons.
A forecast is the average of their distributions; path k of a simulation follows member k mod
{n_members}. Their validation log scores: {scores}. The text above describes the first one.
"""
    return BundleContents(
        config={**first.config, "training": settings.as_dict(), MEMBERS: n_members},
        transforms={**first.transforms, MEMBERS: [member.transforms for member in members]},
        macro=first.macro,
        split=first.split,
        weights=joined_weights([member.weights for member in members]),
        metrics={"training": _joined_report(members)},
        card=card,
    )


def _with_trees(
    networks: Bundle,
    panel: Panel,
    settings: TrainConfig,
    training: Sequence[str],
    validation: Sequence[str],
    seed: int,
    run: RunOptions,
) -> BundleContents:
    """The parts of the bundle, with trees if these lower the CRPS of validation persons."""
    report = run.report or (lambda _: None)
    report("Fitting boosted trees beside the network.")
    fitted = fit_tree_member(
        networks,
        panel,
        settings,
        training=training,
        validation=validation,
        seed=seed,
        report=report,
    )
    if fitted is None:
        report("The network stays alone: trees hardly help, or outcomes are too few for them.")
        return networks
    table, weights = fitted
    by_horizon = {str(horizon): weight for horizon, weight in weights.items()}
    described = described_weights(list(weights), np.array(list(weights.values())))
    card = f"""{networks.card.rstrip()}

## Boosted trees

A forecast is the average of the network's distributions and of those of boosted trees (LightGBM),
which were fitted on the training and validation persons and have the weights {described}.
"""
    config = {**networks.config, WEIGHTS: by_horizon}
    return replace(networks, config=config, trees=table, card=card)


def _persons_in_folds(
    panel: Panel, n_folds: int, shares: Shares
) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """The persons in folds, sorted, and the fold of each; InputError if a fold is empty."""
    persons = np.array(persons_of(panel, "train", shares), dtype=np.str_)
    folds = assign_folds(panel.meta.split_key, units_of(panel, persons.tolist()), n_folds)
    if len(np.unique(folds)) < n_folds:
        fix = "Use a panel with more persons, or fewer folds where a command is given their number."
        numbers = f"{len(persons)} persons to train on, {n_folds} folds"
        problem = Problem("too-few-persons", numbers, fix)
        raise InputError("The panel is too small for these folds.", [problem])
    return persons, folds


def _by_fold(
    panel: Panel,
    people: Panel,
    members: Sequence[Bundle],
    settings: TrainConfig,
    command: str,
    source: Source | None,
    shares: Shares,
) -> BundleContents:
    """The parts of the bundle that joins members by fold; `people` are the persons in folds."""
    n_folds = len(members)
    shared = Transforms.fit(
        people,
        Calendar(macro_of(panel)[0]),
        settings.model.bins,
        settings.without,
        scale_free=settings.scale_free,
        like=None if source is None else source.transforms,
    )
    trees = joined_tables([member.trees for member in members])
    weights = [member.config.get(WEIGHTS, {}) for member in members]
    report = _joined_report(members)
    training = {
        **report,
        "persons": {"train": len(people.persons()), "validation": report["persons"]["validation"]},
        "person_years": people.frame.height,
    }
    return BundleContents(
        config={
            **members[0].config,
            "records": asdict(TrainingRecords.of(people)),
            MEMBERS: n_folds,
            **({} if trees is None else {WEIGHTS: weights}),
        },
        transforms={**shared.as_dict(), MEMBERS: [member.transforms for member in members]},
        macro=members[0].macro,
        split={
            "panel_id": panel.meta.panel_id,
            "scheme": FOLDS_SCHEME,
            "folds": n_folds,
            "shares": percents_of(shares),
            **described_salt(panel),
        },
        weights=joined_weights([member.weights for member in members]),
        metrics={"training": training},
        card=_card(panel, members, settings, command, source, shares),
        trees=trees,
    )


def _card(
    panel: Panel,
    members: Sequence[Bundle],
    settings: TrainConfig,
    command: str,
    source: Source | None,
    shares: Shares,
) -> str:
    """The bundle's README.md."""
    years, n_folds = panel.frame["year"].to_numpy(), len(members)
    has_tests = shares["test"] > 0
    trees = [member.config.get(WEIGHTS) for member in members]
    tree_text = "".join(
        f"- Member {k}: {described_weights(list(of_member), np.array(list(of_member.values())))}\n"
        for k, of_member in enumerate(trees)
        if of_member
    )
    tree_text = tree_text and (
        "\nBoosted trees (LightGBM), which were fitted without the fold as well, are averaged with "
        f"each network. Their weights:\n\n{tree_text}"
    )
    rows = "\n".join(
        f"| {k} | {report['persons']['train']:,} | {report['persons']['validation']:,} | "
        f"{report['steps']:,} | {report['seconds']:,.0f} | {report['validation_nll']:.4f} |"
        for k, report in enumerate(member.metrics["training"] for member in members)
    )
    return f"""# SAGA bundle `{settings.name}`, {n_folds} members

An ensemble of {n_folds} networks with {members[0].parameters:,} parameters each, trained on the
panel `{panel.meta.panel_id}` ({years.min()} to {years.max()}); money in {panel.meta.currency} of
{panel.meta.price_year}.
All persons{" except the test persons" if has_tests else ""} are divided into {n_folds} folds by
a keyed hash (`split.json`).
Member k was trained, scaled and stopped without the persons of fold k. A forecast is the average
of the members' distributions; path k of a simulation follows member k mod {n_folds}.

| Member | Training persons | Validation persons | Steps | Seconds | Validation log score |
|---|---|---|---|---|---|
{rows}
{tree_text}{"" if source is None else source.paragraph()}
Command: `{recorded_command(command, panel.meta.panel_id) or "saga train"}`

`saga calibrate` fits cross-fitted intervals: the scores of a person come from the member that has
not seen the person, and no map is fitted (`docs/method/cross-fitting.md`). The `guarantee` of every
interval states what it guarantees.{_UNUSED if has_tests else ""}
"""
