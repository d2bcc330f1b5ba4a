"""Plain sentences about one year of one person's forecast, from the published numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saga.table_results import set_start

_PREFERRED = ("80", "90", "50", "95")  # coverage of the set that a sentence names


def describe_year(row: Mapping[str, Any], unit: str) -> str:
    """What the forecast of a year says: median, set, chance of no earnings.

    `row`: horizon, year, median, p_zero, lower_.., upper_.. and includes_zero_.. of that year.
    `unit`: currency and prices, such as "SEK of 2022".
    """
    ahead = "1 year" if row["horizon"] == 1 else f"{row['horizon']} years"
    middle = (
        f"In {row['year']}, {ahead} after the record ends, earnings are as likely to be above as "
        f"below {about(row['median'])} {unit}"
        if row["median"] > 0
        else f"In {row['year']}, {ahead} after the record ends, having no earnings is more likely "
        "than having some"
    )
    return (
        f"{middle}; {describe_set(row)}, and the chance of no earnings is {share(row['p_zero'])}."
    )


def describe_set(row: Mapping[str, Any]) -> str:
    """The published set of a year at the first of the preferred coverages that the row has."""
    labels = [name.removeprefix("lower_") for name in row if name.startswith("lower_")]
    label = next((x for x in _PREFERRED if x in labels), labels[0] if labels else None)
    if label is None or row[f"lower_{label}"] is None:
        return "there is no set of stated coverage"
    return f"the {label} % set is {set_text(row, label)}"


def set_text(row: Mapping[str, Any], label: str) -> str:
    """The set of a year in words."""
    lower, upper = row[f"lower_{label}"], row[f"upper_{label}"]
    if lower is None:
        return "none"
    if upper == 0:
        return "no earnings alone"
    zero = "0 or " if row.get(f"includes_zero_{label}") and lower > 0 else ""
    return f"{zero}{set_start(lower, about)} to {about(upper)}"


def about(amount: float) -> str:
    """An amount with three significant digits: 412,345 -> "412,000"."""
    return f"{float(f'{amount:.3g}'):,.0f}"


def share(probability: float) -> str:
    """A probability in per cent: 0.0712 -> "7 %"; never 0 or 100 % by rounding."""
    if 0 < probability < 0.01:
        return "below 1 %"
    return "above 99 %" if 0.99 < probability < 1 else f"{100 * probability:.0f} %"
