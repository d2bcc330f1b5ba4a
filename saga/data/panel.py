"""The panel: validated person-years in canonical columns, and what must be known to read them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from saga.errors import InputError, Problem
from saga.schema import PRICE_YEAR, polars_schema

EXIT_LABELS = {
    "exit_year",
    "exit_reason",
}  # without both, death and emigration cannot be told from silence
FLOOR = 24_150.0  # half a price base amount of 2022, in SEK
_SLICE = 100_000  # rows hashed at a time


@dataclass(frozen=True)
class PanelMeta:
    """What a panel's numbers mean.

    `panel_id` names the register and keys the person split. Money is real, in prices of `price_year`, in `currency`.
    Scores use log(max(earnings, floor)); a `floor` of None says that zeros do not occur, and the plain log is used.
    `macro` names the macro series that the years live in; None masks them. `present` lists the canonical columns that
    the source had. The last five are the account of reading: source columns that were not used, rows set aside
    because the panel does not cover them (rule -> rows), rows dropped because they broke a rule (rule -> rows), and
    cells that a mapping made unknown (its key -> cells), and the persons of whom no row is left (the first, and how many).
    """

    panel_id: str
    currency: str = "SEK"
    price_year: int = PRICE_YEAR
    floor: float | None = FLOOR
    macro: str | None = "sweden"
    present: tuple[str, ...] = ()
    has_exit: bool = False
    ignored: tuple[str, ...] = ()
    excluded: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    nulled: Mapping[str, int] = field(default_factory=dict)
    lost: Problem | None = None


@dataclass(frozen=True)
class Panel:
    """Person-years sorted by (person_id, year) and unique on it, with every column of `schema.polars_schema()`.

    The columns are in schema order with schema types; a column that the source lacks is all null. `read_panel` is the
    way to make one from data; the constructor only checks the form, not the contents.
    """

    frame: pl.DataFrame
    meta: PanelMeta

    def __post_init__(self) -> None:
        expected = polars_schema()
        if list(self.frame.schema.items()) != list(expected.items()):
            wrong = [
                name for name, dtype in expected.items() if self.frame.schema.get(name) != dtype
            ]
            raise InputError(
                "the frame does not have the panel's columns",
                [
                    Problem(
                        "panel-form",
                        f"columns missing, extra, of another type or in another order: {wrong}",
                        "Use read_panel.",
                    )
                ],
            )

    def __len__(self) -> int:
        return self.frame.height

    @property
    def digest(self) -> str:
        """sha256 of the rows, in their order, the panel's id and its money (stable for one version of polars)."""
        digest = hashlib.sha256(
            f"{pl.__version__} {self.meta.panel_id} {self.meta.currency} {self.meta.price_year}".encode()
        )
        for part in self.frame.iter_slices(_SLICE):
            digest.update(part.hash_rows(seed=0).to_numpy().tobytes())
        return digest.hexdigest()

    def persons(self) -> list[str]:
        """The persons, sorted."""
        return self.frame["person_id"].unique().sort().to_list()

    def with_frame(self, frame: pl.DataFrame) -> Panel:
        """The same meaning for other rows: `frame` must have the panel's columns and order."""
        return replace(self, frame=frame)

    def only(self, person_ids: Sequence[str] | pl.Series) -> Panel:
        """The rows of these persons."""
        wanted = (
            person_ids
            if isinstance(person_ids, pl.Series)
            else pl.Series("person_id", list(person_ids), dtype=pl.String)
        )
        return self.with_frame(
            self.frame.join(
                wanted.alias("person_id").unique().to_frame(),
                on="person_id",
                how="semi",
                maintain_order="left",
            )
        )

    @classmethod
    def of(cls, frame: pl.DataFrame, meta: PanelMeta) -> Panel:
        """A panel from canonical columns that are already valid: adds the absent ones as nulls, casts and sorts."""
        schema = polars_schema()
        present = tuple(name for name in schema if name in frame.columns)
        full = frame.select(
            pl.col(name).cast(dtype)
            if name in frame.columns
            else pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in schema.items()
        )
        known = meta.present or present
        return cls(in_order(full), replace(meta, present=known, has_exit=EXIT_LABELS <= set(known)))


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Sorted by person and year. Registers mostly come sorted, and seeing that costs a hundredth of sorting again."""
    person, year = pl.col("person_id"), pl.col("year")
    later = (person > person.shift(1)) | ((person == person.shift(1)) & (year >= year.shift(1)))
    ordered = frame.height < 2 or frame.select(later.slice(1).fill_null(False).all()).item()
    return frame if ordered else frame.sort("person_id", "year")
