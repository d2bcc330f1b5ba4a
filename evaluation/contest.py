"""The contest: the bundle's forecaster and the baselines on the same persons, origins and outcomes.

Un-averaged scores first, one file a contestant and setting, kept by content; then the tables of means. An interrupted contest goes on
where it was, and another baseline costs its own run only. Nothing holds the paths of more than a few hundred persons.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from evaluation.baselines import BASELINES
from evaluation.bundle_variants import read_variants
from evaluation.cache import code_digest, file_name, keep
from evaluation.calibration_size import calibration_size
from evaluation.contestants import Clairvoyant, Contestant, Entrant, Fitted, Model
from evaluation.lifetime_scores import TRUTH, Question, lifetime_table
from evaluation.placebos import PLACEBOS, Placebo, Static
from evaluation.protocol import Baseline, Estimated, Keyed
from evaluation.report.pages import write_pages
from evaluation.scoring.comparison import TOLD, VARIANT, comparisons
from evaluation.scoring.evaluation_settings import Sample, SampleName, Setting, SplitName
from evaluation.scoring.gap import BOUND
from evaluation.scoring.metrics import metrics_table
from evaluation.scoring.sample_sets import Sets
from evaluation.scoring.score_frame import SCHEMA, score_frame
from evaluation.scoring.subgroups import subgroups
from saga.conformal.calibrator import ALL
from saga.data.groups import Grouping
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import Problem, UsageError
from saga.files.tables import read_provenance, write_table
from saga.forecaster import Forecaster
from saga.paths import Paths
from saga.register.oracle import Oracle, is_full
from saga.requests import MAX_HORIZON, RolloutName

__all__ = [
    "Clairvoyant",
    "Contest",
    "Contestant",
    "Entrant",
    "Fitted",
    "Model",
    "chosen",
    "clairvoyant",
    "evaluate",
    "score_frame",
]

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
Notice = Callable[[str], None]
HORIZONS = (1, 5, 10, 20)
GROUPINGS = (
    "sex",
    "education_level",
    "quintile",
    "age",
    "origin",
)  # those that scores are averaged over
PATHS = 200
TABLES = ("lifetimes", "placebos", "hindsight", "calibration-size")  # what costs paths of its own
FILES = ("metrics", "comparisons", "cost", "lifetimes", "estimates", "variants", "calibration_size")
SCORING = (
    "evaluation.scoring.score_frame",
    "evaluation.scoring.sample_sets",
    "saga.scores",
)  # the code that a kept score comes from


def evaluate(
    bundle: Path,
    panel: Panel,
    out: Path,
    *,
    baselines: Sequence[str] = ("carry", "groupq"),
    horizons: Sequence[int] = HORIZONS,
    paths: int = PATHS,
    seed: int = 0,
    persons: int | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    notice: Notice | None = None,
    futures: Path | None = None,
    register: Path | None = None,
    cache: Path | None = None,
    sample: SampleName = "all",
    split: SplitName = "person",
    tables: Sequence[str] = (),
    variants: Path | None = None,
    rollout: RolloutName | None = None,
) -> pl.DataFrame:
    """Scores the bundle and the baselines on the panel's test persons; returns the metrics table and writes it to `out`.

    Writes `metrics.parquet`, `comparisons.parquet`, `cost.parquet`, `tables.md` and `tables.html`, and what more is asked for by `tables`
    (of TABLES, or "all" that can be had): `lifetimes.parquet` (from drawn futures), placebos and hindsight as rows of the metrics,
    `calibration_size.parquet`. `variants` is a file of further bundles (see `read_variants`), rows beside the model's. `rollout` is how
    the bundle carries its paths (None: as it was calibrated).

    Settings: `in-time` (one drawn origin a test person, by the rule that calibration uses, outcomes up to the year that the bundle was
    trained until), and `forward`: origins in that year, outcomes in the panel's later years where there are any, else in every macro
    future of `futures` (a register directory with `future/draw=k`) where that is given. Baselines are fitted on the training persons'
    years up to it; the baseline `clairvoyant` needs none, but the directory of the generated register that the panel was read from
    (`register`), and is part of "all" where that is of the process full. Of "all", baselines whose library is not installed are left out
    with a notice. `persons` limits the test persons (a keyed choice), `sample` and `split` follow `evaluation.scoring.evaluation_settings`, `workers` is the
    number of processes. Un-averaged scores, which have a row a person, are kept in `cache` (`out/scores`).
    Columns of the table: `evaluation.scoring.metrics.COLUMNS`. `progress(step, done, total)` is called as work goes on.

    Raises UsageError for an unknown baseline or horizon or a baseline that lacks its library, InputError when the panel has no test
    person with an origin, or when the clairvoyant's register is not the one that this code makes.
    """
    forecaster = Forecaster.load(bundle, workers=workers, rollout=rollout)
    until = forecaster.bundle.config.get("until")
    contest = Contest(
        panel,
        horizons,
        paths=paths,
        seed=seed,
        persons=persons,
        progress=progress,
        sample=sample,
        split=split,
        until=until,
        cache=cache,
    )
    seen = forecaster.bundle.metrics.get("calibration", {}).get("until")
    if (
        notice
        and contest.sample.until < contest.sample.end
        and (seen is None or seen > contest.sample.until)
    ):
        notice(
            f"The bundle's intervals may have seen outcomes after {until}: calibrate it with --until {until}."
        )
    # The clairvoyant comes first: a register that cannot be lived again is found out before hours of work.
    entrants = [*clairvoyant(baselines, register, workers), contest.bundle(forecaster)]
    entrants += [
        contest.baseline(each)
        for each in chosen([name for name in baselines if name != BOUND], notice)
    ]
    wanted = _wanted(
        tables,
        drawn=futures is not None and contest.sample.until == contest.sample.end,
        notice=notice,
    )
    beside: dict[str, pl.DataFrame] = {}
    if "placebos" in wanted:
        entrants += contest.placebos(forecaster)
    if "hindsight" in wanted:
        entrants += contest.hindsight(forecaster)
    if variants is not None:
        beside["variants"] = read_variants(variants)
        rows = beside["variants"].select("name", "bundle").iter_rows()
        entrants += [
            contest.bundle(Forecaster.load(path, workers=workers), VARIANT + name)
            for name, path in rows
        ]
    if "calibration-size" in wanted:
        beside["calibration_size"] = contest.calibration_size(forecaster, out)
    cells = forecaster.calibrator.cells.items() if sample == "all" and split == "person" else ()
    calibrated_on = {horizon: cell.n for (horizon, group), cell in cells if group == ALL}
    return contest.run(
        entrants,
        out,
        futures=futures,
        lifetimes="lifetimes" in wanted,
        beside=beside,
        calibrated_on=calibrated_on,
        provenance=forecaster.provenance(),
    )


def _wanted(tables: Sequence[str], *, drawn: bool, notice: Notice | None) -> set[str]:
    """The tables asked for. Raises UsageError for an unknown one, or lifetimes where no futures are `drawn`."""
    everything = list(tables) == ["all"]
    unknown = sorted(set(tables) - {*TABLES, "accuracy"}) if not everything else []
    if unknown:
        fix = f"Choose from accuracy (always there), {', '.join(TABLES)}, or all."
        raise UsageError(
            "A table is not known", [Problem("tables", f"{unknown[0]} is not a table", fix)]
        )
    wanted = set(TABLES if everything else tables)
    if "lifetimes" in wanted and not drawn:
        message = "lifetimes need futures drawn after the last year that the bundle knows"
        if not everything:
            fix = "Generate the register with --future-to and --future-draws."
            raise UsageError(
                "There are no lives to compare with", [Problem("tables", message, fix)]
            )
        wanted.remove("lifetimes")
        if notice:
            notice(f"Left out: {message}.")
    return wanted


def chosen(names: Sequence[str], notice: Notice | None = None) -> list[Baseline]:
    """Unfitted baselines by name; "all" alone gives every one whose library is installed, with a notice of the others.

    Raises UsageError for a name that is not known, or whose library is not installed.
    """
    everyone = list(names) == ["all"]
    wanted = list(BASELINES) if everyone else list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in BASELINES]
    if unknown:
        fix = "Choose from " + ", ".join([*BASELINES, BOUND]) + ", or all."
        raise UsageError(
            "A baseline is not known", [Problem("baseline", f"{unknown[0]} is not a baseline", fix)]
        )
    made = []
    for name in wanted:
        try:
            made.append(BASELINES[name]())
        except ModuleNotFoundError as error:
            if not everyone:
                problem = Problem(
                    "baseline",
                    f"{name} lacks a library: {error}",
                    "Install it, or leave the baseline out.",
                )
                raise UsageError("A baseline cannot run", [problem]) from error
            if notice:
                notice(f"{name} is left out: {error}")
    return made


def clairvoyant(names: Sequence[str], register: Path | None, workers: int = 1) -> list[Contestant]:
    """The clairvoyant of `register`, where it is named, or "all" are wanted and the register is of the process full; else nobody.

    Raises UsageError where it is named without a register, InputError where the register is not one of this code's.
    """
    if BOUND in names and register is None:
        problem = Problem(
            "baseline",
            "the clairvoyant knows generated registers only",
            "Give the register's directory as the panel.",
        )
        raise UsageError("There is nothing to be clairvoyant about", [problem])
    known = register is not None and (
        BOUND in names or (list(names) == ["all"] and is_full(register))
    )
    if not known or not register:
        return []
    oracle = Oracle.open(register, workers=workers)
    key = code_digest("saga.register.oracle", ("saga",)) + (register / "register.json").read_text(
        encoding="utf-8"
    )
    return [Entrant(BOUND, key, lambda: Clairvoyant(oracle))]


@dataclass(frozen=True)
class Found:
    """Files of un-averaged scores and of lives by model, and tables of estimates."""

    scores: list[Path]
    lives: dict[str, Path]
    estimates: list[pl.DataFrame]


class Contest:
    """One panel's test persons, their origins and outcomes; `run` questions contestants and averages their scores.

    `sample`, `split` and `until` as in `evaluation.scoring.evaluation_settings.Sample`; `cache` is where scores are kept (by default `scores` in the output).
    """

    def __init__(
        self,
        panel: Panel,
        horizons: Sequence[int] = HORIZONS,
        *,
        paths: int = PATHS,
        seed: int = 0,
        persons: int | None = None,
        progress: Progress | None = None,
        sample: SampleName = "all",
        split: SplitName = "person",
        until: int | None = None,
        cache: Path | None = None,
    ) -> None:
        self.panel, self.seed, self.progress, self.cache = panel, seed, progress, cache
        self.horizons = sorted(set(horizons))
        if not self.horizons or not 1 <= self.horizons[0] <= self.horizons[-1] <= MAX_HORIZON:
            fix = f"Give horizons between 1 and {MAX_HORIZON}."
            raise UsageError(
                "A horizon is out of range",
                [Problem("horizon", "Horizons are years after the origin", fix)],
            )
        if paths < 2:
            raise UsageError(
                "At least 2 paths are needed",
                [Problem("paths", "a sample of one has no spread", "Use 200 or more.")],
            )
        self.paths = paths
        self.sample = Sample.of(
            panel, seed=seed, persons=persons, sample=sample, split=split, until=until
        )
        self.test = self.sample.test
        if split == "cohort":
            self.sample.check_observable(self.horizons)
        self.grouping = Grouping.fit(self.sample.training)
        self.provenance = {
            "panel": panel.meta.panel_id,
            "paths": paths,
            "seed": seed,
            "sample": sample,
            "split": split,
            "until": self.sample.until,
        }

    def bundle(self, forecaster: Forecaster, name: str = "saga") -> Entrant:
        """The bundle as an entrant."""
        key = (
            forecaster.bundle.digest
            + forecaster.rollout
            + code_digest("saga.forecaster", ("saga",))
        )
        return Entrant(name, key, lambda: Model(forecaster, name))

    def baseline(self, unfitted: Baseline, training: Panel | None = None) -> Entrant:
        """A baseline as an entrant, to be fitted on the training persons (or on poorer records of theirs) when it is needed."""
        name, module = unfitted.name, type(unfitted).__module__
        known = self.sample.training if training is None else training
        key = code_digest(module, ("evaluation.baselines", "training", "saga"))
        key += self._fitted_on if training is None else training.digest
        if isinstance(unfitted, Keyed):
            key += unfitted.key()

        def make() -> Contestant:
            self._tell(f"fit {name}", 0, 1)
            return Fitted(unfitted.fit(known, seed=self.seed))

        return Entrant(name, key, make, self.cache / f"fits-{self.seed}" if self.cache else None)

    def placebos(self, forecaster: Forecaster) -> list[Entrant]:
        """The bundle shown less than it should see, as entrants (`evaluation.placebos`)."""
        key = self.bundle(forecaster).key + code_digest("evaluation.placebos", ())

        def make(kind: str) -> Callable[[], Contestant]:
            return lambda: (
                Static(forecaster, self.horizons) if kind == "static" else Placebo(forecaster, kind)
            )

        return [Entrant(VARIANT + kind, key, make(kind)) for kind in PLACEBOS]

    def hindsight(self, forecaster: Forecaster) -> list[Entrant]:
        """The bundle told the economy that came, in-time, as baselines know it from outcomes of these years; nobody where it knows none."""
        economy = forecaster.realised_macro(self.panel, self.sample.until)
        if economy is None:
            return []
        key = self.bundle(forecaster).key + repr(economy)
        return [Entrant(TOLD, key, lambda: Model(forecaster, TOLD, economy), only="in-time")]

    def calibration_size(self, forecaster: Forecaster, out: Path) -> pl.DataFrame:
        """The table of `evaluation.calibration_size`, kept like scores."""
        calibration = self.panel.only(persons_of(self.panel, "calibration")).digest
        code = [
            code_digest("evaluation.calibration_size", ()),
            code_digest("calibration.fit.split_conformal", ("calibration", "saga")),
        ]
        parts = {
            **self.provenance,
            "bundle": self.bundle(forecaster).key,
            "code": code,
            "panels": [calibration, self.test.digest],
        }
        path = (self.cache or out / "scores") / file_name("saga", "calibration-size", parts)
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = calibration_size(
                forecaster,
                self.panel,
                self.sample,
                self.grouping,
                paths=self.paths,
                seed=self.seed,
                progress=self.progress,
            )
            write_table(made, path, self.provenance)
        return pl.read_parquet(path)

    def run(
        self,
        contestants: Iterable[Contestant],
        out: Path,
        *,
        futures: Path | None = None,
        lifetimes: bool = False,
        beside: Mapping[str, pl.DataFrame] | None = None,
        calibrated_on: Mapping[int, int] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> pl.DataFrame:
        """Scores every contestant in every setting; returns the table (`evaluation.scoring.metrics.metrics_table`) and writes it and its pages.

        `out/metrics.parquet`, `out/comparisons.parquet`, `out/cost.parquet` and, with `lifetimes`, `out/lifetimes.parquet` with the
        provenance, `out/tables.md`, `out/tables.html`. Lifetimes need drawn `futures` after the panel's last year. Tables `beside` these
        (name -> table) are written and shown with them; those of an earlier run that this one does not make are removed.
        Scores of an `Entrant` are kept and found again; those of any other contestant are made anew.
        """
        out.mkdir(parents=True, exist_ok=True)
        folder = self.cache or out / "scores"
        settings = list(self.settings(futures))
        groups = pl.concat([self._groups(setting) for setting in settings])
        asked = self._question(settings, futures) if lifetimes else None
        found = self._questioned(contestants, settings, folder, asked)
        scores = pl.scan_parquet(found.scores)
        tables = {
            **(beside or {}),
            "metrics": metrics_table(
                scores, groups.drop("year"), self.horizons, calibrated_on=calibrated_on
            ),
            "comparisons": comparisons(scores, groups),
            "cost": cost_table(found.scores),
        }
        if asked:
            tables["lifetimes"] = lifetime_table(found.lives, asked.reach)
        if found.estimates:
            tables["estimates"] = pl.concat(found.estimates)
        record = {**(provenance or {}), **self.provenance}
        for name in FILES:
            if name in tables:
                write_table(tables[name], out / f"{name}.parquet", record)
            else:
                (out / f"{name}.parquet").unlink(missing_ok=True)
        write_pages(out)
        return tables["metrics"]

    def settings(self, futures: Path | None = None) -> Iterator[Setting]:
        """The settings of `evaluation.scoring.evaluation_settings.Sample` at the contest's horizons."""
        yield from self.sample.settings(self.horizons, futures)

    @cached_property
    def _fitted_on(self) -> str:
        return self.sample.training.digest

    def _groups(self, setting: Setting) -> pl.DataFrame:
        known = self.grouping.of(setting.past, setting.origins).select("person_id", *GROUPINGS)
        known = known.join(
            subgroups(setting.past, setting.origins),
            on="person_id",
            how="left",
            maintain_order="left",
        )
        years = setting.origins.frame().rename({"origin": "year"})
        return known.join(years, on="person_id").with_columns(pl.lit(setting.name).alias("setting"))

    def _question(self, settings: Sequence[Setting], futures: Path | None) -> Question:
        if futures is None or self.sample.until < self.sample.end:
            raise UsageError(
                "Lifetimes need a register with drawn futures after the last year that fitting saw."
            )
        return Question(futures, settings[-1], self.paths, self.seed)

    def _questioned(
        self,
        contestants: Iterable[Contestant],
        settings: Sequence[Setting],
        folder: Path,
        asked: Question | None,
    ) -> Found:
        """What every contestant answers; one at a time is in memory."""
        found = Found([], {TRUTH: asked.truth(folder)} if asked else {}, [])
        for contestant in contestants:
            only = contestant.only if isinstance(contestant, Entrant) else None
            found.scores.extend(
                self.scores(contestant, setting, folder)
                for setting in settings
                if only in (None, setting.name)
            )
            if asked and not contestant.name.startswith(VARIANT):
                self._tell(f"lifetimes: {contestant.name}", 0, 1)
                found.lives[contestant.name] = asked.answer(contestant, folder)
            if isinstance(contestant, Entrant):
                found.estimates.extend(self._estimates(contestant, folder))
                contestant.close()
        return found

    def _estimates(self, entrant: Entrant, folder: Path) -> list[pl.DataFrame]:
        """The parameters of a baseline that tells them, from this fit or the one that was kept."""
        path = folder / file_name(
            entrant.name, "estimates", {"key": entrant.key, "seed": self.seed}
        )
        made = entrant.opened
        if isinstance(made, Fitted) and isinstance(made.baseline, Estimated):
            told = made.baseline.estimated().select(
                "parameter", pl.col("value", "se").cast(pl.Float64)
            )
            write_table(
                told.select(pl.lit(entrant.name).alias("model"), pl.all()), path, self.provenance
            )
        return [pl.read_parquet(path)] if path.is_file() else []

    def scores(self, contestant: Contestant, setting: Setting, folder: Path) -> Path:
        """The file in `folder` of one contestant's un-averaged scores in one setting, made unless it is kept."""
        key = contestant.key if isinstance(contestant, Entrant) else None
        code = [code_digest(module, ()) for module in SCORING]
        parts = {
            **self.provenance,
            "code": code,
            "horizons": self.horizons,
            "question": setting.digest,
            "key": key,
        }
        path = folder / file_name(contestant.name, setting.name, parts)
        if key is None:
            path.unlink(missing_ok=True)
        if path.is_file():
            self._tell(
                f"{setting.name}: {contestant.name} (kept)",
                len(setting.origins),
                len(setting.origins),
            )
        about: dict[str, Any] = {
            "model": contestant.name,
            "setting": setting.name,
            "persons": len(setting.origins),
        }
        about |= {"horizon": self.horizons[-1], "paths": self.paths}
        return keep(path, SCHEMA, self._tables(contestant, setting, about), lambda: about)

    def _tables(
        self, contestant: Contestant, setting: Setting, about: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Blocks of scores; `about` is told what making the contestant and its answers took, in seconds."""
        columns = np.asarray(self.horizons) - 1
        answers = contestant.blocks(
            setting.past,
            setting.origins,
            to_horizon=self.horizons[-1],
            paths=self.paths,
            seed=self.seed,
        )
        about |= {
            "fit_seconds": contestant.seconds if isinstance(contestant, Entrant) else 0.0,
            "seconds": 0.0,
        }
        done = 0
        for block, sets in timed(answers, about):
            rows = slice(done, done + len(block))
            if not np.array_equal(block.person_id, setting.origins.person_id[rows]):
                raise ValueError(
                    f"{contestant.name} answered for other persons than it was asked for"
                )
            samples, published = block.earnings[:, columns], sets.at(columns)
            for draw, outcomes in setting.outcomes:
                frame = score_frame(
                    samples,
                    outcomes[rows],
                    published,
                    block.person_id,
                    self.horizons,
                    self.panel.meta.floor,
                )
                named = (
                    pl.lit(contestant.name).alias("model"),
                    pl.lit(setting.name).alias("setting"),
                    pl.lit(draw, pl.Int32).alias("draw"),
                )
                yield frame.with_columns(named).select(SCHEMA.names).to_arrow()
            done += len(block)
            self._tell(f"{setting.name}: {contestant.name}", done, len(setting.origins))

    def _tell(self, step: str, done: int, total: int) -> None:
        if self.progress:
            self.progress(step, done, total)


def timed(
    answers: Iterator[tuple[Paths, Sets]], about: dict[str, Any]
) -> Iterator[tuple[Paths, Sets]]:
    """The same blocks; `about["seconds"]` grows by what each took to make."""
    while True:
        start = time.perf_counter()
        found = next(answers, None)
        about["seconds"] += time.perf_counter() - start
        if found is None:
            return
        yield found


def cost_table(files: Iterable[Path]) -> pl.DataFrame:
    """What fitting and answering took, from the record that kept files carry: a row a (model, setting), seconds and ms a person."""
    rows = [read_provenance(file) for file in files]
    names = ("model", "setting", "fit_seconds", "seconds", "persons", "horizon", "paths")
    frame = pl.DataFrame([{name: row[name] for name in names} for row in rows])
    return frame.with_columns(ms_person=1000 * pl.col("seconds") / pl.col("persons"))
