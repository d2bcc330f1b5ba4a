"""The contest: the bundle's forecaster and the baselines on the same persons, origins and outcomes.

Un-averaged scores first, written block by block to Parquet, then the table of means. Nothing holds the paths of more than a few
hundred persons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from evaluation.baselines import BASELINES
from evaluation.futures import true_futures
from evaluation.gap import BOUND
from evaluation.metrics import LEVELS, METRICS, metrics_table
from evaluation.protocol import Baseline
from evaluation.sets import Sets, sample_sets
from evaluation.tables import write_tables
from saga.calibrators import ALL
from saga.errors import InputError, Problem, UsageError
from saga.forecaster import Forecaster
from saga.groups import Grouping
from saga.keyed import uniform_each
from saga.options import MAX_HORIZON
from saga.outcomes import Origins, draw_origins, history, last_year, origins_at, realised
from saga.output import write_table
from saga.panel import Panel
from saga.paths import Paths
from saga.register.oracle import Oracle, is_full
from saga.scores import covered, interval_score, sample_scores, width
from saga.split import persons_of

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
HORIZONS = (1, 5, 10, 20)
GROUPINGS = ("sex", "education_level", "quintile", "age", "origin")  # those that scores are averaged over
PATHS = 200
BLOCK = 256  # persons whose paths are held at once


class Contestant(Protocol):
    """Anything that forecasts paths and sets for origins, a block of persons at a time, in the order of `origins`."""

    @property
    def name(self) -> str:
        """The contestant's row in the table."""
        ...

    def blocks(self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int) -> Iterator[tuple[Paths, Sets]]:
        """Paths (n, H, M) and sets (n, H, L) at LEVELS for consecutive blocks of persons."""
        ...


@dataclass(frozen=True)
class Model:
    """The bundle: recalibrated paths, and the intervals that its calibrator publishes."""

    forecaster: Forecaster
    name: str = "saga"

    def blocks(self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of the forecaster, which sorts persons by id as origins are."""
        for block in self.forecaster.blocks(past, to_horizon=to_horizon, paths=paths, seed=seed):
            published = self.forecaster.calibrator.intervals(block, LEVELS)
            yield block, Sets(published.lower, published.upper, published.includes_zero)


@dataclass(frozen=True)
class Fitted:
    """A fitted baseline: its paths, and sets from those paths."""

    baseline: Baseline

    @property
    def name(self) -> str:
        """The baseline's row in the table."""
        return self.baseline.name

    def blocks(self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of at most 256 persons."""
        for start in range(0, len(origins), BLOCK):
            some = origins.take(slice(start, start + BLOCK))
            block = self.baseline.paths(past.only(some.person_id.tolist()), some, to_horizon=to_horizon, paths=paths, seed=seed)
            yield block, sample_sets(block.earnings, LEVELS)


@dataclass(frozen=True)
class Clairvoyant:
    """The forecaster that knows a generated register's law and hidden states: a bound for the others, not attainable."""

    oracle: Oracle
    name: str = BOUND

    def blocks(self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of the oracle, which sorts persons by id as origins are."""
        for block in self.oracle.blocks(past, origins, to_horizon=to_horizon, paths=paths, seed=seed):
            yield block, sample_sets(block.earnings, LEVELS)


@dataclass(frozen=True)
class Setting:
    """Persons, their pasts, and what came true: (n, H) once in-time (`draw` None), once a macro future forward."""

    name: str
    past: Panel
    origins: Origins
    outcomes: Sequence[tuple[int | None, Array]]


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
    futures: Path | None = None,
    register: Path | None = None,
    keep_scores: bool = False,
) -> pl.DataFrame:
    """Scores the bundle and the baselines on the panel's test persons; returns the metrics table and writes it to `out`.

    Writes `metrics.parquet`, `tables.md` and `tables.html`.

    Settings: `in-time` (one drawn origin a test person, by the rule that calibration uses, outcomes inside the panel), and `forward`
    where `futures` (a register directory with `future/draw=k`) is given: origins in the panel's last year, outcomes in every drawn
    macro future. Baselines are fitted on the panel's training persons; the baseline `clairvoyant` needs none, but the directory of the
    generated register that the panel was read from (`register`), and is part of "all" where that is of the process full. `persons`
    limits the test persons (a keyed choice), `workers` is the number of processes; `keep_scores` leaves the un-averaged
    `out/scores.parquet`, which has a row a person.
    Columns of the table: `evaluation.metrics.COLUMNS`. `progress(step, done, total)` is called as work goes on.

    Raises UsageError for an unknown baseline or horizon, InputError when the panel has no test person with an origin, or when the
    clairvoyant's register is not the one that this code makes.
    """
    forecaster = Forecaster.load(bundle, workers=workers)
    # The clairvoyant comes first: a register that cannot be lived again is found out before hours of work.
    fitted: list[Contestant] = [*clairvoyant(baselines, register, workers), Model(forecaster)]
    training = panel.only(persons_of(panel, "train"))
    unfitted = chosen([name for name in baselines if name != BOUND])
    for i, baseline in enumerate(unfitted):
        if progress:
            progress("fit baselines", i, len(unfitted))
        fitted.append(Fitted(baseline.fit(training, seed=seed)))
    calibrated_on = {horizon: cell.n for (horizon, group), cell in forecaster.calibrator.cells.items() if group == ALL}
    contest = Contest(panel, horizons, paths=paths, seed=seed, persons=persons, progress=progress)
    return contest.run(
        fitted, out, futures=futures, calibrated_on=calibrated_on, keep_scores=keep_scores, provenance=forecaster.provenance()
    )


def chosen(names: Sequence[str]) -> list[Baseline]:
    """Unfitted baselines by name; "all" alone gives every one. Raises UsageError for a name that is not known."""
    wanted = list(BASELINES) if list(names) == ["all"] else list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in BASELINES]
    if unknown:
        fix = "Choose from " + ", ".join([*BASELINES, BOUND]) + ", or all."
        raise UsageError("A baseline is not known", [Problem("baseline", f"{unknown[0]} is not a baseline", fix)])
    return [BASELINES[name]() for name in wanted]


def clairvoyant(names: Sequence[str], register: Path | None, workers: int = 1) -> list[Contestant]:
    """The clairvoyant of `register`, where it is named, or "all" are wanted and the register is of the process full; else nobody.

    Raises UsageError where it is named without a register, InputError where the register is not one of this code's.
    """
    if BOUND in names and register is None:
        problem = Problem("baseline", "the clairvoyant knows generated registers only", "Give the register's directory as the panel.")
        raise UsageError("There is nothing to be clairvoyant about", [problem])
    known = register is not None and (BOUND in names or (list(names) == ["all"] and is_full(register)))
    return [Clairvoyant(Oracle.open(register, workers=workers))] if known and register else []


class Contest:
    """One panel's test persons, their origins and outcomes; `run` questions contestants and averages their scores."""

    def __init__(
        self,
        panel: Panel,
        horizons: Sequence[int] = HORIZONS,
        *,
        paths: int = PATHS,
        seed: int = 0,
        persons: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.panel, self.seed, self.progress = panel, seed, progress
        self.horizons = sorted(set(horizons))
        if not self.horizons or not 1 <= self.horizons[0] <= self.horizons[-1] <= MAX_HORIZON:
            fix = f"Give horizons between 1 and {MAX_HORIZON}."
            raise UsageError("A horizon is out of range", [Problem("horizon", "Horizons are years after the origin", fix)])
        if paths < 2:
            raise UsageError("At least 2 paths are needed", [Problem("paths", "a sample of one has no spread", "Use 200 or more.")])
        self.paths = paths
        tested = persons_of(panel, "test")
        if persons is not None and persons < len(tested):
            order = np.argsort(uniform_each(tested, "contest", panel.meta.panel_id))
            tested = sorted(tested[i] for i in order[:persons])
        self.test = panel.only(tested)
        if not tested:
            problem = Problem("no-test-persons", "no person of the panel is in the test part", "Give a panel with more persons.")
            raise InputError("There is nobody to be judged on", [problem])
        training = panel.only(persons_of(panel, "train"))
        self.grouping = Grouping.fit(training)

    def run(
        self,
        contestants: Sequence[Contestant],
        out: Path,
        *,
        futures: Path | None = None,
        calibrated_on: Mapping[int, int] | None = None,
        keep_scores: bool = False,
        provenance: Mapping[str, Any] | None = None,
    ) -> pl.DataFrame:
        """Scores every contestant in every setting; returns the table (`evaluation.metrics.metrics_table`) and writes it and its pages.

        `out/metrics.parquet` with the provenance, `out/tables.md`, `out/tables.html`; with `keep_scores` also `out/scores.parquet`.
        """
        out.mkdir(parents=True, exist_ok=True)
        file = out / "scores.parquet"
        groups = []
        try:
            with ScoreFile(file) as scores:
                for setting in self.settings(futures):
                    known = self.grouping.of(setting.past, setting.origins).select("person_id", *GROUPINGS)
                    groups.append(known.with_columns(pl.lit(setting.name).alias("setting")))
                    for contestant in contestants:
                        self._score(contestant, setting, scores)
            table = metrics_table(pl.scan_parquet(file), pl.concat(groups), self.horizons, calibrated_on=calibrated_on)
        finally:
            if not keep_scores:
                file.unlink(missing_ok=True)
        record = {**(provenance or {}), "panel": self.panel.meta.panel_id, "paths": self.paths, "seed": self.seed}
        write_table(table, out / "metrics.parquet", record)
        write_tables(table, out, record)
        return table

    def settings(self, futures: Path | None = None) -> Iterator[Setting]:
        """`in-time`, and `forward` when futures are given; a setting without any origin is refused with InputError."""
        end = last_year(self.panel)
        drawn = self._drawn(self.test)
        outcomes = realised(self.test, drawn, self.horizons, end=end)
        yield self._setting("in-time", drawn, [(None, outcomes)])
        if futures is not None:
            last = origins_at(self.test, end)
            yield self._setting("forward", last, list(true_futures(futures, last, self.horizons, price_year=self.panel.meta.price_year)))

    def _drawn(self, panel: Panel) -> Origins:
        """One origin a person by the calibration's rule: its horizons, not those of the table, decide the draw."""
        return draw_origins(panel, max_horizon=MAX_HORIZON, seed=self.seed, end=last_year(self.panel))

    def _setting(self, name: str, origins: Origins, outcomes: Sequence[tuple[int | None, Array]]) -> Setting:
        if not len(origins):
            fix = "Test persons need 3 years of known earnings and an age of 20 to 60 at the origin."
            raise InputError(f"The {name} setting has no origin", [Problem("no-origins", "no test person is eligible", fix)])
        return Setting(name, history(self.test, origins), origins, outcomes)

    def _score(self, contestant: Contestant, setting: Setting, scores: ScoreFile) -> None:
        done = 0
        columns = np.asarray(self.horizons) - 1
        step = f"{setting.name}: {contestant.name}"
        for block, sets in contestant.blocks(setting.past, setting.origins, to_horizon=self.horizons[-1], paths=self.paths, seed=self.seed):
            rows = slice(done, done + len(block))
            if not np.array_equal(block.person_id, setting.origins.person_id[rows]):
                raise ValueError(f"{contestant.name} answered for other persons than it was asked for")
            samples, published = block.earnings[:, columns], sets.at(columns)
            for draw, outcomes in setting.outcomes:
                frame = score_frame(samples, outcomes[rows], published, block.person_id, self.horizons, self.panel.meta.floor)
                scores.add(contestant.name, setting.name, draw, frame)
            done += len(block)
            if self.progress:
                self.progress(step, done, len(setting.origins))


def score_frame(
    samples: Array, outcomes: Array, sets: Sets, person_id: NDArray[np.str_], horizons: Sequence[int], floor: float | None
) -> pl.DataFrame:
    """Un-averaged scores, one row a person and horizon with an outcome: `person_id`, `horizon` and a Float32 column a metric.

    `samples` (n, H, M), `outcomes` (n, H), sets (n, H, L) at LEVELS. Where no interval is given its metrics are null. Interval metrics are
    in money, those named `_log` in log of max(earnings, floor).
    """
    person, column = np.nonzero(np.isfinite(outcomes) & np.isfinite(samples[:, :, 0]))
    y = outcomes[person, column]
    scores = {name: values[:, 0] for name, values in sample_scores(samples[person, column][:, None], y[:, None], floor).items()}
    lower, upper, zero = (part[person, column] for part in (sets.lower, sets.upper, sets.includes_zero))
    inside = covered(y[:, None], lower, upper, zero)
    ninety = LEVELS.index(0.9)
    scores["interval_90"] = interval_score(y, lower[:, ninety], upper[:, ninety], 0.9, zero[:, ninety])
    scores["width_90"] = width(lower[:, ninety], upper[:, ninety])
    scores |= {f"coverage_{round(100 * level)}": inside[:, i] for i, level in enumerate(LEVELS)}
    frame = pl.DataFrame({name: scores[name] for name in METRICS}).with_columns(pl.all().fill_nan(None).cast(pl.Float32))
    return frame.with_columns(
        pl.Series("person_id", person_id[person].tolist(), dtype=pl.String),
        pl.Series("horizon", np.asarray(horizons)[column], dtype=pl.Int32),
    )


class ScoreFile:
    """Appends blocks of scores to one Parquet file: a row group a block, memory for one block."""

    def __init__(self, path: Path) -> None:
        schema = [
            ("model", pa.string()),
            ("setting", pa.string()),
            ("draw", pa.int32()),
            ("person_id", pa.string()),
            ("horizon", pa.int32()),
        ]
        self._schema = pa.schema(schema + [(name, pa.float32()) for name in METRICS])
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def __enter__(self) -> ScoreFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def add(self, model: str, setting: str, draw: int | None, frame: pl.DataFrame) -> None:
        """Appends the rows of `score_frame` under a model, setting and macro future."""
        named = frame.with_columns(
            pl.lit(model).alias("model"), pl.lit(setting).alias("setting"), pl.lit(draw, dtype=pl.Int32).alias("draw")
        )
        self._writer.write_table(named.select(self._schema.names).to_arrow().cast(self._schema))
