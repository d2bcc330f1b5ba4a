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
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from saga.batch.partitions import Partitions, plan, stage
from saga.batch.products import ProductComputation, Recipe
from saga.batch.run_folder import (
    RUN,
    ScoreReport,
    finish_folder,
    put_part,
    receipt_name,
    refuse_other_run,
    sum_receipts,
    valid_receipts,
)
from saga.batch.shards import ALL_PARTITIONS, Shard, folder_of_run, write_plan
from saga.data.panel import Panel
from saga.data.panel_files import require_output_outside_input
from saga.data.reading import Source
from saga.errors import InputError, SagaError, UsageError
from saga.files.atomic import digest_json
from saga.files.folders import Folder, open_folder, open_place, put_json, read_json_of
from saga.forecast_warnings import warning_dicts
from saga.machine import cpu_count, keep_freed_memory
from saga.requests import Progress
from saga.simulation.pool import as_finished
from saga.simulation.worker_process import run_task, worker_pool

_PARTITIONS = 250  # enough for shards and workers that differ in speed
_FEW_PERSONS = 200  # fewer are not worth a part of their own
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class BatchRun:
    """One batch run; `digest` identifies its description."""

    digest: str
    source: Source
    recipe: Recipe
    partitions: Partitions

    @property
    def out(self) -> Folder:
        """Its output folder."""
        return self.partitions.out


Engine = Callable[[BatchRun, Sequence[int], int | None], Iterator[dict[str, Any]]]
"""Writes the pending partitions of a run, in any order; yields receipts as they finish. The last
argument is the number of processes, None for the engine's own choice. Raises BatchInterruptedError
if processes ended too often to go on."""


class BatchInterruptedError(SagaError):
    """The run stopped before its end (exit code 3); the same command continues it."""

    exit_code = 3
    title = "Interrupted"


@dataclass(frozen=True)
class PartitionWriter:
    """Computes and commits partitions; each process has one writer, which opens the recipe once."""

    run: BatchRun

    @cached_property
    def computation(self) -> ProductComputation:
        """The opened recipe.

        Raises UsageError if it opens another bundle than the run began with, because it was
        replaced since then or a node of a cluster has its own.
        """
        begun = read_json_of(self.run.out, RUN) or {}
        if digest_json(begun) != self.run.digest:
            raise UsageError(
                f"{self.run.out} is not the folder of this run on every machine. Give all nodes a "
                "file system with the same input, output and bundle."
            )
        present = {**begun, "recipe": json.loads(json.dumps(self.run.recipe.describe()))}
        if present != begun:
            refuse_other_run(self.run.out, begun, present)
        keep_freed_memory()  # each partition needs as much as the one before
        return self.run.recipe.open()

    def write(self, index: int) -> dict[str, Any]:
        """Write a partition and its receipt to disk, and return the receipt."""
        computation = self.computation
        persons, staged = self.run.partitions.read(index)
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
            excluded = computation.ineligible(panel)
            present = panel.persons()
            eligible = [person for person in present if person not in excluded]
            usable = set(eligible)
            rejected = {
                person: excluded.get(person, "no-usable-row")
                for person in persons
                if person not in usable
            }
            if eligible:
                receipt |= self._commit_rows(index, panel.only(eligible), eligible)
        receipt["rejected"] = rejected
        put_json(self.run.out, receipt_name(index), receipt)
        return receipt

    def _panel(self, staged: pl.DataFrame, receipt: dict[str, Any]) -> Panel | None:
        """The panel of a partition, or None without usable rows; adds row counts to the receipt."""
        try:
            panel = self.run.source.panel(staged)
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
        result = self.computation.compute(panel)
        if result.table["person_id"].unique(maintain_order=True).to_list() != persons:
            raise RuntimeError(
                f"the rows of partition {index} are not those of its persons, in order"
            )
        warnings = warning_dicts(result.warnings, max_persons=0)
        provenance = {**result.provenance, "warnings": warnings}
        part = put_part(self.run.out, f"part-{index:05d}.parquet", result.table, provenance)
        return {**part, "warnings": warnings}


def compute_locally(
    run: BatchRun, pending: Sequence[int], workers: int | None
) -> Iterator[dict[str, Any]]:
    """The engine of one machine: this process, or worker processes.

    By default it is this process with a thread per core: threads start faster than processes, which
    pay off for many persons only.
    """
    if workers is None or min(workers, len(pending)) == 1:
        writer = PartitionWriter(run)
        several = workers is None and writer.computation.concurrent
        yield from as_finished(
            writer.write, pending, min(cpu_count(), len(pending)) if several else 1
        )
        return
    other_processes = set(multiprocessing.active_children())
    with worker_pool(min(workers, len(pending)), PartitionWriter(run).write) as pool:
        try:
            for future in as_completed([pool.submit(run_task, index) for index in pending]):
                yield future.result()
        except BrokenProcessPool:
            raise BatchInterruptedError(
                "A worker process was killed (perhaps there is not enough memory for them)"
            ) from None
        except BaseException:
            # Each partition is either committed or not, so killing loses only seconds of work.
            for process in set(multiprocessing.active_children()) - other_processes:
                process.terminate()
            raise


def score(
    source: str | Path | Source,
    out_dir: str | Path,
    recipe: Recipe,
    *,
    workers: int | None = None,
    persons_per_partition: int | None = None,
    progress: Progress | None = None,
    shard: Shard = ALL_PARTITIONS,
    engine: Engine = compute_locally,
) -> ScoreReport:
    """Write the rows of `recipe` for all persons in `source` to `out_dir`.

    A run that was stopped continues. With a shard of several, `merge_shards` finishes the run, and
    the report counts the partitions of the shard.

    Args:
        source: A file or folder of any size, or its URL in an object store; a `Source` also says
            how to read it.
        out_dir: Path or URL of the parts, empty or of a run with the same arguments.
        recipe: The product, and everything on which its rows depend besides the persons.
        workers: Number of processes; the rows do not depend on it. More than one needs
            `if __name__ == "__main__"` in a script. None means threads of this process, one per
            core; Ray then has one process.
        persons_per_partition: Number of persons of one part; the rows do not depend on it. None
            means as many as have room in memory, and many parts.
        progress: Called with the persons done and the persons in all.
        shard: The partitions that this call computes.
        engine: What computes partitions; the rows do not depend on it.

    Raises:
        InputError: If the source cannot be read as a panel.
        UsageError: If an option is wrong, or `out_dir` belongs to another run.
        BatchInterruptedError: On SIGINT or SIGTERM, or if workers were lost.
    """
    source = source if isinstance(source, Source) else Source(source)
    require_output_outside_input(source.path, open_place(out_dir), "The output")
    if min(1 if n is None else n for n in (workers, persons_per_partition)) < 1:
        raise UsageError("The workers, and the persons a partition, must be at least 1.")
    recipe = recipe.with_contents()
    values = {
        "input": source.describe(),
        "recipe": recipe.describe(),
        "persons_per_partition": persons_per_partition,
    }
    description = json.loads(json.dumps(values))  # tuples become lists, as in the file of a run
    out = open_folder(out_dir)
    with _interrupt_on_sigterm(), folder_of_run(out, description, shard):
        receipts: dict[int, dict[str, Any]] = {}
        try:
            partitions, assignment = plan(
                source, partial(_partition_size, recipe, persons_per_partition), out, shard.staged
            )
            run = BatchRun(digest_json(description), source, recipe, partitions)
            resumed = _compute_missing(run, assignment, shard, receipts, engine, workers, progress)
        except (KeyboardInterrupt, BatchInterruptedError) as stop:
            cause = "Stopped" if isinstance(stop, KeyboardInterrupt) else str(stop)
            raise BatchInterruptedError(
                f"{cause}; at least {len(receipts)} partitions are complete. Give the same command "
                "again to continue."
            ) from None
        finally:
            if shard.is_whole:
                out.sweep()
        in_order = [receipts[index] for index in sorted(receipts)]
        report = sum_receipts(out, in_order, resumed)
        if shard.is_whole:
            finish_folder(out, description, report, in_order)
        return report


def _partition_size(recipe: Recipe, stated: int | None, persons: int) -> int:
    """Persons of a partition: as stated, or chosen for `persons` in all.

    The choice depends on the input and the recipe, not on machines, so that any engine can continue
    the run.
    """
    if stated is not None:
        return stated
    return min(recipe.largest_partition(), max(_FEW_PERSONS, -(-persons // _PARTITIONS)))


def _compute_missing(
    run: BatchRun,
    assignment: pl.DataFrame,
    shard: Shard,
    receipts: dict[int, dict[str, Any]],
    engine: Engine,
    workers: int | None,
    progress: Progress | None,
) -> int:
    """Compute the shard's partitions without a valid receipt; adds receipts as they come.

    Returns the number of partitions that were complete before.
    """
    partitions = run.partitions
    if not shard.is_whole:
        write_plan(run.out, run.digest, partitions)
    indices = [index for index in range(partitions.count) if shard.covers(index)]
    receipts |= valid_receipts(run.out, indices, run.digest)
    resumed = len(receipts)
    # Ids often follow the year of birth, and so does the work of a person: in this order the
    # partitions done so far are spread over all ids, and tell the time that is left.
    pending = sorted(set(indices) - receipts.keys(), key=lambda index: (index + 1) * _GOLDEN % 1)
    if pending:
        stage(run.source, assignment.filter(shard.rows), partitions)
    persons = sum(partitions.persons_of(index) for index in indices)

    def report_progress() -> None:
        if progress:
            progress(sum(receipt["persons"] for receipt in receipts.values()), persons)

    report_progress()
    for receipt in engine(run, pending, workers) if pending else ():
        receipts[receipt["partition"]] = receipt
        report_progress()
    return resumed


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
