"""Who joins a population: rows of year, age, number of persons and sex, checked.

Rows of a file, of a request over HTTP and of Python are checked here alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from saga.errors import InputError, Problem

if TYPE_CHECKING:
    from saga.files.data_frames import ArrowStream

# Patterns of the texts of a row, whose numbers may be floats without a fraction.
_VALID = {
    "year": r"(19|20|21)\d\d(\.0*)?",
    "age": r"(1[6-9]|[2-5]\d|6[0-4])(\.0*)?",
    "persons": r"\d+(\.\d*)?(e[+-]?\d\d?)?",
    "sex": "female|male|",
}
_FIX = "Give a year, an age from 16 to 64, persons (0 or more), and sex (female, male) or nothing"


class Entrants(NamedTuple):
    """So many persons of an age who join in a year; without `sex` they are of both sexes."""

    year: int
    age: int
    persons: float
    sex: str | None = None

    def __str__(self) -> str:
        """As in a query: `2030:19:1000.0:female`."""
        return ":".join(str(value) for value in self if value is not None)


def entrants_from(
    rows: Iterable[Mapping[str, Any] | Entrants | str] | ArrowStream,
) -> tuple[Entrants, ...]:
    """The entrants of rows: mappings with the columns of `Entrants`, or texts as in a query.

    The rows may be those of a data frame.

    Raises InputError with a problem for each row that is not valid or repeats another one.
    """
    if not isinstance(rows, Iterable) or hasattr(rows, "__arrow_c_stream__"):
        from saga.files.data_frames import to_polars  # by polars, which the client does not need

        rows = to_polars(cast("ArrowStream", rows), "the inflow").to_dicts()
    entrants, problems = list[Entrants](), list[Problem]()
    earlier: dict[tuple[Any, ...], set[str | None]] = {}
    for number, row in enumerate(rows, start=1):
        of_text = dict(zip(_VALID, str(row).split(":", 3), strict=False))
        values = row if isinstance(row, Mapping) else of_text
        texts = {name: "" if value is None else str(value) for name, value in values.items()}
        faults = [f"the unknown column {name}" for name in texts if name not in _VALID]
        valid = {name: re.fullmatch(p, texts.get(name, "")) for name, p in _VALID.items()}
        faults += [f"no valid {name}" for name, match in valid.items() if match is None]
        if not faults:
            year, age, persons = (float(texts[name]) for name in Entrants._fields[:3])
            joined = Entrants(int(year), int(age), persons, texts.get("sex") or None)
            # A total of both sexes beside its parts would count them twice.
            sexes = earlier.setdefault(joined[:2], set())
            if sexes and (joined.sex in sexes or None in (joined.sex, *sexes)):
                faults.append("the year, age and sex of an earlier row (one without sex has both)")
            sexes.add(joined.sex)
            entrants.append(joined)
        if faults:
            problems.append(Problem("inflow", f"Row {number} of the inflow has {faults[0]}", _FIX))
    if problems:
        raise InputError("The inflow cannot be used", problems)
    return tuple(entrants)
