"""The persons of a table: their paths, groups, weights and records, and statistics of each cell."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Bools, Floats
from saga.data.facts import Facts
from saga.data.panel import Panel
from saga.errors import UsageError
from saga.files.atomic import digest_json
from saga.files.data_frames import Rows
from saga.forecast_warnings import ForecastWarning
from saga.group_statistics import COMPARISONS, GROUP_STATISTICS
from saga.model_error import EVERYBODY, GROUPS, ModelError
from saga.pages.group import TOTAL
from saga.pensions.pension_rules import PensionLaw
from saga.population.cell_statistics import (
    RANDOM_GROUPS,
    SUMS,
    PathStatistic,
    PersonPaths,
    random_groups,
)
from saga.population.disclosure import DisclosureRules
from saga.population.inflow import Inflow, find_inflow
from saga.population.scored_paths import (
    BASE_AMOUNTS,
    BIRTH,
    CAREER_FIFTH,
    CAREER_GROUPS,
    OF_SCENARIO,
    PathRows,
    YearPaths,
    last_known,
    person_levels,
    read_persons,
    rows_of,
)
from saga.population.simulated_careers import pension_law_of, with_career_groups
from saga.population.table_grid import Grid, TableCell
from saga.requests import PopulationRequest
from saga.schema import BY_NAME, MAX_AGE
from saga.tax.tax_rules import TaxRule, resolve_tax


@dataclass(frozen=True)
class Population:
    """The persons of a table, and what is known of them beside their paths.

    Attributes:
        paths: Their paths.
        persons: Their groups and weights (`saga.population.scored_paths.read_persons`), and those
            of who joins them, with the year `entered` and the `donor`; null for who was there.
        sampled: Whether they are a sample with weights, so that bands are those of the population.
        records: Their observed years: person_id, year, earnings; None: events cannot name them.
        tax: The tax rule of net lifetimes; None: there are none.
        law: The pension law of base amounts and pensionable earnings; None: there are none.
        model_error: The model's own error; None: it is not known.
        inflow: Who joins them; None: nobody.
        reference: The same persons under another scenario, from which effects are the differences;
            None: there are no effects.
        n_others: Number of persons with a weight and without paths.
    """

    paths: PathRows
    persons: pl.DataFrame
    sampled: bool = False
    records: pl.DataFrame | None = None
    tax: TaxRule | None = None
    law: PensionLaw | None = None
    model_error: ModelError | None = None
    inflow: Inflow | None = None
    reference: Population | None = None
    n_others: int = 0

    def year(self, year: int, columns: Sequence[str]) -> YearPaths:
        """The paths of a year of all who are there, with the codes of columns."""
        paths = self.paths.year(year, columns)
        return paths if self.inflow is None else self.inflow.beside(paths, year, columns)

    def recorded(self, year: int) -> pl.DataFrame:
        """The known earnings of these persons in a year of the records, sorted by person."""
        if self.records is None:
            return pl.DataFrame()
        rows = self.records.filter(pl.col("year") == year).drop_nulls("earnings")
        return rows.join(self.persons, on="person_id", how="semi").sort("person_id")

    def provenance(self, request: PopulationRequest, rules: DisclosureRules) -> dict[str, object]:
        """What a table is about, and where its paths, and those of a reference, come from."""
        other = {} if self.reference is None else self.reference.paths.provenance
        joined = {str(row.year): 0.0 for row in sorted(request.inflow, key=lambda row: row.year)}
        for row in request.inflow:
            joined[str(row.year)] += row.persons
        return {
            **self.paths.provenance,
            "product": request.product,
            "groups": list(request.by),
            "weighted": self.sampled,
            "bands_of": "the population of the weights" if self.sampled else "these persons",
            "rate": request.rate,
            "tax": request.tax if isinstance(request.tax, str) else request.tax.name,
            **({"tax_rule": self.tax.describe()} if self.tax else {}),
            **({"rule": self.law.rule.describe()} if self.law else {}),
            **({"vintages": self.model_error.describe()} if self.model_error else {}),
            **({"inflow": joined, "inflow_digest": digest_json(request.inflow)} if joined else {}),
            **({"reference": {k: other[k] for k in OF_SCENARIO if k in other}} if other else {}),
            "rules": rules.describe(),
        }

    def warnings(self, request: PopulationRequest, rules: DisclosureRules) -> list[ForecastWarning]:
        """How many records end in another year than the one before the tables.

        Also how many persons have a weight and no paths, and that tables end before they should.
        """
        year, end = self.paths.full_years[0] - 1, self.paths.full_years[-1]
        last = self.paths.spans["first"] - 1
        sides = {
            "before": (last < year, "They are in the figures of all years"),
            "after": (last > year, "Figures up to their last year are without them"),
        }
        warnings = [
            ForecastWarning(
                "mixed-origins",
                f"{rules.published_persons(n).capitalize()} of these persons were last seen {side} "
                f"{year}. {effect}, and their lifetimes are discounted to their own last year.",
            )
            for side, (concerned, effect) in sides.items()
            if (n := int(concerned.sum()))
        ]
        if self.n_others:
            others = rules.published_persons(self.n_others)
            message = f"The weights of {others} persons change nothing: they have no paths."
            warnings.append(ForecastWarning("no-effect", message, option="weights"))
        if request.until is not None and request.until > end:
            message = f"The tables end in {end}: nobody has a simulated year after it."
            warnings.append(ForecastWarning("no-effect", message, option="until"))
        return warnings

    def sd_model(
        self, statistic: str, names: Sequence[str], amounts: Mapping[int, float], size: float
    ) -> float | None:
        """The deviation of the model's error of a statistic; None: it is not known.

        It is 0 in years before the paths, and None if there is no value. `amounts` has what each
        year adds to a sum; a statistic of one year has this year alone.
        """
        if self.model_error is None or not np.isfinite(size):
            return None
        of = EVERYBODY if set(names) <= {TOTAL} else GROUPS
        origin, ahead = self.paths.full_years[0] - 1, dict[int, float]()
        for year, amount in amounts.items():
            horizon = max(year - origin, 0)
            ahead[horizon] = ahead.get(horizon, 0.0) + amount
        return self.model_error.sd(statistic, of, ahead, size)

    def present_values(self, rate: float) -> tuple[YearPaths, Floats | None, Floats]:
        """Present values of all paths, and of the tax on them if there is a rule.

        Discounted to the year before a person's first; summed in the order of the years. Last what
        each year adds, the mean over paths (n_person, n_year).
        """
        ids = self.paths.person_ids
        row_of = {person: row for row, person in enumerate(ids)}
        values = np.zeros((len(ids), self.paths.n_paths))
        taxes, ahead = np.zeros_like(values), np.zeros(len(ids))
        by_year = np.zeros((len(ids), len(self.paths.years)))
        for number, year in enumerate(self.paths.years):
            present = self.paths.year(year)
            rows = [row_of[person] for person in present.person_ids]
            ahead[rows] += 1
            discount = (1 + rate) ** -ahead[rows, None]
            values[rows] += present.earnings * discount
            by_year[rows, number] = present.earnings.mean(1) * discount[:, 0]
            if self.tax is not None:
                taxes[rows] += self.tax.tax(present.earnings) * discount
        return YearPaths(ids, values, {}), taxes if self.tax is not None else None, by_year


def population_of(
    paths: PathRows,
    panel: Panel | None,
    request: PopulationRequest,
    weights: Rows | None,
    facts: Facts,
    reference: PathRows | None = None,
) -> Population:
    """The population of paths, with groups and records of the panel of their persons.

    `facts` are those of the paths. `reference` has the paths of the same persons under another
    scenario.

    Raises:
        UsageError: If a group or the tax rule is unknown, there is no panel for a group, nobody can
            join the paths, or they were simulated with other facts.
        InputError: If a person is missing in the panel or the weights, or a row of the inflow
            cannot be forecast.
    """
    of_paths = paths.provenance["facts"]
    if of_paths["digest"] != facts.digest:
        raise UsageError(
            f"The paths are from the facts {of_paths['source']!r} and tables would use "
            f"{facts.source!r}, which are not the same. Give the facts of the scoring run with "
            "--facts, or score again."
        )
    of_request = {"sex": bool(request.inflow), BIRTH: CAREER_FIFTH in request.by}
    groups = [*request.by, *(n for n, used in of_request.items() if used and n not in request.by)]
    groups, inflow = [name for name in groups if name not in CAREER_GROUPS], None
    persons, n_others = read_persons(paths, panel, groups, weights)
    persons = persons.with_columns(donor=pl.lit(None, pl.String), entered=pl.lit(None, pl.Int32))
    law = pension_law_of(paths, facts) if BASE_AMOUNTS in request.by else None
    paths = with_career_groups(paths, request.by, persons, law)
    if request.inflow:
        if of_careers := set(request.by) & set(CAREER_GROUPS):
            raise UsageError(
                f"The group {min(of_careers)} is about careers that begin at the origin, and "
                "persons of an inflow join later. Leave one of them out."
            )
        inflow = find_inflow(paths, persons, request.inflow)
        persons = pl.concat([persons, inflow.persons], how="diagonal")
    records = panel.frame.select("person_id", "year", "earnings") if panel else None
    money = paths.provenance["price_year"], paths.provenance["currency"]
    tax = None if request.tax == "none" else resolve_tax(request.tax, facts, *money)
    model_error = ModelError.of(paths.provenance)
    other = None
    if reference is not None:
        other = population_of(reference, panel, request, weights, facts)
    return Population(
        paths,
        persons,
        weights is not None,
        records,
        tax,
        law,
        model_error,
        inflow,
        other,
        n_others,
    )


@dataclass(frozen=True)
class Present:
    """The persons of a year, or of lifetimes.

    Attributes:
        person_ids: Who they are, sorted.
        earnings: Of the year, or present values; (n_person, n_path), NaN for who is absent.
        weights: Weight of each, (n_person,).
        random_groups: Number of each one's random group, (n_person,).
        levels: For each group of the table, the index of the person's level, (n_person, 1), or
            (n_person, n_path) if it differs between paths.
        behind: Number of the person of the panel behind each one, (n_person,).
        entered: Whether each one has joined the panel's persons, (n_person,).
        further: Other amounts, shaped like the earnings, by the prefix of their statistics.
        by_year: What each year adds to present values, the mean over paths (n_person, n_year), and
            the years; None: the earnings are those of one year.
    """

    person_ids: Sequence[str]
    earnings: Floats
    weights: Floats
    random_groups: NDArray[np.int_]
    levels: tuple[NDArray[np.int_], ...]
    behind: NDArray[np.int_]
    entered: Bools
    further: Mapping[str, Floats] = field(default_factory=dict)
    by_year: tuple[Floats, Sequence[int]] | None = None

    @classmethod
    def of(
        cls,
        population: Population,
        grid: Grid,
        paths: YearPaths,
        year: int,
    ) -> Present:
        """The persons of `paths`; ages are those of the year."""
        frame = rows_of(population.persons, paths.person_ids)
        levels = [
            paths.codes[group]
            if group in paths.codes
            else frame.select(person_levels(group, year).cast(pl.Enum(names)))
            .to_series()
            .to_physical()
            .to_numpy()[:, None]
            for group, names in zip(grid.groups, grid.levels, strict=True)
        ]
        behind, weights = frame["donor"].fill_null(frame["person_id"]), frame["weight"].to_numpy()
        return cls(
            paths.person_ids,
            paths.earnings,
            weights,
            random_groups(behind.to_list()),
            tuple(levels),
            behind.rank("dense").to_numpy(),
            frame["donor"].is_not_null().to_numpy(),
        )

    def members(self, cell: TableCell, grid: Grid) -> tuple[NDArray[np.int_], Bools]:
        """The rows (n,) of who is in a cell on any path, and on which paths (n, n_path)."""
        sizes = zip(cell, self.levels, grid.shape, strict=True)
        chosen = [(levels, index) for index, levels, size in sizes if index < size - 1]
        rows = np.arange(len(self.earnings))
        for levels, index in sorted(chosen, key=lambda of_group: of_group[0].shape[1]):
            rows = rows[(levels[rows] == index).any(1)]  # few are left for levels of all paths
        inside = np.isfinite(self.earnings[rows])
        for levels, index in chosen:
            inside &= levels[rows] == index
        present = inside.any(1)
        return rows[present], inside[present]

    def cell(self, cell: TableCell, grid: Grid) -> PersonPaths:
        """The persons who are in a cell on any path."""
        rows, inside = self.members(cell, grid)
        values = np.where(inside, self.earnings[rows], np.nan)
        return PersonPaths(values, self.weights[rows], self.random_groups[rows])

    def added_by_year(self, cells: Iterable[TableCell], grid: Grid) -> dict[int, float]:
        """What each year adds to the present values of cells: year -> weighted sum of persons."""
        amounts, years = self.by_year or (np.zeros((len(self.earnings), 0)), ())
        members = [self.members(cell, grid)[0] for cell in cells]
        sums = sum((self.weights[rows] @ amounts[rows] for rows in members), np.zeros(len(years)))
        return dict(zip(years, sums.tolist(), strict=True))

    def contributions(
        self, cell: TableCell, grid: Grid
    ) -> Iterator[tuple[float, float, list[Floats]]]:
        """What is behind a cell: first the panel's own persons, then those who have joined them.

        For each of the two: how many persons of the panel are behind it, the weighted number of
        persons, and what each person of the panel adds to the totals of earnings and further
        amounts; means over paths.
        """
        rows, inside = self.members(cell, grid)
        n_paths, here, weights = inside.shape[1], inside.sum(1), self.weights[rows]
        amounts = [
            weights * np.where(inside, values[rows], 0.0).sum(1) / n_paths
            for values in (self.earnings, *self.further.values())
        ]
        behind, entered = self.behind[rows], self.entered[rows]
        for part in (~entered, entered):
            persons, *of_each = (
                np.bincount(behind[part], values[part]).astype(float) for values in (here, *amounts)
            )
            weighted = float((weights * here)[part].sum() / n_paths)
            yield float(np.minimum(persons, n_paths).sum() / n_paths), weighted, of_each

    def statistics(
        self, cell: PersonPaths | None, median: PathStatistic | None
    ) -> dict[str, PathStatistic]:
        """The statistics of a cell by name; 0 persons and no others if nobody is in it.

        Without the `median` of everybody only numbers, sums and means.
        """
        if cell is not None and len(cell.earnings):
            return cell.statistics(median, self.random_groups)
        return self._of_nobody

    @cached_property
    def _of_nobody(self) -> dict[str, PathStatistic]:
        nobody = np.zeros((RANDOM_GROUPS, self.earnings.shape[1]))
        none, unknown = (PathStatistic(of_all[0], of_all) for of_all in (nobody, nobody * np.nan))
        return dict.fromkeys(GROUP_STATISTICS, unknown) | dict.fromkeys(SUMS, none)


def _position(group: str) -> Callable[[str], tuple[int, int, str]]:
    """Where a level of a group stands: codes as the panel lists them, numbers by size, words."""
    codes = BY_NAME[group].codes if group in BY_NAME else ()

    def position(level: str) -> tuple[int, int, str]:
        number = re.match(r"-?\d+", level)
        known = codes.index(level) if level in codes else len(codes)
        return known, int(number[0]) if number else sys.maxsize, level

    return position


def grid_of(population: Population, request: PopulationRequest) -> Grid:
    """The grid of a request. Raises UsageError if a pair of levels is not in one group."""
    levels, paths = [], population.paths
    for group in request.by:
        if group in paths.columns:
            levels.append(tuple(paths.levels(group)))
            continue
        texts = [
            population.persons.filter(
                pl.col("entered").fill_null(year) <= year,
                group != "age" or year - pl.col(BIRTH) <= MAX_AGE,  # later nobody is in the figures
            )
            .select(person_levels(group, year).unique())
            .to_series()
            for year in (paths.years if group == "age" else paths.years[-1:])
        ]
        levels.append(tuple(sorted(pl.concat(texts).unique(), key=_position(group))))
    return _with_pairs(Grid(tuple(request.by), tuple(levels)), request)


def check_groups(
    panel: Panel,
    request: PopulationRequest,
    check_cells: Callable[[int], object] = lambda _: None,
) -> None:
    """Raise UsageError for groups and levels that none of these persons has.

    Paths take long, so this is asked before. Not of levels that depend on them or on who joins.
    `check_cells` is called with the number of cells of the other groups, and may raise.
    """
    persons = last_known(panel, [name for name in request.by if name not in CAREER_GROUPS])
    known = tuple(name for name in request.by if name not in ("age", *CAREER_GROUPS))
    levels = [
        sorted(persons.select(person_levels(name, 0).unique()).to_series(), key=_position(name))
        for name in known
    ]
    grid = Grid(known, tuple(map(tuple, levels)))
    check_cells(grid.n_shown)
    if request.inflow or known != request.by:
        return
    grid = _with_pairs(grid, request)
    for event in request.group_events:
        grid.place(event)


def _with_pairs(grid: Grid, request: PopulationRequest) -> Grid:
    """The grid with the pairs of levels that a request compares, also in its events."""
    pairs = []
    for pair in request.pairs:
        two = pair.split("/")
        axis = grid.axis_of(two, f"The comparison {pair}")
        first, second = ((*grid.levels[axis], TOTAL).index(level) for level in two)
        pairs.append((axis, first, second))
    return replace(grid, pairs=tuple(pairs))


def statistics_of(
    present: Present, grid: Grid, hidden: Bools | None = None
) -> Iterator[tuple[tuple[TableCell, ...], tuple[str, ...], dict[str, PathStatistic]]]:
    """Each cell, then each comparison of two: the cells, the names, statistics by name.

    Those of further amounts, sums and means, have their prefix. Nothing is computed of `hidden`
    cells: they are as if nobody was in them.
    """
    median = present.cell(tuple(size - 1 for size in grid.shape), grid).quantile(0.5)
    further = present.further.items()
    amounts = {"": present, **{f"{name}_": replace(present, earnings=of) for name, of in further}}
    means = {}
    for cell in grid.cells():
        is_hidden = hidden is not None and bool(hidden[cell])
        statistics = {
            f"{prefix}{name}": statistic
            for prefix, of_amounts in amounts.items()
            for name, statistic in present.statistics(
                None if is_hidden else of_amounts.cell(cell, grid), None if prefix else median
            ).items()
        }
        means[cell] = [statistics[name] for name in ("mean", "p50")]
        yield (cell,), tuple(grid.names(cell).values()), statistics
    for names, first, second in grid.comparisons():
        pairs = zip(means[first], means[second], strict=True)
        statistics = dict(
            zip(
                COMPARISONS,
                (part for a, b in pairs for part in (a.ratio(b), a.difference(b))),
                strict=True,
            )
        )
        yield (first, second), names, statistics
