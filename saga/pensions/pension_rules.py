"""Pension rules as data: shipped ones by name, and the rule files of an office.

A rule is a YAML file (docs/method/pensions.md has the keys). Each parameter is a number, or numbers
by the year from which they hold. A file with `base` changes another rule, as a reform does.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.facts import Facts
from saga.errors import Problem, UsageError, with_nearest
from saga.files.yaml_text import is_number, read_yaml
from saga.requests import PensionSource

Years = NDArray[np.int64]
SHIPPED_RULES = ("se", "us", "accrual")
FORMULAS = ("sum", "best_years")
KINDS = ("balance", "yearly_pension")
MAX_CHARACTERS = 20_000  # of a rule file; the longest shipped rule has a third of it
ROLES = {"rule": "pension rule", "reform": "reform"}  # of a request: option, and words of errors
_PRICES = "prices"  # series of consumer prices; in SEK those of the facts will do


class Parameter(NamedTuple):
    """What a parameter means, its value if a rule does not give it, and its bounds.

    With `formula` it belongs to that formula only; without the parameter `needs` it does nothing;
    `whole` numbers have no decimals.
    """

    title: str
    default: float
    lowest: float
    highest: float
    formula: str | None = None
    needs: str | None = None
    whole: bool = False


PARAMETERS: dict[str, Parameter] = {
    "income_step": Parameter("Incomes are counted in whole multiples of it", 0.0, 0.0, 1e5),
    "fee_rate": Parameter("Fee that is deducted from the income", 0.0, 0.0, 0.5),
    "fee_to": Parameter(
        "Income to which the fee is due, in index amounts", math.inf, 0.0, 1e3, needs="fee_rate"
    ),
    "fee_step": Parameter(
        "The fee is rounded to it, a half down", 0.0, 0.0, 1e5, needs="fee_rate"
    ),
    "floor": Parameter("Least income that counts, in amounts of floor_index", 0.0, 0.0, 1e3),
    "ceiling": Parameter("Most that counts, in amounts of ceiling_index", math.inf, 0.0, 1e3),
    "rate": Parameter("Right of a year, a share of what counts", 0.0, 0.0, 1.0, "sum"),
    "funded_rate": Parameter(
        "Funded right of a year, a share of what counts", 0.0, 0.0, 1.0, "sum"
    ),
    "indexing": Parameter("Share of real wage growth that rights follow", 1.0, 0.0, 1.0, "sum"),
    "credited_after": Parameter(
        "Years from earnings until their right is credited, and indexed from then on",
        0.0, 0.0, 1.0, "sum", whole=True,
    ),
    "divisor": Parameter("Years over which a balance is paid, for ratios", 1.0, 0.1, 1e3),
    "best_years": Parameter("Number of best years", 35.0, 1.0, 60.0, "best_years", whole=True),
    "index_age": Parameter(
        "Age to whose wage level earlier years are indexed",
        60.0, 30.0, 64.0, "best_years", whole=True,
    ),
    "eligibility_age": Parameter(
        "Age whose year has the law and the prices of the pension",
        60.0, 30.0, 70.0, "best_years", whole=True,
    ),
    "average_step": Parameter(
        "The monthly average is rounded down to it", 0.0, 0.0, 1e5, "best_years"
    ),
    "pension_step": Parameter(
        "The monthly pension is rounded down to it", 0.0, 0.0, 1e5, "best_years"
    ),
    "bend_step": Parameter("Bend points are rounded to it", 0.0, 0.0, 1e5, "best_years", "bend_1"),
    "bend_1": Parameter(
        "First bend point of a month, in index amounts", math.inf, 0.0, 1e3, "best_years"
    ),
    "bend_2": Parameter(
        "Second bend point of a month, in index amounts",
        math.inf, 0.0, 1e3, "best_years", "bend_1",
    ),
    "share_1": Parameter(
        "Share of the average below the first bend point", 1.0, 0.0, 1.0, "best_years"
    ),
    "share_2": Parameter(
        "Share of the average between the bend points", 0.0, 0.0, 1.0, "best_years", "bend_1"
    ),
    "share_3": Parameter(
        "Share of the average above the second bend point", 0.0, 0.0, 1.0, "best_years", "bend_2"
    ),
}  # fmt: skip
_MAX_BANDS = 20
_FIX_YEAR = "Give a year from 1900 to 2100."  # later ones are in nobody's career
_HIGHEST = 1e12  # of an amount
_MAX_FAULTS = 20  # that are named
_CHOICES = {"formula": FORMULAS, "kind": KINDS}
_Check = tuple[str, bool, str, str]  # a key, whether it is at fault, why, and how to mend it
_TEXTS = ("title", "source", "currency", "formula", "kind", "index")
_KEYS = (
    "base",
    *_TEXTS,
    "floor_index",
    "ceiling_index",
    "price_amounts",
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
        kind: What rights are: a "balance" or a "yearly_pension".
        index: Series of a yearly amount that follows wages; limits are multiples of it.
        floor_index: The same for the floor.
        ceiling_index: The same for the ceiling.
        price_amounts: Series that follow prices after their last known year; others follow wages.
        first_year: First year of which the rule is known.
        bands: Limits of the bands of earnings, in index amounts.
        parameters: Values of `PARAMETERS` by the year from which they hold.
        series: Yearly amounts that the rule brings itself.
    """

    title: str
    source: str
    currency: str
    formula: str
    kind: str
    index: str
    floor_index: str
    ceiling_index: str
    price_amounts: tuple[str, ...]
    first_year: int
    bands: tuple[float, ...]
    parameters: Mapping[str, Mapping[int, float]]
    series: Mapping[str, Mapping[int, float]]

    def of_years(self, name: str, years: Years) -> Floats:
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

    Later than `last_year` amounts follow wages, and prices do not change. Errors name its `place`.
    """

    place: str
    rule: PensionRule
    amounts: Mapping[str, Mapping[int, float]]
    prices: Mapping[int, float]
    price_year: int
    last_year: int

    @classmethod
    def of(
        cls,
        source: PensionSource,
        facts: Facts,
        price_year: int,
        currency: str,
        role: str = "rule",
    ) -> PensionLaw:
        """The law of a rule, for earnings in a currency of `price_year`.

        Errors name the file of the source, else its `role` and title.

        Raises UsageError if the rule cannot be used, is for another currency, or lacks a series or
        prices.
        """
        rule = pension_rule(source, f"the {ROLES[role]}")
        # A text that came over HTTP has no file.
        place = getattr(source, "file", "") or f"the {ROLES[role]} {rule.title!r}"
        why = f"it is for {rule.currency}, the amounts are in {currency}"
        fix = f"Give a rule file for {currency}."
        _refuse([("currency", rule.currency != currency, why, fix)], place)
        names = {rule.index, rule.floor_index, rule.ceiling_index}
        of_facts = facts.series if currency == "SEK" else {}  # whose amounts are in SEK
        known = {name: series.values for name, series in of_facts.items()} | {
            name: values for name, values in rule.series.items() if name != _PRICES
        }
        fix = f"Give them in {currency} here, or, if that is SEK, in facts of your own."
        lacking = [
            ("series", True, f"it needs the yearly amounts {name}", with_nearest(fix, name, known))
            for name in sorted(names - known.keys())
        ]
        _refuse(lacking, place)
        prices = rule.series.get(_PRICES) or (facts.price_index if currency == "SEK" else {})
        amounts = {name: known[name] for name in names}
        last_year = min(max(values) for values in (*amounts.values(), prices or {0: 0.0}))
        fix = (
            f"Give it every year from {rule.first_year} on here, for this replaces the dated "
            "facts; facts of your own may add a year to these."
        )
        for name, values in {**amounts, _PRICES: prices}.items():
            needed = [*range(rule.first_year, last_year + 1), *([price_year] * (name == _PRICES))]
            gaps = [f"it has no {name} of {year}" for year in needed if year not in values]
            _refuse([("series", True, why, fix) for why in gaps[:1]], place)
        why = f"it begins in {rule.first_year}, after the last year of its amounts, {last_year}"
        fix = "Begin earlier, and date the parameters that change."
        _refuse([("first_year", rule.first_year > last_year, why, fix)], place)
        law = cls(place, rule, amounts, prices, price_year, last_year)
        law._check_limits()
        return law

    def _check_limits(self) -> None:
        """Raise UsageError for a year in which the least income that counts is above the most."""
        rule = self.rule
        dates = {*rule.parameters.get("floor", ()), *rule.parameters.get("ceiling", ())}
        years = np.arange(rule.first_year, max({self.last_year, *dates}) + 1)
        known, growth = self.known_years(years), np.ones((1, 1))
        floor = rule.of_years("floor", years) * self.amount(rule.floor_index, known, growth)[:, 0]
        ceiling = self.amount(rule.ceiling_index, known, growth)[:, 0]
        above = floor > rule.of_years("ceiling", years) * ceiling
        why = f"above the ceiling in {years[above.argmax()]}"
        fix = "Give a lower floor, or a higher ceiling."
        _refuse([("parameters, floor", bool(above.any()), why, fix)], self.place)

    def amount(self, name: str, years: Years, growth: Floats) -> Floats:
        """A yearly amount, in prices of the law, (n_year, n_path).

        `growth` (n_year, n_path) is the factor of real wages since `last_year`.
        """
        values = np.array([self.amounts[name][year] for year in years.tolist()])[:, None]
        return values if name in self.rule.price_amounts else values * growth

    def mean_wages(self, years: Years) -> Floats:
        """Factor of real wages since `last_year` that grow as they did on average, (n_year, 1)."""
        factors: Floats = np.exp(self.mean_growth * (years - self.known_years(years)))
        return factors[:, None]

    def to_law(self, years: Years) -> Floats:
        """Factor from prices of `price_year` to those of each year, shape of `years`."""
        return (
            np.array([self.prices[year] for year in years.tolist()]) / self.prices[self.price_year]
        )

    @property
    def mean_growth(self) -> float:
        """Mean log growth of real wages a year, over the known years of the index."""
        return self._mean_growth(self.amounts[self.rule.index]) - self._mean_growth(self.prices)

    def inflation(self, years: Years, n: int) -> Floats:
        """Factor of prices from each year to `n` years later, shape of `years`.

        After `last_year` prices rise as they did on average.
        """
        known, later = self.known_years(years), self.known_years(years + n)
        unknown = n - (later - known)  # years of the rise that are not known
        return np.asarray(
            self.to_law(later)
            / self.to_law(known)
            * np.exp(self._mean_growth(self.prices) * unknown)
        )

    def _mean_growth(self, values: Mapping[int, float]) -> float:
        """Mean log growth of yearly values a year, over the known years."""
        first, last = self.rule.first_year, self.last_year
        return math.log(values[last] / values[first]) / max(last - first, 1)

    def known_years(self, years: Years) -> Years:
        """The years, each moved to the nearest one whose amounts are known."""
        return np.clip(years, self.rule.first_year, self.last_year)


def check_laws(laws: Sequence[PensionLaw], first_age: int) -> None:
    """Raise UsageError for a reform of another kind, or if earnings count from too late an age."""
    rule, changed = laws[0], laws[-1]
    kinds = [law.rule.kind.replace("_", " ") for law in (rule, changed)]
    why = f"it gives a {kinds[1]}, {rule.place} a {kinds[0]}: their difference means nothing"
    fix = "Compare rules of one kind, such as a rule and a file that has it as `base`."
    _refuse([("kind", kinds[0] != kinds[1], why, fix)], changed.place)
    for law in laws:
        dated = law.rule.parameters.get("index_age", {0: PARAMETERS["index_age"].default})
        age = min(dated.values())
        is_late = law.rule.formula == "best_years" and first_age > age
        why = f"earnings are indexed to age {age:g}, before the first age that counts, {first_age}"
        _refuse([("index_age", is_late, why, "Count from an earlier age.")], law.place)


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
    if not text.lower().endswith((".yaml", ".yml")):
        return PensionSource(text)
    path = Path(text)
    try:
        source = PensionSource(path.read_text(encoding="utf-8-sig").rstrip() + "\n")
        source.file = path.name
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            f"{text} cannot be read. Check its path, and save it as UTF-8 text."
        ) from None
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
    title = f"There is a fault in {place}."
    content = read_yaml(source, title, "pension-rule", _option_of(place))
    if not isinstance(content, dict):
        raise UsageError(f"{place} has no keys. Give {', '.join(_KEYS)}.")
    base = content.pop("base", None)
    return content if base is None else _on_top_of(base, content, place)


def _on_top_of(base: object, content: dict[str, Any], place: str) -> dict[str, Any]:
    """The keys of a rule file with those of its base below them."""
    fix = f"Use one of {', '.join(SHIPPED_RULES)}."
    is_known = base in SHIPPED_RULES
    _refuse([("base", not is_known, "there is no rule of this name", fix)], place)
    below = _content(str(base), str(base))
    merged = {**below, "title": f"{below['title']}, changed", **content}
    for key in (*_CHOICES, "currency"):  # the amounts and steps of the base are in its currency
        is_other = merged[key] != below[key] and merged[key] in _CHOICES.get(key, (merged[key],))
        fix = f"Leave it out, or write a rule without `base`: {base} has {below[key]}."
        _refuse([(key, is_other, "not that of the base", fix)], place)
    # What the base alone uses: a changed rule may have other amounts.
    used = _amounts_of(merged)
    if "price_amounts" in below and "price_amounts" not in content:
        merged["price_amounts"] = [n for n in below["price_amounts"] if n in used and n != used[0]]
    inherited = {
        "parameters": below["parameters"],
        "series": {k: v for k, v in below.get("series", {}).items() if k in (*used, _PRICES)},
    }
    for key, before in inherited.items():
        changes = content.get(key, {})
        if isinstance(changes, dict):
            merged[key] = {**before, **changes}
            for name, value in changes.items():
                if isinstance(value, dict) and name in before:
                    earlier = before[name]
                    if not isinstance(earlier, dict):
                        earlier = {str(merged["first_year"]): earlier}
                    merged[key][name] = {**earlier, **value}
    return merged


def _amounts_of(content: Mapping[str, Any]) -> tuple[object, ...]:
    """The names of the yearly amounts that a rule uses."""
    index = content.get("index")
    return (index, content.get("floor_index", index), content.get("ceiling_index", index))


def _rule_of(content: Mapping[str, Any], place: str) -> PensionRule:
    _refuse(_checks(content), place)
    first_year, index = int(content["first_year"]), content["index"]
    rule = PensionRule(
        **{name: content[name] for name in _TEXTS},
        floor_index=content.get("floor_index", index),
        ceiling_index=content.get("ceiling_index", index),
        price_amounts=tuple(content.get("price_amounts", ())),
        first_year=first_year,
        bands=tuple(map(float, content.get("bands", (1, 3, 5)))),
        parameters={
            name: _from_first_year(
                _by_year(value, first_year), first_year, PARAMETERS[name].default
            )
            for name, value in content.get("parameters", {}).items()
        },
        series={name: _by_year(value, 0) for name, value in content.get("series", {}).items()},
    )
    _refuse(_checks_of_pairs(rule), place)
    return rule


def _by_year(value: Any, first_year: int) -> dict[int, float]:
    dated = value if isinstance(value, dict) else {first_year: value}
    return {int(year): float(amount) for year, amount in sorted(dated.items())}


def _from_first_year(dated: dict[int, float], first_year: int, default: float) -> dict[int, float]:
    """The numbers by year, with the default before them if they begin after the first year."""
    return dated if min(dated, default=math.inf) <= first_year else {first_year: default, **dated}


def _refuse(checks: Iterable[_Check], place: str) -> None:
    """Raise UsageError with a problem for each check that finds a fault."""
    problems = (
        Problem("pension-rule", f"{place}, {key}: {why}", fix, column=_option_of(place))
        for key, is_faulty, why, fix in checks
        if is_faulty
    )
    if first := list(islice(problems, _MAX_FAULTS)):
        raise UsageError(f"There is a fault in {place}.", first)


def _option_of(place: str) -> str | None:
    """The option of a request that an error is about; None: a file, whose name tells it."""
    return next((role for role, words in ROLES.items() if place.startswith(f"the {words}")), None)


def _checks(content: Mapping[str, Any]) -> Iterator[_Check]:
    """The checks of the content of a rule file, key by key."""
    for key in content:
        fix = "Write it below `parameters`." if key in PARAMETERS else f"Use {', '.join(_KEYS)}."
        yield key, key not in _KEYS, "there is no such key", fix
    for key in _TEXTS:
        fix = f"Write {' or '.join(KINDS)}" if key == "kind" else "Give it"
        is_text = isinstance(content.get(key), str) and content[key].strip()
        yield key, not is_text, "a text is missing", f"{fix}, or a `base` that has it."
    for key, choices in _CHOICES.items():
        is_other = isinstance(content.get(key), str) and content[key] not in choices
        yield key, is_other, "unknown", f"Use one of {', '.join(choices)}."
    is_balance = (content.get("formula"), content.get("kind")) == ("best_years", "balance")
    yield "kind", is_balance, "best_years gives a yearly pension", "Write yearly_pension."
    for key in ("floor_index", "ceiling_index"):
        is_text = isinstance(content.get(key, ""), str)
        yield key, not is_text, "not a text", "Give the name of a series."
    index, *amounts = _amounts_of(content)
    names, others = content.get("price_amounts", []), [name for name in amounts if name != index]
    for name in others[:1]:
        fix = f"Write [{name}] if it follows prices, [] if it follows wages."
        yield "price_amounts", "price_amounts" not in content, f"not said for {name}", fix
    is_known = isinstance(names, list) and all(name in others for name in names)
    fix = "List names of the floor_index and ceiling_index that are not the index."
    yield "price_amounts", not is_known, "not amounts of the rule beside the index", fix
    yield "first_year", not _is_year(content.get("first_year")), "no calendar year", _FIX_YEAR
    bands = content.get("bands", [1])
    is_list = isinstance(bands, list) and len(bands) > 0 and all(map(is_number, bands))
    named = (f"{limit:g}" for limit in (0, *bands)) if is_list else ()  # as columns name them
    ascends = is_list and all(low < high < _HIGHEST for low, high in pairwise(map(float, named)))
    yield "bands", not ascends, "not ascending numbers", "Write them like [1, 3, 5]."
    # Each is a row of each person and age.
    is_long = ascends and len(bands) > _MAX_BANDS
    yield "bands", is_long, "too many", f"Give at most {_MAX_BANDS}."
    for key in ("parameters", "series"):
        is_mapping = isinstance(content.get(key, {}), dict)
        yield key, not is_mapping, "not a mapping", "Give `name: value` lines below the key."
        if not is_mapping:
            return
    parameters = content.get("parameters", {})
    is_nothing = content.get("formula") == "sum" and not {"rate", "funded_rate"} & parameters.keys()
    yield "parameters, rate", is_nothing, "missing, so no year gives a right", "Give it."
    for name, value in parameters.items():
        yield from _checks_of_parameter(name, value, content)
    for key in ("floor_index", "ceiling_index"):
        name = key.removesuffix("_index")
        fix = f"Give the parameter {name}, too, or remove it."
        is_alone = key in content and name not in parameters
        yield key, is_alone, f"it has no effect without {name}", fix
    used = [*dict.fromkeys(map(str, _amounts_of(content))), _PRICES]
    for name, value in content.get("series", {}).items():
        key = f"series, {name}"
        fix = f"Remove it, or write one of those that it uses: {', '.join(used)}."
        fix = with_nearest(fix, name, used)
        yield key, name not in used, "the rule does not use it", fix
        is_dated = isinstance(value, dict)
        yield key, not is_dated, "not by year", "Write {2024: 57300, 2025: 58800}."
        yield from _checks_of_numbers(key, value, 1e-9, _HIGHEST)


def _checks_of_parameter(name: str, value: Any, content: Mapping[str, Any]) -> Iterator[_Check]:
    key, parameter = f"parameters, {name}", PARAMETERS.get(name)
    if parameter is None:
        fix = with_nearest(f"Use {', '.join(PARAMETERS)}.", name, PARAMETERS)
        yield key, True, "there is no such parameter", fix
        return
    bounds, needs = (parameter.lowest, parameter.highest), parameter.needs
    yield from _checks_of_numbers(key, value, *bounds, whole=parameter.whole)
    is_other = parameter.formula not in (None, content.get("formula"))
    fix = f"Remove it: it belongs to the formula {parameter.formula}."
    yield key, is_other, "it has no effect", fix
    is_alone = not is_other and needs is not None and needs not in content["parameters"]
    fix = f"Give {needs}, too, or remove it."
    yield key, is_alone, f"it has no effect without {needs}", fix
    dated = value if isinstance(value, dict) else {}
    fix = "Give one number: it holds for a whole career."
    yield (
        key,
        value is dated and name in ("eligibility_age", "credited_after"),
        "it cannot change",
        fix,
    )
    first_year = content.get("first_year")
    if _is_year(first_year):
        early = sorted(year for year in dated if _is_year(year) and year <= str(first_year))
        for year in early[:-1]:
            fix = f"Remove it: the rule begins in {first_year}, when {early[-1]} holds."
            yield f"{key}, {year}", True, "it has no effect", fix


def _checks_of_numbers(
    key: str, value: object, lowest: float, highest: float, *, whole: bool = False
) -> Iterator[_Check]:
    """The checks of a number, or of numbers by year."""
    dated: dict[Any, Any] = value if isinstance(value, dict) else {None: value}
    example = ", such as 0.185 for 18.5 %" if highest <= 1 and not whole else ""
    fix = f"Give a {'whole ' if whole else ''}number from {lowest:g} to {highest:g}{example}."
    for year, number in dated.items():
        at = key if year is None else f"{key}, {year}"
        yield at, year is not None and not _is_year(year), "no calendar year", _FIX_YEAR
        is_kind = is_number(number) and (isinstance(number, int) or not whole)
        is_possible = is_kind and lowest <= number <= highest
        yield at, not is_possible, "the value is not possible", fix


def _checks_of_pairs(rule: PensionRule) -> Iterator[_Check]:
    """The checks of parameters of which each is possible, and both together are not in a year."""
    dates = {rule.first_year, *(year for dated in rule.parameters.values() for year in dated)}
    years = np.array(sorted(dates))
    names = ("bend_1", "bend_2", "rate", "funded_rate", "index_age", "eligibility_age")
    bend_1, bend_2, rate, funded_rate, age, pension_age = (
        rule.of_years(name, years) for name in names
    )
    shares = "Give shares of what counts that are together at most 1, such as 0.16 and 0.025."
    for name, above, what, fix in (
        ("bend_1", bend_1 > bend_2, "bend_2", "Give bend_1 at most bend_2."),
        ("rate", rate + funded_rate > 1, "1 with funded_rate", shares),
        ("index_age", age > pension_age, "eligibility_age", "Give index_age at most that age."),
    ):
        why = f"above {what} in {years[above.argmax()]}"
        yield f"parameters, {name}", bool(above.any()), why, fix


def _is_year(value: object) -> bool:
    """Whether a number, or a key as it is written, is a year that a rule can have."""
    return re.fullmatch("(19|20)[0-9]{2}|2100", str(value)) is not None
