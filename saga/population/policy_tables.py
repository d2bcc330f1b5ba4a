"""Policy tables: statistics of a population by groups and years, of which unsafe cells are hidden.

A table has a cell for each combination of groups, and all margins. A cell that is unsafe in one
year is hidden in all years, because the neighbouring years would reveal its value. Groups become
small as persons leave, so a table ends in the year that lets most values of groups be published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.errors import UsageError
from saga.pages.group import TOTAL
from saga.population.cell_statistics import (
    STATISTICS,
    Estimates,
    earnings_classes,
    estimate,
    poverty_lines,
    random_groups,
    replicate,
    sort_by_path,
)
from saga.population.disclosure import DisclosureRules, suppress
from saga.population.scored_paths import ScoredPaths, YearPaths, person_levels, rows_of
from saga.requests import Progress

CLASSES = ("zero", "fifth 1", "fifth 2", "fifth 3", "fifth 4", "fifth 5")
_JACKKNIFE = 20  # random groups of persons
Flags = NDArray[np.bool_]
# The index of a level of each group; the index after the last level is the margin of the group.
TableCell = tuple[int, ...]


@dataclass(frozen=True)
class PolicyTables:
    """Two tables to publish, and a log that must not be published.

    Attributes:
        statistics: Year, groups, statistic, value, its error by sampling and by paths, its spread
            by macro futures, and whether it is suppressed.
        transitions: Year, later year, groups, class, later class, share.
        log: Which cells are suppressed, by which rule, and for which unsafe cell.
        suppressed_until: For each year, how many values would be suppressed if it were the last.
    """

    statistics: pl.DataFrame
    transitions: pl.DataFrame
    log: pl.DataFrame
    suppressed_until: Mapping[int, int]


@dataclass(frozen=True)
class _Grid:
    """The groups of a table and the levels of each; a cell for every combination of levels."""

    groups: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(levels) + 1 for levels in self.levels)

    def cells(self) -> Iterator[TableCell]:
        return product(*(range(size) for size in self.shape))

    def names(self, cell: TableCell) -> dict[str, str]:
        """The level of each group in a cell, or `TOTAL`."""
        return {
            group: (*levels, TOTAL)[index]
            for group, levels, index in zip(self.groups, self.levels, cell, strict=True)
        }

    def extended(self, group: str, levels: tuple[str, ...]) -> _Grid:
        return _Grid((*self.groups, group), (*self.levels, levels))


def make_tables(
    scored: ScoredPaths,
    persons: pl.DataFrame,
    by: Sequence[str],
    rules: DisclosureRules,
    *,
    transition_years: int = 5,
    until: int | None = None,
    progress: Progress | None = None,
) -> PolicyTables:
    """The tables of a run, with unsafe cells hidden and numbers rounded.

    Needs about ten times the memory of the earnings of one year, persons x paths x 8 bytes. The
    tables begin with the first full year (`ScoredPaths.full_years`). Earlier years have few
    persons, and a cell that is unsafe in one of them would be hidden in all years.

    Args:
        scored: A complete run of paths.
        persons: Groups and weights of its persons.
        by: Groups: columns of the panel or of life courses, age or cohort.
        rules: What may be published.
        transition_years: Years between the two classes of a transition.
        until: The last year; None for the one up to which the most values can be published.
        progress: Called with the years done and the years in all.
    """
    years = [year for year in scored.full_years if until is None or year <= until]
    if not years:
        raise UsageError(f"The tables begin in {scored.full_years[0]}. Choose a later --until.")
    grid = _grid(scored, persons, by)
    reasons: dict[int, dict[TableCell, str | None]] = {}
    estimates: dict[int, dict[TableCell, Estimates]] = {}
    hidden = np.zeros(grid.shape, dtype=np.bool_)
    hidden_by: dict[int, Flags] = {}
    inhabited = np.zeros(grid.shape)  # in how many years each cell has persons
    published: dict[int, float] = {}
    log: list[dict[str, object]] = []
    for done, year in enumerate(years):
        if progress:
            progress(done, len(years))
        present = _YearPersons.of(scored, persons, grid, year)
        reasons[year], magnitudes, estimates[year] = _year_cells(present, grid, rules)
        unsafe = np.reshape([bool(reasons[year][cell]) for cell in grid.cells()], grid.shape)
        hidden, hides = suppress(magnitudes, unsafe, rules.protection, hidden)
        hidden_by[year] = hidden
        inhabited += magnitudes[0] > 0
        in_groups = (inhabited * ~hidden).ravel()[: hidden.size - 1 or None]
        published[year] = in_groups.sum()
        log += _log_entries(grid, "statistics", year, reasons[year], hides)
    last = years[-1] if until else max(years, key=lambda year: (published[year], year))
    years, hidden = [year for year in years if year <= last], hidden_by[last]
    transitions, transition_log = _transitions(
        scored, persons, grid, rules, hidden, years, transition_years
    )
    rows = [
        {"year": year, **grid.names(cell), **row}
        for year in years
        for cell in grid.cells()
        for row in _rows(estimates[year][cell], bool(hidden[cell]), rules)
    ]
    if progress:
        progress(len(hidden_by), len(hidden_by))
    log += transition_log
    order = ["table", "year", *grid.groups, "class", "rule", "hides"]
    schema = {name: pl.Int32 if name == "year" else pl.String for name in order}
    return PolicyTables(
        pl.DataFrame(rows, infer_schema_length=None).with_columns(
            pl.col("year").cast(pl.Int32), pl.selectors.by_dtype(pl.Null).cast(pl.Float64)
        ),
        transitions,
        pl.DataFrame(log, schema=schema),
        {
            year: done * int(hidden_by[year].sum()) * len(STATISTICS)
            for done, year in enumerate(hidden_by, start=1)
        },
    )


def _log_entries(
    grid: _Grid,
    table: str,
    year: int,
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
class _YearPersons:
    """The persons of a year.

    Attributes:
        paths: Their earnings, and codes of life courses.
        weights: Weight of each, (n_person,).
        jackknife_group: Number of each one's random group, (n_person,).
        levels: For each group of the table, the index of the person's level, (n_person, 1), or
            (n_person, n_path) if it differs between paths.
    """

    paths: YearPaths
    weights: NDArray[np.float64]
    jackknife_group: NDArray[np.int_]
    levels: tuple[NDArray[np.int_], ...]

    @classmethod
    def of(cls, scored: ScoredPaths, persons: pl.DataFrame, grid: _Grid, year: int) -> _YearPersons:
        columns = [name for name in grid.groups if name in scored.columns]
        paths = scored.year(year, columns)
        frame = rows_of(persons, paths.person_ids)
        levels = [
            paths.codes[group]
            if group in columns
            else frame.select(person_levels(group, year).cast(pl.Enum(names)))
            .to_series()
            .to_physical()
            .to_numpy()[:, None]
            for group, names in zip(grid.groups, grid.levels, strict=True)
        ]
        random = random_groups(paths.person_ids, _JACKKNIFE)
        return cls(paths, frame["weight"].to_numpy(), random, tuple(levels))

    def members(self, cell: TableCell, grid: _Grid) -> Flags:
        """Whether each person is in a cell on each path, (n_person, n_path)."""
        inside = np.isfinite(self.paths.earnings)
        for index, levels, size in zip(cell, self.levels, grid.shape, strict=True):
            if index < size - 1:
                inside = inside & (levels == index)
        return inside


def _grid(scored: ScoredPaths, persons: pl.DataFrame, by: Sequence[str]) -> _Grid:
    levels = []
    for group in by:
        if group in scored.columns:
            levels.append(tuple(scored.levels(group)))
            continue
        texts = [
            persons.select(person_levels(group, year).unique()).to_series()
            for year in (scored.full_years if group == "age" else scored.full_years[:1])
        ]
        levels.append(tuple(pl.concat(texts).unique().sort().to_list()))
    return _Grid(tuple(by), tuple(levels))


def _year_cells(
    present: _YearPersons, grid: _Grid, rules: DisclosureRules
) -> tuple[dict[TableCell, str | None], list[NDArray[np.float64]], dict[TableCell, Estimates]]:
    """Why each cell of a year is unsafe (None: it is safe), the magnitudes, and the estimates.

    The magnitudes are what a margin has the sum of: numbers of persons, and earnings.
    """
    earnings, n_paths = present.paths.earnings, present.paths.earnings.shape[1]
    lines = poverty_lines(
        sort_by_path(earnings, present.weights, present.jackknife_group), _JACKKNIFE
    )
    reasons, estimates = {}, {}
    magnitudes = [np.zeros(grid.shape), np.zeros(grid.shape)]
    for cell in grid.cells():
        inside = present.members(cell, grid)
        persons = inside.any(1)
        inside, weights = inside[persons], present.weights[persons]
        if persons.any():
            values = np.where(inside, earnings[persons], np.nan)
            ordered = sort_by_path(values, weights, present.jackknife_group[persons])
            estimates[cell] = estimate(replicate(ordered, _JACKKNIFE, lines))
            contributions = weights * np.nansum(values, axis=1) / n_paths
        else:
            of_nobody = np.full(len(STATISTICS), np.nan)
            of_nobody[:2] = 0  # number of persons and sum of earnings
            estimates[cell] = Estimates(of_nobody, of_nobody, of_nobody, of_nobody)
            contributions = weights
        reasons[cell] = rules.unsafe_reason(inside.sum() / n_paths, contributions)
        for table, value in zip(magnitudes, estimates[cell].value[:2], strict=True):
            table[cell] = value
    return reasons, magnitudes, estimates


def _rows(
    estimates: Estimates, hidden: bool, rules: DisclosureRules
) -> Iterator[dict[str, object]]:
    """A row for each statistic of a cell, rounded; without values if the cell is hidden."""
    for number, statistic in enumerate(STATISTICS):
        shown = {
            name: None
            if hidden or not np.isfinite(values[number])
            else _rounded(statistic, values[number], rules)
            for name, values in estimates._asdict().items()
        }
        yield {"statistic": statistic, **shown, "suppressed": hidden}


def _rounded(statistic: str, value: float, rules: DisclosureRules) -> float:
    if statistic == "persons":
        return float(round(value / rules.count_base) * rules.count_base)
    if statistic.endswith("share") or statistic == "gini":
        return round(float(value), 4)
    return float(round(value / rules.amount_base) * rules.amount_base)


def _transitions(
    scored: ScoredPaths,
    persons: pl.DataFrame,
    grid: _Grid,
    rules: DisclosureRules,
    hidden: Flags,
    years: Sequence[int],
    step: int,
) -> tuple[pl.DataFrame, list[dict[str, object]]]:
    """Shares of earnings classes `step` years later, by groups and class; and the hidden cells.

    A cell whose groups are `hidden` in the statistics is hidden here too.
    """
    by_class = grid.extended("class", CLASSES)
    rows: list[dict[str, object]] = []
    log: list[dict[str, object]] = []
    for year in years[::step]:
        if year + step not in years:
            break
        counts, n_persons = _count_transitions(scored, persons, grid, year, year + step)
        unsafe = (n_persons > 0) & (n_persons < rules.minimum)
        hidden_before = np.repeat(hidden[..., None], len(CLASSES) + 1, axis=-1)
        hidden_cells, hides = suppress([counts.sum(-1)], unsafe, rules.protection, hidden_before)
        small = {cell: "minimum" if unsafe[cell] else None for cell in by_class.cells()}
        log += _log_entries(by_class, "transitions", year, small, hides)
        for cell in by_class.cells():
            names = by_class.names(cell)
            total = counts[cell].sum()
            for number, name in enumerate(CLASSES):
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
    scored: ScoredPaths, persons: pl.DataFrame, grid: _Grid, year: int, to_year: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Transitions between earnings classes of persons who are present in both years.

    Returns their weighted numbers by groups, class and later class, and the number of persons by
    groups and class. Both are means over paths; the last class is the margin.
    """
    present, later = _YearPersons.of(scored, persons, grid, year), scored.year(to_year)
    after = np.full(present.paths.earnings.shape, -1)
    row_of = {person: row for row, person in enumerate(present.paths.person_ids)}
    later_rows = [row for row, person in enumerate(later.person_ids) if person in row_of]
    rows = [row_of[later.person_ids[row]] for row in later_rows]
    after[rows] = earnings_classes(later.earnings)[later_rows]
    before = np.where(after >= 0, earnings_classes(present.paths.earnings), -1)
    n_classes = len(CLASSES)
    counts = np.zeros((*grid.shape, n_classes + 1, n_classes))
    n_persons = np.zeros((*grid.shape, n_classes + 1))
    for cell in grid.cells():
        inside = present.members(cell, grid)
        for number in range(n_classes + 1):
            in_class = inside & ((before == number) if number < n_classes else before >= 0)
            n_persons[(*cell, number)] = in_class.sum() / scored.n_paths
            weights = np.broadcast_to(present.weights[:, None], after.shape)[in_class]
            counts[(*cell, number)] = (
                np.bincount(after[in_class], weights, n_classes) / scored.n_paths
            )
    return counts, n_persons
