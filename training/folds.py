"""`saga train --folds K`: K members, each trained without one fold of the persons.

Every person except the test persons is then used to train, and every person can be used to
calibrate, because one member has not seen the person (`saga.calibration.fit.cross_fitting`).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from saga.training.fit import macro_of, run_settings, settings_for
from saga.training.harness import RunFolder, RunOptions
from saga.training.seeds import MemberProgress, joined_report, train_member
from saga.training.train_config import TrainConfig
from saga.training.transfer import Source

from saga.bundle import Bundle, BundleContents, write_bundle
from saga.data.origins import cut, last_year
from saga.data.panel import Panel
from saga.data.split import FOLDS_SCHEME, SPLIT_SHARES, assign_folds, assign_parts, units_of
from saga.errors import InputError, Problem, UsageError
from saga.features.calendar import Calendar
from saga.features.transforms import Transforms
from saga.files.bundle_folder import check_replaceable
from saga.keyed_random import uniform_each
from saga.model.members import MEMBERS, joined_weights

MIN_FOLDS, MAX_FOLDS = 3, 20  # with two folds, a member trains on half of the persons
_VALIDATION_SHARE = 0.1  # of the persons in the folds, whose loss stops the training of a member


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
    """Train K members on a panel and write them as the bundle `out`.

    Member k sees no person of fold k: neither its transforms, its weights nor its stopping depend
    on them. Each member is first an ordinary bundle in `<out>.run/`; a resumed run keeps finished
    members.

    Args:
        panel: Persons to train on.
        out: The bundle.
        n_folds: Number of folds and members K.
        config: A configuration, its built-in name, its file, or "auto" (by size of the panel).
        seed: Seed of the first member; the others have the next numbers.
        until: As in `saga.training.fit.train`.
        run: How the run is started; only one device. With a source, every member starts from
            its weights.
        progress: Called with the number of each trained member, from 0, and of all members.

    Raises:
        UsageError: There is nothing to resume, the run was started with other settings, or with
            several devices.
        InputError: The panel is too small.
        BundleError: No bundle can be written to `out`.
    """
    run = run or RunOptions()
    source = None if run.source is None else Source.open(run.source)
    n_persons = round(len(panel.persons()) * (1 - SPLIT_SHARES["test"]) * (1 - 1 / n_folds))
    settings = replace(settings_for(config, n_persons, source), members=1)
    if not MIN_FOLDS <= n_folds <= MAX_FOLDS:
        raise UsageError(f"--folds must be {MIN_FOLDS} to {MAX_FOLDS}, not {n_folds}. Use 5.")
    if run.devices > 1:
        raise UsageError("Folds are trained on one device. Leave --devices out.")
    check_replaceable(out)
    if until is not None:
        panel = cut(panel, until)
    folder = RunFolder(
        out.with_name(out.name + ".run"),
        {**run_settings(panel, settings, seed, until, source), "folds": n_folds},
    )
    folder.begin_or_resume(resume=run.resume)
    members = _train_members(panel, folder.path, n_folds, settings, seed, run, progress)
    bundle = write_bundle(
        out,
        _contents(panel, members, settings, until, run.command, source),
        seed=seed,
        command=run.command,
        parents=[] if source is None else [source.digest],
    )
    shutil.rmtree(folder.path)
    return bundle


def _train_members(
    panel: Panel,
    folder: Path,
    n_folds: int,
    settings: TrainConfig,
    seed: int,
    run: RunOptions,
    progress: MemberProgress | None,
) -> list[Bundle]:
    """Train member k on the persons outside fold k, a part of whom decide when it stops."""
    persons, folds = _persons_in_folds(panel, n_folds)
    units = units_of(panel, persons.tolist())
    stopping = uniform_each(units, "fold-validation", panel.meta.panel_id)
    members = []
    for k in range(n_folds):
        seen = folds != k
        validating = persons[seen & (stopping < _VALIDATION_SHARE)].tolist()
        if not validating:
            fix = "Use a panel of at least a hundred persons."
            problem = Problem("too-few-persons", f"No validation persons without fold {k}", fix)
            raise InputError("The panel is too small to train on.", [problem])
        member = train_member(
            panel.only(persons[seen].tolist()),
            folder / f"member-{k}",
            run,
            config=settings,
            seed=seed + k,
            validation=validating,
        )
        if progress:
            progress(k, n_folds, member)
        members.append(member)
    return members


def _persons_in_folds(panel: Panel, n_folds: int) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """The persons in folds, sorted, and the fold of each; InputError if a fold is empty."""
    panel_id, persons = panel.meta.panel_id, np.array(panel.persons(), dtype=np.str_)
    units = np.array(units_of(panel), dtype=np.str_)
    trained = assign_parts(panel_id, units) != "test"
    persons, folds = persons[trained], assign_folds(panel_id, units[trained], n_folds)
    if len(np.unique(folds)) < n_folds:
        fix = "Use fewer folds, or a panel with more persons."
        problem = Problem("too-few-persons", f"{len(persons)} persons, {n_folds} folds", fix)
        raise InputError("The panel is too small for these folds.", [problem])
    return persons, folds


def _contents(
    panel: Panel,
    members: Sequence[Bundle],
    settings: TrainConfig,
    until: int | None,
    command: str,
    source: Source | None,
) -> BundleContents:
    """The parts of the bundle that joins the members."""
    n_folds = len(members)
    persons, _ = _persons_in_folds(panel, n_folds)
    shared = Transforms.fit(
        panel.only(persons.tolist()),
        Calendar(macro_of(panel)[0]),
        settings.model.bins,
        settings.without,
        scale_free=settings.scale_free,
        like=None if source is None else source.transforms,
    )
    test_share = round(100 * SPLIT_SHARES["test"])
    report = joined_report(members)
    training = {
        **report,
        "persons": {"train": len(persons), "validation": report["persons"]["validation"]},
        "person_years": int(panel.only(persons.tolist()).frame.height),
    }
    return BundleContents(
        config={**members[0].config, "until": until or last_year(panel), MEMBERS: n_folds},
        transforms={**shared.as_dict(), MEMBERS: [member.transforms for member in members]},
        macro=members[0].macro,
        split={
            "panel_id": panel.meta.panel_id,
            "scheme": FOLDS_SCHEME,
            "folds": n_folds,
            "shares": [100 - test_share, 0, 0, test_share],
        },
        weights=joined_weights([member.weights for member in members]),
        metrics={"training": training},
        card=_card(panel, members, settings, command, source),
    )


def _card(
    panel: Panel,
    members: Sequence[Bundle],
    settings: TrainConfig,
    command: str,
    source: Source | None,
) -> str:
    """The bundle's README.md."""
    years, n_folds = panel.frame["year"].to_numpy(), len(members)
    rows = "\n".join(
        f"| {k} | {report['persons']['train']:,} | {report['persons']['validation']:,} | "
        f"{report['steps']:,} | {report['seconds']:,.0f} | {report['validation_nll']:.4f} |"
        for k, report in enumerate(member.metrics["training"] for member in members)
    )
    return f"""# SAGA bundle `{settings.name}`, {n_folds} members

An ensemble of {n_folds} networks with {members[0].parameters:,} parameters each, trained on the
panel `{panel.meta.panel_id}` ({years.min()} to {years.max()}); money in {panel.meta.currency} of
{panel.meta.price_year}.
All persons except the test persons are divided into {n_folds} folds by a keyed hash (`split.json`).
Member k was trained, scaled and stopped without the persons of fold k. A forecast is the average
of the members' distributions; path k of a simulation follows member k mod {n_folds}.

| Member | Training persons | Validation persons | Steps | Seconds | Validation log score |
|---|---|---|---|---|---|
{rows}
{"" if source is None else source.paragraph()}
Command: `{command or "saga train"}`

`saga calibrate` fits cross-fitted intervals: the scores of a person come from the member that has
not seen the person, and no map is fitted (`docs/method/cross-fitting.md`). The `guarantee` of every
interval states what it guarantees. Test persons were not used to train, tune or calibrate.
"""
