"""The batch engine: a file or folder of any size -> one Parquet file a partition.

`OUT_DIR` holds `part-00000.parquet`, ... (persons sorted over all parts), `_receipts/` (one
a part: its hash, rows, persons and rejections), `_rejected.csv` (every person without a forecast,
and the rule) and, written last, `_MANIFEST.json` with the totals. A part counts only with a receipt
that names its hash and this run (input, bundle and parameters). So the engine may be killed at any
moment: the same command continues, and the parts are the same bytes.
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

from saga.batch.partitions import Partitions, Source, plan, stage
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


class BatchInterruptedError(SagaError):
    """The run stopped before its end; the same command continues it (exit code 3)."""

    exit_code = 3
    title = "Interrupted"


class Computation(Protocol):
    """Computes the rows of one partition."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What made the rows, for the metadata of a part."""
        ...

    def ineligible(self, panel: Panel) -> Mapping[str, str]:
        """The persons that cannot be forecast -> the rule that excludes them."""
        ...

    def compute(self, panel: Panel) -> pl.DataFrame:
        """The rows of a panel of eligible persons, sorted by person."""
        ...


class BatchRecipe(Protocol):
    """Describes a product; pickled, and opened by each worker process."""

    def describe(self) -> Mapping[str, Any]:
        """All that the rows depend on besides the source, as JSON values."""
        ...

    def open(self) -> Computation:
        """Load what computing needs."""
        ...


@dataclass(frozen=True)
class ScoreReport:
    """What `out_dir` holds after a run.

    Args:
        out_dir: Directory of the parts.
        partitions: Number of partitions.
        resumed: Partitions that were complete before this run.
        persons_in: Persons of the source: `persons_out` and the persons of `rejected`.
        persons_out: Persons with rows.
        rows: Rows of all parts.
        rejected: Rule -> persons that it excludes.
        rows_dropped: Rule -> input rows that broke it (`on_error="drop"`).
        rows_excluded: Rule -> input rows outside what a panel covers.
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
        """The entries that do not depend on interruptions, as in the manifest."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in ("out_dir", "resumed")
        }


def run_batch(
    source: Source,
    out: Path,
    recipe: BatchRecipe,
    *,
    workers: int = 1,
    partition_size: int = PERSONS_A_PARTITION,
    progress: Progress | None = None,
) -> ScoreReport:
    """Write the rows of `recipe` for all persons in `source` to `out`; continue a stopped run.

    Args:
        source: The input and how to read it.
        out: Directory for the parts, empty or of a run with the same arguments.
        recipe: The product.
        workers: Processes that share the partitions; the rows do not depend on it.
        partition_size: Persons of one partition; the rows do not depend on it.
        progress: Called with the persons done and the persons in all.

    Raises:
        InputError: If the source cannot be read as a panel.
        UsageError: If `out` belongs to another run.
        BatchInterruptedError: On SIGINT or SIGTERM.
    """
    if workers < 1 or partition_size < 1:
        raise UsageError("The workers, and the persons a partition, must be at least 1.")
    # Through JSON, so that it compares equal with the file of an earlier run.
    description = json.loads(
        json.dumps(
            {
                "input": source.describe(),
                "recipe": recipe.describe(),
                "persons_per_partition": partition_size,
            }
        )
    )
    out.mkdir(parents=True, exist_ok=True)
    with sole_writer(out), _interrupt_on_sigterm():
        _claim(out, description)
        receipts: dict[int, dict[str, Any]] = {}
        run = _Run(out, digest_json(description), source, recipe)
        try:
            return _complete(run, description, receipts, workers, partition_size, progress)
        except (KeyboardInterrupt, BrokenProcessPool) as stop:
            sweep(out)
            cause = (
                "A worker process was killed (perhaps there is not enough memory for them)"
                if isinstance(stop, BrokenProcessPool)
                else "Stopped"
            )
            raise BatchInterruptedError(
                f"{cause} with {len(receipts)} partitions complete. Give the same command again to "
                "continue."
            ) from None


def _complete(
    run: _Run,
    description: Mapping[str, Any],
    receipts: dict[int, dict[str, Any]],
    workers: int,
    partition_size: int,
    progress: Progress | None,
) -> ScoreReport:
    """Plan, stage, compute the partitions that lack a receipt (filled in here), and sum up."""
    out, folder = run.out, run.out / STAGED
    partitions, assignment, columns = plan(run.source, partition_size, folder)
    receipts |= {
        index: receipt
        for index in range(partitions.count)
        if (receipt := _valid_receipt(out, index, run.digest))
    }
    resumed = len(receipts)
    pending = [index for index in range(partitions.count) if index not in receipts]
    if pending:
        stage(run.source, assignment, columns, folder)

    def report_progress() -> None:
        if progress:
            done = sum(receipt["persons"] for receipt in receipts.values())
            progress(done, partitions.persons)

    report_progress()
    for receipt in _compute(run, partitions, pending, workers):
        receipts[receipt["partition"]] = receipt
        report_progress()
    in_order = [receipts[index] for index in range(partitions.count)]
    report = _sum_up(out, in_order, resumed)
    _finish(out, description, report, in_order)
    return report


@dataclass(frozen=True)
class _Run:
    """What a worker process needs besides the numbers of its partitions."""

    out: Path
    digest: str
    source: Source
    recipe: BatchRecipe


class _PartitionWriter:
    """Computes and commits partitions; one a process."""

    def __init__(self, run: _Run, partitions: Partitions) -> None:
        self.run, self.partitions, self.computation = run, partitions, run.recipe.open()

    def write(self, index: int) -> dict[str, Any]:
        """Write a partition and its receipt to disk, and return the receipt."""
        persons, staged = self.partitions.read(index)
        receipt: dict[str, Any] = {
            "run": self.run.digest,
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
                    [Problem("person-id", "text in one file, numbers in another", fix)],
                )
            excluded = self.computation.ineligible(panel)
            rejected = {
                person: excluded.get(person, "no-usable-row")
                for person in persons
                if person in excluded or person not in set(present)
            }
            eligible = [person for person in present if person not in excluded]
            if eligible:
                receipt |= self._commit_rows(index, panel.only(eligible), eligible)
        receipt["rejected"] = rejected
        commit_json(_receipt_path(self.run.out, index), receipt)
        return receipt

    def _panel(self, staged: pl.DataFrame, receipt: dict[str, Any]) -> Panel | None:
        """The panel of a partition, or None without usable rows; adds row counts to the receipt."""
        try:
            panel = self.run.source.panel(staged, self.partitions.folder)
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

    def _commit_rows(self, index: int, panel: Panel, persons: list[str]) -> dict[str, Any]:
        frame = self.computation.compute(panel).rechunk()
        if frame["person_id"].unique(maintain_order=True).to_list() != persons:
            raise RuntimeError(
                f"the product of partition {index} does not hold its persons, each once and in "
                "order"
            )
        path = self.run.out / f"part-{index:05d}.parquet"
        provenance = json.dumps(
            dict(self.computation.provenance), sort_keys=True, ensure_ascii=False, default=str
        )
        commit(path, partial(frame.write_parquet, compression="zstd", metadata={KEY: provenance}))
        return {"file": path.name, "sha256": digest_file(path), "rows": frame.height}


def _compute(
    run: _Run, partitions: Partitions, pending: Sequence[int], workers: int
) -> Iterator[dict[str, Any]]:
    """The receipts of the pending partitions, as they are done, here or by worker processes."""
    if not pending:
        return
    if min(workers, len(pending)) == 1:
        yield from map(_PartitionWriter(run, partitions).write, pending)
        return
    other_processes = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with _one_thread_a_process():
        pool = ProcessPoolExecutor(
            min(workers, len(pending)),
            mp_context=context,
            initializer=_start_worker,
            initargs=(run, partitions),
        )
        try:
            for future in as_completed([pool.submit(_write_in_worker, index) for index in pending]):
                yield future.result()
        except BaseException:
            # Killed, not awaited: a partition is committed or not, so only seconds are lost.
            for process in set(multiprocessing.active_children()) - other_processes:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


# Of a worker process. The writer opens the recipe at its first partition, so that an error in
# opening reaches the parent.
_assigned: tuple[_Run, Partitions] | None = None
_writer: _PartitionWriter | None = None


def _start_worker(run: _Run, partitions: Partitions) -> None:
    global _assigned
    # Ctrl-C reaches the whole process group; the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    _assigned = run, partitions


def _write_in_worker(index: int) -> dict[str, Any]:
    global _writer
    if _assigned is None:
        raise RuntimeError("the process was not initialised")
    _writer = _writer or _PartitionWriter(*_assigned)
    return _writer.write(index)


@contextmanager
def _one_thread_a_process() -> Iterator[None]:
    """Child processes that start inside use one thread each."""
    settings = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """SIGTERM, which stops containers, ends the run like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _claim(out: Path, description: Mapping[str, Any]) -> None:
    """Make `out` the folder of this run. Raises UsageError if it belongs to another run."""
    sweep(out)
    earlier = read_json(out / RUN)
    if earlier not in (None, description) and not any((out / RECEIPTS).glob("*.json")):
        # The earlier run stopped before its first part, usually at bad input: nothing is lost.
        shutil.rmtree(out / STAGED, ignore_errors=True)
        commit_json(out / RUN, description)
    elif earlier is None:
        if foreign := sorted(entry.name for entry in out.iterdir() if entry.name != LOCK):
            raise UsageError(
                f"{out} holds {foreign[0]}, which is not of a scoring run. Use an empty or a new "
                "folder."
            )
        commit_json(out / RUN, description)
    elif earlier != description:
        names = ", ".join(sorted(_differences(earlier, description)))
        raise UsageError(
            f"{out} holds the output of another run: {names} differ. Give the arguments of that "
            "run, or use another folder."
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


def _valid_receipt(out: Path, index: int, digest: str) -> dict[str, Any] | None:
    """The receipt of a partition, or None if its rows are missing or changed."""
    receipt = read_json(_receipt_path(out, index))
    if receipt is None or receipt.get("run") != digest:
        return None
    if receipt["file"] is None:
        return receipt
    path = out / str(receipt["file"])
    return receipt if path.is_file() and digest_file(path) == receipt["sha256"] else None


def _sum_up(out: Path, receipts: Sequence[Mapping[str, Any]], resumed: int) -> ScoreReport:
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
    out: Path,
    description: Mapping[str, Any],
    report: ScoreReport,
    receipts: Sequence[Mapping[str, Any]],
) -> None:
    rejected = [pair for receipt in receipts for pair in receipt["rejected"].items()]
    table = pl.DataFrame(rejected, schema={"person_id": pl.String, "rule": pl.String}, orient="row")
    commit(out / REJECTED, table.write_csv)
    parts = [
        {name: receipt[name] for name in ("file", "sha256", "rows")}
        for receipt in receipts
        if receipt["file"]
    ]
    commit_json(out / MANIFEST, {"run": description, "totals": report.totals, "parts": parts})
    shutil.rmtree(out / STAGED, ignore_errors=True)
