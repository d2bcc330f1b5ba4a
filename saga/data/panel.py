"""The panel: validated person-years in canonical columns, and the meaning of its numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga import exchange
from saga.data.casting import FEW_ROWS
from saga.data.facts import Facts, shipped_facts
from saga.data.macro_rows import MacroRow
from saga.errors import InputError, Problem, UsageError
from saga.schema import PRICE_YEAR, Column, Kind, polars_schema
from saga.summaries import Summarised, Summary, count, format_counts

FLOOR = 24_150.0  # half a price base amount of 2022, in SEK
SIMULATED_ID = "saga-"  # start of the id of every panel that `saga register` generates
UNNAMED_PANEL = "panel"  # id of a panel that was read without a mapping
_HASHED_ROWS = 100_000  # rows that are hashed in one step


@dataclass(frozen=True)
class PanelMeta:
    """What a panel's numbers mean, and what happened to its source while it was read.

    Attributes:
        panel_id: Name of the register; it is part of the key of the person split.
        currency: Currency of all money.
        price_year: Year of the prices, in which all money is real.
        floor: Scores use log(max(earnings, floor)); None: zeros do not occur, scores use the log.
        macro: Name of the macro series of the panel's years; None masks them.
        macro_rows: The series by year if a file gives them; None: those that come with SAGA.
        extra: The panel's own columns, see `saga.schema.extra_column`; with `saga.schema.FAMILY` if
            the source has families.
        present: Columns of the panel that the source has.
        simulated: Whether the persons are those of a generated register.
        ignored: Columns of the source that were not used.
        unread: Files beside those of the source that seem to be tables, and were not read.
        excluded: Rows that the panel does not cover, by rule.
        outside_ages: Number of these at other ages, of persons who have rows in the panel.
        dropped: Rows that broke a rule, by rule.
        partly: Columns that only some files of the source have, with the number of files.
        nulled: Cells that a mapping made unknown, by its entry.
        nines: Persons with amounts of nines, as codes for what is unknown are, by column.
        unmatched: Entries of a mapping of the user's own that match no cell.
        padded: Codes that lacked a leading zero, by column.
        lost: Persons without any usable row: the first of them, and their number.
        unpublished_prices: Years whose price level is an estimate or assumed, with the mark.
        last_year_read: The year up to which the source was read, if one was stated.
        facts: The dated facts that it was read with; None: the shipped ones.
        salt: Secret part of the key of the person split, see `saga.data.split`.
    """

    panel_id: str
    currency: str = "SEK"
    price_year: int = PRICE_YEAR
    floor: float | None = FLOOR
    macro: str | None = "sweden"
    macro_rows: Mapping[int, MacroRow] | None = None
    extra: tuple[Column, ...] = ()
    present: tuple[str, ...] = ()
    simulated: bool = False
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    excluded: Mapping[str, int] = field(default_factory=dict)
    outside_ages: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    partly: Mapping[str, str] = field(default_factory=dict)
    nulled: Mapping[str, int] = field(default_factory=dict)
    nines: Mapping[str, int] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    padded: Mapping[str, int] = field(default_factory=dict)
    lost: Problem | None = None
    unpublished_prices: Mapping[int, str] = field(default_factory=dict)
    last_year_read: int | None = None
    facts: Facts | None = None
    salt: str = field(default="", repr=False)

    @property
    def split_key(self) -> str:
        """The key of the person split: the panel's id and the salt, if there is one."""
        return f"{self.panel_id}\n{self.salt}" if self.salt else self.panel_id

    def extra_names(self, kind: Kind) -> tuple[str, ...]:
        """Names of the panel's own columns of a kind."""
        return tuple(column.name for column in self.extra if column.kind == kind)

    def remarks(self) -> dict[str, str]:
        """What was left out, changed or not found while the source was read, with its counts."""
        remarks: dict[str, Mapping[str, object] | Sequence[str]] = {
            "set aside": self.excluded,
            "dropped": self.dropped,
            "values made unknown by the mapping": self.nulled,
            "persons with amounts of nines, which may be codes for unknown": self.nines,
            "codes read with a leading zero": self.padded,
            "columns that only some files have": self.partly,
            "entries of the mapping that match nothing": self.unmatched,
            "columns not used": self.ignored,
            "files not read": self.unread,
        }
        return {name: format_counts(of) for name, of in remarks.items() if of}

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Column name -> polars type of the panel, in canonical order."""
        return {**polars_schema(), **{column.name: column.dtype for column in self.extra}}


@dataclass(frozen=True, eq=False, repr=False)
class Panel(Summarised):
    """Person-years sorted by (person_id, year), one row each, with every column of the schema.

    The columns have the order and types of `PanelMeta.schema`; a column that the source lacks is
    null throughout. `read_panel` makes a panel from data; the constructor checks columns only.
    """

    frame: pl.DataFrame
    meta: PanelMeta

    def __post_init__(self) -> None:
        expected = self.meta.schema
        columns, types = list(expected), list(expected.values())
        if self.frame.columns != columns or self.frame.dtypes != types:
            wrong = [
                name for name, dtype in expected.items() if self.frame.schema.get(name) != dtype
            ]
            raise InputError.of(
                "the frame does not have the panel's columns",
                "panel-form",
                f"columns missing, extra, of another type or in another order: {wrong}",
                "Use read_panel.",
            )

    def __len__(self) -> int:
        return self.frame.height

    @property
    def digest(self) -> str:
        """sha256 of the rows, their order, the panel's id, its money and its economy.

        It is stable for one version of polars.
        """
        meta = self.meta
        meaning = f"{pl.__version__} {meta.panel_id} {meta.currency} {meta.price_year} {meta.floor}"
        meaning += f" {meta.macro} {(meta.facts or shipped_facts()).digest}"
        if meta.extra:
            meaning += f" {[(c.name, c.kind, c.static, c.lasting) for c in meta.extra]}"
        if meta.macro_rows is not None:
            meaning += f" {sorted(meta.macro_rows.items())}"
        digest = hashlib.sha256(meaning.encode())
        for part in self.frame.iter_slices(_HASHED_ROWS):
            digest.update(part.hash_rows(seed=0).to_numpy().tobytes())
        return digest.hexdigest()

    def summary(self) -> Summary:
        """Size, years, ages, money and columns; no value of a person."""
        frame, meta = self.frame, self.meta
        n_persons = frame["person_id"].n_unique()
        lines = {"rows": f"{count(len(self), 'person-year')} of {count(n_persons, 'person')}"}
        if len(self):
            years = frame["year"].to_numpy()
            ages = years - frame["birth_year"].to_numpy()
            lines["years"] = f"{years.min()} to {years.max()}"
            lines["ages"] = f"{ages.min()} to {ages.max()}"
        lines["amounts"] = f"{meta.currency} of {meta.price_year}"
        lines["columns"] = ", ".join(meta.present)
        return Summary(f"Panel {meta.panel_id}", {**lines, **meta.remarks()})

    @cached_property
    def person_numbers(self) -> NDArray[np.int64]:
        """Number (n_row,) of the person of each row, from 0, in the order of `persons`."""
        person = self.frame["person_id"]
        if len(person) <= FEW_ROWS:
            ids = person.to_list()
            numbers = {name: i for i, name in enumerate(dict.fromkeys(ids))}
            return np.array([numbers[name] for name in ids], dtype=np.int64)
        begins = (person.slice(1) != person.slice(0, max(len(person) - 1, 0))).to_numpy()
        return np.append(0, begins.cumsum())[: len(person)].astype(np.int64)

    @cached_property
    def last_rows(self) -> NDArray[np.int64]:
        """The last row (n,) of each person."""
        return np.bincount(self.person_numbers).cumsum() - 1

    @cached_property
    def origins(self) -> NDArray[np.int64]:
        """Last year (n,) of each person's record."""
        return self.frame["year"].to_numpy()[self.last_rows].astype(np.int64)

    @cached_property
    def birth_years(self) -> NDArray[np.int64]:
        """Year of birth (n,) of each person."""
        return self.frame["birth_year"].to_numpy()[self.last_rows].astype(np.int64)

    @property
    def n_persons(self) -> int:
        """Number of persons."""
        return int(self.person_numbers[-1]) + 1 if len(self) else 0

    def to_long(self) -> pl.DataFrame:
        """Known earnings in the panel's prices, as Nixtla has them: unique_id, ds, y."""
        return exchange.records_to_long(self.frame)

    def persons(self) -> list[str]:
        """The persons, sorted."""
        return self.frame["person_id"].unique().sort().to_list()

    def with_frame(self, frame: pl.DataFrame) -> Panel:
        """A panel with the same meta and other rows; `frame` has the panel's columns and order."""
        return replace(self, frame=frame)

    def only(self, person_ids: Sequence[str] | pl.Series) -> Panel:
        """The rows of these persons.

        Raises:
            UsageError: If they are not texts in a list or series.
            InputError: If a person is not in the panel.
        """
        of_series = isinstance(person_ids, pl.Series) and person_ids.dtype == pl.String
        if isinstance(person_ids, str) or not (
            of_series or all(isinstance(person_id, str) for person_id in person_ids)
        ):
            raise UsageError("Persons are a list of texts, such as ['0001', '0002'].")
        names = pl.Series(person_ids if of_series else list(person_ids), dtype=pl.String)
        persons = pl.DataFrame({"person_id": names.unique()})
        rows = self.frame.join(persons, on="person_id", how="semi", maintain_order="left")
        n_found = rows["person_id"].n_unique()
        if n_found < len(persons):
            unknown = persons.join(rows, on="person_id", how="anti")["person_id"].sort()
            raise InputError.of(
                "Persons cannot be selected",
                "no-person",
                "there is no such person in the panel",
                "Name persons of the panel.",
                person_id=unknown[0],
                count=len(unknown),
            )
        return self.with_frame(rows)

    @classmethod
    def of(cls, frame: pl.DataFrame, meta: PanelMeta) -> Panel:
        """A panel from valid canonical columns; absent columns become null, rows are sorted."""
        schema = meta.schema
        present = tuple(name for name in schema if name in frame.columns)
        height = frame.height
        unknown = {
            dtype: _unknown_cell(dtype).new_from_index(0, height)
            for dtype in {schema[name] for name in schema if name not in present}
        }
        full = pl.DataFrame(
            [
                frame[name].cast(dtype) if name in present else unknown[dtype].alias(name)
                for name, dtype in schema.items()
            ]
        )
        return cls(sort_rows(full), replace(meta, present=meta.present or present))


@cache
def _unknown_cell(dtype: pl.DataType) -> pl.Series:
    return pl.Series([None], dtype=dtype)


def named_panel(panel_id: str) -> str:
    """A panel in a sentence: "the panel NAME", or "the panel" if it has no name."""
    return "the panel" if panel_id == UNNAMED_PANEL else f"the panel {panel_id}"


def is_simulated(panel_id: str) -> bool:
    """Whether the panel of this id is a generated register."""
    return panel_id.startswith(SIMULATED_ID)


def sort_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame sorted by person and year.

    Registers are mostly sorted; to check this takes a hundredth of the time of sorting.
    """
    return frame if _is_ordered(frame) else frame.sort("person_id", "year")


def _is_ordered(frame: pl.DataFrame) -> bool:
    person, year = frame["person_id"], frame["year"]
    if len(frame) <= FEW_ROWS:
        rows = list(zip(person.to_list(), year.to_list(), strict=True))
        is_known = not person.null_count() and not year.null_count()
        return is_known and all(before <= after for before, after in pairwise(rows))
    before, after = person[:-1], person[1:]
    later = (after > before) | ((after == before) & (year[1:] >= year[:-1]))
    return later.null_count() == 0 and later.all()
