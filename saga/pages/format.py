"""Numbers as texts for readers: the one place that says how an amount or a share is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from saga.conformal.families.set_family import SMALLEST_AMOUNT
from saga.training_records import TESTED

_THREE_DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)
NOT_TESTED = "coverage not tested"  # of sets that are extrapolated
NOT_SHOWN = "-"  # figures that are hidden or unknown


def percent(value: float | None, digits: int = 1) -> str:
    """0.898 -> "89.8 %"; a dash without a value."""
    return NOT_SHOWN if value is None else f"{100 * value:.{digits}f} %"


def in_percent(value: float | None, spread: float | None = None) -> str:
    """A share in a table whose heading has the sign: "89.8", or "89.8 ± 0.4"; "" without one."""
    if value is None:
        return ""
    return f"{100 * value:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")


def p_value(p: float | None) -> str:
    """A p-value: 0.0123 -> ".0123"; "" without a value."""
    return "" if p is None else "<.0001" if p < 1e-4 else f"{p:.4f}".removeprefix("0")


def short_percent(value: float) -> str:
    """A share without its sign and without a final zero: 0.9 -> "90 %", -0.012 -> "1.2 %"."""
    if 0 < abs(value) < 0.0005:
        return "less than 0.1 %"
    return percent(abs(value)).replace(".0 %", " %")


def listed(texts: Iterable[str]) -> str:
    """Several texts as one: "61, 59 and 48"."""
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def gap(value: float | None, digits: int = 1) -> str:
    """A difference of shares without its sign: 0.02 -> "2.0 percentage points"."""
    return NOT_SHOWN if value is None else f"{abs(100 * value):.{digits}f} percentage points"


def relative(value: float | None) -> str:
    """A difference of logarithms as a share, without its sign: 0.1 -> "10.5 %"."""
    return NOT_SHOWN if value is None else percent(abs(math.expm1(value)))


def money(value: float | None) -> str:
    """An amount with thousands separated."""
    return NOT_SHOWN if value is None else f"{value:,.0f}"


def number(value: float | None, digits: int = 3) -> str:
    """A plain number."""
    return NOT_SHOWN if value is None else f"{value:.{digits}f}"


def figure(value: float) -> str:
    """A number of any size: whole from 1,000 on, with 2 decimals from 1 on, 4 below."""
    digits = 0 if abs(value) >= 1_000 or value == int(value) else 2 if abs(value) >= 1 else 4
    return f"{value:,.{digits}f}"


def persons(value: int | None, min_persons: str | int = "") -> str:
    """A number of persons; "fewer than 10" if it is not shown."""
    return f"fewer than {min_persons}" if value is None else f"{value:,}"


def about(amount: float) -> str:
    """An amount with three significant digits: 412,345 -> "412,000".

    Halves are rounded up, as a browser does, so that all pages show one number.
    """
    return money(three_digits(amount))


def three_digits(value: float) -> float:
    """The value to three significant digits, halves rounded up: 612,523,200 -> 613,000,000."""
    return float(_THREE_DIGITS.create_decimal_from_float(value))


def unit_of(largest: float) -> tuple[float, str]:
    """In what amounts up to `largest` have few digits: 6e8 -> (1e6, "million "); (1, "") if small.

    The largest has three digits or more of it.
    """
    units = ((1e9, "billion "), (1e6, "million "), (1e3, "thousand "))
    return next((unit for unit in units if abs(largest) >= 100 * unit[0]), (1.0, ""))


def short(value: float) -> str:
    """A number with three significant digits: 612.52 -> "613", 42.0 -> "42.0"; 0 -> "0"."""
    rounded = Decimal(repr(three_digits(value)))
    return f"{rounded:,.{max(0, 2 - rounded.adjusted())}f}" if value else "0"


def signed(amount: float) -> str:
    """A difference in money: 35712.0 -> "+35,700"."""
    return f"{'-' if amount < 0 else '+'}{about(abs(amount))}"


def chance(probability: float) -> str:
    """A probability in per cent: 0.0712 -> "7 %"; never 0 or 100 % by rounding."""
    if 0 < probability < 0.01:
        return "below 1 %"
    return "above 99 %" if 0.99 < probability < 1 else percent(probability, 0)


def estimated_chance(probability: float | None, error: float | None) -> str:
    """A chance that is counted in paths, with two of its standard errors if they are a point."""
    if probability is None or error is None:
        return NOT_SHOWN
    points = math.floor(200 * error + 0.5)  # halves up, as a browser rounds
    few = f" (plus or minus {points} points, because the futures are few)" if points else ""
    return f"{chance(probability)}{few}"


def begins_above_zero(lower: float) -> bool:
    """Whether a set has all amounts above zero: it then begins at the smallest amount, 1 unit."""
    return 0 < lower <= SMALLEST_AMOUNT


def set_start(lower: float, show: Callable[[float], str]) -> str:
    """Where a set begins: `show(lower)`, or `above 0`."""
    return "above 0" if begins_above_zero(lower) else show(lower)


def set_text(row: Mapping[str, Any], label: str) -> str:
    """The set of a year in words, from the columns of the forecast table with this `label`.

    It says so if the coverage of the set was not tested.
    """
    lower, upper = row[f"lower_{label}"], row[f"upper_{label}"]
    if lower is None:
        return "none"
    note = "" if row[f"guarantee_{label}"] in TESTED else f" ({NOT_TESTED})"
    if upper == 0:
        return f"no earnings alone{note}"
    zero = "0 or " if row.get(f"includes_zero_{label}") and lower > 0 else ""
    return f"{zero}{set_start(lower, about)} to {about(upper)}{note}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of these column headings and rows of text, without a final line break."""
    head, *body = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return "\n".join([head, "|" + "---|" * len(header), *body])


FILTERS: dict[str, Callable[..., str]] = {  # of the templates of all pages
    "pct": percent,
    "gap": gap,
    "relative": relative,
    "money": money,
    "number": number,
    "p_value": p_value,
    "persons": persons,
    "about": about,
    "signed": signed,
    "chance": chance,
    "set_text": set_text,
}
