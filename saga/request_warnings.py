"""What a request is warned about: its origins, span, options, scenario, mapping and rules.

Each function finds the warnings of one idea; `find_warnings` asks them all. Values of a scenario
are not plausible, such as per cent as fractions, beyond the lowest and the highest value of the
bundle's history and half of its range, because a history is short; those of real wage growth also
beyond the growth of all shipped countries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.amount_warnings import about_amounts
from saga.data.facts import Facts
from saga.data.macro_rows import SERIES, UNEMPLOYMENT_RANGE
from saga.data.panel import Panel
from saga.features.training_reference import ComparedRecords
from saga.features.transforms import Transforms
from saga.forecast_warnings import SIMULATED, ForecastWarning, merge_warnings, warn_about
from saga.lifetime import past_years
from saga.macro.group_trends import AGE, GroupTrends
from saga.macro.history import MacroHistory
from saga.macro.scenarios import Scenario
from saga.macro.wage_trends import shipped_growth
from saga.requests import (
    PATHS,
    Draws,
    PensionRequest,
    Request,
    UnknownYears,
)
from saga.schema import MAX_AGE, MIN_AGE
from saga.small_groups import MIN_PERSONS
from saga.tax.tax_rules import TaxRule
from saga.training_records import TrainingRecords

_MARGIN = 0.5  # of the range of the history
_GROWTH = SERIES.index("real_wage_growth")
NO_YEAR_FORECAST = "The scenario gives no year that is forecast, so it changes nothing."


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
    training: Training,
    *,
    scenario: Scenario | None = None,
    other_rollout: bool = False,
    compared: ComparedRecords | None = None,
) -> tuple[ForecastWarning, ...]:
    """All warnings of a request for the persons of a panel, at most 20 of one kind.

    Args:
        panel: Persons' records.
        request: The requested table.
        draws: Number of paths and seed.
        transforms: Transforms of the bundle. If they have quantiles of training persons, records
            are compared with them.
        training: What the forecaster was made from.
        scenario: The scenario of the draws.
        other_rollout: Whether the rollout is another one than that of the calibration.
        compared: The panel's records beside those of training, if they are compared already.
    """
    return merge_warnings(
        [
            *_about_training(panel, training),
            *_beyond_span(panel, request, training.records),
            *_without_effect(request, draws, other_rollout=other_rollout),
            *(_about_scenario(panel, request, scenario, training) if scenario else ()),
            *_beyond_age(panel, request),
            *_outside_ages(panel),
            *_about_mapping(panel),
            *_own_columns(panel, transforms),
            *about_amounts(panel, transforms.reference, compared),
        ]
    )


def _about_training(panel: Panel, training: Training) -> Iterator[ForecastWarning]:
    """Origins in unknown years, backtests on seen years, and prices that are not published."""
    if training.simulated:
        yield ForecastWarning("simulated-people", SIMULATED)
    first_year, last_year = training.records.first_year, training.records.last_year
    last_macro_year, origin = training.last_macro_year, panel.origins
    yield from warn_about(
        panel,
        origin < first_year,
        "early-origin",
        f"The origin is before {first_year}, the first year of the records that the bundle was "
        "trained and calibrated on. Nothing shows that its intervals held then, so their "
        "guarantee is extrapolated.",
    )
    yield from warn_about(
        panel,
        origin > last_year,
        "late-origin",
        f"The origin is after {last_year}, the last year of the records that the bundle was "
        "trained and calibrated on. Nothing shows that its intervals still hold, so their "
        "guarantee is extrapolated. Send the outcomes of later years, or train anew.",
    )
    if panel.meta.last_year_read is not None:
        yield from warn_about(
            panel,
            origin < last_year,
            "seen-years",
            f"The bundle was trained on records up to {last_year}, so it knows years after "
            "this origin. For a fair backtest use persons whom it has not seen, or a bundle that "
            "ends at the origin.",
            option="origin",
        )
    if last_macro_year is not None:
        yield from warn_about(
            panel,
            origin > last_macro_year,
            "macro-ends",
            f"The macro series end in {last_macro_year}, before the origin. Unemployment and "
            "prices of the years between are expected values, and wages are assumed to grow as in "
            "the long run. Facts of your own can add these years.",
        )
    if training.macro not in (None, panel.meta.macro) and not panel.meta.simulated:
        yield ForecastWarning(
            "no-effect",
            f"The macro series of the mapping ({panel.meta.macro or 'none'}) change nothing: the "
            f"bundle forecasts with its own ({training.macro}).",
            option="mapping",
        )
    if panel.meta.unpublished_prices:
        yield ForecastWarning(
            "unpublished-prices", _price_message(panel.meta.unpublished_prices), option="prices"
        )


def _price_message(marks: Mapping[int, str]) -> str:
    words = {"E": "an estimate", "C": "assumed (2 % a year)"}
    levels = ", ".join(f"{year} is {words[mark]}" for year, mark in sorted(marks.items()))
    return f"The price level of {levels}. Facts of your own can replace it."


def tax_warnings(rule: TaxRule, facts: Facts, price_year: int) -> Iterator[ForecastWarning]:
    """What is not published of a tax rule: parameters, and prices to convert earnings."""
    if rule.marks:
        names = ", ".join(f"{name} ({mark})" for name, mark in rule.marks)
        yield ForecastWarning(
            "unpublished-tax",
            f"Parameters of the tax of {rule.law_year} that no public source gives: {names}. See "
            "the marks in the glossary. Facts of your own can replace them.",
            option="tax",
        )
    unpublished = facts.unpublished_prices({rule.law_year, price_year})
    if rule.law_year != price_year and unpublished:
        yield ForecastWarning(
            "unpublished-prices",
            f"Earnings are converted to prices of the law. {_price_message(unpublished)}",
            option="tax",
        )


def pension_warnings(
    panel: Panel, request: PensionRequest, first_year: int
) -> Iterator[ForecastWarning]:
    """Persons with years before `first_year`, the first one of the pension rule."""
    starts = panel.birth_years + request.first_age
    counted = (
        "add nothing" if request.unknown_years == "zero" else "are unknown, so rights are, too"
    )
    yield from warn_about(
        panel,
        starts < first_year,
        "unobserved-past",
        f"The pension rule is known from {first_year} on. Earlier years {counted}. The column "
        "unknown_years has their number.",
        option="rule",
    )


def _without_effect(
    request: Request, draws: Draws, *, other_rollout: bool
) -> Iterator[ForecastWarning]:
    if request.needs_paths:
        return
    why = "has no effect on forecasts of single years, which are computed without simulated paths."
    for option, name, is_given in (
        ("paths", "number of paths", draws.n_paths != PATHS),
        ("seed", "seed", draws.seed != 0),
        ("rollout", "rollout", other_rollout),
    ):
        if is_given:
            yield ForecastWarning("no-effect", f"The {name} {why}", option=option)


def _about_scenario(
    panel: Panel, request: Request, scenario: Scenario, training: Training
) -> Iterator[ForecastWarning]:
    """What changes nothing of a scenario, and values far beyond those observed."""
    last = np.minimum(panel.origins + request.n_years, panel.birth_years + request.to_age)
    covered = scenario.covers(panel.origins + 1, last)
    yield from warn_about(
        panel,
        np.logical_not(covered),
        "no-effect",
        NO_YEAR_FORECAST,
        option="scenario",
    )
    history = training.history
    if not scenario.by_name:
        message = "The scenario has years before the forecast begins. They change nothing."
        is_late = covered & scenario.begins_before(panel.origins, history)
        yield from warn_about(panel, is_late, "no-effect", message, option="scenario")
        for column, message in implausible_values(scenario, history) if history else ():
            yield ForecastWarning("implausible-scenario", message, column=column, option="scenario")
    for name in scenario.ratio_names:
        if training.groups is None:
            break
        column, pair = training.groups.compared_levels(name)
        if column == AGE:  # which everybody has
            continue
        without = np.full(len(panel.origins), True)
        if column in panel.frame.columns:
            code = pl.col(column).cast(pl.String).drop_nulls().last()
            codes = panel.frame.group_by("person_id", maintain_order=True).agg(code)[column]
            without = ~codes.is_in(pair).fill_null(False).to_numpy()
        yield from warn_about(
            panel,
            without & covered,
            "no-effect",
            f"The scenario's ratio {name} changes nothing: {column} is unknown, or neither of the "
            "two.",
            option="scenario",
        )


def _beyond_age(panel: Panel, request: Request) -> list[ForecastWarning]:
    if request.needs_paths:
        return []
    beyond = panel.origins + request.horizons[-1] - panel.birth_years > MAX_AGE
    return warn_about(
        panel, beyond, "beyond-age", f"Forecasts end at age {MAX_AGE}. Later years have no row."
    )


def _outside_ages(panel: Panel) -> Iterator[ForecastWarning]:
    if n_rows := panel.meta.outside_ages:
        message = f"Years outside ages {MIN_AGE} to {MAX_AGE} are not used."
        yield ForecastWarning("outside-ages", message, count=n_rows)


def _beyond_span(panel: Panel, request: Request, records: TrainingRecords) -> list[ForecastWarning]:
    said = "What lies beyond is extrapolated: nothing shows whether it is right."
    if not request.beyond_span:
        said = "Later years and other ages have no row; with beyond_span they are extrapolated."
    age, horizons = (panel.origins - panel.birth_years)[:, None], np.array(request.horizons)
    beyond = ((age + horizons <= request.to_age) & ~records.reach(age, horizons)).any(axis=1)
    return warn_about(
        panel,
        beyond,
        "beyond-span",
        "The records that the bundle was trained and calibrated on have outcomes "
        f"{records}. {said}",
        option=None if request.needs_paths else "beyond_span",
    )


def past_warnings(
    panel: Panel, from_age: int, unknown_years: UnknownYears
) -> list[ForecastWarning]:
    """Persons with years of unknown earnings since an age from which the past counts."""
    unknown = past_years(panel, from_age).filter("is_unknown")
    persons = unknown["person_id"].unique().implode()
    concerned = panel.frame["person_id"].gather(panel.last_rows).is_in(persons)
    counted = {
        "null": "are unknown, so the amounts are, too. Give these years, or let them count as "
        "interpolated or as zero (unknown_years)",
        "interpolate": "are unknown. They are interpolated between the nearest known years",
        "zero": "are unknown. They add nothing",
    }[unknown_years]
    return warn_about(
        panel,
        concerned.to_numpy(),
        "unobserved-past",
        f"Earnings of years since age {from_age} {counted}. The column unknown_years has their "
        "number.",
        option="unknown_years",
    )


def _about_mapping(panel: Panel) -> Iterator[ForecastWarning]:
    for name, n_persons in panel.meta.nines.items():
        yield ForecastWarning(
            "unit",
            f"Amounts of {name} are nines, as codes for what is unknown or above a limit are. If "
            "they are codes, leave the cells empty; for a file, a mapping may give the credible "
            "amounts: `keep: {ITS_NAME: [0, 9000000]}`.",
            count=n_persons,
            column=name,
        )
    for entry, cells in panel.meta.nulled.items():
        yield ForecastWarning(
            "made-unknown",
            f"Cells are unknown by `{entry}` of the mapping.",
            count=cells,
            option="mapping",
        )
    for name, n_files in panel.meta.partly.items():
        yield ForecastWarning(
            "made-unknown",
            f"Only {n_files} files have {name}, which is unknown in the others.",
            column=name,
        )
    for entry in panel.meta.unmatched:
        yield ForecastWarning(
            "unmatched", f"`{entry}` of the mapping applies to no cell.", option="mapping"
        )


def _own_columns(panel: Panel, transforms: Transforms) -> Iterator[ForecastWarning]:
    """The panel's own columns that forecasts treat as missing, or do not use."""
    panel_columns = {*panel.meta.extra_names("category"), *panel.meta.extra_names("number")}
    for column in transforms.extra:
        name = column.name
        if name not in panel_columns or panel.frame[name].null_count() == len(panel):
            yield ForecastWarning(
                "own-column",
                f"The bundle was trained with {name}, the panel has no value of it.",
                column=name,
            )
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
        yield ForecastWarning(
            "own-column", f"The bundle was trained without {name}, so it is not used.", column=name
        )


def plausible_ranges(history: MacroHistory) -> NDArray[np.float64]:
    """The lowest and highest plausible value of each series, (3, 2), fractions."""
    low, high = history.values.min(axis=0), history.values.max(axis=0)
    margin = _MARGIN * (high - low)
    ranges = np.stack([low - margin, high + margin], axis=1)
    least, most = _growth_of_countries()
    ranges[_GROWTH] = min(ranges[_GROWTH, 0], least), max(ranges[_GROWTH, 1], most)
    return ranges


@cache
def _growth_of_countries() -> tuple[float, float]:
    growth, _, _ = shipped_growth()
    return float(np.nanmin(growth)), float(np.nanmax(growth))


def implausible_values(scenario: Scenario, history: MacroHistory) -> Iterator[tuple[str, str]]:
    """Each series with implausible values of a scenario, and a sentence that names the first."""
    for k, (series, (low, high)) in enumerate(zip(SERIES, plausible_ranges(history), strict=True)):
        by_year = {year: row[k] for year, row in sorted(scenario.rows.items())}
        years = [year for year, value in by_year.items() if not low <= value <= high]
        if not years:
            continue
        value, is_rate = by_year[years[0]], series == "unemployment"
        later = " and later years" if len(years) > 1 else ""
        countries = "" if k != _GROWTH else " and the shipped countries"
        question = f"Is {value / 100:.4g} meant?"
        if is_rate and value / 100 < UNEMPLOYMENT_RANGE[0]:
            question = "Check the value."
        yield (
            series,
            f"The scenario's {series} in {years[0]}{later} is far beyond all that the bundle's "
            f"macro series{countries} show: {value:g} is {100 * value:.4g} %"
            f"{'' if is_rate else ' a year'}. {question}",
        )
