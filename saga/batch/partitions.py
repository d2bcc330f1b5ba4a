"""Partitions: divide the rows of a source, in any order and number of files, by persons.

Registers often have one table per year, so the rows of a person are in many files. They are copied
file by file to a staging folder, where persons are sorted and cut into partitions of equal size.
Partition k has persons k * size to (k + 1) * size - 1 of the sorted list, for any files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from saga.data.casting import read_column
from saga.data.facts import Facts, open_facts
from saga.data.files import Location, locate_files, read_files
from saga.data.mapping import Deflator, MacroFile, SourceMapping, load_mapping
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError, Problem
from saga.files.atomic import commit, digest_file, sync_folder
from saga.requests import OnError
from saga.schema import BY_NAME

PARTITION = "__partition"
_PERSON, _GROUP = "__person", "__group"
# Partitions staged together. With larger groups a register of millions needs fewer files, but
# reading one partition scans more rows.
_PARTITIONS_A_GROUP = 32
_ROWS_A_BLOCK = 20_000
_MAPPING = "mapping.yaml"


@dataclass(frozen=True)
class Source:
    """A file or folder and how to read it, with the arguments of `read_panel`."""

    path: Path
    mapping: str | Path | None = None
    prices: int | None = None
    on_error: OnError = "fail"
    facts: str | Path | None = None
    origin: int | None = None

    @cached_property
    def _mapped(self) -> tuple[SourceMapping, Path | None]:
        return (SourceMapping(), None) if self.mapping is None else load_mapping(self.mapping)

    @cached_property
    def _location(self) -> Location:
        return locate_files(self.path, beside=self._mapped[0].files)

    def describe(self) -> dict[str, Any]:
        """The files by content and the rules of reading them, as JSON values."""
        mapped = self._resolved()
        return {
            "files": {
                str(file.relative_to(self._location.folder)): digest_file(file)
                for file in self._location.files
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

    def _resolved(self) -> SourceMapping:
        """The mapping with the full paths of its files, from its folder or the data's."""
        mapped, folder = self._mapped
        folders = [path for path in (folder, self._location.folder) if path is not None]
        resolved: dict[str, Deflator | MacroFile] = {}
        for name, part in (("deflator", mapped.deflator), ("macro", mapped.macro)):
            if isinstance(part, Deflator | MacroFile):
                candidates = [path / part.file for path in folders]
                path = next((file.resolve() for file in candidates if file.is_file()), None)
                if path is not None:
                    resolved[name] = part.model_copy(update={"file": str(path)})
        return mapped.model_copy(update=resolved)

    def frames(self) -> Iterator[pl.DataFrame]:
        """The rows of each file, in the columns of the source that the mapping reads."""
        mapped, location = self._mapped[0], self._location
        for file in location.files:
            yield read_files(
                replace(location, files=(file,)),
                mapped.used_columns,
                mapped.lacking,
                labels=self.mapping is None,
                year_in_filename=mapped.year_in_filename,
                encoding=mapped.encoding,
            )[0]

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

    def write_mapping(self, folder: Path) -> None:
        """Write the resolved mapping to the folder of the staged rows."""
        text = self._resolved().model_dump_json()  # JSON is YAML
        commit(folder / _MAPPING, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    def panel(self, frame: pl.DataFrame, folder: Path) -> Panel:
        """The panel of staged rows. Raises InputError as `read_panel` does."""
        mapping = None if self.mapping is None else folder / _MAPPING
        register = self._location.register.get("register_id")
        panel_id = register if isinstance(register, str) else None
        return read_panel(
            frame,
            mapping=mapping,
            prices=self._prices,
            on_error=self.on_error,
            panel_id=panel_id,
            facts=self._facts,
            origin=self.origin,
        )


@dataclass(frozen=True)
class Partitions:
    """`persons` persons in `count` partitions of at most `size`, staged in `folder`."""

    folder: Path
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
        files = self.folder / f"group-{index // _PARTITIONS_A_GROUP:05d}" / "*.parquet"
        rows = (
            pl.scan_parquet(files, hive_partitioning=False)
            .filter(pl.col(PARTITION) == index)
            .collect()
        )
        persons = rows[_PERSON].unique().sort().to_list()
        return [person for person in persons if person], rows.drop(_PERSON, PARTITION)


def plan(source: Source, size: int, folder: Path) -> tuple[Partitions, pl.DataFrame, pl.Schema]:
    """Sort the persons into partitions of `size`.

    Returns the partitions, a table (person, partition, group) and the columns of all files.
    """
    persons, empty = pl.Series(_PERSON, [], dtype=pl.String), []
    for frame in source.frames():
        persons = pl.concat([persons, source.person(frame)]).unique()
        empty.append(frame.clear())
    named = persons.filter(persons != "").sort()
    if not named.len():
        problem = Problem("no-rows", "no row names a person", "Give at least one person-year.")
        raise InputError("the panel is empty", [problem])
    assignment = (
        pl.DataFrame([named]).with_row_index(PARTITION).with_columns(pl.col(PARTITION) // size)
    )
    # Rows without a person go to the first partition, where reading reports them.
    nobody = pl.DataFrame({PARTITION: [0], _PERSON: [""]}, schema=assignment.schema)
    assignment = pl.concat([nobody, assignment]).with_columns(
        (pl.col(PARTITION) // _PARTITIONS_A_GROUP).alias(_GROUP)
    )
    return (
        Partitions(folder, named.len(), size),
        assignment,
        pl.concat(empty, how="diagonal_relaxed").schema,
    )


def stage(source: Source, assignment: pl.DataFrame, columns: pl.Schema, folder: Path) -> None:
    """Copy the rows of the persons of `assignment` to `folder`, by group, unless it exists.

    The folder has another name until it is complete.
    """
    if folder.exists():
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    source.write_mapping(unfinished)
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
            target = unfinished / f"group-{group:05d}" / f"{number:05d}.parquet"
            target.parent.mkdir(exist_ok=True)
            commit(target, partial(rows.write_parquet, row_group_size=_ROWS_A_BLOCK))
    unfinished.rename(folder)
    sync_folder(folder.parent)
