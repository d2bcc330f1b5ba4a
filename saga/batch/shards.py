"""Shards: n processes, on any machines, each compute a share of the partitions of one run.

All write to one folder, on a file system that they share. Each has an exclusive lock of its shard,
so that no other process computes it, and a shared lock of the folder, which keeps out a merge and a
run without shards. Parts and receipts (counts and checksum of each part) are those of a run without
shards; `merge_shards` checks that none is missing and writes the manifest. The folder `_shards` has
the locks, the plan and the staged rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

import polars as pl

from saga.batch.partitions import PARTITION, Partitions
from saga.batch.run_folder import (
    MANIFEST,
    RECEIPTS,
    RUN,
    SHARDS,
    STAGED,
    ScoreReport,
    claim_folder,
    finish_folder,
    refuse_other_run,
    sum_receipts,
    valid_receipts,
)
from saga.errors import UsageError
from saga.files.atomic import LOCK, FolderInUseError, digest_json
from saga.files.folders import Folder, open_folder, put_json, read_json_of

_PLAN = f"{SHARDS}/plan.json"


@dataclass(frozen=True)
class Shard:
    """Every `count`-th partition from number `index` on; shards are numbered from 0."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UsageError(
                f"There is no shard {self}: shards are numbered from 0, such as 0/7 to 6/7."
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """`2/7` as a shard. Raises UsageError."""
        if not re.fullmatch(r"[0-9]{1,9}/[0-9]{1,9}", text):
            raise UsageError(f"--shard cannot be read from {text!r}. Write i/n, such as 0/7.")
        index, count = map(int, text.split("/"))
        return cls(index, count)

    @property
    def is_whole(self) -> bool:
        """Whether the shard has all partitions."""
        return self == ALL_PARTITIONS

    @property
    def staged(self) -> str:
        """The folder of its staged rows, inside that of the run."""
        return STAGED if self.is_whole else f"{SHARDS}/{self.name}-staged"

    @property
    def rows(self) -> pl.Expr:
        """Condition for the rows of a table person -> partition that belong to the shard."""
        return pl.col(PARTITION) % self.count == self.index

    def covers(self, partition: int) -> bool:
        """Whether a partition belongs to the shard."""
        return partition % self.count == self.index

    @property
    def name(self) -> str:
        """Its name in file names."""
        return f"{self.index}-of-{self.count}"


ALL_PARTITIONS = Shard(0, 1)


@contextmanager
def folder_of_run(out: Folder, description: Mapping[str, Any], shard: Shard) -> Iterator[None]:
    """Make `out` the folder of this run, alone or together with its other shards.

    The first shard claims the folder; later ones must have the same description. Raises UsageError
    if another process computes the shard, merges or runs without shards, or the run is another.
    """
    if shard.is_whole:
        with out.lock(LOCK):
            claim_folder(out, description)
            yield
        return
    with ExitStack() as locks:
        locks.enter_context(out.lock(f"{SHARDS}/{shard.name}.lock"))
        with out.lock(f"{SHARDS}/claim.lock", wait=True):
            # If another shard has the lock, this one is not the first. If a merge or a run without
            # shards has it, the shared lock below fails.
            with suppress(FolderInUseError), out.lock(LOCK):
                claim_folder(out, description)
            locks.enter_context(out.lock(LOCK, shared=True))
        earlier = read_json_of(out, RUN)
        if earlier != description:
            refuse_other_run(out, earlier or {}, description)
        yield
        out.remove(shard.staged)


def write_plan(out: Folder, run_digest: str, partitions: Partitions) -> None:
    """Write what a merge must know of the input; all shards write the same."""
    put_json(out, _PLAN, {"run": run_digest, "partitions": partitions.count})


def merge_shards(out_dir: str | Path) -> ScoreReport:
    """Finish a run that was computed in shards: check all parts and write the manifest.

    Raises UsageError if parts are missing, or another process writes to the folder.
    """
    out = open_folder(out_dir)
    description = read_json_of(out, RUN)
    if description is None:
        raise UsageError(f"{out} has no scoring run. Name the folder that the shards wrote.")
    with out.lock(LOCK):
        out.sweep()
        out.sweep(RECEIPTS)
        run_digest = digest_json(description)
        count = _partition_count(out, run_digest)
        receipts = valid_receipts(out, range(count), run_digest)
        if len(receipts) < count:
            raise UsageError(_missing(out, sorted(set(range(count)) - receipts.keys()), count))
        in_order = [receipts[index] for index in range(count)]
        report = sum_receipts(out, in_order, resumed=count)
        finish_folder(out, description, report, in_order)
    return report


def _partition_count(out: Folder, run_digest: str) -> int:
    """Number of partitions, from the plan of the shards or from the manifest of a merged run."""
    plan, manifest = read_json_of(out, _PLAN), read_json_of(out, MANIFEST)
    if plan is not None and plan["run"] == run_digest:
        return int(plan["partitions"])
    if manifest is not None:
        return int(manifest["totals"]["partitions"])
    raise UsageError(f"No shard of {out} has read its input yet. Run the shards first.")


def _missing(out: Folder, partitions: Sequence[int], count: int) -> str:
    """What is missing, and how to complete it.

    If all shards that started are of the same count, it names those to run again.
    """
    locks = [name for name in out.names(SHARDS) if re.fullmatch(r"\d+-of-\d+\.lock", name)]
    names = [PurePosixPath(name).stem.split("-of-") for name in locks]
    totals = {int(total) for _, total in names}
    text = f"{out} lacks {len(partitions)} of {count} parts, or they were changed."
    if len(totals) != 1:
        return f"{text} Run `saga score` on it with the same arguments to complete it."
    (total,) = totals
    shards = sorted({partition % total for partition in partitions})
    again = ", ".join(str(Shard(shard, total)) for shard in shards)
    return f"{text} Run with --shard {again} and the same arguments, then merge again."
