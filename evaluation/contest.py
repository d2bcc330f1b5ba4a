"""The contest: the bundle and the baselines forecast the same persons from the same origins.

First the un-averaged scores are computed, one stored file per contestant and setting, then the
tables of means. If a contest is interrupted or a baseline is added, stored scores are reused.
Forecasts of a few hundred persons are in memory at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from saga.evaluation.cache import file_name, store
from saga.evaluation.contest_tables import ScoredSample, score_tables, write_results
from saga.evaluation.contestants import (
    BaselineContestant,
    BundleContestant,
    Contestant,
    LazyContestant,
)
from saga.evaluation.lifetime_scores import TRUTH, LifetimeTask, lifetime_table
from saga.evaluation.placebos import PLACEBOS, PLACEBOS_VERSION, StaticPlacebo, YearsPlacebo
from saga.evaluation.protocol import Baseline, HasEstimates, HasSettings
from saga.evaluation.scoring.comparison import HINDSIGHT, VARIANT
from saga.evaluation.scoring.evaluation_settings import Sample, SampleName, Setting, SplitName
from saga.evaluation.scoring.metrics import CLUSTER
from saga.evaluation.scoring.score_frame import SCHEMA, SCORES_VERSION, score_block
from saga.evaluation.scoring.subgroups import assign_subgroups
from saga.evaluation.scoring.year_forecasts import YearForecasts

from saga.data.groups import Grouping
from saga.data.panel import Panel
from saga.data.split import units_of
from saga.errors import UsageError
from saga.files.atomic import digest_json
from saga.files.tables import write_table
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest
from saga.schema import FAMILY

Progress = Callable[[str, int, int], None]
HORIZONS = (1, 5, 10, 20)
# Means of scores are computed for the groups of these groupings.
SCORED_GROUPINGS = ("sex", "education_level", "quintile", "age", "origin")
PATHS = 200


@dataclass(frozen=True)
class ContestOptions:
    """Persons, horizons and paths that every contestant forecasts.

    Args:
        horizons: Years after the origin.
        n_paths: Paths per person, at least 2.
        seed: Seed of origins, fits and paths.
        sample: "all", or "paper" (see `saga.evaluation.scoring.evaluation_settings.Sample.of`).
        split: "person", or "cohort" (see `Sample.of`).
        n_persons: Largest number of test persons, reproducibly at random; None: all.
        until: Last year that fitting may use; None: the panel's last.
        cache: Directory of stored scores (a row per person); None: `scores` in the output
            directory.

    Raises:
        UsageError: If a horizon, the number of paths or the seed is out of range.
    """

    horizons: Sequence[int] = HORIZONS
    n_paths: int = PATHS
    seed: int = 0
    sample: SampleName = "all"
    split: SplitName = "person"
    n_persons: int | None = None
    until: int | None = None
    cache: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizons", tuple(ForecastRequest(self.horizons).horizons))
        Draws(self.n_paths, self.seed)


class Contest:
    """The test persons of a panel, their origins and outcomes; `run` scores contestants on them."""

    def __init__(
        self,
        panel: Panel,
        options: ContestOptions,
        *,
        sample: Sample | None = None,
        progress: Progress | None = None,
    ) -> None:
        """The contest on `sample`; by default on the test persons of the split in `options`."""
        self.panel, self.options, self.progress = panel, options, progress
        self.horizons, self.seed = list(options.horizons), options.seed
        self.sample = sample or Sample.of(
            panel,
            seed=options.seed,
            persons=options.n_persons,
            sample=options.sample,
            split=options.split,
            until=options.until,
        )
        self.test = self.sample.test
        if options.split == "cohort":
            self.sample.check_observable(self.horizons)
        self.grouping = Grouping.fit(self.sample.training)
        self.provenance = {
            "panel": panel.meta.panel_id,
            "paths": options.n_paths,
            "seed": options.seed,
            "sample": options.sample,
            "split": options.split,
            "until": self.sample.until,
        }
        self.record = {**self.provenance, "panel_digest": panel.digest}

    def bundle(self, forecaster: Forecaster, name: str = "saga") -> LazyContestant:
        """The bundle as a contestant. UsageError if it has learnt from every person."""
        forecaster.bundle.check_judgeable()
        return LazyContestant(
            name, _bundle_key(forecaster), lambda: BundleContestant(forecaster, name)
        )

    def baseline(self, unfitted: Baseline, training: Panel | None = None) -> LazyContestant:
        """A baseline as a contestant.

        It is fitted on the training persons, or on the panel `training` if one is given (the same
        persons with poorer records).
        """
        name, kind = unfitted.name, type(unfitted)
        key = digest_json(
            [
                f"{kind.__module__}.{kind.__qualname__}",
                unfitted.version,
                self._training_digest if training is None else training.digest,
                unfitted.settings_key() if isinstance(unfitted, HasSettings) else None,
            ]
        )
        panel = self.sample.training if training is None else training

        def fit() -> Contestant:
            self._report(f"fit {name}", 0, 1)
            return BaselineContestant(unfitted.fit(panel, seed=self.seed))

        return LazyContestant(name, key, fit)

    def placebos(self, forecaster: Forecaster) -> list[LazyContestant]:
        """The bundle with reduced records (`saga.evaluation.placebos`)."""
        key = digest_json([_bundle_key(forecaster), PLACEBOS_VERSION])

        def build(kind: str) -> Contestant:
            if kind == "static":
                return StaticPlacebo(forecaster)
            return YearsPlacebo(forecaster, kind)

        return [LazyContestant(VARIANT + kind, key, partial(build, kind)) for kind in PLACEBOS]

    def hindsight(self, forecaster: Forecaster) -> list[LazyContestant]:
        """The bundle conditioned on realised macro, in-time only; empty without a macro model.

        Baselines are fitted on outcomes of these years, so they depend on realised macro as well.
        """
        realised = forecaster.realised_macro(self.panel, self.sample.until)
        if realised is None:
            return []
        key = digest_json([_bundle_key(forecaster), repr(realised)])
        build = partial(BundleContestant, forecaster, HINDSIGHT, realised)
        return [LazyContestant(HINDSIGHT, key, build, only_setting="in-time")]

    def run(
        self,
        contestants: Iterable[Contestant],
        out: Path,
        *,
        futures: Path | None = None,
        lifetimes: bool = False,
        further_tables: Mapping[str, pl.DataFrame] | None = None,
        calibrated_on: Mapping[int, int] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> pl.DataFrame:
        """Score every contestant in every setting and write tables and pages to `out`.

        `metrics.parquet`, `comparisons.parquet`, `cost.parquet`, `tables.md` and `tables.html` are
        always written. Tables of an earlier run that this run does not make are removed. Scores of
        a `LazyContestant` with a key are stored and reused.

        Args:
            contestants: The forecasters to score.
            out: Directory of the tables.
            futures: A register directory with drawn futures.
            lifetimes: Also write `lifetimes.parquet`; needs drawn futures after the panel's end.
            further_tables: Name -> table, written and shown with the others.
            calibrated_on: Horizon -> number of calibration persons, for the bands of coverage.
            provenance: Stored with every table, in addition to that of the contest.

        Returns:
            The metrics table (`saga.evaluation.scoring.metrics.metrics_table`).
        """
        settings = list(self.settings(futures))
        task = self._lifetime_task(settings, futures) if lifetimes else None
        scored = self.score(contestants, out, settings, task)
        tables = {
            **(further_tables or {}),
            **score_tables([scored], self.horizons, calibrated_on=calibrated_on),
        }
        if task:
            tables["lifetimes"] = lifetime_table(scored.lifetimes, task.reach)
        if scored.estimates:
            tables["estimates"] = pl.concat(scored.estimates)
        write_results(tables, out, {**(provenance or {}), **self.record})
        return tables["metrics"]

    def score(
        self,
        contestants: Iterable[Contestant],
        out: Path,
        settings: Sequence[Setting],
        task: LifetimeTask | None = None,
    ) -> ScoredSample:
        """Score contestants in `settings`, and in `task`; one contestant is in memory.

        Scores are stored in the cache of the options, by default in `out`/scores.
        """
        folder = self.options.cache or out / "scores"
        scored = ScoredSample(pl.concat([self._groups(setting) for setting in settings]))
        if task:
            scored.lifetimes[TRUTH] = task.store_realised(folder)
        for contestant in contestants:
            lazy = LazyContestant.of(contestant)
            scored.scores.extend(
                self.scores(lazy, setting, folder)
                for setting in settings
                if lazy.only_setting in (None, setting.name)
            )
            if task and not lazy.name.startswith(VARIANT):
                self._report(f"lifetimes: {lazy.name}", 0, 1)
                scored.lifetimes[lazy.name] = task.store_simulated(lazy, folder)
            scored.estimates.extend(self._estimates(lazy, folder))
            lazy.close()
        return scored

    def settings(self, futures: Path | None = None) -> Iterator[Setting]:
        """The settings of the sample at the contest's horizons."""
        yield from self.sample.settings(self.horizons, futures)

    def scores(self, contestant: Contestant, setting: Setting, folder: Path) -> Path:
        """The file in `folder` of a contestant's un-averaged scores; computed unless stored."""
        lazy = LazyContestant.of(contestant)
        inputs = {
            **self.provenance,
            "version": SCORES_VERSION,
            "horizons": self.horizons,
            "setting": setting.digest,
            "key": lazy.key,
        }
        path = folder / file_name(lazy.name, setting.name, inputs)
        if lazy.key is None:
            path.unlink(missing_ok=True)
        n_persons = len(setting.origins)
        if path.is_file():
            self._report(f"{setting.name}: {lazy.name} (stored)", n_persons, n_persons)
        record: dict[str, Any] = {
            "model": lazy.name,
            "setting": setting.name,
            "persons": n_persons,
            "horizon": self.horizons[-1],
            "paths": self.options.n_paths,
        }
        return store(path, SCHEMA, self._score_tables(lazy, setting, record), lambda: record)

    @cached_property
    def _training_digest(self) -> str:
        return self.sample.training.digest

    def _groups(self, setting: Setting) -> pl.DataFrame:
        groups = self.grouping.assign(setting.past, setting.origins).select(
            "person_id", *SCORED_GROUPINGS
        )
        subgroups = assign_subgroups(setting.past, setting.origins)
        groups = groups.join(subgroups, on="person_id", how="left", maintain_order="left")
        years = setting.origins.frame().rename({"origin": "year"})
        groups = groups.join(years, on="person_id").with_columns(
            pl.lit(setting.name).alias("setting")
        )
        if FAMILY.name not in setting.past.frame.columns:
            return groups
        families = units_of(setting.past, groups["person_id"].to_list())
        return groups.with_columns(pl.Series(CLUSTER, families, dtype=pl.String))

    def _lifetime_task(self, settings: Sequence[Setting], futures: Path | None) -> LifetimeTask:
        if futures is None or self.sample.until < self.sample.end:
            raise UsageError(
                "Lifetimes need a register with drawn futures after the last year of fitting."
            )
        return LifetimeTask(futures, settings[-1], self.options.n_paths, self.seed)

    def _estimates(self, lazy: LazyContestant, folder: Path) -> list[pl.DataFrame]:
        """The parameters of a baseline, of this fit or a stored table; empty if it has none."""
        path = folder / file_name(lazy.name, "estimates", {"key": lazy.key, "seed": self.seed})
        fitted = lazy.opened
        if isinstance(fitted, BaselineContestant) and isinstance(fitted.baseline, HasEstimates):
            estimates = fitted.baseline.estimates().select(
                pl.lit(lazy.name).alias("model"),
                "parameter",
                pl.col("value", "se").cast(pl.Float64),
            )
            write_table(estimates, path, self.provenance)
        return [pl.read_parquet(path, glob=False)] if path.is_file() else []

    def _score_tables(
        self, lazy: LazyContestant, setting: Setting, record: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Scores by block of persons and draw; adds seconds of fit and forecast to `record`."""
        blocks = lazy.forecasts(
            setting.past,
            setting.origins,
            horizons=self.horizons,
            n_paths=self.options.n_paths,
            seed=self.seed,
        )
        record |= {"fit_seconds": lazy.seconds, "seconds": 0.0}
        done = 0
        for block in _timed(blocks, record):
            rows = slice(done, done + len(block))
            if not np.array_equal(block.person_id, setting.origins.person_id[rows]):
                raise ValueError(f"{lazy.name} forecast other persons than those of the setting")
            for draw, outcomes in setting.outcomes:
                scores = score_block(
                    block, outcomes[rows], self.horizons, self.panel.meta.floor
                ).with_columns(
                    pl.lit(lazy.name).alias("model"),
                    pl.lit(setting.name).alias("setting"),
                    pl.lit(draw, pl.Int32).alias("draw"),
                )
                yield scores.select(SCHEMA.names).to_arrow()
            done += len(block)
            self._report(f"{setting.name}: {lazy.name}", done, len(setting.origins))

    def _report(self, step: str, done: int, total: int) -> None:
        if self.progress:
            self.progress(step, done, total)


def _bundle_key(forecaster: Forecaster) -> str:
    return digest_json([forecaster.bundle.digest, forecaster.rollout, BundleContestant.version])


def _timed(blocks: Iterator[YearForecasts], record: dict[str, Any]) -> Iterator[YearForecasts]:
    """The `blocks`; adds the time that each takes to `record["seconds"]`."""
    while True:
        start = time.perf_counter()
        block = next(blocks, None)
        record["seconds"] += time.perf_counter() - start
        if block is None:
            return
        yield block
