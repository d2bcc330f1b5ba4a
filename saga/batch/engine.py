"""The batch engine: a file or folder of any size -> one Parquet file a partition, each committed once and for all.

`OUT_DIR` holds `part-00000.parquet`, ... (persons in sorted order, so the parts read one after the other are sorted too),
`_receipts/` (one a part: its hash, rows, persons and rejections), `_rejected.csv` (every person without a forecast, and why) and, written
last, `_MANIFEST.json` with the totals: where it is, the work is complete. A part counts only with a receipt that names its
hash and this very run (input, bundle and parameters), so the engine may be killed at any moment: started again with
the same arguments it goes on where it was, and the parts are the same bytes whatever the interruptions and workers.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from saga.batch.partitions import Intake, Partitions, plan, stage
from saga.data.panel import Panel
from saga.errors import InputError, Problem, SagaError, UsageError
from saga.files.atomic import (
    LOCK,
    commit,
    commit_json,
    digest_file,
    digest_json,
    read_json,
    sole_writer,
    sweep,
)
from saga.files.tables import KEY
from saga.simulation.worker_process import end_with_parent

PERSONS_A_PARTITION = 500
MANIFEST, RUN, REJECTED, RECEIPTS, STAGED = (
    "_MANIFEST.json",
    "_run.json",
    "_rejected.csv",
    "_receipts",
    "_staged",
)

Progress = Callable[[int, int], None]
"""Called with the persons done so far (earlier runs included) and the persons in all."""


class Interrupted(SagaError):
    """The work stopped before its end; the same command goes on from there (exit code 3)."""

    exit_code = 3
    title = "Interrupted"


class Computes(Protocol):
    """The work on one partition: who cannot be forecast (person -> rule), and the rows of the others, sorted by person."""

    @property
    def provenance(self) -> Mapping[str, Any]: ...

    def obstacles(self, panel: Panel) -> Mapping[str, str]: ...

    def __call__(self, panel: Panel) -> pl.DataFrame: ...


class Opens(Protocol):
    """How each worker process makes its `Computes`; pickled. `describe` names, as JSON values, all that the rows depend on."""

    def describe(self) -> Mapping[str, Any]: ...

    def open(self) -> Computes: ...


@dataclass(frozen=True)
class ScoreReport:
    """What is in `out_dir` now. `persons_in` is `persons_out` plus the persons of `rejected` (rule -> persons).

    `rows_dropped` and `rows_excluded` (rule -> rows) are input rows that broke a rule (`on_error="drop"`) or lie outside what a panel
    covers. Of the `partitions`, `resumed` were complete before this run.
    """

    out_dir: Path
    partitions: int
    resumed: int
    persons_in: int
    persons_out: int
    rows: int
    rejected: dict[str, int]
    rows_dropped: dict[str, int]
    rows_excluded: dict[str, int]

    @property
    def totals(self) -> dict[str, Any]:
        """What does not depend on interruptions, as in the manifest."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in ("out_dir", "resumed")
        }


def run(
    intake: Intake,
    out: Path,
    recipe: Opens,
    *,
    workers: int = 1,
    size: int = PERSONS_A_PARTITION,
    progress: Progress | None = None,
) -> ScoreReport:
    """Compute the product of `recipe` for everybody in `intake` into `out`, going on where an earlier run stopped.

    `workers` processes share the partitions of `size` persons; the rows depend on neither. `progress` is told the persons done.
    Raises `InputError` as `read_panel` does, `UsageError` where `out` belongs to another run, `Interrupted` on SIGINT or SIGTERM.
    """
    if workers < 1 or size < 1:
        raise UsageError("The workers, and the persons a partition, must be at least 1.")
    # As JSON gives it back, so that it compares equal with the file of an earlier run.
    this = json.loads(
        json.dumps(
            {"input": intake.describe(), "recipe": recipe.describe(), "persons_per_partition": size}
        )
    )
    out.mkdir(parents=True, exist_ok=True)
    with sole_writer(out), _stoppable():
        _claim(out, this)
        done: dict[int, dict[str, Any]] = {}
        try:
            return _run(
                _Task(out, digest_json(this), intake, recipe), this, done, workers, size, progress
            )
        except (KeyboardInterrupt, BrokenProcessPool) as stop:
            sweep(out)
            why = (
                "A worker process was killed (is there memory for so many?)"
                if isinstance(stop, BrokenProcessPool)
                else "Stopped"
            )
            raise Interrupted(
                f"{why} with {len(done)} partitions complete. Give the same command again to go on from here."
            ) from None


def _run(
    task: _Task,
    this: Mapping[str, Any],
    done: dict[int, dict[str, Any]],
    workers: int,
    size: int,
    progress: Progress | None,
) -> ScoreReport:
    """Plan, stage, compute what `done` (partition -> receipt, filled here) lacks, and sum up."""
    out, folder = task.out, task.out / STAGED
    partitions, places, columns = plan(task.intake, size, folder)
    done |= {
        index: receipt
        for index in range(partitions.count)
        if (receipt := _receipt(out, index, task.run))
    }
    resumed, pending = len(done), [index for index in range(partitions.count) if index not in done]
    if pending:
        stage(task.intake, places, columns, folder)

    def tell() -> None:
        if progress:
            progress(sum(receipt["persons"] for receipt in done.values()), partitions.persons)

    tell()
    for receipt in _work(task, partitions, pending, workers):
        done[receipt["partition"]] = receipt
        tell()
    receipts = [done[index] for index in range(partitions.count)]
    report = _report(out, receipts, resumed)
    _finish(out, this, report, receipts)
    return report


@dataclass(frozen=True)
class _Task:
    """What a worker process must know, beside the numbers of its partitions."""

    out: Path
    run: str
    intake: Intake
    recipe: Opens


class _Worker:
    """Computes and commits partitions; one a process."""

    def __init__(self, task: _Task, partitions: Partitions) -> None:
        self.task, self.partitions, self.computes = task, partitions, task.recipe.open()

    def __call__(self, index: int) -> dict[str, Any]:
        """The receipt of the partition, after its rows and itself are on disk."""
        task = self.task
        persons, staged = self.partitions.read(index)
        receipt: dict[str, Any] = {
            "run": task.run,
            "partition": index,
            "persons": len(persons),
            "file": None,
            "rows": 0,
        }
        rejected, panel = dict.fromkeys(persons, "no-usable-row"), self._panel(staged, receipt)
        if panel is not None:
            present = panel.persons()
            if not set(present) <= set(persons):
                fix = "Store them with one type in all files."
                raise InputError(
                    "The persons' ids are written in several ways.",
                    [Problem("person-id", "text here, numbers there", fix)],
                )
            obstacles = self.computes.obstacles(panel)
            rejected = {
                person: obstacles.get(person, "no-usable-row")
                for person in persons
                if person in obstacles or person not in set(present)
            }
            wanted = [person for person in present if person not in obstacles]
            if wanted:
                receipt |= self._rows(index, panel.only(wanted), wanted)
        receipt["rejected"] = rejected
        commit_json(_receipt_path(task.out, index), receipt)
        return receipt

    def _panel(self, staged: pl.DataFrame, receipt: dict[str, Any]) -> Panel | None:
        """The panel of a partition and the account of its rows; None where no row of it is usable."""
        try:
            panel = self.task.intake.panel(staged, self.partitions.folder)
        except InputError as error:
            if [problem.rule for problem in error.problems][:1] != ["no-rows"]:
                raise
            receipt |= {"rows_dropped": {}, "rows_excluded": {"no-usable-row": staged.height}}
            return None
        receipt |= {
            "rows_dropped": dict(panel.meta.dropped),
            "rows_excluded": dict(panel.meta.excluded),
        }
        return panel

    def _rows(self, index: int, panel: Panel, wanted: list[str]) -> dict[str, Any]:
        frame = self.computes(panel).rechunk()
        if frame["person_id"].unique(maintain_order=True).to_list() != wanted:
            raise RuntimeError(
                f"the product of partition {index} does not hold its persons, each once and in order"
            )
        path = self.task.out / f"part-{index:05d}.parquet"
        provenance = json.dumps(
            dict(self.computes.provenance), sort_keys=True, ensure_ascii=False, default=str
        )
        commit(path, partial(frame.write_parquet, compression="zstd", metadata={KEY: provenance}))
        return {"file": path.name, "sha256": digest_file(path), "rows": frame.height}


def _work(
    task: _Task, partitions: Partitions, pending: Sequence[int], workers: int
) -> Iterator[dict[str, Any]]:
    """The receipts of the pending partitions as they come in: computed here, or by processes where several may work."""
    if not pending:
        return
    if min(workers, len(pending)) == 1:
        yield from map(_Worker(task, partitions), pending)
        return
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with _one_thread_a_process():
        pool = ProcessPoolExecutor(
            min(workers, len(pending)),
            mp_context=context,
            initializer=_enter,
            initargs=(task, partitions),
        )
        try:
            for future in as_completed([pool.submit(_in_worker, index) for index in pending]):
                yield future.result()
        except BaseException:
            # Killed rather than awaited: a partition is committed or it is not, so nothing is lost but seconds.
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


# Of this process, where it is one of the pool. Opened by the first partition rather than at the start, so that an error in it is told.
_assigned: tuple[_Task, Partitions] | None = None
_worker: _Worker | None = None


def _enter(task: _Task, partitions: Partitions) -> None:
    global _assigned
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent decides
    end_with_parent()
    _assigned = task, partitions


def _in_worker(index: int) -> dict[str, Any]:
    global _worker
    if _assigned is None:
        raise RuntimeError("the process was not initialised")
    _worker = _worker or _Worker(*_assigned)
    return _worker(index)


@contextmanager
def _one_thread_a_process() -> Iterator[None]:
    """Child processes started within use one thread each: the processes are as many as the machine shall work on."""
    wanted = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM, which containers are stopped with, ends the work like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _claim(out: Path, this: Mapping[str, Any]) -> None:
    """Make `out` the folder of this run, or find that it is. Raises `UsageError` where it is another's."""
    sweep(out)
    earlier = read_json(out / RUN)
    if earlier not in (None, this) and not any((out / RECEIPTS).glob("*.json")):
        # It stopped before its first part, most often at bad input that has been mended since: nothing is lost.
        shutil.rmtree(out / STAGED, ignore_errors=True)
        commit_json(out / RUN, this)
    elif earlier is None:
        if foreign := sorted(entry.name for entry in out.iterdir() if entry.name != LOCK):
            raise UsageError(
                f"{out} holds {foreign[0]}, which is not a scoring run's. Use an empty or a new folder."
            )
        commit_json(out / RUN, this)
    elif earlier != this:
        names = ", ".join(sorted(_differences(earlier, this)))
        raise UsageError(
            f"{out} holds the output of another run: {names} differ. Give that run's arguments, or use another folder."
        )
    (out / RECEIPTS).mkdir(exist_ok=True)
    sweep(out / RECEIPTS)


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for name in one.keys() | other.keys():
        a, b = one.get(name), other.get(name)
        if a != b:
            yield from (
                _differences(a, b)
                if name in ("input", "recipe") and isinstance(a, dict) and isinstance(b, dict)
                else (name,)
            )


def _receipt_path(out: Path, index: int) -> Path:
    return out / RECEIPTS / f"part-{index:05d}.json"


def _receipt(out: Path, index: int, digest: str) -> dict[str, Any] | None:
    """The receipt of a partition whose rows are on disk, unchanged; None where they have to be computed."""
    receipt = read_json(_receipt_path(out, index))
    if receipt is None or receipt.get("run") != digest:
        return None
    if receipt["file"] is None:
        return receipt
    path = out / str(receipt["file"])
    return receipt if path.is_file() and digest_file(path) == receipt["sha256"] else None


def _report(out: Path, receipts: Sequence[Mapping[str, Any]], resumed: int) -> ScoreReport:
    def total(name: str) -> dict[str, int]:
        return dict(
            sorted(sum((Counter(receipt[name]) for receipt in receipts), Counter[str]()).items())
        )

    rejected = Counter(rule for receipt in receipts for rule in receipt["rejected"].values())
    persons = sum(receipt["persons"] for receipt in receipts)
    return ScoreReport(
        out_dir=out,
        partitions=len(receipts),
        resumed=resumed,
        persons_in=persons,
        persons_out=persons - rejected.total(),
        rows=sum(receipt["rows"] for receipt in receipts),
        rejected=dict(sorted(rejected.items())),
        rows_dropped=total("rows_dropped"),
        rows_excluded=total("rows_excluded"),
    )


def _finish(
    out: Path, this: Mapping[str, Any], report: ScoreReport, receipts: Sequence[Mapping[str, Any]]
) -> None:
    rejected = [pair for receipt in receipts for pair in receipt["rejected"].items()]
    table = pl.DataFrame(rejected, schema={"person_id": pl.String, "rule": pl.String}, orient="row")
    commit(out / REJECTED, table.write_csv)
    parts = [
        {name: receipt[name] for name in ("file", "sha256", "rows")}
        for receipt in receipts
        if receipt["file"]
    ]
    commit_json(out / MANIFEST, {"run": this, "totals": report.totals, "parts": parts})
    shutil.rmtree(out / STAGED, ignore_errors=True)
