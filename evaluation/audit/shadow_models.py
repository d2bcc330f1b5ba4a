"""Shadow models: bundles that the auditor trains as the audited one was, on random halves.

Of each the auditor knows who was trained on, so they say how a person's scores look with and
without the person (Shokri et al. 2017). They are trained one at a time, and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from saga.training.ensembles import train_members
from saga.training.harness import RunOptions
from saga.training.train_config import TrainConfig

from saga.bundle import Bundle, shipped_bundle
from saga.data.panel import Panel
from saga.data.split import Shares, persons_of
from saga.errors import UsageError
from saga.files.bundle_folder import MANIFEST

# Half train; the others but the validation persons, who decide when training stops, are outside.
SHARES: Shares = {"train": 0.5, "validation": 0.1, "calibration": 0.0, "test": 0.4}
MIN_STEPS = 100  # of a shadow; with fewer nothing is learnt, and so nothing can leak
INSIDE, OUTSIDE, NEITHER = 1, 0, -1


class Recipe:
    """How shadows are trained: the configuration of the bundle, with as many passes over persons.

    A shadow has one network, also where the bundle has several, and trees where the bundle has
    some. Steps are those that the bundle took, times the ratio of the numbers of training persons.

    Attributes:
        config: The configuration.
        source: The bundle from which training starts.
        text: The recipe in words, for the page.
    """

    def __init__(self, bundle: Bundle, n_persons: int, source: Path | None = None) -> None:
        """`n_persons` are the training persons of a shadow; `source`: by default the prior.

        Raises UsageError if the bundle started from weights that are not those of `source`.
        """
        started = bundle.config.get("source")
        self.source = None if started is None else source or shipped_bundle("prior")
        if started is not None and self.source is not None:
            digest = Bundle.load(self.source).digest
            if digest != started["digest"]:
                raise UsageError(
                    f"Training of the bundle started from {started['name']} with digest "
                    f"{started['digest'][:12]}, not from {self.source}. Name it with --from."
                )
        report = bundle.metrics["training"]
        report = report.get("by_member", [report])[0]
        ratio = n_persons / report["persons"]["train"]
        steps = max(round(report["steps"] * min(ratio, 1.0)), min(MIN_STEPS, report["steps"]))
        whole = TrainConfig(**bundle.config["training"])
        every = max(1, min(whole.validate_every, steps // 4))
        if whole.privacy is not None:
            every = steps  # validation persons must not choose the weights
        self.config = replace(
            whole,
            name="shadow",
            members=1,
            max_steps=steps,
            warmup_steps=min(whole.warmup_steps, steps // 4),
            validate_every=every,
            trees=bundle.trees is not None,
        )
        self.text = (
            f"{n_persons:,} training persons a shadow (the bundle: "
            f"{report['persons']['train']:,}), {steps:,} steps (the bundle: {report['steps']:,}), "
            f"one network{' and trees' if self.config.trees else ''}, "
            f"{'random weights' if started is None else 'from the weights of ' + started['name']}; "
            "all else as the bundle"
        )

    def train(
        self, panel: Panel, out: Path, seed: int, shares: Shares, config: TrainConfig | None = None
    ) -> Bundle:
        """The finished bundle at `out`, or one that is trained now."""
        if (out / MANIFEST).is_file():
            return Bundle.load(out)
        run = RunOptions(command="saga audit", source=self.source)
        config = config or self.config
        return train_members(panel, out, config=config, seed=seed, shares=shares, run=run)


def shadow_panel(panel: Panel, seed: int, number: int) -> Panel:
    """The panel as shadow `number` splits it."""
    return replace(panel, meta=replace(panel.meta, salt=f"shadow {seed} {number}"))


def shadow_parts(panel: Panel) -> NDArray[np.int64]:
    """INSIDE, OUTSIDE or NEITHER (n,) for each person of a panel of `shadow_panel`."""
    persons = np.array(panel.persons())
    parts = np.full(len(persons), NEITHER)
    parts[np.isin(persons, persons_of(panel, "train", SHARES))] = INSIDE
    parts[np.isin(persons, persons_of(panel, "test", SHARES))] = OUTSIDE
    return parts


def train_shadows(
    recipe: Recipe,
    panel: Panel,
    folder: Path,
    *,
    number: int,
    seed: int,
    score: Callable[[Bundle], NDArray[np.float64]],
    report: Callable[[str], None],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores (K, n, S) of all persons under K shadows, and their parts (K, n).

    Scores are kept in `folder`, so that an audit continues where it stopped.
    """
    scores, parts = [], []
    for k in range(number):
        of_shadow = shadow_panel(panel, seed, k)
        parts.append(shadow_parts(of_shadow))
        file = folder / f"shadow-{k}.npy"
        if not file.is_file():
            report(f"Shadow {k + 1} of {number}.")
            shadow = recipe.train(of_shadow, folder / f"shadow-{k}", seed + k, SHARES)
            np.save(file, score(shadow))
        scores.append(np.load(file))
    return np.stack(scores), np.stack(parts)
