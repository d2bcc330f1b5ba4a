"""Members of an ensemble that differ by seed alone: one split, one set of transforms.

Their forecasts are averaged. Path k of a simulation follows member k mod K, so paths cost no more
than those of one network.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from saga.training.fit import settings_for, train
from saga.training.harness import RunFolder, RunOptions
from saga.training.train_config import TrainConfig
from saga.training.transfer import Source
from saga.training.tree_member import allows_trees, fit_tree_member

from saga.bundle import Bundle, BundleContents, write_bundle
from saga.data.origins import cut
from saga.data.panel import Panel
from saga.data.split import SPLIT_SHARES, Shares, persons_of
from saga.errors import UsageError
from saga.files.bundle_folder import MANIFEST, check_replaceable
from saga.model.members import MEMBERS, joined_weights
from saga.trees.mixture import WEIGHTS, described_weights

MemberProgress = Callable[[int, int, Bundle], None]


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
    and errors). Trees are not fitted with several devices.

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
    settings = settings_for(config, len(persons_of(panel, "train", shares)), source)
    n_members = settings.members
    # With several devices this program runs several times.
    with_trees = allows_trees(panel, settings) and run.devices == 1
    if n_members == 1 and not with_trees:
        return train(panel, out, config=settings, seed=seed, until=until, shares=shares, run=run)
    if run.devices > 1 and n_members > 1:
        raise UsageError(
            "Several members are trained on one device. Leave --devices out, or set `members: 1`."
        )
    check_replaceable(out)
    folder = RunFolder(
        out.with_name(out.name + ".run"),
        {
            "config": settings.as_dict(),
            "seed": seed,
            "until": until,
            "panel": panel.digest,
            "macro": panel.meta.macro,
            "shares": list(shares.values()),
            "source": None if source is None else source.digest,
        },
    )
    folder.begin_or_resume(resume=run.resume)
    members = []
    for k in range(n_members):
        members.append(
            train_member(
                panel,
                folder.path / f"member-{k}",
                run,
                config=replace(settings, members=1),
                seed=seed + k,
                until=until,
                shares=shares,
            )
        )
        if progress and n_members > 1:
            progress(k, n_members, members[-1])
    contents = _contents(members, settings, seed) if n_members > 1 else members[0]
    if with_trees:
        known = panel if until is None else cut(panel, until)
        networks = folder.path / "networks"
        joined = write_bundle(networks, contents, seed=seed, command=run.command)
        contents = _with_trees(joined, known, settings, shares, seed, run)
    bundle = write_bundle(
        out,
        contents,
        seed=seed,
        command=run.command,
        parents=[] if source is None else [source.digest],
    )
    for file in list(folder.path.rglob(MANIFEST)):  # the logs stay
        shutil.rmtree(file.parent)
    return bundle


def train_member(
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
    started = (path.with_name(path.name + ".run") / "last.ckpt").is_file()
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


def joined_report(members: Sequence[Bundle]) -> dict[str, Any]:
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


def _contents(members: Sequence[Bundle], settings: TrainConfig, seed: int) -> BundleContents:
    """The parts of the bundle that joins the members."""
    first, n_members = members[0], len(members)
    scores = ", ".join(f"{m.metrics['training']['validation_nll']:.4f}" for m in members)
    card = f"""{first.card.rstrip()}

## Members

The bundle has {n_members} networks of this kind, trained with the seeds {seed} to
{seed + n_members - 1} on the same persons. A forecast is the average of their distributions; path
k of a simulation follows member k mod {n_members}. Their validation log scores: {scores}. The text
above describes the first one.
"""
    return BundleContents(
        config={**first.config, "training": settings.as_dict(), MEMBERS: n_members},
        transforms={**first.transforms, MEMBERS: [member.transforms for member in members]},
        macro=first.macro,
        split=first.split,
        weights=joined_weights([member.weights for member in members]),
        metrics={"training": joined_report(members)},
        card=card,
    )


def _with_trees(
    networks: Bundle,
    panel: Panel,
    settings: TrainConfig,
    shares: Shares,
    seed: int,
    run: RunOptions,
) -> BundleContents:
    """The parts of the bundle, with trees if these lower the CRPS of validation persons."""
    report = run.report or (lambda _: None)
    report("Fitting boosted trees beside the network.")
    fitted = fit_tree_member(networks, panel, settings, shares=shares, seed=seed, report=report)
    if fitted is None:
        report("The network stays alone: trees hardly help, or outcomes are too few for them.")
        return networks
    by_horizon = {str(horizon): weight for horizon, weight in fitted.weights.items()}
    weights = described_weights(list(fitted.weights), np.array(list(fitted.weights.values())))
    card = f"""{networks.card.rstrip()}

## Boosted trees

A forecast is the average of the network's distributions and of those of boosted trees (LightGBM),
which were fitted on the training and validation persons and have the weights {weights}.
"""
    config = {**networks.config, WEIGHTS: by_horizon}
    return replace(networks, config=config, trees=fitted.table, card=card)
