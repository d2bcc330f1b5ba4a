"""Simulated careers: groups that they give, and how they move beside those of the panel.

Groups are bands of base amounts, and fifths of career earnings. They are columns like those of life
courses, so that every table of groups, with its bands and its disclosure control, is also made by
them. Modellers validate careers by statistics of changes of log earnings over some years (GRID;
Guvenen, Pistaferri and Violante 2022), autocorrelations and mobility, of persons with earnings at
both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.data.facts import Facts
from saga.errors import UsageError
from saga.pensions.pension_rights import pensionable
from saga.pensions.pension_rules import SHIPPED_RULES, PensionLaw, pension_rule
from saga.population.disclosure import DisclosureRules
from saga.population.scored_paths import (
    BASE_AMOUNTS,
    BIRTH,
    CAREER_FIFTH,
    CAREER_GROUPS,
    PathRows,
)
from saga.requests import PensionSource

_MOST = np.full((1, 1), 1e12)  # earnings above every ceiling
_FIFTHS = tuple(f"career fifth {k}" for k in range(1, 6))
LAGS = (1, 5, 10)  # years between both ends
_GAUSSIAN = 2.91  # ratio of the quantile ranges of a normal distribution
_DIGITS = 4
_BAND = (0.05, 0.95)


def with_career_groups(
    paths: PathRows, by: Sequence[str], persons: pl.DataFrame, law: PensionLaw | None
) -> PathRows:
    """The paths with a column for each group of `CAREER_GROUPS` in `by`.

    - base_amounts: Pensionable earnings of the year in the bands of the pension `law`, in its index
      amounts; the last band is at the ceiling.
    - career_fifth: Fifth of the persons of a path who were born in the same year, by the sum of
      their simulated earnings, with the `weight` and `birth_year` of `persons`.
    """
    rows = paths.rows
    if law is not None:
        rows = _with_base_amounts(paths, law)
    if CAREER_FIFTH in by:
        career = rows.group_by("person_id", "path").agg(pl.col("earnings").sum().alias("sum"))
        known = persons.lazy().select("person_id", "weight", BIRTH)
        # Others have fewer or more years to come: of all, the oldest would be the poorest.
        alike = ("path", BIRTH)
        poorer = (pl.col("weight").cum_sum() - pl.col("weight") / 2).over(alike)  # and half oneself
        fifth = poorer * len(_FIFTHS) // pl.col("weight").sum().over(alike)
        # Sums of many weights have rounding errors.
        fifth = fifth.clip(upper_bound=len(_FIFTHS) - 1)
        # Collected once: each year that is read would sort the careers again.
        career = career.join(known, on="person_id").sort("path", "sum", "person_id")
        named = career.select(
            "person_id",
            "path",
            fifth.cast(pl.UInt8)
            .replace_strict(dict(enumerate(_FIFTHS)), return_dtype=pl.Enum(_FIFTHS))
            .alias(CAREER_FIFTH),
        )
        rows = rows.join(
            named.collect().lazy(), on=["person_id", "path"], how="left", maintain_order="left"
        )
    return PathRows(rows, paths.provenance) if set(by) & set(CAREER_GROUPS) else paths


def pension_law_of(paths: PathRows, facts: Facts) -> PensionLaw:
    """The pension rule of the currency of paths. Raises UsageError if there is none."""
    money = int(paths.provenance["price_year"]), str(paths.provenance["currency"])
    rules = map(PensionSource, SHIPPED_RULES)
    name = next((rule for rule in rules if pension_rule(rule).currency == money[1]), None)
    if name is None:
        raise UsageError(
            f"No pension rule is for {money[1]}, so there are no {BASE_AMOUNTS}. Use other groups."
        )
    return PensionLaw.of(name, facts, *money)


def pensionable_earnings(law: PensionLaw, year: int, earnings: Floats) -> Floats:
    """What the law counts of real earnings of a year, (n_person, n_path); real.

    After the last known year its amounts grow as they did on average: scored paths have no wages.
    """
    years = np.array([year])
    to_law = law.to_law(law.known_years(years))
    return pensionable(law, years, earnings * to_law, law.mean_wages(years)) / to_law


def _with_base_amounts(paths: PathRows, law: PensionLaw) -> pl.LazyFrame:
    """The rows with the band of what counts of each year's earnings."""
    years = np.array(paths.years)
    known = law.known_years(years)
    amounts = law.amount(law.rule.index, known, law.mean_wages(years))[:, 0] / law.to_law(known)
    ceilings = np.ravel([pensionable_earnings(law, year, _MOST) for year in paths.years])
    limits = [limit for limit in law.rule.bands if limit < (ceilings / amounts).min()]
    edges = np.column_stack([np.outer(amounts, limits), ceilings])
    bands = [f"{low:g}-{high:g}" for low, high in pairwise((0.0, *limits))]
    names = ["not pensionable", *bands, f"{limits[-1]:g}-ceiling", "ceiling"]

    def band(rows: pl.Series) -> pl.Series:
        of_rows, earnings = (rows.struct.field(name).to_numpy() for name in ("year", "earnings"))
        numbers = np.zeros(len(rows), dtype=np.uint8)
        for row in np.flatnonzero(np.isin(years, of_rows)).tolist():
            at = of_rows == years[row]
            counted = pensionable_earnings(law, paths.years[row], earnings[at])[0]
            numbers[at] = (counted > 0) + np.searchsorted(edges[row], counted, "right")
        return pl.Series(numbers)

    # Elementwise, so that a query for one year computes no others.
    numbers = pl.struct("year", "earnings").map_batches(band, pl.UInt8, is_elementwise=True)
    named = numbers.replace_strict(dict(enumerate(names)), return_dtype=pl.Enum(names))
    return paths.rows.with_columns(named.alias(BASE_AMOUNTS))


def _range(low: float, high: float) -> pl.Expr:
    change = pl.col("change")
    return change.quantile(high, "linear") - change.quantile(low, "linear")


# Statistic -> how it is computed of the changes of a path, and the share of persons beyond the
# outermost quantile that it uses (1: it uses none), who must be enough to be published.
_STATISTICS = {
    "p90_p10_change": (_range(0.1, 0.9), 0.1),
    "kelley_change": ((_range(0.5, 0.9) - _range(0.1, 0.5)) / _range(0.1, 0.9), 0.1),
    "crow_siddiqui_change": (_range(0.025, 0.975) / _range(0.25, 0.75) - _GAUSSIAN, 0.025),
    "autocorrelation": (pl.corr("before", "after"), 1.0),
    "rank_correlation": (pl.corr("before", "after", method="spearman"), 1.0),
}


def dynamics_table(
    paths: PathRows, records: pl.DataFrame | None, rules: DisclosureRules
) -> pl.DataFrame:
    """Statistics of simulated careers and, with `records`, of the observed ones.

    All years are pooled, from the first full one of the paths on. Columns: source (paths, panel),
    lag in years, statistic, persons, value (mean over paths), lower_90 and upper_90 over paths
    (null of the panel). The change statistics are the range from P10 to P90, Kelley's skewness and
    the excess kurtosis of Crow and Siddiqui; `fifth_1_to_2` is the share of the first fifth of a
    year's earnings that is in the second one later. Null with fewer persons than `rules` allow,
    also beyond the outermost quantile of a statistic, and in a fifth.
    """
    simulated = paths.rows.filter(pl.col("year") >= paths.full_years[0])
    sources = {"paths": simulated.select("person_id", "path", "year", "earnings")}
    if records is not None:
        observed = records.lazy().with_columns(path=pl.lit(0, pl.Int32))
        sources["panel"] = observed.select("person_id", "path", "year", "earnings")
    rows = [row for name, frame in sources.items() for row in _rows(name, frame, rules)]
    numbers = dict.fromkeys(("value", "lower_90", "upper_90"), pl.Float64)
    schema = {"source": pl.String, "lag": pl.Int32, "statistic": pl.String, "persons": pl.Int64}
    return pl.DataFrame(rows, schema={**schema, **numbers}, orient="row")


def _rows(
    source: str, careers: pl.LazyFrame, rules: DisclosureRules
) -> Iterator[tuple[object, ...]]:
    """The rows of one source, lag after lag."""
    logs = careers.filter(pl.col("earnings") > 0).select(
        "person_id", "path", pl.col("year").cast(pl.Int64), log=pl.col("earnings").log()
    )
    for lag in LAGS:
        ends = logs.with_columns(pl.col("year") - lag).rename({"log": "after"})
        pairs = logs.rename({"log": "before"}).join(ends, on=["person_id", "path", "year"])
        pairs = pairs.with_columns(change=pl.col("after") - pl.col("before"))
        by_path = pairs.group_by("path").agg(
            pl.col("person_id").n_unique().alias("persons"),
            *(statistic.alias(name) for name, (statistic, _) in _STATISTICS.items()),
        )
        statistics = by_path.collect()
        numbers = statistics["persons"].to_list()
        persons, base = min(numbers, default=0), rules.count_base
        published = round(persons / base) * base if persons >= rules.minimum else None
        values = {
            name: statistics[name].to_numpy() if persons * beyond >= rules.minimum else None
            for name, (_, beyond) in _STATISTICS.items()
        }
        values |= _mobility(pairs, rules.minimum, simulated=source == "paths") if persons else {}
        for name, of_paths in values.items():
            shown: list[float | None] = [None, None, None]
            if of_paths is not None:
                limits = np.quantile(of_paths, _BAND if source == "paths" else ())
                known = [round(float(number), _DIGITS) for number in (of_paths.mean(), *limits)]
                shown[: len(known)] = known
            yield (source, lag, name, published, *shown)


def _mobility(pairs: pl.LazyFrame, minimum: int, *, simulated: bool) -> dict[str, Floats | None]:
    """Shares of each fifth of a year's earnings that are in each fifth later, by path.

    None of a fifth that on a path has fewer than `minimum` persons; of the panel also if so few of
    them are in a later fifth.
    """
    fifth = (pl.col("before", "after").rank("min") - 1) * len(_FIFTHS) // pl.len()
    fifths = pairs.with_columns(fifth.over("path", "year"))
    n_paths = fifths.select(pl.col("path").max() + 1).collect().item()
    moved, behind = (np.zeros((n_paths, len(_FIFTHS), len(_FIFTHS))) for _ in range(2))
    of_cell = pl.len().alias("n"), pl.col("person_id").n_unique().alias("persons")
    cells = fifths.group_by("path", "before", "after").agg(of_cell).collect()
    at = tuple(cells.select("path", "before", "after").to_numpy().T)
    moved[at], behind[at] = cells["n"], cells["persons"]
    if simulated:  # where persons go is no record of theirs
        origins = fifths.group_by("path", "before").agg(of_cell).collect()
        behind[:] = 0
        behind[tuple(origins.select("path", "before").to_numpy().T)] = origins[["persons"]]
    is_unsafe = (behind < minimum) & ((behind > 0) | simulated)
    is_small = np.any(is_unsafe, axis=(0, 2)).tolist()
    shares = moved / np.maximum(moved.sum(-1, keepdims=True), 1)
    return {
        f"fifth_{k + 1}_to_{j + 1}": None if is_small[k] else shares[:, k, j]
        for k, j in np.ndindex(len(_FIFTHS), len(_FIFTHS))
    }
