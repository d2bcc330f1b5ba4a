"""Warnings that belong to a result: what a reader must know about the input and the options.

A warning never repeats a person's value, because messages go to logs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.facts import Facts
from saga.data.panel import Panel
from saga.features.training_reference import LEVELS, ComparedRecords, TrainingReference
from saga.features.transforms import Transforms
from saga.lifetime import past_years
from saga.macro.group_trends import AGE, GroupTrends
from saga.macro.history import MacroHistory
from saga.macro.plausible_values import implausible_values
from saga.macro.scenarios import Scenario
from saga.requests import (
    PATHS,
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PensionRequest,
    Request,
)
from saga.schema import MAX_AGE, MONEY
from saga.small_groups import MIN_PERSONS
from saga.tax.tax_rules import TaxRule
from saga.training_records import TrainingRecords

_Limits = tuple[tuple[float, float], ...]
MAX_PERSONS = 20  # of one message; beyond that the warning has their number instead
SIMULATED = "The bundle was trained on simulated people, not on records of real persons."
_RARE = 0.005  # a record is unlike training beyond this quantile, or 1 minus it
_FEW_PERSONS_RARE = 0.02  # the same if training persons were too few for that quantile
_PROPERTY_TEXT = {
    "amount": "The typical amount, compared with persons of the same age,",
    "zero_share": "The share of years without earnings",
    "volatility": "The variation of earnings between years",
    "n_years": "The number of recorded years",
}
_MANY_PERSONS = 20  # from this number on, smaller deviations of the typical amount are reported
# Lowest ratio of training's typical amount to the panel's, and what the amounts probably are.
_UNITS_BELOW = (
    (300.0, "thousands", "1000"),
    (30.0, "hundreds", "100"),
    (5.0, "amounts per month", "12"),
)
_CHANCE = 0.003  # of fewer persons, all of whom have amounts as small or large as in the panel
_STEADY = 0.05  # share of training persons whose earnings vary less between years
_MAX_YEAR_RATIO = 1_000  # about 300 million SEK a year
_MAX_LEAP, _HIGH = 100, 30  # times the person's own median, and what is typical at that age
_MIN_COLUMN_RATIO = 30.0  # other columns than earnings differ more between panels


WarningCode = Literal[
    "beyond-age",
    "unlike-training",
    "unit",
    "own-column",
    "made-unknown",
    "unmatched",
    "no-effect",
    "unobserved-past",
    "simulated-people",
    "ledger-unavailable",
    "nothing-recorded",
    "early-origin",
    "late-origin",
    "beyond-span",
    "seen-years",
    "mixed-origins",
    "macro-ends",
    "unpublished-prices",
    "unpublished-tax",
    "implausible-scenario",
]


@dataclass(frozen=True)
class ForecastWarning:
    """One warning, about a person, about `count` persons or cells, or about the whole result."""

    code: WarningCode
    message: str
    person_id: str | None = None
    count: int | None = None
    column: str | None = None
    option: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The warning without empty entries, for JSON."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def __str__(self) -> str:
        counted = "cell" if self.code == "made-unknown" else "person"
        number = f" ({self.count:,} {counted}{'s' * (self.count != 1)})" if self.count else ""
        return self.message + (f" (person {self.person_id})" if self.person_id else number)


@dataclass(frozen=True)
class Training:
    """What a forecaster was made from, besides the transforms.

    Args:
        records: What the records span with which it was trained and calibrated.
        last_macro_year: Last year of the macro series; None without macro series.
        macro: Name of the macro series, as a panel has it.
        simulated: Whether they are records of simulated people.
        history: The macro series that scenarios are compared with.
        groups: The economy of groups, whose ratios scenarios may have.
    """

    records: TrainingRecords
    last_macro_year: int | None
    simulated: bool = False
    macro: str | None = None
    history: MacroHistory | None = None
    groups: GroupTrends | None = None


def find_warnings(
    panel: Panel,
    request: Request,
    draws: Draws,
    transforms: Transforms,
    *,
    scenario: Scenario | None = None,
    path_options: Sequence[str] = (),
    training: Training | None = None,
    compared: ComparedRecords | None = None,
) -> tuple[ForecastWarning, ...]:
    """All warnings of a request for the persons of a panel, at most 20 of one kind.

    Args:
        panel: Persons' records.
        request: The requested table.
        draws: Number of paths and seed.
        transforms: Transforms of the bundle. If they have quantiles of training persons, records
            are compared with them.
        scenario: The scenario of the draws.
        path_options: Options of simulated paths that are not the usual ones: "precision", or
            "rollout" if it is another one than that of the calibration.
        training: What the forecaster was made from.
        compared: The panel's records beside those of training, if they are compared already.
    """
    ends = _ends(panel)
    return merge_warnings(
        [
            *(_about_training(panel, ends, training) if training else ()),
            *(_beyond_span(panel, ends, request, training.records) if training else ()),
            *_without_effect(request, draws, path_options),
            *(_about_scenario(panel, ends, request, scenario, training) if scenario else ()),
            *_beyond_age(panel, ends, request),
            *_unobserved_past(panel, request),
            *_about_mapping(panel),
            *_own_columns(panel, transforms),
            *_about_amounts(panel, transforms.reference, compared),
        ]
    )


def merge_warnings(
    warnings: Iterable[ForecastWarning], max_persons: int = MAX_PERSONS
) -> tuple[ForecastWarning, ...]:
    """Warnings with one message together; above `max_persons` persons, their number is given."""
    by_kind: dict[tuple[str | None, ...], list[ForecastWarning]] = {}
    for w in warnings:
        by_kind.setdefault((w.code, w.message, w.column, w.option), []).append(w)
    merged: list[ForecastWarning] = []
    for same in by_kind.values():
        kind = same[0]
        counts = [w.count or 1 for w in same if w.person_id is not None or w.count is not None]
        named = all(w.person_id is not None for w in same)
        if not counts:
            merged.append(kind)
        elif named and len(same) <= max_persons:
            merged += same
        else:
            merged.append(replace(kind, person_id=None, count=sum(counts)))
    return tuple(merged)


def warning_dicts(
    warnings: Iterable[ForecastWarning], max_persons: int = MAX_PERSONS
) -> list[dict[str, Any]]:
    """Merged warnings as plain values, for JSON."""
    return [warning.as_dict() for warning in merge_warnings(warnings, max_persons)]


def add_counts(parts: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The warnings of several parts together, from and as plain values, without persons.

    What has no match in one part may have one in another.
    """
    warnings = (
        ForecastWarning(**warning)
        for part in parts
        for warning in part
        if warning["code"] != "unmatched" or all(warning in other for other in parts)
    )
    return warning_dicts(warnings, max_persons=0)


def _about_training(panel: Panel, ends: _Ends, training: Training) -> Iterator[ForecastWarning]:
    """Origins in unknown years, backtests on seen years, and prices that are not published."""
    if training.simulated:
        yield ForecastWarning("simulated-people", SIMULATED)
    first_year, last_year = training.records.first_year, training.records.last_year
    last_macro_year, origin = training.last_macro_year, ends.year
    message = (
        f"The origin is before {first_year}, the first year of the records that the bundle was "
        "trained and calibrated on. Nothing shows that its intervals held then, so their "
        "guarantee is extrapolated."
    )
    yield from _about(panel, origin < first_year, "early-origin", message)
    message = (
        f"The origin is after {last_year}, the last year of the records that the bundle was "
        "trained and calibrated on. Nothing shows that its intervals still hold, so their "
        "guarantee is extrapolated. Send the outcomes of later years, or train anew."
    )
    yield from _about(panel, origin > last_year, "late-origin", message)
    if panel.meta.last_year_read is not None:
        message = (
            f"The bundle was trained on records up to {last_year}, so it knows years after "
            "this origin. For a fair backtest use persons whom it has not seen, or a bundle that "
            "ends at the origin."
        )
        yield from _about(panel, origin < last_year, "seen-years", message, option="origin")
    if last_macro_year is not None:
        message = (
            f"The macro series end in {last_macro_year}, before the origin. Unemployment and "
            "prices of the years between are expected values, and wages are assumed to grow as in "
            "the long run. Facts of your own can add these years."
        )
        yield from _about(panel, origin > last_macro_year, "macro-ends", message)
    if training.macro not in (None, panel.meta.macro) and not panel.meta.simulated:
        message = (
            f"The macro series of the mapping ({panel.meta.macro or 'none'}) change nothing: the "
            f"bundle forecasts with its own ({training.macro})."
        )
        yield ForecastWarning("no-effect", message, option="mapping")
    if panel.meta.unpublished_prices:
        message = _price_message(panel.meta.unpublished_prices)
        yield ForecastWarning("unpublished-prices", message, option="prices")


def _price_message(marks: Mapping[int, str]) -> str:
    words = {"E": "an estimate", "C": "assumed (2 % a year)"}
    levels = ", ".join(f"{year} is {words[mark]}" for year, mark in sorted(marks.items()))
    return f"The price level of {levels}. Facts of your own can replace it."


def tax_warnings(rule: TaxRule, facts: Facts, price_year: int) -> Iterator[ForecastWarning]:
    """What is not published of a tax rule: parameters, and prices to convert earnings."""
    if rule.marks:
        names = ", ".join(f"{name} ({mark})" for name, mark in rule.marks)
        message = (
            f"Parameters of the tax of {rule.law_year} that no public source gives: {names}. See "
            "the marks in the glossary. Facts of your own can replace them."
        )
        yield ForecastWarning("unpublished-tax", message, option="tax")
    unpublished = facts.unpublished_prices({rule.law_year, price_year})
    if rule.law_year != price_year and unpublished:
        message = f"Earnings are converted to prices of the law. {_price_message(unpublished)}"
        yield ForecastWarning("unpublished-prices", message, option="tax")


def pension_warnings(
    panel: Panel, request: PensionRequest, first_year: int
) -> Iterator[ForecastWarning]:
    """Persons with years before `first_year`, the first one of the pension rule."""
    starts = panel.frame["birth_year"].gather(panel.last_rows).to_numpy() + request.first_age
    counted = (
        "add nothing" if request.unknown_years == "zero" else "are unknown, so rights are, too"
    )
    message = (
        f"The pension rule is known from {first_year} on. Earlier years {counted}. The column "
        "unknown_years has their number."
    )
    yield from _about(panel, starts < first_year, "unobserved-past", message, option="rule")


def _without_effect(
    request: Request, draws: Draws, path_options: Sequence[str]
) -> Iterator[ForecastWarning]:
    if not isinstance(request, ForecastRequest):
        return
    why = "has no effect on forecasts of single years, which are computed without simulated paths."
    for option, name, is_given in (
        ("paths", "number of paths", draws.n_paths != PATHS),
        ("seed", "seed", draws.seed != 0),
        *((name, name, name in path_options) for name in ("rollout", "precision")),
    ):
        if is_given:
            yield ForecastWarning("no-effect", f"The {name} {why}", option=option)


def _about_scenario(
    panel: Panel, ends: _Ends, request: Request, scenario: Scenario, training: Training | None
) -> Iterator[ForecastWarning]:
    """What changes nothing of a scenario, and values far beyond those observed."""
    years, to_age = MAX_AGE, MAX_AGE
    if isinstance(request, ForecastRequest):
        years = request.n_years
    else:
        to_age = request.to_age
    last = np.minimum(ends.year + years, ends.birth_year + to_age)
    covered = scenario.covers(ends.year + 1, last)
    message = "The scenario gives no year that is forecast, so it changes nothing."
    yield from _about(panel, np.logical_not(covered), "no-effect", message, option="scenario")
    history, groups = (training.history, training.groups) if training else (None, None)
    if not scenario.by_name:
        message = "The scenario has years before the forecast begins. They change nothing."
        is_late = covered & scenario.begins_before(ends.year, history)
        yield from _about(panel, is_late, "no-effect", message, option="scenario")
        for column, message in implausible_values(scenario, history) if history else ():
            yield ForecastWarning("implausible-scenario", message, column=column, option="scenario")
    for name in scenario.ratio_names:
        if groups is None:
            break
        column, pair = groups.compared_levels(name)
        if column == AGE:  # which everybody has
            continue
        without = np.full(len(ends.year), True)
        if column in panel.frame.columns:
            code = pl.col(column).cast(pl.String).drop_nulls().last()
            codes = panel.frame.group_by("person_id", maintain_order=True).agg(code)[column]
            without = ~codes.is_in(pair).fill_null(False).to_numpy()
        message = (
            f"The scenario's ratio {name} changes nothing: {column} is unknown, or neither of the "
            "two."
        )
        yield from _about(panel, without & covered, "no-effect", message, option="scenario")


def _beyond_age(panel: Panel, ends: _Ends, request: Request) -> list[ForecastWarning]:
    if not isinstance(request, ForecastRequest):
        return []
    beyond = ends.year + request.horizons[-1] - ends.birth_year > MAX_AGE
    message = f"Forecasts end at age {MAX_AGE}. Later years have no row."
    return _about(panel, beyond, "beyond-age", message)


def _beyond_span(
    panel: Panel, ends: _Ends, request: Request, records: TrainingRecords
) -> list[ForecastWarning]:
    said, option = "What lies beyond is extrapolated: nothing shows whether it is right.", None
    if isinstance(request, ForecastRequest):
        to_age, horizons, option = MAX_AGE, np.array(request.horizons), "beyond_span"
        if not request.beyond_span:
            said = "Later years and other ages have no row; with beyond_span they are extrapolated."
    else:
        to_age, horizons = request.to_age, np.arange(1, request.to_age)
    age = (ends.year - ends.birth_year)[:, None]
    beyond = np.any((age + horizons <= to_age) & ~records.reach(age, horizons), axis=1)
    message = "The records that the bundle was trained and calibrated on have outcomes "
    message += f"{records}. {said}"
    return _about(panel, beyond, "beyond-span", message, option=option)


def _unobserved_past(panel: Panel, request: Request) -> list[ForecastWarning]:
    if isinstance(request, PensionRequest):
        from_age, what = request.first_age, "rights are"
    elif isinstance(request, LifetimeRequest) and request.from_age is not None:
        from_age, what = request.from_age, "the present value is"
    else:
        return []
    years = past_years(panel, from_age)
    persons = years.filter("is_unknown")["person_id"].unique().implode()
    concerned = panel.frame["person_id"].gather(panel.last_rows).is_in(persons)
    counted = {
        "null": f"are unknown, so {what}, too. Give these years, or let them count as "
        "interpolated or as zero (unknown_years)",
        "interpolate": "are unknown. They are interpolated between the nearest known years",
        "zero": "are unknown. They add nothing",
    }[request.unknown_years]
    message = f"Earnings of years since age {from_age} {counted}. The column unknown_years "
    message += "has their number."
    return _about(panel, concerned.to_numpy(), "unobserved-past", message, option="unknown_years")


def _about_mapping(panel: Panel) -> Iterator[ForecastWarning]:
    for entry, cells in panel.meta.nulled.items():
        message = f"Cells are unknown by `{entry}` of the mapping."
        yield ForecastWarning("made-unknown", message, count=cells, option="mapping")
    for name, n_files in panel.meta.partly.items():
        message = f"Only {n_files} files have {name}, which is unknown in the others."
        yield ForecastWarning("made-unknown", message, column=name)
    for entry in panel.meta.unmatched:
        message = f"`{entry}` of the mapping applies to no cell."
        yield ForecastWarning("unmatched", message, option="mapping")


def _own_columns(panel: Panel, transforms: Transforms) -> Iterator[ForecastWarning]:
    """The panel's own columns that forecasts treat as missing, or do not use."""
    panel_columns = {*panel.meta.extra_names("category"), *panel.meta.extra_names("number")}
    for column in transforms.extra:
        name = column.name
        if name not in panel_columns or panel.frame[name].null_count() == len(panel):
            message = f"The bundle was trained with {name}, the panel has no value of it."
            yield ForecastWarning("own-column", message, column=name)
        elif column.kind == "category":
            value, codes = pl.col(name), list(transforms.codes[name])
            unknown = panel.frame.filter(value.is_not_null() & ~value.is_in(codes))
            if len(unknown):
                message = (
                    f"Some codes of {name} are those of fewer than {MIN_PERSONS} training "
                    "persons. They count as missing."
                )
                count = unknown["person_id"].n_unique()
                yield ForecastWarning("own-column", message, count=count, column=name)
    for name in sorted(panel_columns - {column.name for column in transforms.extra}):
        message = f"The bundle was trained without {name}, so it is not used."
        yield ForecastWarning("own-column", message, column=name)


def _about_amounts(
    panel: Panel, reference: TrainingReference | None, compared: ComparedRecords | None
) -> Iterator[ForecastWarning]:
    """Units that are wrong, and records unlike those of training."""
    if reference is None:
        return
    compared = compared or reference.compare(panel)
    few_are_rare = _are_rare(compared.properties, reference.quantiles)
    wrong_units = list(_wrong_units(panel, reference, compared.relative_logs, few_are_rare))
    yield from wrong_units
    if not any(warning.column == "earnings" for warning in wrong_units):
        yield from _wrong_years(panel, compared.relative_logs)
    yield from _unlike_training(panel, reference, compared.properties)


def _wrong_years(panel: Panel, relative_logs: NDArray[np.float64]) -> list[ForecastWarning]:
    """Persons with an amount in a single year that is hardly one of a year, or hardly theirs."""
    logs = pl.DataFrame({"person": panel.person_numbers, "log": relative_logs}, nan_to_null=True)
    of_person = logs.select(pl.col("log").median().over("person")).to_series().to_numpy()
    leap = (relative_logs - of_person > math.log(_MAX_LEAP)) & (relative_logs > math.log(_HIGH))
    wrong = leap | (relative_logs > math.log(_MAX_YEAR_RATIO))  # False for NaN
    concerned = np.bincount(panel.person_numbers[wrong], minlength=len(panel.last_rows)) > 0
    message = (
        f"Earnings of a year are more than {_MAX_YEAR_RATIO:,} times what is typical at that age, "
        f"or {_MAX_LEAP} times what is typical of the person. Check whether the amount is right "
        "or a code for what is unknown."
    )
    return _about(panel, concerned, "unit", message, column="earnings")


def _unlike_training(
    panel: Panel, reference: TrainingReference, properties: Mapping[str, NDArray[np.float64]]
) -> list[ForecastWarning]:
    warnings: list[ForecastWarning] = []
    for name, values in properties.items():
        low, high = _rare_limits(reference.quantiles[name])
        for side, sign, limits in (("smaller", -1, low), ("larger", 1, high)):
            outermost = np.fmax.reduce(sign * values, initial=-np.inf)  # without NaN
            if not limits or not outermost > sign * limits[-1][1]:
                continue
            remaining = np.full(len(values), True)
            for p, limit in limits:  # from the outermost quantile inwards
                beyond = remaining & (sign * values > sign * limit)
                remaining &= ~beyond
                others = 100 * (p if sign > 0 else 1 - p)
                message = (
                    f"{_PROPERTY_TEXT[name]} is {side} than that of {others:g} % of the training "
                    "persons. The intervals are less reliable for such a record."
                )
                warnings += _about(panel, beyond, "unlike-training", message, column="earnings")
    return warnings


@cache
def _rare_limits(stored: tuple[float | None, ...]) -> tuple[_Limits, _Limits]:
    """Levels and quantiles beyond which few training persons are, from the outermost inwards.

    `stored` are the quantiles at LEVELS.
    """
    pairs = [(p, q) for p, q in zip(LEVELS, stored, strict=True) if q is not None]
    if not pairs:
        return (), ()
    lowest, highest = pairs[0][0], pairs[-1][0]
    low_limit, high_limit = max(_RARE, lowest), min(1 - _RARE, highest)
    low = tuple((p, q) for p, q in pairs if p <= low_limit <= _FEW_PERSONS_RARE)
    high = tuple((p, q) for p, q in pairs if p >= high_limit >= 1 - _FEW_PERSONS_RARE)
    return low, high[::-1]


def _are_rare(
    properties: Mapping[str, NDArray[np.float64]],
    stored: Mapping[str, tuple[float | None, ...]],
) -> bool:
    """Whether two or more persons who are all on one side are less likely than `_CHANCE`.

    Small amounts of persons who all earn more steadily than 95 % of training persons, as monthly
    pay is, are less likely still: small amounts vary more than others, so the product of both
    shares is an upper bound. Persons are taken as independent. `stored` are the quantiles at LEVELS
    of training persons.
    """
    is_known = np.isfinite(properties["amount"])
    amounts, n = properties["amount"][is_known], int(is_known.sum())
    if n < 2:  # one person may earn little
        return False
    pairs = [(p, q) for p, q in zip(LEVELS, stored["amount"], strict=True) if q is not None]
    below = min((p for p, q in pairs if amounts.max() < q), default=1.0)
    above = min((1 - p for p, q in pairs if amounts.min() > q), default=1.0)
    steady = stored["volatility"][LEVELS.index(_STEADY)]
    if steady is not None and bool((properties["volatility"][is_known] < steady).all()):
        below *= _STEADY
    return min(below, above) ** n <= _CHANCE


def _wrong_units(
    panel: Panel,
    reference: TrainingReference,
    relative_logs: NDArray[np.float64],
    few_are_rare: bool,
) -> Iterator[ForecastWarning]:
    """Columns whose typical amount is not of the size that training persons have."""
    person = panel.person_numbers
    for column in MONEY:
        if column == "earnings":
            logs = relative_logs
        elif column in reference.columns and column in panel.meta.present:
            amounts = panel.frame[column].to_numpy().astype(np.float64)
            with np.errstate(invalid="ignore", divide="ignore"):
                logs = np.log(np.where(amounts > 0, amounts, np.nan)) - reference.columns[column]
        else:
            continue
        positive = np.isfinite(logs)
        if not positive.any():
            continue
        n_persons = 1 + int(np.count_nonzero(np.diff(person[positive])))
        ratio = math.exp(_median(logs[positive]))
        sensitive = column == "earnings" and (n_persons >= _MANY_PERSONS or few_are_rare)
        threshold = _UNITS_BELOW[-1][0] if sensitive else _MIN_COLUMN_RATIO
        if 1 / threshold < ratio < threshold:
            continue
        yield ForecastWarning("unit", _unit_message(column, ratio), count=n_persons, column=column)


def _median(values: NDArray[np.float64]) -> float:
    """The median; for few values ten times as fast as NumPy's, which has many options."""
    ordered, n = np.sort(values), len(values)
    return float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _unit_message(column: str, ratio: float) -> str:
    if ratio < 1:
        unit, scale = next((unit, s) for limit, unit, s in _UNITS_BELOW if 1 / ratio >= limit)
        size = "smaller"
    elif ratio >= _MIN_COLUMN_RATIO and ratio < 1_000:
        unit, scale, size = "hundredths of the unit, such as ore", "0.01", "larger"
    else:
        return (
            f"The amounts of {column} are much larger than those of the training persons. Check "
            "their unit, currency and prices."
        )
    fix = (
        f"multiply them by {scale}; for a file, by `scale: {scale}` in a mapping"
        if column == "earnings"
        else f"multiply the column by {scale}, or use `scale: {scale}` if all amounts are so"
    )
    return (
        f"The amounts of {column} are much {size} than those of the training persons. If they are "
        f"{unit}, {fix}."
    )


def _about(
    panel: Panel,
    concerned: NDArray[np.bool_],
    code: WarningCode,
    message: str,
    *,
    column: str | None = None,
    option: str | None = None,
) -> list[ForecastWarning]:
    """One warning per concerned person, or their number if there are many."""
    count = int(concerned.sum())
    if count == 0:
        return []
    warning = ForecastWarning(code, message, column=column, option=option)
    if count > MAX_PERSONS:
        return [replace(warning, count=count)]
    rows = panel.last_rows[concerned]
    person_ids = panel.frame["person_id"]
    return [replace(warning, person_id=person_ids[int(row)]) for row in rows]


@dataclass(frozen=True)
class _Ends:
    """Birth year and last year (n,) of each record."""

    birth_year: NDArray[np.int64]
    year: NDArray[np.int64]


def _ends(panel: Panel) -> _Ends:
    frame, last = panel.frame, panel.last_rows
    birth_year, year = (frame[name].to_numpy() for name in ("birth_year", "year"))
    return _Ends(birth_year[last].astype(np.int64), year[last].astype(np.int64))
