"""Pension rules as data: shipped ones by name, and the rule files of an office.

A rule is a YAML file (docs/method/pensions.md has the keys). Each parameter is a number, or numbers
by the year from which they hold. A file with `base` changes another rule, as a reform does.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saga.data.facts import PRICES, Facts
from saga.errors import Problem, UsageError
from saga.files.yaml_text import read_yaml
from saga.requests import PensionSource

Array = NDArray[np.float64]
Years = NDArray[np.int64]
SHIPPED_RULES = ("se", "us", "accrual")
FORMULAS = ("sum", "best_years")
MAX_CHARACTERS = 20_000  # of a rule file; the longest shipped rule has a third of it
_OWN_PRICES = "prices"  # series of consumer prices of a rule in another currency than SEK


class Parameter(NamedTuple):
    """What a parameter means, its value if a rule does not give it, and its bounds."""

    title: str
    default: float
    lowest: float
    highest: float


PARAMETERS: dict[str, Parameter] = {
    "income_step": Parameter("Incomes are counted in whole multiples of it", 0.0, 0.0, 1e5),
    "fee_rate": Parameter("Fee that is deducted from the income", 0.0, 0.0, 0.5),
    "fee_to": Parameter("Income to which the fee is due, in index amounts", math.inf, 0.0, 1e3),
    "fee_step": Parameter("The fee is rounded to it, a half down", 0.0, 0.0, 1e5),
    "floor": Parameter("Least income that counts, in amounts of floor_index", 0.0, 0.0, 1e3),
    "ceiling": Parameter("Most that counts, in amounts of ceiling_index", math.inf, 0.0, 1e3),
    "rate": Parameter("Right of a year, a share of what counts", 0.0, 0.0, 1.0),
    "funded_rate": Parameter("Funded right of a year, a share of what counts", 0.0, 0.0, 1.0),
    "indexing": Parameter("Share of real wage growth that rights follow", 1.0, 0.0, 1.0),
    "divisor": Parameter("Years over which a balance is paid, for ratios", 1.0, 0.1, 1e3),
    "best_years": Parameter("Number of best years", 35.0, 1.0, 60.0),
    "index_age": Parameter("Age to whose wage level earlier years are indexed", 60.0, 30.0, 64.0),
    "price_age": Parameter("Age in whose prices the pension is", 60.0, 30.0, 70.0),
    "average_step": Parameter("The monthly average is rounded down to it", 0.0, 0.0, 1e5),
    "pension_step": Parameter("The monthly pension is rounded down to it", 0.0, 0.0, 1e5),
    "bend_step": Parameter("Bend points are rounded to it", 0.0, 0.0, 1e5),
    "bend_1": Parameter("First bend point of a month, in index amounts", math.inf, 0.0, 1e3),
    "bend_2": Parameter("Second bend point of a month, in index amounts", math.inf, 0.0, 1e3),
    "share_1": Parameter("Share of the average below the first bend point", 1.0, 0.0, 2.0),
    "share_2": Parameter("Share of the average between the bend points", 0.0, 0.0, 2.0),
    "share_3": Parameter("Share of the average above the second bend point", 0.0, 0.0, 2.0),
}
_MAX_BANDS = 20
LAST_YEAR = 2100  # later years are in nobody's career
_HIGHEST = 1e12  # of an amount
_TEXTS = ("title", "source", "currency", "formula", "index")
_KEYS = (
    "base",
    *_TEXTS,
    "floor_index",
    "ceiling_index",
    "first_year",
    "bands",
    "parameters",
    "series",
)


@dataclass(frozen=True, eq=False)
class PensionRule:
    """A pension rule, checked.

    Args:
        title: What the rule is.
        source: Where it is from.
        currency: Currency of its amounts.
        formula: "sum" of yearly rights, or "best_years": an average with bend points.
        index: Series of a yearly amount that follows wages; limits are multiples of it.
        floor_index: The same for the floor; if it is another one, it follows prices.
        ceiling_index: The same for the ceiling; it follows wages.
        first_year: First year of which the rule is known.
        bands: Limits of the bands of earnings, in index amounts.
        parameters: Values of `PARAMETERS` by the year from which they hold.
        series: Yearly amounts that the rule brings itself.
    """

    title: str
    source: str
    currency: str
    formula: str
    index: str
    floor_index: str
    ceiling_index: str
    first_year: int
    bands: tuple[float, ...]
    parameters: Mapping[str, Mapping[int, float]]
    series: Mapping[str, Mapping[int, float]]

    def of_years(self, name: str, years: Years) -> Array:
        """The value of a parameter in each year, shape of `years`."""
        dated = self.parameters.get(name)
        if dated is None:
            return np.full(years.shape, PARAMETERS[name].default)
        starts = np.array(sorted(dated))
        row = np.maximum(np.searchsorted(starts, years, side="right") - 1, 0)
        return np.array([dated[start] for start in starts.tolist()])[row]

    def value(self, name: str, year: int) -> float:
        """The value of a parameter in one year."""
        return float(self.of_years(name, np.array([year]))[0])

    def describe(self) -> dict[str, object]:
        """What identifies the rule in a result."""
        digest = hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()
        return {"title": self.title, "source": self.source, "digest": digest}


@dataclass(frozen=True, eq=False)
class PensionLaw:
    """A rule with its yearly amounts and prices, for earnings in prices of `price_year`.

    Later than `last_year` amounts follow wages, and prices do not change.
    """

    rule: PensionRule
    amounts: Mapping[str, Mapping[int, float]]
    prices: Mapping[int, float]
    price_year: int
    last_year: int

    @classmethod
    def of(cls, source: PensionSource, facts: Facts, price_year: int, currency: str) -> PensionLaw:
        """The law of a rule, for earnings in a currency of `price_year`.

        Raises UsageError if the rule cannot be used, is for another currency, or lacks a series or
        prices.
        """
        rule = pension_rule(source)
        if rule.currency != currency:
            raise UsageError(
                f"The pension rule {rule.title!r} is for {rule.currency}, the amounts are in "
                f"{currency}. Give a rule file for {currency}."
            )
        names = {rule.index, rule.floor_index, rule.ceiling_index}
        known = {name: series.values for name, series in facts.series.items()} | {
            name: values for name, values in rule.series.items() if name != _OWN_PRICES
        }
        if lacking := sorted(names - known.keys()):
            raise UsageError(
                f"The pension rule {rule.title!r} needs the yearly amounts {lacking[0]}. Give them "
                "under `series`, or in facts of your own."
            )
        prices = rule.series.get(_OWN_PRICES) or (facts.price_index if currency == "SEK" else {})
        amounts = {name: known[name] for name in names}
        last_year = min(max(values) for values in (*amounts.values(), prices or {0: 0.0}))
        for name, values in {**amounts, PRICES: prices}.items():
            gaps = [year for year in range(rule.first_year, last_year + 1) if year not in values]
            if gaps or (name == PRICES and price_year not in values):
                raise UsageError(
                    f"The pension rule {rule.title!r} has no {name} of {[*gaps, price_year][0]}. "
                    "Give it under `series`, or in facts of your own."
                )
        return cls(rule, amounts, prices, price_year, last_year)

    def amount(self, name: str, years: Years, growth: Array) -> Array:
        """A yearly amount, in prices of the law, (n_year, n_path).

        `growth` (n_year, n_path) is the factor of real wages since `last_year`.
        """
        values = np.array([self.amounts[name][year] for year in years.tolist()])[:, None]
        is_price = name == self.rule.floor_index != self.rule.index
        return values if is_price else values * growth

    def to_law(self, years: Years) -> Array:
        """Factor from prices of `price_year` to those of each year, shape of `years`."""
        return (
            np.array([self.prices[year] for year in years.tolist()]) / self.prices[self.price_year]
        )

    @property
    def mean_growth(self) -> float:
        """Mean log growth of real wages a year, over the known years of the index."""
        index = self.amounts[self.rule.index]
        first, last = self.rule.first_year, self.last_year
        real = index[last] / index[first] * self.prices[first] / self.prices[last]
        return math.log(real) / max(last - first, 1)

    def known_years(self, years: Years) -> Years:
        """The years, each moved to the nearest one whose amounts are known."""
        return np.clip(years, self.rule.first_year, self.last_year)


@lru_cache(maxsize=32)
def pension_rule(source: PensionSource, place: str = "the pension rule") -> PensionRule:
    """The rule of a name, or of the text of a rule file; `place` names it in errors.

    Raises UsageError with a problem for each key that is missing, unknown or not possible.
    """
    return _rule_of(_content(source, place), place)


def read_pension_rule(text: str) -> PensionSource:
    """The source that a word of the command line names: a rule, or a rule file (.yaml or .yml).

    Raises UsageError if the file cannot be read or is no rule.
    """
    if not text.endswith((".yaml", ".yml")):
        return PensionSource(text)
    path = Path(text)
    try:
        source = PensionSource(path.read_text(encoding="utf-8").rstrip() + "\n")
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"The pension rule {path.name} cannot be read as text.") from None
    pension_rule(source, path.name)
    return source


def _content(source: str, place: str) -> dict[str, Any]:
    """The keys of a source, with those of its base below them."""
    if "\n" not in source:
        if source not in SHIPPED_RULES:
            names = ", ".join(SHIPPED_RULES)
            raise UsageError(
                f"There is no pension rule {source!r}. Use one of {names}, or a rule file (.yaml)."
            )
        rules = resources.files("saga.pensions").joinpath("rules", f"{source}.yaml")
        source = rules.read_text("utf-8")
    if len(source) > MAX_CHARACTERS:
        raise UsageError(f"{place} is longer than {MAX_CHARACTERS:,} characters. Shorten it.")
    title = f"{place} cannot be read as YAML. See docs/method/pensions.md."
    content = read_yaml(source, title, "pension-rule", "rule")
    if not isinstance(content, dict):
        raise UsageError(f"{place} has no keys. Give {', '.join(_KEYS)}.")
    base = content.pop("base", None)
    if base is None:
        return content
    if not isinstance(base, str) or base not in SHIPPED_RULES:
        fix = f"Use one of {', '.join(SHIPPED_RULES)}."
        problem = _fault(place, "base", "there is no rule of this name", fix)
        raise UsageError("The pension rule cannot be used.", [problem])
    below = _content(base, base)
    merged = {**below, "title": f"{below['title']}, changed", **content}
    for key in ("parameters", "series"):
        if isinstance(changes := content.get(key, {}), dict):
            merged[key] = {**below.get(key, {}), **changes}
            for name, value in changes.items():
                if isinstance(value, dict) and name in below.get(key, {}):
                    before = below[key][name]
                    first_year = str(merged["first_year"])
                    before = before if isinstance(before, dict) else {first_year: before}
                    merged[key][name] = {**before, **value}
    return merged


def _rule_of(content: Mapping[str, Any], place: str) -> PensionRule:
    problems = list(_faults(content, place))
    if problems:
        raise UsageError("The pension rule cannot be used.", problems)
    first_year, index = int(content["first_year"]), content["index"]
    return PensionRule(
        **{name: content[name] for name in _TEXTS},
        floor_index=content.get("floor_index", index),
        ceiling_index=content.get("ceiling_index", index),
        first_year=first_year,
        bands=tuple(map(float, content.get("bands", (1, 3, 5)))),
        parameters={
            name: _from_first_year(
                _by_year(value, first_year), first_year, PARAMETERS[name].default
            )
            for name, value in (content.get("parameters") or {}).items()
        },
        series={name: _by_year(value, 0) for name, value in (content.get("series") or {}).items()},
    )


def _by_year(value: Any, first_year: int) -> dict[int, float]:
    dated = value if isinstance(value, dict) else {first_year: value}
    return {int(year): float(amount) for year, amount in sorted(dated.items())}


def _from_first_year(dated: dict[int, float], first_year: int, default: float) -> dict[int, float]:
    """The numbers by year, with the default before them if they begin after the first year."""
    return dated if min(dated, default=math.inf) <= first_year else {first_year: default, **dated}


def _fault(place: str, key: object, why: str, fix: str) -> Problem:
    return Problem("pension-rule", f"{place}, {key}: {why}", fix, column="rule")


def _faults(content: Mapping[str, Any], place: str) -> Iterator[Problem]:
    """What is wrong with the content of a rule file, each with the key at fault."""
    for key in content:
        if key not in _KEYS:
            yield _fault(place, key, "there is no such key", f"Use {', '.join(_KEYS)}.")
    for key in _TEXTS:
        if not isinstance(content.get(key), str) or not content[key]:
            yield _fault(place, key, "a text is missing", "Give it, or a `base` that has it.")
    if content.get("formula") not in FORMULAS:
        yield _fault(place, "formula", "unknown", f"Use one of {', '.join(FORMULAS)}.")
    for key in ("floor_index", "ceiling_index"):
        if not isinstance(content.get(key, ""), str):
            yield _fault(place, key, "not a text", "Give the name of a series.")
    if not _is_year(content.get("first_year")):
        yield _fault(place, "first_year", "no calendar year", "Give the first year of the rule.")
    bands = content.get("bands", (1,))
    if not (isinstance(bands, list | tuple) and bands and all(map(_is_number, bands))) or not all(
        low < high < _HIGHEST for low, high in pairwise((0, *bands))
    ):
        yield _fault(place, "bands", "not ascending numbers", "Write them like [1, 3, 5].")
    elif len(bands) > _MAX_BANDS:  # each is a row of each person and age
        yield _fault(place, "bands", "too many", f"Give at most {_MAX_BANDS}.")
    for key in ("parameters", "series"):
        if not isinstance(content.get(key) or {}, dict):
            yield _fault(place, key, "not a mapping", "Give `name: value` lines below the key.")
            return
    for name, value in (content.get("parameters") or {}).items():
        parameter = PARAMETERS.get(str(name))
        if parameter is None:
            near = difflib.get_close_matches(str(name), PARAMETERS, n=1)
            fix = f"Is it {near[0]}?" if near else f"Use {', '.join(PARAMETERS)}."
            yield _fault(place, f"parameters, {name}", "there is no such parameter", fix)
            continue
        bounds = (parameter.lowest, parameter.highest)
        yield from _dated_faults(place, f"parameters, {name}", value, *bounds, is_series=False)
    for name, value in (content.get("series") or {}).items():
        yield from _dated_faults(place, f"series, {name}", value, 1e-9, _HIGHEST, is_series=True)


def _dated_faults(
    place: str, key: str, value: object, lowest: float, highest: float, *, is_series: bool
) -> Iterator[Problem]:
    """What is wrong with a number, or with numbers by year."""
    if not isinstance(value, dict):
        if is_series:
            yield _fault(place, key, "not by year", "Write {2024: 57300, 2025: 58800}.")
        value = {2000: value}
    for year, number in value.items():
        if not _is_year(year):
            yield _fault(place, f"{key}, {year}", "no calendar year", "Give a year such as 2024.")
        if not _is_number(number) or not lowest <= float(str(number)) <= highest:
            at = f"{key}, {year}" if len(value) > 1 else key
            fix = f"Give a number from {lowest:g} to {highest:g}."
            yield _fault(place, at, "the value is not possible", fix)


def _is_year(value: object) -> bool:
    """Whether a number, or a key as it is written, is a year that a rule can have."""
    is_text = isinstance(value, str) and re.fullmatch(r"[12][0-9]{3}", value) is not None
    return (is_text or _is_whole(value)) and 1900 <= int(str(value)) <= LAST_YEAR


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
