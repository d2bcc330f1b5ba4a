"""The batch engine writes one Parquet file per partition of a source of any size.

The output folder has `part-00000.parquet`, ... (persons sorted over all parts), `_receipts/` (for
each part its hash, rows, persons and rejected persons), `_rejected.csv` (every person without a
forecast, and the rule) and, written last, `_MANIFEST.json` with the totals. A part is complete only
if its receipt has its hash and that of this run (input, bundle and parameters). The engine may
therefore be killed at any moment: the same command continues, and writes the same bytes.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from saga.batch.local_engine import compute_locally
from saga.batch.partition_writer import BatchRecipe, BatchRun, Engine, WorkersLostError
from saga.batch.partitions import Partitions, Source, plan, stage
from saga.batch.run_folder import (
    ScoreReport,
    claim_folder,
    finish_folder,
    sum_receipts,
    valid_receipt,
)
from saga.batch.shards import ALL_PARTITIONS, Shard, join_folder, write_plan
from saga.data.files import require_output_outside_input
from saga.errors import SagaError, UsageError
from saga.files.atomic import LOCK, digest_json
from saga.files.folders import Folder, open_folder, open_place
from saga.progress import Progress

"""Called with the persons done so far (earlier runs included) and the persons in all."""


class BatchInterruptedError(SagaError):
    """The run stopped before its end (exit code 3); the same command continues it."""

    exit_code = 3
    title = "Interrupted"


def score(
    source: str | Path | Source,
    out_dir: str | Path,
    recipe: BatchRecipe,
    *,
    workers: int = 1,
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
        recipe: The product, usually a `Recipe`.
        workers: Number of processes; the rows do not depend on it.
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
    if workers < 1 or (persons_per_partition is not None and persons_per_partition < 1):
        raise UsageError("The workers, and the persons a partition, must be at least 1.")
    values = {
        "input": source.describe(),
        "recipe": recipe.describe(),
        "persons_per_partition": persons_per_partition,
    }
    description = json.loads(json.dumps(values))  # tuples become lists, as in the file of a run
    out = open_folder(out_dir)
    with _interrupt_on_sigterm(), _claimed(out, description, shard):
        receipts: dict[int, dict[str, Any]] = {}
        run = BatchRun(out, digest_json(description), source, recipe, persons_per_partition)
        try:
            resumed = _compute_missing(
                run, shard, receipts, partial(engine, workers=workers), progress
            )
        except (KeyboardInterrupt, WorkersLostError) as stop:
            cause = "Stopped" if isinstance(stop, KeyboardInterrupt) else str(stop)
            raise BatchInterruptedError(
                f"{cause} with {len(receipts)} partitions complete. Give the same command again to "
                "continue."
            ) from None
        finally:
            if shard.is_whole:
                out.sweep()
        in_order = [receipts[index] for index in sorted(receipts)]
        report = sum_receipts(out, in_order, resumed)
        if shard.is_whole:
            finish_folder(out, description, report, in_order)
        return report


@contextmanager
def _claimed(out: Folder, description: Mapping[str, Any], shard: Shard) -> Iterator[None]:
    """Make `out` the folder of this run; no other process computes the same partitions."""
    if not shard.is_whole:
        with join_folder(out, description, shard):
            yield
        return
    with out.lock(LOCK):
        claim_folder(out, description)
        yield


def _compute_missing(
    run: BatchRun,
    shard: Shard,
    receipts: dict[int, dict[str, Any]],
    engine: Callable[[BatchRun, Partitions, Sequence[int]], Iterator[dict[str, Any]]],
    progress: Progress | None,
) -> int:
    """Compute the shard's partitions without a valid receipt; adds receipts as they come.

    Returns the number of partitions that were complete before.
    """
    partitions, assignment, columns = plan(run.source, run.partition_size, run.out, shard.staged)
    if not shard.is_whole:
        write_plan(run.out, run.digest, partitions)
    indices = [index for index in range(partitions.count) if shard.covers(index)]
    receipts |= {
        index: receipt
        for index in indices
        if (receipt := valid_receipt(run.out, index, run.digest))
    }
    resumed = len(receipts)
    pending = [index for index in indices if index not in receipts]
    if pending:
        stage(run.source, assignment.filter(shard.rows), columns, partitions)
    persons = sum(partitions.persons_of(index) for index in indices)

    def report_progress() -> None:
        if progress:
            progress(sum(receipt["persons"] for receipt in receipts.values()), persons)

    report_progress()
    for receipt in engine(run, partitions, pending):
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
