"""Policy tables: statistics of a population by groups and years, of which unsafe cells are hidden.

A table has a cell for each combination of groups, and all margins. A cell that is unsafe in one
year is hidden in all years, because the neighbouring years would reveal its value. Groups become
small as persons leave, so a table ends in the year that lets most values of groups be published.
Each value has a band (`saga.population.group_bands`). Beside the paths of another scenario it also
has an effect: the difference on each path, whose range is narrower than those of the two values,
because both have the same random numbers. Totals are those of the persons of the paths and of who
joins them. These two are protected each by itself, as if the other was known.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Bools, Floats
from saga.errors import UsageError
from saga.forecast_warnings import ForecastWarning
from saga.group_statistics import (
    ALL_STATISTICS,
    GROUP_STATISTICS,
    OF_LIFETIMES,
    OF_YEARS,
    GroupStatistic,
)
from saga.population.cell_statistics import PathStatistic, earnings_classes
from saga.population.disclosure import DisclosureRules, suppress
from saga.population.group_bands import GroupBand, band, chance_below_zero
from saga.population.population_paths import Population, Present, grid_of, statistics_of
from saga.population.scored_paths import BASE_AMOUNTS, YearPaths, rows_of
from saga.population.simulated_careers import pensionable_earnings
from saga.population.table_grid import Grid, TableCell
from saga.requests import GroupEvent, PopulationRequest, Progress

Tables = TypeVar("Tables")
# Years done and in all, or None within a year; then the tables.
TableSteps = Generator[tuple[int, int] | None, None, Tables]
CLASSES = ("zero", "fifth 1", "fifth 2", "fifth 3", "fifth 4", "fifth 5")
# Columns beside a reference; the first is its value.
EFFECT = ("reference", "effect", "effect_lower_90", "effect_upper_90")
_DIGITS = 4  # of shares, Gini coefficients and ratios


@dataclass(frozen=True)
class PolicyTables:
    """Tables to publish, and a log that must not be published.

    Attributes:
        statistics: Year (null: of lifetimes), groups, statistic, the columns of `GroupBand`, those
            of EFFECT beside a reference, and whether it is suppressed. If there are events, the
            last rows have their chances, and the column `event` their texts.
        transitions: Year, later year, groups, class, later class, share.
        log: Which cells are suppressed, by which rule, and for which unsafe cell.
        suppressed_until: For each year, how many values would be suppressed if it were the last.
        warnings: Those of the population, and that no value is published.
        dynamics: The table of `saga.population.simulated_careers`, if it is requested.
    """

    statistics: pl.DataFrame
    transitions: pl.DataFrame
    log: pl.DataFrame
    suppressed_until: Mapping[int, int]
    warnings: tuple[ForecastWarning, ...]
    dynamics: pl.DataFrame | None = None

    def chances(self) -> dict[str, float | None]:
        """The events and their chances; None for one of a suppressed group."""
        rows = self.statistics.filter(statistic="chance").iter_rows(named=True)
        return {row["event"]: row["value"] for row in rows}


def make_tables(
    population: Population,
    request: PopulationRequest,
    rules: DisclosureRules,
    *,
    transition_years: int | None = 5,
    progress: Progress | None = None,
) -> PolicyTables:
    """The tables of a population, with unsafe cells hidden and numbers rounded.

    Needs about ten times the memory of the earnings of one year, persons x paths x 8 bytes. The
    tables begin with the first full year (`PathRows.full_years`). Earlier years have few persons,
    and a cell that is unsafe in one of them would be hidden in all years. Lifetimes are those of
    all persons, up to the last year of the paths; ages are those in the first full year. There are
    none by groups that change along a path.

    Args:
        population: Persons, paths, weights and records, and their reference if there is one.
        request: Groups, comparisons, events, last year, rate and tax.
        rules: What may be published.
        transition_years: Years between the two classes of a transition; None: no transitions.
        progress: Called with the years done and the years in all, also within a year.

    Raises:
        UsageError: If a group, level or year is not one of the population's.
    """
    steps = table_steps(population, request, rules, transition_years=transition_years)
    return last_of(steps, progress)


def last_of(steps: TableSteps[Tables], progress: Progress | None = None) -> Tables:
    """The tables at the end of the steps; arguments as in `make_tables`."""
    years = 0, 1
    while True:
        try:
            years = next(steps) or years
        except StopIteration as end:
            tables: Tables = end.value
            return tables
        if progress:
            progress(*years)


def table_steps(
    population: Population,
    request: PopulationRequest,
    rules: DisclosureRules,
    *,
    transition_years: int | None,
) -> TableSteps[PolicyTables]:
    """`make_tables` in steps, one or more for each year."""
    paths, until = population.paths, request.until
    years = [year for year in paths.full_years if until is None or year <= until]
    if not years:
        raise UsageError(f"The tables begin in {paths.full_years[0]}. Choose a later last year.")
    grid = grid_of(population, request)
    of_events = _EventStatistics.of(request.group_events, grid, population, years)
    bands: dict[int | None, list[_CellBands]] = {}
    small = hidden = np.zeros(grid.shape, dtype=np.bool_)
    hidden_by: dict[int, Bools] = {}
    inhabited = np.zeros(grid.shape)  # in how many years each cell has persons
    published: dict[int, tuple[float, float]] = {}  # by last year, values of groups, and of all
    log: list[dict[str, object]] = []
    for year in of_events.earlier:
        yield 0, len(years)
        log += yield from _keep_records(population, grid, year, rules, of_events)
    lifetimes: list[int | None] = [] if set(grid.groups) & set(paths.columns) else [None]
    for done, at in enumerate([*lifetimes, *years]):
        yield done, len(years)
        sides = [
            _present(side, grid, at, request.rate)
            for side in (population, population.reference)
            if side is not None
        ]
        behind = _Behind.of(sides, grid, rules)
        small, hidden, entries = yield from behind.hide(grid, rules, at, small, hidden)
        bands[at] = _bands(population, sides, grid, at, of_events, hidden)
        log += entries
        if at is not None:
            hidden_by[at] = hidden
            inhabited += behind.magnitudes[..., 0].sum(0) > 0
            open_cells = (inhabited * ~hidden).ravel()
            published[at] = open_cells[: hidden.size - 1 or None].sum(), open_cells.sum()
    last = years[-1] if until else max(years, key=lambda year: (*published[year], year))
    years, hidden = [year for year in years if year <= last], hidden_by[last]
    transitions, transition_log = _transitions(
        population,
        grid,
        rules,
        hidden,
        years if transition_years else [],
        transition_years or 1,
    )
    rows: list[dict[str, object]] = [
        {"year": at, **row}
        for at in [*years, *lifetimes]
        for row in _rows(bands[at], grid, hidden, rules)
    ]
    rows += _chance_rows(request.group_events, grid, of_events, hidden_by, last, population)
    yield len(hidden_by), len(hidden_by)
    log += transition_log
    order = ["table", "year", *grid.groups, "class", "rule", "hides"]
    schema = {name: pl.Int32 if name == "year" else pl.String for name in order}
    statistics = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.col("year").cast(pl.Int32), pl.selectors.by_dtype(pl.Null).cast(pl.Float64)
    )
    warnings = population.warnings(request, rules)
    if statistics["suppressed"].all():
        message = (
            f"All values are suppressed: groups have fewer than {rules.minimum} persons, or few "
            "have most of their earnings. Give more persons, or choose fewer groups."
        )
        warnings.append(ForecastWarning("all-suppressed", message))
    return PolicyTables(
        statistics,
        transitions,
        pl.DataFrame(log, schema=schema),
        {
            year: done * int(hidden_by[year].sum()) * len(GROUP_STATISTICS)
            for done, year in enumerate(hidden_by, start=1)
        },
        tuple(warnings),
    )


def _log_entries(
    grid: Grid,
    table: str,
    year: int | None,
    reasons: Mapping[TableCell, str | None],
    hides: Mapping[int, int],
) -> Iterator[dict[str, object]]:
    """The unsafe cells of a year, and the cells that are hidden from then on to protect them."""
    entry = {"table": table, "year": year}
    for cell, reason in reasons.items():
        if reason:
            yield {**entry, **grid.names(cell), "rule": reason}
    cells = list(grid.cells())
    for number, cause in hides.items():
        unsafe = ", ".join(grid.names(cells[cause]).values())
        yield {**entry, **grid.names(cells[number]), "rule": "complementary", "hides": unsafe}


@dataclass(frozen=True)
class _Behind:
    """What is behind the cells of a year, or of lifetimes.

    Attributes:
        reasons: Why each cell is unsafe; None: it is safe. First of the persons of the panel, then
            of those who have joined; then both of the reference.
        persons: Numbers of persons of the panel, without weights and who joins, of each cell.
        magnitudes: Of each, what a margin has the sum of: numbers of persons, earnings, and further
            amounts; of each cell.
    """

    reasons: list[dict[TableCell, str | None]]
    persons: Floats
    magnitudes: Floats

    @classmethod
    def of(cls, sides: Sequence[Present], grid: Grid, rules: DisclosureRules) -> _Behind:
        """What is behind the cells of the population, and of its reference if there is one."""
        reasons: list[dict[TableCell, str | None]] = [{} for _ in sides for _ in range(2)]
        magnitudes = np.zeros((len(reasons), *grid.shape, 2 + len(sides[0].further)))
        of_panel = np.zeros(grid.shape)
        for cell in grid.cells():
            parts = [part for side in sides for part in side.contributions(cell, grid)]
            of_panel[cell] = parts[0][0]
            for k, (behind, persons, amounts) in enumerate(parts):
                magnitudes[k][cell] = [persons, *(each.sum() for each in amounts)]
                reasons[k][cell] = next(
                    filter(None, (rules.unsafe_reason(behind, of_each) for of_each in amounts)),
                    None,
                )
        return cls(reasons, of_panel, magnitudes)

    def hide(
        self, grid: Grid, rules: DisclosureRules, year: int | None, small: Bools, hidden: Bools
    ) -> TableSteps[tuple[Bools, Bools, list[dict[str, object]]]]:
        """The cells to hide beside those of earlier years, with them; and their log.

        First those which hide small cells, as the persons of the panel alone tell: they are the
        same in tables of another scenario, seed, weights or inflow, so that two tables do not
        reveal what each hides. Then, beside these, all that amounts and other persons ask for.
        """
        few = (self.persons > 0) & (self.persons < rules.minimum)
        small, hides = yield from _hide(grid, [self.persons], few, rules.protection, small)
        hidden, log = hidden | small, [*_log_entries(grid, "statistics", year, {}, hides)]
        for reasons, magnitudes in zip(self.reasons, self.magnitudes, strict=True):
            unsafe = np.reshape([bool(reasons[cell]) for cell in grid.cells()], grid.shape)
            tables = [*np.moveaxis(magnitudes, -1, 0)]
            hidden, hides = yield from _hide(grid, tables, unsafe, rules.protection, hidden)
            log += _log_entries(grid, "statistics", year, reasons, hides)
        return small, hidden, log


def _hide(
    grid: Grid, magnitudes: Sequence[Floats], unsafe: Bools, protection: float, hidden: Bools
) -> TableSteps[tuple[Bools, dict[int, int]]]:
    """`suppress`, with groups in the order of their names: that of a request changes nothing."""
    order = sorted(range(unsafe.ndim), key=lambda axis: grid.groups[axis])
    tables = [values.transpose(order) for values in magnitudes]
    hidden, hides = yield from suppress(
        tables, unsafe.transpose(order), protection, hidden.transpose(order)
    )
    numbers = np.arange(unsafe.size).reshape(unsafe.shape).transpose(order).ravel().tolist()
    hides = {numbers[cell]: numbers[cause] for cell, cause in hides.items()}
    return hidden.transpose(np.argsort(order)), hides


# The cell, or the two that are compared; the names of groups; by statistic, bands and the columns
# of EFFECT.
_CellBands = tuple[
    tuple[TableCell, ...],
    tuple[str, ...],
    dict[str, GroupBand],
    Mapping[str, Sequence[float | None]],
]
_HIDDEN = GroupBand(np.nan)
_Key = tuple[int | None, tuple[str, ...], str]  # year, names of the cell or comparison, statistic


@dataclass(frozen=True)
class _EventStatistics:
    """The statistics that events are about, as they become known year by year."""

    keys: frozenset[_Key]
    earlier: Sequence[int]  # years before the tables
    statistics: dict[_Key, PathStatistic] = field(default_factory=dict)
    # What the years add to lifetimes of a cell or comparison, which the model's error depends on.
    lifetimes: dict[tuple[str, ...], Mapping[int, float]] = field(default_factory=dict)
    hidden: dict[int, Bools] = field(default_factory=dict)  # cells, in earlier years

    @classmethod
    def of(
        cls,
        events: Sequence[GroupEvent],
        grid: Grid,
        population: Population,
        years: Sequence[int],
    ) -> _EventStatistics:
        """Raises UsageError for an unknown group, or a year without a table or records."""
        keys = {
            (year, grid.place(event), event.statistic)
            for event in events
            for year in (event.year, event.reference or event.year)
        }
        paths = population.paths
        earlier = sorted({year for year, *_ in keys if year and year not in years})
        for year in earlier:
            if year >= years[0] or population.recorded(year).is_empty():
                raise UsageError(
                    f"Nothing is known about {year}: the tables are about {years[0]} to "
                    f"{years[-1]}. Earlier years need records in the panel of the persons."
                )
            if set(grid.groups) & set(paths.columns):
                raise UsageError(
                    f"The groups of {year} are not known, because they change along a path. Use "
                    "groups of the panel for events about years before the paths."
                )
        return cls(frozenset(keys), earlier)

    def keep(
        self, year: int | None, names: tuple[str, ...], statistics: Mapping[str, PathStatistic]
    ) -> None:
        """Keep what events need of the statistics of a cell or comparison."""
        for name, statistic in statistics.items():
            if (key := (year, names, name)) in self.keys:
                self.statistics[key] = statistic


def _bands(
    population: Population,
    sides: Sequence[Present],
    grid: Grid,
    year: int | None,
    of_events: _EventStatistics,
    hidden: Bools,
) -> list[_CellBands]:
    """The bands of a year, or of lifetimes, without those of `hidden` cells.

    `sides` has the persons of the population and of its reference.
    """
    shown = OF_YEARS if year else OF_LIFETIMES
    bands: list[_CellBands] = []
    for each in zip(*(statistics_of(side, grid, hidden) for side in sides), strict=True):
        cells, names, statistics = each[0]
        prefix = "" if year else "lifetime_"
        statistics = {f"{prefix}{name}": statistic for name, statistic in statistics.items()}
        of_events.keep(year, names, statistics)
        if any(bool(hidden[cell]) for cell in cells):  # most cells of many groups
            of_cell = dict.fromkeys((name for name in statistics if name in shown), _HIDDEN)
            bands.append((cells, names, of_cell, of_cell if each[1:] else {}))
            continue
        amounts = {year: 1.0} if year else sides[0].added_by_year(cells, grid)
        if year is None:
            of_events.lifetimes[names] = amounts
        of_cell = {
            name: band(
                statistic,
                population.sd_model(name, names, amounts, statistic.size),
                sampled=population.sampled,
            )
            for name, statistic in statistics.items()
            if name in shown
        }
        effects = {
            f"{prefix}{name}": (
                other.point,
                *band(statistics[f"{prefix}{name}"].difference(other), sampled=population.sampled),
            )
            for _, _, others in each[1:]
            for name, other in others.items()
        }
        bands.append((cells, names, of_cell, effects))
    return bands


def _present(population: Population, grid: Grid, year: int | None, rate: float) -> Present:
    """The persons of a year, or of lifetimes, with what they have after tax or is pensionable."""
    paths, law = population.paths, population.law
    by_year = None
    if year is None:
        values, taxes, amounts = population.present_values(rate)
        further = None if taxes is None else {"net": values.earnings - taxes}
        by_year = amounts, paths.years
    else:
        columns = [name for name in grid.groups if name in paths.columns]
        values = population.year(year, columns)
        further = {"pensionable": pensionable_earnings(law, year, values.earnings)} if law else None
    present = Present.of(population, grid, values, year or paths.full_years[0])
    return replace(present, further=further or {}, by_year=by_year)


def _keep_records(
    population: Population,
    grid: Grid,
    year: int,
    rules: DisclosureRules,
    of_events: _EventStatistics,
) -> TableSteps[list[dict[str, object]]]:
    """Keep what events need of a year before the paths, from records; the log of hidden cells."""
    rows = population.recorded(year)
    earnings = np.repeat(rows["earnings"].to_numpy()[:, None], population.paths.n_paths, 1)
    observed = YearPaths(rows["person_id"].to_list(), earnings, {})
    present = Present.of(population, grid, observed, year)
    for _, names, statistics in statistics_of(present, grid):
        of_events.keep(year, names, statistics)
    nothing = np.zeros(grid.shape, dtype=np.bool_)
    behind = _Behind.of([present], grid, rules)
    _, of_events.hidden[year], log = yield from behind.hide(grid, rules, year, nothing, nothing)
    return log


def _rows(
    cell_bands: Sequence[_CellBands], grid: Grid, hidden: Bools, rules: DisclosureRules
) -> Iterator[dict[str, object]]:
    """A row for each statistic of a cell, rounded; without values if the cell is hidden."""
    for cells, names, bands, effects in cell_bands:
        is_hidden = any(bool(hidden[cell]) for cell in cells)
        for title, of_statistic in bands.items():
            statistic, values = ALL_STATISTICS[title], of_statistic._asdict()
            low, high = statistic.limits
            for name, value in () if is_hidden else values.items():
                values[name] = None if value is None else min(max(value, low), high)
            if title in effects:  # of its band the first three fields
                values |= zip(EFFECT, effects[title], strict=False)
            shown = {
                name: None
                if is_hidden or value is None or not math.isfinite(value)
                else _rounded(statistic, value, rules)
                for name, value in values.items()
            }
            levels = dict(zip(grid.groups, names, strict=True))
            yield {**levels, "statistic": title, **shown, "suppressed": is_hidden}


def _chance_rows(
    events: Sequence[GroupEvent],
    grid: Grid,
    of_events: _EventStatistics,
    hidden_by: Mapping[int, Bools],
    last: int,
    population: Population,
) -> Iterator[dict[str, object]]:
    """A row for each event, with its chance; without it if a cell of the event is hidden."""
    cells = {tuple(grid.names(cell).values()): [cell] for cell in grid.cells()}
    cells |= {names: [first, second] for names, first, second in grid.comparisons()}
    for event in events:
        names = grid.place(event)
        years = [event.year, *([event.reference] if event.reference else [])]
        keys = [(year, names, event.statistic) for year in years]
        if not set(keys) <= of_events.statistics.keys():
            raise UsageError(
                f"The event {event.text!r} is about {event.statistic}, which these tables do not "
                "have. After tax needs --tax, pensionable earnings need the group base_amounts, "
                "and lifetimes need groups that do not change along a path."
            )
        sides, amount = [of_events.statistics[key] for key in keys], event.amount or 0.0
        is_ratio = ALL_STATISTICS[event.statistic].unit == "ratio"
        of_model = [
            population.sd_model(
                event.statistic,
                names,
                {year: 1.0} if year else of_events.lifetimes.get(names, {}),
                1.0 if is_ratio else side.size,
            )
            or 0.0
            for year, side in zip(years, sides, strict=True)
        ]
        if is_ratio:  # in logarithms, a < 1.25 b has the chance of b > .8 a
            sides, amount = [side.log() for side in sides], math.log(amount or 1)
        statistic = sides[0].difference(sides[1] if event.reference else amount)
        if not event.below:
            statistic = replace(statistic, values=-statistic.values, influence=-statistic.influence)
        # A cell may be unsafe in the year of an event after the last one of the tables.
        hidden = hidden_by[max(last, event.year or last, event.reference or last)]
        is_hidden = any(bool(hidden[cell]) for cell in cells[names])
        earlier = [of_events.hidden[year] for year in years if year in of_events.hidden]
        is_hidden |= any(bool(flags[cell]) for flags in earlier for cell in cells[names])
        # The model's error grows by independent steps from one year to another.
        model = abs(of_model[0] ** 2 - sum(of_model[1:]) ** 2) ** 0.5
        chance = chance_below_zero(statistic, model, sampled=population.sampled)
        is_known = not is_hidden and bool(np.isfinite(chance))
        # Of what happens on no path or on all, the error is as if one path were otherwise.
        share = 1 / population.paths.n_paths
        error = (max(chance * (1 - chance), share * (1 - share)) * share) ** 0.5
        yield {
            "year": event.year,
            **dict(zip(grid.groups, names, strict=True)),
            "statistic": "chance",
            "value": round(chance, _DIGITS) if is_known else None,
            "mc_error": round(error, _DIGITS) if is_known else None,
            "suppressed": is_hidden,
            "event": event.text,
        }


def _rounded(statistic: GroupStatistic, value: float, rules: DisclosureRules) -> float:
    if not statistic.is_money and statistic.unit != "persons":
        return round(value, _DIGITS) + 0.0  # not -0.0
    base = rules.amount_base if statistic.is_money else rules.count_base
    return float(round(value / base) * base)


def _transitions(
    population: Population,
    grid: Grid,
    rules: DisclosureRules,
    hidden: Bools,
    years: Sequence[int],
    step: int,
) -> tuple[pl.DataFrame, list[dict[str, object]]]:
    """Shares of earnings classes `step` years later, by groups and class; and the hidden cells.

    A cell whose groups are `hidden` in the statistics is hidden here too. If bands of base amounts
    are a group, they are the classes.
    """
    classes: tuple[str, ...] = CLASSES
    if BASE_AMOUNTS in grid.groups:
        axis = grid.groups.index(BASE_AMOUNTS)
        classes, hidden = grid.levels[axis][:-1], np.moveaxis(hidden, axis, 0)[-1]
        grid = grid.without(axis)
    by_class = grid.extended("class", classes)
    rows: list[dict[str, object]] = []
    log: list[dict[str, object]] = []
    for year in years[::step]:
        if year + step not in years:
            break
        counts, n_persons = _count_transitions(population, grid, year, year + step, len(classes))
        unsafe = (n_persons > 0) & (n_persons < rules.minimum)
        hidden_before = np.repeat(hidden[..., None], len(classes) + 1, axis=-1)
        hidden_cells, hides = last_of(
            _hide(by_class, [counts.sum(-1)], unsafe, rules.protection, hidden_before)
        )
        small = {cell: "minimum" if unsafe[cell] else None for cell in by_class.cells()}
        log += _log_entries(by_class, "transitions", year, small, hides)
        for cell in by_class.cells():
            names = by_class.names(cell)
            total = counts[cell].sum()
            for number, name in enumerate(classes):
                shown = not hidden_cells[cell] and total > 0
                rows.append(
                    {
                        "year": year,
                        "to_year": year + step,
                        **names,
                        "to_class": name,
                        "share": round(counts[cell][number] / total, 3) if shown else None,
                        "suppressed": bool(hidden_cells[cell]),
                    }
                )
    columns = ["year", "to_year", *by_class.groups, "to_class", "share", "suppressed"]
    types = {"year": pl.Int32, "to_year": pl.Int32, "share": pl.Float64, "suppressed": pl.Boolean}
    schema = {name: types.get(name, pl.String()) for name in columns}
    return pl.DataFrame(rows, schema=schema), log


def _count_transitions(
    population: Population, grid: Grid, year: int, to_year: int, n_classes: int
) -> tuple[Floats, Floats]:
    """Transitions between earnings classes of persons who are present in both years.

    Returns their weighted numbers by groups, class and later class, and the number of persons by
    groups and class. Both are means over paths; the last class is the margin.
    """
    paths = population.paths
    classes = [name for name in paths.columns if name == BASE_AMOUNTS]
    columns = [name for name in grid.groups if name in paths.columns]
    earlier, later = paths.year(year, [*columns, *classes]), paths.year(to_year, classes)
    present = Present.of(population, grid, earlier, year)
    after = np.full(present.earnings.shape, -1)
    row_of = {person: row for row, person in enumerate(present.person_ids)}
    later_rows = [row for row, person in enumerate(later.person_ids) if person in row_of]
    rows = [row_of[later.person_ids[row]] for row in later_rows]
    after[rows] = _classes_of(later, population)[later_rows]
    before = np.where(after >= 0, _classes_of(earlier, population), -1)
    both = before >= 0
    each = [np.broadcast_to(values, both.shape)[both] for values in (*present.levels, before)]
    shape = (*(size - 1 for size in grid.shape), n_classes, n_classes)
    number = np.ravel_multi_index((*each, after[both]), shape)
    weights = np.broadcast_to(present.weights[:, None], both.shape)[both]
    counts, n_persons = (
        np.bincount(number, values, np.prod(shape)).reshape(shape)
        for values in (weights, np.ones(len(number)))
    )
    for axis in range(len(shape) - 1):
        counts, n_persons = (
            np.concatenate([cells, cells.sum(axis, keepdims=True)], axis)
            for cells in (counts, n_persons)
        )
    return counts / paths.n_paths, n_persons.sum(-1) / paths.n_paths


def _classes_of(paths: YearPaths, population: Population) -> NDArray[np.int_]:
    """The class of each person on each path, -1 for who is absent."""
    if BASE_AMOUNTS not in paths.codes:
        weights = rows_of(population.persons, paths.person_ids)["weight"].to_numpy()
        return earnings_classes(paths.earnings, weights)
    return np.where(np.isfinite(paths.earnings), paths.codes[BASE_AMOUNTS], -1)
