"""Policy tables: statistics of a population by groups and years, of which unsafe cells are hidden.

A table has a cell for each combination of groups, and all margins. A cell that is unsafe in one
year is hidden in all years, because the neighbouring years would reveal its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl
from numpy.typing import NDArray

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
from saga.population.scored_paths import Persons, ScoredPaths, YearPaths, person_levels
from saga.progress import Progress

TOTAL = "total"  # level of a margin
CLASSES = ("zero", "fifth 1", "fifth 2", "fifth 3", "fifth 4", "fifth 5")
_JACKKNIFE = 20  # random groups of persons
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class PolicyTables:
    """Tables to publish, and the log, which stays inside.

    Attributes:
        statistics: Year, groups, statistic, value, three errors, and whether it is suppressed.
        transitions: Year, later year, groups, class, later class, share.
        log: Which cells are suppressed, and by which rule.
    """

    statistics: pl.DataFrame
    transitions: pl.DataFrame
    log: pl.DataFrame


@dataclass(frozen=True)
class _Grid:
    """Groups, the levels of each, and the cells: a level of each group, the last is its margin."""

    groups: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(levels) + 1 for levels in self.levels)

    def cells(self) -> Iterator[tuple[int, ...]]:
        return product(*(range(size) for size in self.shape))

    def names(self, cell: tuple[int, ...]) -> dict[str, str]:
        return {
            group: (*levels, TOTAL)[index]
            for group, levels, index in zip(self.groups, self.levels, cell, strict=True)
        }

    def extended(self, group: str, levels: tuple[str, ...]) -> _Grid:
        return _Grid((*self.groups, group), (*self.levels, levels))


def make_tables(
    scored: ScoredPaths,
    persons: Persons,
    by: Sequence[str],
    rules: DisclosureRules,
    *,
    transition_years: int = 5,
    progress: Progress | None = None,
) -> PolicyTables:
    """The tables of a run, with unsafe cells hidden and numbers rounded.

    Needs about ten times the memory of the earnings of one year, persons x paths x 8 bytes. The
    tables begin with the first full year (`ScoredPaths.full_years`): a cell that is unsafe because
    few records end earlier would be hidden in all years.

    Args:
        scored: A complete run of paths.
        persons: Groups and weights of its persons.
        by: Groups: columns of the panel or of life courses, age or cohort.
        rules: What may be published.
        transition_years: Years between the two classes of a transition.
        progress: Called with the years done and the years in all.
    """
    grid = _grid(scored, persons, by)
    estimates: dict[int, dict[tuple[int, ...], Estimates]] = {}
    hidden = np.zeros(grid.shape, dtype=np.bool_)
    log = []
    for done, year in enumerate(scored.full_years):
        if progress:
            progress(done, len(scored.full_years))
        people = _People.of(scored, persons, grid, year)
        reasons, magnitudes, estimates[year] = _year_cells(people, grid, rules)
        unsafe = np.reshape([bool(reasons[cell]) for cell in grid.cells()], grid.shape)
        log += [
            {"table": "statistics", "year": year, **grid.names(cell), "rule": reason}
            for cell, reason in reasons.items()
            if reason
        ]
        hidden = suppress(magnitudes, unsafe, rules.protection, hidden)
    transitions, transition_log = _transitions(
        scored, persons, grid, rules, hidden, transition_years
    )
    primary = {tuple(entry[group] for group in grid.groups) for entry in log}
    complementary = [
        {"table": "statistics", "year": None, **names, "rule": "complementary"}
        for cell in grid.cells()
        if hidden[cell] and tuple((names := grid.names(cell)).values()) not in primary
    ]
    rows = [
        {"year": year, **grid.names(cell), **row}
        for year, cells in estimates.items()
        for cell in grid.cells()
        for row in _rows(cells[cell], bool(hidden[cell]), rules)
    ]
    if progress:
        progress(len(scored.full_years), len(scored.full_years))
    order = ["table", "year", *grid.groups, "class", "rule"]
    logged = [*log, *complementary, *transition_log]
    schema = {name: pl.Int32 if name == "year" else pl.String for name in order}
    return PolicyTables(
        pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col("year").cast(pl.Int32)),
        transitions,
        pl.DataFrame(logged, schema=schema),
    )


@dataclass(frozen=True)
class _People:
    """The persons of a year.

    `levels` are the index of each group's level, (n_person, 1) or (n_person, n_path).
    """

    paths: YearPaths
    weights: NDArray[np.float64]
    jackknife_group: NDArray[np.int_]
    levels: tuple[NDArray[np.int_], ...]

    @classmethod
    def of(cls, scored: ScoredPaths, persons: Persons, grid: _Grid, year: int) -> _People:
        columns = [name for name in grid.groups if name in scored.columns]
        paths = scored.year(year, columns)
        frame = persons.of(paths.person_ids)
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

    def members(self, cell: tuple[int, ...], grid: _Grid) -> Flags:
        """Who is in a cell on which path, (n_person, n_path)."""
        inside = np.isfinite(self.paths.earnings)
        for index, levels, size in zip(cell, self.levels, grid.shape, strict=True):
            if index < size - 1:
                inside = inside & (levels == index)
        return inside


def _grid(scored: ScoredPaths, persons: Persons, by: Sequence[str]) -> _Grid:
    levels = []
    for group in by:
        if group in scored.columns:
            levels.append(tuple(scored.levels(group)))
            continue
        texts = [
            persons.frame.select(person_levels(group, year).unique()).to_series()
            for year in (scored.full_years if group == "age" else scored.full_years[:1])
        ]
        levels.append(tuple(pl.concat(texts).unique().sort().to_list()))
    return _Grid(tuple(by), tuple(levels))


def _year_cells(
    people: _People, grid: _Grid, rules: DisclosureRules
) -> tuple[
    dict[tuple[int, ...], str | None],
    list[NDArray[np.float64]],
    dict[tuple[int, ...], Estimates],
]:
    """Why each cell of a year is unsafe, its additive values, and its estimates."""
    earnings, n_paths = people.paths.earnings, people.paths.earnings.shape[1]
    lines = poverty_lines(
        sort_by_path(earnings, people.weights, people.jackknife_group), _JACKKNIFE
    )
    reasons, estimates = {}, {}
    magnitudes = [np.zeros(grid.shape), np.zeros(grid.shape)]
    for cell in grid.cells():
        inside = people.members(cell, grid)
        persons = inside.any(1)
        inside, weights = inside[persons], people.weights[persons]
        if persons.any():
            values = np.where(inside, earnings[persons], np.nan)
            ordered = sort_by_path(values, weights, people.jackknife_group[persons])
            estimates[cell] = estimate(replicate(ordered, _JACKKNIFE, lines))
            contributions = weights * np.nansum(values, axis=1) / n_paths
        else:
            nothing = np.full(len(STATISTICS), np.nan)
            nothing[:2] = 0
            estimates[cell] = Estimates(nothing, nothing, nothing, nothing)
            contributions = weights
        reasons[cell] = rules.unsafe_reason(inside.sum() / n_paths, contributions)
        for table, value in zip(magnitudes, estimates[cell].value[:2], strict=True):
            table[cell] = value
    return reasons, magnitudes, estimates


def _rows(
    estimates: Estimates, hidden: bool, rules: DisclosureRules
) -> Iterator[dict[str, object]]:
    """A row of each statistic, rounded; without values if it is hidden."""
    for number, statistic in enumerate(STATISTICS):
        names = ("value", "error_sampling", "error_paths", "spread_macro")
        values = (
            estimates.value[number],
            estimates.sampling[number],
            estimates.paths[number],
            estimates.macro[number],
        )
        shown = {
            name: None if hidden or not np.isfinite(value) else _rounded(statistic, value, rules)
            for name, value in zip(names, values, strict=True)
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
    persons: Persons,
    grid: _Grid,
    rules: DisclosureRules,
    hidden: Flags,
    step: int,
) -> tuple[pl.DataFrame, list[dict[str, object]]]:
    """Shares of earnings classes some years later, by groups and class; and what is hidden."""
    full = grid.extended("class", CLASSES)
    rows, log = [], []
    years = [year for year in scored.full_years[::step] if year + step in scored.full_years]
    for year in years:
        people = _People.of(scored, persons, grid, year)
        later = scored.year(year + step)
        after = np.full(people.paths.earnings.shape, -1)
        row_of = {person: row for row, person in enumerate(people.paths.person_ids)}
        later_rows = [row for row, person in enumerate(later.person_ids) if person in row_of]
        rows_now = [row_of[later.person_ids[row]] for row in later_rows]
        after[rows_now] = earnings_classes(later.earnings)[later_rows]
        before = np.where(after >= 0, earnings_classes(people.paths.earnings), -1)
        counts = np.zeros((*full.shape, len(CLASSES)))
        people_in = np.zeros(full.shape)
        for cell in grid.cells():
            inside = people.members(cell, grid)
            for number in range(len(CLASSES) + 1):
                in_class = inside & ((before == number) if number < len(CLASSES) else before >= 0)
                people_in[(*cell, number)] = in_class.sum() / scored.n_paths
                weights = np.broadcast_to(people.weights[:, None], after.shape)[in_class]
                counts[(*cell, number)] = (
                    np.bincount(after[in_class], weights, len(CLASSES)) / scored.n_paths
                )
        unsafe = (people_in > 0) & (people_in < rules.minimum)
        start = np.repeat(hidden[..., None], len(CLASSES) + 1, axis=-1)
        hidden_cells = suppress([counts.sum(-1)], unsafe, rules.protection, start)
        for cell in full.cells():
            if hidden_cells[cell]:
                rule = "minimum" if unsafe[cell] else "complementary"
                log.append({"table": "transitions", "year": year, **full.names(cell), "rule": rule})
            total = counts[cell].sum()
            for number, name in enumerate(CLASSES):
                shown = not hidden_cells[cell] and total > 0
                rows.append(
                    {
                        "year": year,
                        "to_year": year + step,
                        **full.names(cell),
                        "to_class": name,
                        "share": round(counts[cell][number] / total, 3) if shown else None,
                        "suppressed": bool(hidden_cells[cell]),
                    }
                )
    names = ["year", "to_year", *full.groups, "to_class", "share", "suppressed"]
    types = {"year": pl.Int32, "to_year": pl.Int32, "share": pl.Float64, "suppressed": pl.Boolean}
    schema = {name: types.get(name, pl.String()) for name in names}
    return pl.DataFrame(rows, schema=schema), log
