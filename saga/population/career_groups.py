"""Groups that paths themselves give: bands of base amounts, and fifths of career earnings.

They are columns like those of life courses, so that every table of groups, with its bands and its
disclosure control, is also made by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.data.facts import Facts
from saga.errors import UsageError
from saga.pensions.pension_rights import pensionable
from saga.pensions.pension_rules import SHIPPED_RULES, PensionLaw, pension_rule
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
