"""Partitions: divide the rows of a source, in any order and number of files, by persons.

Registers often have one table per year, so the rows of a person are in many files. They are copied
block by block to a staging folder, where persons are sorted and cut into partitions of equal size.
Partition k has persons k * size to (k + 1) * size - 1 of the sorted list, for any files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from saga.data.reading import Source
from saga.errors import InputError
from saga.files.folders import Folder
from saga.files.object_store import StoreLostError
from saga.files.tables import parquet_bytes

PARTITION = "__partition"
_PERSON, _GROUP = "__person", "__group"
# Partitions staged together. With larger groups a register of millions needs fewer files, but
# reading one partition scans more rows.
_PARTITIONS_A_GROUP = 32
_ROWS_A_BLOCK = 20_000
_ROWS_TOGETHER = 200_000  # staged at once, at least: each time, every group gets a file
_COMPLETE = "complete.json"  # in the folder of staged rows, when it has all of them


@dataclass(frozen=True)
class Partitions:
    """`persons` persons in `count` partitions of at most `size`, staged in a folder of `out`."""

    out: Folder
    folder: str
    persons: int
    size: int

    @property
    def count(self) -> int:
        """Number of partitions."""
        return -(-self.persons // self.size)

    def persons_of(self, index: int) -> int:
        """Number of persons of a partition."""
        return min(self.size, self.persons - index * self.size)

    def read(self, index: int) -> tuple[list[str], pl.DataFrame]:
        """The persons of a partition, sorted, and all their rows in the columns of the source."""
        group = f"{self.folder}/{_group_name(index // _PARTITIONS_A_GROUP)}"
        names = sorted(name for name in self.out.names(group) if name.endswith(".parquet"))
        files = [str(self.out.location(f"{group}/{name}")) for name in names]
        options = self.out.polars_options
        try:
            rows = (
                pl.scan_parquet(files, glob=False, hive_partitioning=False, storage_options=options)
                .filter(pl.col(PARTITION) == index)
                .collect()
            )
        except (OSError, pl.exceptions.ComputeError):
            if self.is_staged:
                raise
            raise StoreLostError(
                f"The staged rows in {self.out} were removed by another process that finished the "
                "run or began it anew. Give the same command again to see."
            ) from None
        persons = rows[_PERSON].unique().sort().to_list()
        return [person for person in persons if person], rows.drop(_PERSON, PARTITION)

    @property
    def is_staged(self) -> bool:
        """Whether all rows are staged."""
        return self.out.read(f"{self.folder}/{_COMPLETE}") is not None


def _group_name(group: int) -> str:
    return f"group-{group:05d}"


def plan(
    source: Source, size_of: Callable[[int], int], out: Folder, folder: str
) -> tuple[Partitions, pl.DataFrame]:
    """Sort the persons into partitions of `size_of(persons)`.

    Returns the partitions and a table (person, partition, group).
    """
    named = source.persons().alias(_PERSON)
    if not named.len():
        raise InputError.of(
            "the panel is empty",
            "no-rows",
            "no row names a person in text without control characters",
            "Give at least one person-year with its person_id.",
        )
    size = size_of(named.len())
    assignment = (
        pl.DataFrame([named]).with_row_index(PARTITION).with_columns(pl.col(PARTITION) // size)
    )
    # Rows without a person go to the first partition, where reading reports them.
    nobody = pl.DataFrame({PARTITION: [0], _PERSON: [""]}, schema=assignment.schema)
    assignment = pl.concat([nobody, assignment]).with_columns(
        (pl.col(PARTITION) // _PARTITIONS_A_GROUP).alias(_GROUP)
    )
    return Partitions(out, folder, named.len(), size), assignment


def stage(source: Source, assignment: pl.DataFrame, partitions: Partitions) -> None:
    """Copy the rows of the persons of `assignment` to the staging folder, unless all are there."""
    if partitions.is_staged:
        return
    out, folder = partitions.out, partitions.folder
    out.remove(folder)
    for number, block in enumerate(_together(source.blocks())):
        assigned = block.with_columns(source.person_of(block).alias(_PERSON)).join(
            assignment, on=_PERSON, how="inner", maintain_order="left"
        )
        for (group,), rows in assigned.partition_by(
            _GROUP, as_dict=True, include_key=False, maintain_order=True
        ).items():
            # Sorted, so that reading a partition skips the blocks of others.
            in_order = rows.sort(PARTITION, maintain_order=True)
            content = parquet_bytes(in_order, row_group_size=_ROWS_A_BLOCK)
            out.put(f"{folder}/{_group_name(group)}/{number:05d}.parquet", content)
    out.put(f"{folder}/{_COMPLETE}", b"{}\n")


def _together(blocks: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The rows of `blocks` in larger ones."""
    waiting = list[pl.DataFrame]()
    for block in blocks:
        waiting.append(block)
        if sum(each.height for each in waiting) >= _ROWS_TOGETHER:
            yield pl.concat(waiting)
            waiting.clear()
    if waiting:
        yield pl.concat(waiting)
