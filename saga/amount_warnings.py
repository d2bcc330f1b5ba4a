"""Warnings about amounts: wrong units, and records unlike those of training persons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.panel import Panel
from saga.errors import InputError
from saga.features.training_reference import LEVELS, ComparedRecords, TrainingReference
from saga.features.units import Units
from saga.forecast_warnings import ForecastWarning, warn_about
from saga.schema import MONEY

_Limits = tuple[tuple[float, float], ...]
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
# Growth a year of real earnings at equal age: no real panel of so many persons has as much.
_FAST_GROWTH, _MIN_PERSONS = 0.05, 200


def about_amounts(
    panel: Panel, reference: TrainingReference | None, compared: ComparedRecords | None
) -> Iterator[ForecastWarning]:
    """Units that are wrong, and records unlike those of training."""
    if reference is None:
        return
    compared = compared or reference.compare(panel)
    few_are_rare = _are_rare(compared.properties, reference.quantiles)
    wrong_units = list(_wrong_units(panel, reference, compared.relative_logs, few_are_rare))
    yield from wrong_units
    yield from _years_of_other_units(panel.frame["year"].to_numpy(), compared.relative_logs)
    if not any(warning.column == "earnings" for warning in wrong_units):
        yield from _wrong_years(panel, compared)
    yield from _unlike_training(panel, reference, compared.properties)


def require_unit(panel: Panel, reference: TrainingReference | None) -> None:
    """Raise InputError if the earnings are in another unit than those of training.

    They would be outcomes, which move intervals.
    """
    if reference is None:
        return
    compared = reference.compare(panel)
    few_are_rare = _are_rare(compared.properties, reference.quantiles)
    for warning in (
        *_wrong_units(panel, reference, compared.relative_logs, few_are_rare),
        *_years_of_other_units(panel.frame["year"].to_numpy(), compared.relative_logs),
    ):
        if warning.column == "earnings":
            raise _no_outcomes(warning)


def require_outcome_unit(outcomes: pl.DataFrame, reference: TrainingReference | None) -> None:
    """As `require_unit`, for earnings of persons whose ages are not known.

    Only amounts below or above what is typical at every age count. A few persons may all have such.
    """
    positive = outcomes.filter(pl.col("earnings") > 0)
    levels = [level for level in reference.typical if level is not None] if reference else []
    n_persons = positive["person_id"].n_unique()
    if not levels or n_persons < _MANY_PERSONS:
        return
    logs = np.log(positive["earnings"].to_numpy())
    relative_logs = logs - np.clip(logs, min(levels), max(levels))
    if warning := _wrong_unit("earnings", relative_logs, n_persons, sensitive=True):
        raise _no_outcomes(warning)


def require_forecast_unit(amounts: Floats, medians: Floats) -> None:
    """As `require_outcome_unit`, for persons of whom amounts with these medians were forecast (n,).

    So pay of a month is noticed, which is usual for a year at some age.
    """
    known = (amounts > 0) & (medians > 0)
    relative_logs, n_persons = np.log(amounts[known] / medians[known]), int(known.sum())
    if n_persons >= _MANY_PERSONS and (
        warning := _wrong_unit("earnings", relative_logs, n_persons, sensitive=True)
    ):
        raise _no_outcomes(warning)


def _no_outcomes(warning: ForecastWarning) -> InputError:
    return InputError.of(
        "The earnings are no outcomes of the bundle's forecasts.",
        "unit",
        warning.message.rstrip("."),
        "Give amounts in the money of the training",
        column="earnings",
    )


def about_growth(panel: Panel) -> Iterator[ForecastWarning]:
    """That earnings of a year are in another unit, or grow as amounts in its prices do.

    Amounts of a panel are real.
    """
    rows = panel.frame.filter(pl.col("earnings") > 0)
    year = rows["year"].to_numpy()
    if panel.n_persons < _MIN_PERSONS or len(np.unique(year)) < 2:
        return
    logs, age = np.log(rows["earnings"].to_numpy()), year - rows["birth_year"].to_numpy()
    at_age = pl.DataFrame({"log": logs, "age": age}).select(pl.col("log").median().over("age"))
    yield from _years_of_other_units(year, logs - at_age["log"].to_numpy())
    by_year = Units.fit(logs, age, year, longest=1).years
    growth = math.expm1((by_year[-1] - by_year[0]) / (len(by_year) - 1))
    if growth > _FAST_GROWTH:
        yield ForecastWarning(
            "unit",
            f"Typical earnings at equal age grow by {growth:.1%} a year in prices of "
            f"{panel.meta.price_year}, and real earnings hardly ever do. Amounts in the prices of "
            "each year need a price index: leave --prices out, or for another currency name its "
            "index as `deflator` in a mapping. If there is one, check it.",
            column="earnings",
            option="prices",
        )


def _years_of_other_units(
    years: NDArray[np.integer], relative_logs: Floats
) -> Iterator[ForecastWarning]:
    """Years whose typical amount is another one than that of the other years; of each row (n,)."""
    is_known = np.isfinite(relative_logs)
    for year in np.unique(years[is_known]):
        of_year = is_known & (years == year)
        others = relative_logs[is_known & (years != year)]
        if of_year.sum() < _MANY_PERSONS or not len(others):
            continue
        ratio = math.exp(_median(relative_logs[of_year]) - _median(others))
        if not 1 / _UNITS_BELOW[-1][0] < ratio < _UNITS_BELOW[-1][0]:
            yield ForecastWarning(
                "unit",
                f"The amounts of earnings in {year} are much "
                f"{'smaller' if ratio < 1 else 'larger'} than those of the other years. Check "
                "their unit and currency.",
                count=int(of_year.sum()),
                column="earnings",
            )


def _wrong_years(panel: Panel, compared: ComparedRecords) -> list[ForecastWarning]:
    """Persons with an amount in a single year that is hardly one of a year, or hardly theirs."""
    relative_logs = compared.relative_logs
    of_person = compared.properties["amount"][panel.person_numbers]
    leap = (relative_logs - of_person > math.log(_MAX_LEAP)) & (relative_logs > math.log(_HIGH))
    wrong = leap | (relative_logs > math.log(_MAX_YEAR_RATIO))  # False for NaN
    concerned = np.bincount(panel.person_numbers[wrong], minlength=len(panel.last_rows)) > 0
    return warn_about(
        panel,
        concerned,
        "unit",
        f"Earnings of a year are more than {_MAX_YEAR_RATIO:,} times what is typical at that age, "
        f"or {_MAX_LEAP} times what is typical of the person. Check whether the amount is right "
        "or a code for what is unknown.",
        column="earnings",
    )


def _unlike_training(
    panel: Panel, reference: TrainingReference, properties: Mapping[str, NDArray[np.float64]]
) -> Iterator[ForecastWarning]:
    for name, values in properties.items():
        low, high = _rare_limits(reference.quantiles[name])
        for side, lies, limits in (("smaller", np.less, low), ("larger", np.greater, high)):
            if not limits or not np.count_nonzero(lies(values, limits[-1][1])):
                continue
            remaining = np.full(len(values), True)
            for p, limit in limits:  # from the outermost quantile inwards
                beyond = remaining & lies(values, limit)
                remaining &= ~beyond
                others = 100 * (p if side == "larger" else 1 - p)
                yield from warn_about(
                    panel,
                    beyond,
                    "unlike-training",
                    f"{_PROPERTY_TEXT[name]} is {side} than that of {others:g} % of the training "
                    "persons. The intervals are less reliable for such a record.",
                    column="earnings",
                )


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
        persons = panel.person_numbers[positive]
        if not len(persons):
            continue
        n_persons = 1 + int(np.count_nonzero(persons[1:] != persons[:-1]))
        sensitive = column == "earnings" and (n_persons >= _MANY_PERSONS or few_are_rare)
        if warning := _wrong_unit(column, logs[positive], n_persons, sensitive=sensitive):
            yield warning


def _wrong_unit(
    column: str, relative_logs: NDArray[np.float64], n_persons: int, *, sensitive: bool
) -> ForecastWarning | None:
    """That the median of amounts, relative to those of training persons, is of another size."""
    ratio = math.exp(_median(relative_logs))
    threshold = _UNITS_BELOW[-1][0] if sensitive else _MIN_COLUMN_RATIO
    if 1 / threshold < ratio < threshold:
        return None
    return ForecastWarning("unit", _unit_message(column, ratio), count=n_persons, column=column)


def _median(values: NDArray[np.float64]) -> float:
    """The median; for few values ten times as fast as NumPy's, which has many options."""
    ordered, n = np.sort(values), len(values)
    return float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _unit_message(column: str, ratio: float) -> str:
    if ratio < 1:
        unit, scale = next((unit, s) for limit, unit, s in _UNITS_BELOW if 1 / ratio >= limit)
    elif ratio >= _MIN_COLUMN_RATIO and ratio < 1_000:
        unit, scale = "hundredths of the unit, such as ore", "0.01"
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
        f"The amounts of {column} are much {'smaller' if ratio < 1 else 'larger'} than those of "
        f"the training persons. If they are {unit}, {fix}."
    )
