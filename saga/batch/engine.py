"""The batch engine writes one Parquet file per partition of a source of any size.

The output folder has `part-00000.parquet`, ... (persons sorted over all parts), `_receipts/` (for
each part its hash, rows, persons and rejected persons), `_rejected.csv` (every person without a
forecast, and the rule) and, written last, `_MANIFEST.json` with the totals. A part is complete only
if its receipt has its hash and that of this run (input, bundle and parameters). The engine may
therefore be killed at any moment: the same command continues, and writes the same bytes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from saga.batch.partitions import Partitions, Source, plan, stage
from saga.batch.run_folder import (
    STAGED,
    ScoreReport,
    claim_folder,
    finish_folder,
    receipt_path,
    sum_receipts,
    valid_receipt,
)
from saga.data.files import require_output_outside_input
from saga.data.panel import Panel
from saga.errors import InputError, Problem, SagaError, UsageError
from saga.files.atomic import commit, commit_json, digest_file, digest_json, sole_writer, sweep
from saga.files.tables import KEY
from saga.forecast_warnings import ForecastWarning, warning_dicts
from saga.simulation.worker_process import follow_parent

PERSONS_A_PARTITION = 500
Progress = Callable[[int, int], None]
"""Called with the persons done so far (earlier runs included) and the persons in all."""


class BatchInterruptedError(SagaError):
    """The run stopped before its end (exit code 3); the same command continues it."""

    exit_code = 3
    title = "Interrupted"


class Computation(Protocol):
    """Computes the rows of one partition."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Bundle, seed and other origins of the rows, for the metadata of a part."""
        ...

    def ineligible(self, panel: Panel) -> Mapping[str, str]:
        """The persons that cannot be forecast -> the rule that excludes them."""
        ...

    def compute(self, panel: Panel) -> pl.DataFrame:
        """The rows of a panel of eligible persons, sorted by person."""
        ...

    def warnings(self, panel: Panel) -> Sequence[ForecastWarning]:
        """The warnings about a panel of eligible persons."""
        ...


class BatchRecipe(Protocol):
    """Describes a product. Each worker process receives a pickled copy and opens it."""

    def describe(self) -> Mapping[str, Any]:
        """Everything besides the source on which the rows depend, as JSON values."""
        ...

    def open(self) -> Computation:
        """Load the bundle or whatever else the computation needs."""
        ...


def score(
    source: str | Path | Source,
    out_dir: str | Path,
    recipe: BatchRecipe,
    *,
    workers: int = 1,
    persons_per_partition: int = PERSONS_A_PARTITION,
    progress: Progress | None = None,
) -> ScoreReport:
    """Write the rows of `recipe` for all persons in `source` to `out_dir`.

    A run that was stopped continues.

    Args:
        source: A file or folder of any size; a `Source` also says how to read it.
        out_dir: Directory of the parts, empty or of a run with the same arguments.
        recipe: The product, usually a `Recipe`.
        workers: Number of processes; the rows do not depend on it.
        persons_per_partition: Number of persons of one part; the rows do not depend on it.
        progress: Called with the persons done and the persons in all.

    Raises:
        InputError: If the source cannot be read as a panel.
        UsageError: If an option is wrong, or `out_dir` belongs to another run.
        BatchInterruptedError: On SIGINT or SIGTERM.
    """
    source = source if isinstance(source, Source) else Source(Path(source))
    out = Path(out_dir)
    require_output_outside_input(source.path, out, "The output")
    if workers < 1 or persons_per_partition < 1:
        raise UsageError("The workers, and the persons a partition, must be at least 1.")
    values = {
        "input": source.describe(),
        "recipe": recipe.describe(),
        "persons_per_partition": persons_per_partition,
    }
    description = json.loads(json.dumps(values))  # tuples become lists, as in the file of a run
    out.mkdir(parents=True, exist_ok=True)
    with sole_writer(out), _interrupt_on_sigterm():
        claim_folder(out, description)
        receipts: dict[int, dict[str, Any]] = {}
        run = _Run(out, digest_json(description), source, recipe)
        try:
            return _complete(run, description, receipts, workers, persons_per_partition, progress)
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
    """Compute the partitions without a valid receipt; adds to `receipts` as they finish."""
    out, folder = run.out, run.out / STAGED
    partitions, assignment, columns = plan(run.source, partition_size, folder)
    receipts |= {
        index: receipt
        for index in range(partitions.count)
        if (receipt := valid_receipt(out, index, run.digest))
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
    report = sum_receipts(out, in_order, resumed)
    finish_folder(out, description, report, in_order)
    return report


@dataclass(frozen=True)
class _Run:
    """One batch run; `digest` identifies its description."""

    out: Path
    digest: str
    source: Source
    recipe: BatchRecipe


class _PartitionWriter:
    """Computes and commits partitions; each process has one writer."""

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
            "warnings": [],
        }
        rejected, panel = dict.fromkeys(persons, "no-usable-row"), self._panel(staged, receipt)
        if panel is not None:
            present = panel.persons()
            if not set(present) <= set(persons):
                fix = "Store them with one type in all files."
                problem = Problem("person-id", "text in one file, numbers in another", fix)
                raise InputError("The persons' ids are written in several ways.", [problem])
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
        commit_json(receipt_path(self.run.out, index), receipt)
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
                f"the rows of partition {index} are not those of its persons, in order"
            )
        path = self.run.out / f"part-{index:05d}.parquet"
        warnings = warning_dicts(self.computation.warnings(panel), max_persons=0)
        provenance = json.dumps(
            {**self.computation.provenance, "warnings": warnings},
            sort_keys=True,
            ensure_ascii=False,
            default=str,
        )
        commit(path, partial(frame.write_parquet, compression="zstd", metadata={KEY: provenance}))
        digest = digest_file(path)
        return {"file": path.name, "sha256": digest, "rows": frame.height, "warnings": warnings}


def _compute(
    run: _Run, partitions: Partitions, pending: Sequence[int], workers: int
) -> Iterator[dict[str, Any]]:
    """Compute partitions in this process or in worker processes; receipts as they finish."""
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
            # Each partition is either committed or not, so killing loses only seconds of work.
            for process in set(multiprocessing.active_children()) - other_processes:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


# Set in a worker process. The writer opens the recipe with its first partition, not before, so
# that an error in opening reaches the parent.
_assigned: tuple[_Run, Partitions] | None = None
_writer: _PartitionWriter | None = None


def _start_worker(run: _Run, partitions: Partitions) -> None:
    global _assigned
    follow_parent()
    _assigned = run, partitions


def _write_in_worker(index: int) -> dict[str, Any]:
    global _writer
    if _assigned is None:
        raise RuntimeError("the process was not initialised")
    _writer = _writer or _PartitionWriter(*_assigned)
    return _writer.write(index)


@contextmanager
def _one_thread_a_process() -> Iterator[None]:
    """Child processes that start inside this context use one thread each."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """SIGTERM, the signal that stops a container, ends the run like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
