"""Partitions: divide the rows of a source, in any order and number of files, by persons.

Registers often have one table per year, so the rows of a person are in many files. They are copied
block by block to a staging folder, where persons are sorted and cut into partitions of equal size.
Partition k has persons k * size to (k + 1) * size - 1 of the sorted list, for any files.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from saga.data.casting import read_column
from saga.data.facts import Facts, open_facts
from saga.data.files import InputFile, Location, collect_blocks, locate_files, scan_file
from saga.data.mapping import Deflator, MacroFile, SourceMapping, load_mapping
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError, Problem
from saga.files.atomic import digest_file
from saga.files.folders import Folder, open_place
from saga.files.object_store import StoreLostError, polars_options
from saga.requests import OnError
from saga.schema import BY_NAME

PARTITION = "__partition"
_PERSON, _GROUP = "__person", "__group"
# Partitions staged together. With larger groups a register of millions needs fewer files, but
# reading one partition scans more rows.
_PARTITIONS_A_GROUP = 32
_ROWS_A_BLOCK = 20_000
_COMPLETE = "complete.json"  # in the folder of staged rows, when it has all of them


@dataclass(frozen=True)
class Source:
    """A file or folder and how to read it, with the arguments of `read_panel`.

    It may be a URL, and is opened once; worker processes receive what was opened.
    """

    place: str | Path
    mapping: str | Path | None = None
    prices: int | None = None
    on_error: OnError = "fail"
    facts: str | Path | None = None
    origin: int | None = None

    @property
    def path(self) -> Path | str:
        """The path, or the URL of an object store."""
        return open_place(self.place)

    @cached_property
    def _mapped(self) -> tuple[SourceMapping, Path | None]:
        return (SourceMapping(), None) if self.mapping is None else load_mapping(self.mapping)

    @cached_property
    def _location(self) -> Location:
        return locate_files(self.path, beside=self._mapped[0].files)

    def describe(self) -> dict[str, Any]:
        """The files by content and the rules of reading them, as JSON values."""
        mapped = self._resolved
        return {
            "files": {
                self._location.name(file): digest_file(file) for file in self._location.files
            },
            "mapping": None
            if self.mapping is None
            else self._mapped[0].model_dump(mode="json", exclude={"deflator": {"file"}}),
            "deflator": digest_file(Path(mapped.deflator.file))
            if mapped.deflator and Path(mapped.deflator.file).is_file()
            else None,
            "prices": self._prices,
            "on_error": self.on_error,
            "facts": self._facts.digest,
            "origin": self.origin,
        }

    @cached_property
    def _facts(self) -> Facts:
        return open_facts(self.facts)

    @property
    def _prices(self) -> int | None:
        stated = self._location.register.get("prices")
        return stated if self.prices is None and isinstance(stated, int) else self.prices

    @cached_property
    def _resolved(self) -> SourceMapping:
        """The mapping with the full paths of its files, from its folder or the data's."""
        mapped, folder = self._mapped
        folders = [path for path in (folder, self._location.folder) if isinstance(path, Path)]
        resolved: dict[str, Deflator | MacroFile] = {}
        for name, part in (("deflator", mapped.deflator), ("macro", mapped.macro)):
            if isinstance(part, Deflator | MacroFile):
                candidates = [path / part.file for path in folders]
                path = next((file.resolve() for file in candidates if file.is_file()), None)
                if path is not None:
                    resolved[name] = part.model_copy(update={"file": str(path)})
        return mapped.model_copy(update=resolved)

    def _scans(
        self, choose: Callable[[Sequence[str]], Sequence[str]]
    ) -> Iterator[tuple[InputFile, pl.LazyFrame]]:
        """Each input file with a lazy frame of its rows, in the columns that `choose` selects."""
        mapped = self._mapped[0]
        for file in self._location.files:
            lazy, _ = scan_file(
                self._location,
                file,
                choose,
                mapped.lacking,
                labels=self.mapping is None,
                year_in_filename=mapped.year_in_filename,
                encoding=mapped.encoding,
            )
            yield file, lazy

    def frames(self) -> Iterator[pl.DataFrame]:
        """The rows in blocks, file by file, in the columns of the source that the mapping reads."""
        mapped = self._mapped[0]
        for file, lazy in self._scans(mapped.used_columns):
            yield from collect_blocks(lazy, file, mapped.encoding)

    def columns(self) -> pl.Schema:
        """The columns of all files that the mapping reads."""
        scans = self._scans(self._mapped[0].used_columns)
        empty = [pl.DataFrame(schema=lazy.collect_schema()) for _, lazy in scans]
        return pl.concat(empty, how="diagonal_relaxed").schema

    def persons(self) -> pl.Series:
        """All persons of the source, sorted, without the unknown one; reads no other column."""
        mapped, persons = self._mapped[0], pl.Series(_PERSON, [], dtype=pl.String)
        for file, lazy in self._scans(partial(mapped.columns_of, "person_id")):
            self.person(pl.DataFrame(schema=lazy.collect_schema()))  # refuses a file without it
            for frame in collect_blocks(lazy, file, mapped.encoding):
                persons = pl.concat([persons, self.person(frame).unique()]).unique()
        return persons.filter(persons != "").sort()

    def person(self, frame: pl.DataFrame) -> pl.Series:
        """The person of each row as in the panel; "" if it is unknown."""
        mapped = self._mapped[0]
        only = {
            part: {k: v for k, v in getattr(mapped, part).items() if k == "person_id"}
            for part in ("columns", "digits", "codes")
        }
        mapped_columns, _ = SourceMapping.model_validate(only).apply(frame)
        if "person_id" not in mapped_columns.columns:
            fix = "Add it, or name it in a mapping: `columns: {person_id: ITS_NAME}`."
            message = "the required column person_id is missing"
            missing = Problem("missing-column", message, fix, column="person_id")
            raise InputError("the panel lacks required columns", [missing])
        return (
            read_column(mapped_columns["person_id"], BY_NAME["person_id"])[0]
            .fill_null("")
            .alias(_PERSON)
        )

    def panel(self, frame: pl.DataFrame) -> Panel:
        """The panel of staged rows. Raises InputError as `read_panel` does."""
        register = self._location.register.get("register_id")
        panel_id = register if isinstance(register, str) else None
        return read_panel(
            frame,
            mapping=None if self.mapping is None else self._resolved,
            prices=self._prices,
            on_error=self.on_error,
            panel_id=panel_id,
            facts=self._facts,
            origin=self.origin,
        )


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
        files = self.out.location(f"{self.folder}/{_group_name(index // _PARTITIONS_A_GROUP)}")
        options = None if isinstance(files, Path) else polars_options()
        try:
            rows = (
                pl.scan_parquet(
                    f"{files}/*.parquet", hive_partitioning=False, storage_options=options
                )
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
) -> tuple[Partitions, pl.DataFrame, pl.Schema]:
    """Sort the persons into partitions of `size_of(persons)`.

    Returns the partitions, a table (person, partition, group) and the columns of all files.
    """
    columns, named = source.columns(), source.persons()
    if not named.len():
        problem = Problem("no-rows", "no row names a person", "Give at least one person-year.")
        raise InputError("the panel is empty", [problem])
    size = size_of(named.len())
    assignment = (
        pl.DataFrame([named]).with_row_index(PARTITION).with_columns(pl.col(PARTITION) // size)
    )
    # Rows without a person go to the first partition, where reading reports them.
    nobody = pl.DataFrame({PARTITION: [0], _PERSON: [""]}, schema=assignment.schema)
    assignment = pl.concat([nobody, assignment]).with_columns(
        (pl.col(PARTITION) // _PARTITIONS_A_GROUP).alias(_GROUP)
    )
    return Partitions(out, folder, named.len(), size), assignment, columns


def stage(
    source: Source, assignment: pl.DataFrame, columns: pl.Schema, partitions: Partitions
) -> None:
    """Copy the rows of the persons of `assignment` to the staging folder, unless all are there."""
    if partitions.is_staged:
        return
    out, folder = partitions.out, partitions.folder
    out.remove(folder)
    for number, frame in enumerate(source.frames()):
        # All staged files have the same columns; those that this file lacks are null.
        completed = frame.select(
            pl.col(name).cast(dtype)
            if name in frame.columns
            else pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in columns.items()
        )
        assigned = completed.with_columns(source.person(frame)).join(
            assignment, on=_PERSON, how="inner", maintain_order="left"
        )
        for (group,), rows in assigned.partition_by(
            _GROUP, as_dict=True, include_key=False, maintain_order=True
        ).items():
            # Sorted, so that reading a partition skips the blocks of others.
            staged, table = io.BytesIO(), rows.sort(PARTITION, maintain_order=True)
            table.write_parquet(staged, row_group_size=_ROWS_A_BLOCK)
            out.put(f"{folder}/{_group_name(group)}/{number:05d}.parquet", staged.getvalue())
    out.put(f"{folder}/{_COMPLETE}", b"{}\n")
