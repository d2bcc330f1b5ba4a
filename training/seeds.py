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

from saga.bundle import Bundle, BundleContents, write_bundle
from saga.data.panel import Panel
from saga.data.split import SPLIT_SHARES, Shares, persons_of
from saga.errors import UsageError
from saga.files.bundle_folder import MANIFEST, check_replaceable
from saga.model.members import MEMBERS, joined_weights
from training.fit import settings_for, train
from training.harness import RunFolder, RunOptions
from training.train_config import TrainConfig
from training.transfer import Source

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
    One member is an ordinary bundle (`training.fit.train`, which has the arguments and errors).

    Args:
        panel: persons to train on.
        out: the bundle.
        config: a configuration, its built-in name, its file, or "auto" (by size of the panel).
        seed: seed of the first member; the others have the next numbers.
        until: last year that anything fitted may use.
        shares: shares of the panel's split.
        run: how the run is started; several members need one device.
        progress: called with the number of each trained member, from 0, and of all members.

    Raises:
        UsageError: several devices were asked for, or the errors of `training.fit.train`.
    """
    run = run or RunOptions()
    source = None if run.source is None else Source.open(run.source)
    settings = settings_for(config, len(persons_of(panel, "train", shares)), source)
    n_members = settings.members
    if n_members == 1:
        return train(panel, out, config=settings, seed=seed, until=until, shares=shares, run=run)
    if run.devices > 1:
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
        if progress:
            progress(k, n_members, members[-1])
    bundle = write_bundle(
        out,
        _contents(members, settings, seed),
        seed=seed,
        command=run.command,
        parents=[] if source is None else [source.digest],
    )
    shutil.rmtree(folder.path)
    return bundle


def train_member(panel: Panel, path: Path, run: RunOptions, **options: Any) -> Bundle:
    """The finished member at `path`, or the one trained with `options` of `training.fit.train`."""
    if (path / MANIFEST).is_file():
        return Bundle.load(path)
    started = (path.with_name(path.name + ".run") / "last.ckpt").is_file()
    return train(panel, path, run=replace(run, resume=run.resume and started), **options)


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
