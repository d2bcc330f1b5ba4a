"""`saga evaluate --folds`: every person is judged once, by models that have not seen the person.

The persons, or families, are divided into folds by a keyed hash. For each fold the bundle is
trained and calibrated, and the baselines are fitted, on the persons of the other folds. The scores
of all folds are then compared together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl
from saga.evaluation.baselines.networks.trained_networks import TrainedNetwork
from saga.evaluation.contest import Contest, ContestOptions, Progress
from saga.evaluation.contest_tables import ScoredSample, score_tables, write_results
from saga.evaluation.fold_training import FoldTraining
from saga.evaluation.protocol import Baseline
from saga.evaluation.scoring.evaluation_settings import Sample
from saga.evaluation.selection import Notice, select_baselines

from saga.data.panel import Panel
from saga.errors import UsageError
from saga.files.atomic import digest_json
from saga.forecaster import Forecaster

MIN_FOLDS, MAX_FOLDS = 2, 20


@dataclass(frozen=True)
class FoldOptions:
    """The folds and the contestants.

    Args:
        n_folds: Number of folds, 2 to 20.
        training: How the bundles are trained; None: only baselines are judged.
        baselines: Names from `saga.evaluation.baselines.BASELINES`, or "all" alone.
        workers: Number of processes.

    Raises:
        UsageError: If the number of folds is out of range.
    """

    n_folds: int = 5
    training: FoldTraining | None = None
    baselines: Sequence[str] = ("carry", "groupq")
    workers: int = 1

    def __post_init__(self) -> None:
        if not MIN_FOLDS <= self.n_folds <= MAX_FOLDS:
            raise UsageError(
                f"--folds must be {MIN_FOLDS} to {MAX_FOLDS}, not {self.n_folds}. Five are usual."
            )


def evaluate_folds(
    panel: Panel,
    out: Path,
    contest_options: ContestOptions,
    options: FoldOptions,
    *,
    progress: Progress | None = None,
    notice: Notice | None = None,
) -> pl.DataFrame:
    """Judge every person of `panel` once and write the tables to `out`.

    Bundles are kept in `out`/bundles, and scores as in `Contest.score`; a repeated call reuses
    both. The settings are those of `bundle_evaluation.evaluate`: forward only if the
    panel has years after `contest_options.until`.

    Args:
        panel: The persons.
        out: Directory of the tables.
        contest_options: Horizons, paths, seed, last year of fitting; `split` has no meaning here.
        options: Folds and contestants.
        progress: Called with (step, done, total).
        notice: Called with messages, such as the time that is left.

    Returns:
        The metrics table, as `Contest.run`.

    Raises:
        UsageError: A baseline is unknown or lacks its library.
        InputError: The panel is too small.
    """
    training, n_folds = options.training, options.n_folds
    select_baselines(options.baselines, notice)  # a wrong name is reported before the work
    samples = Sample.of_folds(
        panel,
        n_folds,
        seed=contest_options.seed,
        persons=contest_options.n_persons,
        sample=contest_options.sample,
        until=contest_options.until,
    )
    started, scored, bundles = time.monotonic(), list[ScoredSample](), dict[str, str]()
    for k, sample in enumerate(samples):
        of_fold = f"fold {k + 1} of {n_folds}"
        report = partial(_report_step, progress, of_fold) if progress else None
        contest = Contest(panel, contest_options, sample=sample, progress=report)
        settings = list(contest.settings())  # before the training, because it may fail
        outside = panel.only(sample.training.persons())
        contestants = [contest.baseline(baseline) for baseline in _baselines(options, outside)]
        if training is not None:
            if report:
                report("training saga", 0, 1)
            bundle = training.bundle(
                outside,
                out / "bundles",
                fold=k + 1,
                seed=contest_options.seed,
                until=contest_options.until,
            )
            forecaster = Forecaster(
                bundle, workers=options.workers, rollout=training.rollout, facts=panel.meta.facts
            )
            bundles[of_fold] = bundle.digest
            contestants.insert(0, contest.bundle(forecaster))
        scored.append(contest.score(contestants, out, settings))
        if notice:
            notice(_time_left(of_fold, sample, time.monotonic() - started, k + 1, n_folds))
    tables = score_tables(scored, list(contest_options.horizons))
    record = {**contest.record, "split": "folds", "folds": n_folds}
    if training is not None:
        record |= {"bundle": digest_json(bundles), "bundles": bundles, **training.settings(panel)}
    write_results(tables, out, record)
    return tables["metrics"]


def _baselines(options: FoldOptions, outside: Panel) -> list[Baseline]:
    """The unfitted baselines; networks have the configuration of the bundle, without its source."""
    baselines = select_baselines(options.baselines)
    if options.training is None:
        return baselines
    config = options.training.settings_of_networks(outside)
    return [b.like(config) if isinstance(b, TrainedNetwork) else b for b in baselines]


def _report_step(progress: Progress, of_fold: str, step: str, done: int, total: int) -> None:
    progress(f"{of_fold}, {step}", done, total)


def _time_left(of_fold: str, sample: Sample, seconds: float, done: int, n_folds: int) -> str:
    left = seconds / done * (n_folds - done) / 60
    return (
        f"{of_fold[0].upper()}{of_fold[1:]}: {len(sample.test.persons()):,} persons judged; "
        f"{seconds / 60:,.0f} min so far, about {left:,.0f} min left."
    )
