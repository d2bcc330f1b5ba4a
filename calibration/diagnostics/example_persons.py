"""Example persons: their record and what a reader of the forecast sees.

If the panel is a generated register, they are test persons, drawn by a keyed rule from ten kinds.
Otherwise at most ten records are invented, so that no person of the panel is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from saga.calibration.diagnostics.person_results import Rows

from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.diagnostics_tables import TABLES
from saga.errors import InputError
from saga.forecaster import Forecaster
from saga.keyed_random import sample_rows
from saga.requests import MAX_HORIZON, ForecastRequest
from saga.schema import MAX_AGE, MIN_AGE

COVERAGE = (0.5, 0.8, 0.9)  # of the sets that are drawn
# Records up to each origin, and person_id -> kind, in the order of the report.
Examples = tuple[Panel, dict[str, str]]
_AGE, _KNOWN, _ZEROS = pl.col("age"), pl.col("n_known"), pl.col("n_zero")
# Kind -> persons of that kind, by what is known at the origin. A person is shown once.
KINDS: dict[str, pl.Expr] = {
    "First years of work": _AGE <= 24,
    "Short record": (_KNOWN <= 5) & (_AGE >= 28),
    "Steady earnings": _AGE.is_between(35, 50)
    & (_KNOWN >= 10)
    & (_ZEROS == 0)
    & (pl.col("largest_change") < 0.25),
    "High earnings": (pl.col("quintile") == "5") & _AGE.is_between(35, 55),
    "Low earnings": (pl.col("quintile") == "1") & (pl.col("last") > 0) & _AGE.is_between(28, 55),
    "No earnings in the last year": (pl.col("last") == 0) & (_ZEROS <= 2) & (_KNOWN >= 6),
    "Many years without earnings": (_ZEROS >= 6) & (_ZEROS >= 0.6 * _KNOWN),
    "In and out of work": (pl.col("n_switches") >= 3) & (_ZEROS >= 2),
    "Close to retirement": _AGE >= 56,
    "Born abroad": pl.col("birth_region").is_in(["europe", "elsewhere"]) & (_KNOWN >= 5),
}
# Kind -> age in the last year, and earnings up to it as multiples of the panel's usual earnings.
INVENTED: dict[str, tuple[int, tuple[float | None, ...]]] = {
    "First years of work": (22, (0.1, 0.25, 0.3, 0.6)),
    "Short record": (31, (0.9, 0.95, 1.0)),
    "Steady earnings": (43, (0.95, 0.97, 1.0, 1.0, 1.03, 1.05, 1.06, 1.1, 1.12, 1.15)),
    "High earnings": (48, (1.9, 2.0, 2.2, 2.4, 2.5, 2.8, 3.0, 3.1, 3.3, 3.4)),
    "Low earnings": (36, (0.35, 0.3, 0.4, 0.38, 0.3, 0.42, 0.4, 0.36)),
    "No earnings in the last year": (39, (0.8, 0.85, 0.9, 0.9, 0.95, 0.4, 0.0)),
    "Many years without earnings": (45, (0.5, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
    "In and out of work": (34, (0.6, 0.0, 0.4, 0.7, 0.0, 0.0, 0.5, 0.0, 0.6)),
    "Close to retirement": (60, (1.1, 1.15, 1.1, 1.2, 1.2, 1.15, 1.1, 1.05)),
    "Gaps in the record": (33, (0.6, 0.7, None, None, 0.8, None, 0.9, 0.95)),
}


# Kinds that are about an age; the other records are moved to the nearest age that the panel has.
AT_THEIR_AGE = ("First years of work", "Close to retirement")


def draw_example_persons(records: Panel, groups: pl.DataFrame, seed: int) -> Examples:
    """One simulated person of each kind, by a keyed rule; kinds without a person are left out.

    `groups` has the labels of each person. Raises ValueError if the panel is not a generated
    register, because real persons must not be shown.
    """
    if not records.meta.simulated:
        raise ValueError("example persons are drawn from simulated panels only")
    earnings = pl.col("earnings")
    features = (
        records.frame.drop_nulls("earnings")
        .sort("person_id", "year")
        .group_by("person_id", maintain_order=True)
        .agg(
            (pl.col("year").last() - pl.col("birth_year").last()).alias("age"),
            pl.len().alias("n_known"),
            (earnings == 0).sum().alias("n_zero"),
            earnings.last().alias("last"),
            (earnings == 0).cast(pl.Int32).diff().abs().sum().alias("n_switches"),
            (earnings.diff() / earnings).abs().max().alias("largest_change"),
        )
        .join(groups, on="person_id", suffix="_group")
    )
    kinds: dict[str, str] = {}
    for kind, condition in KINDS.items():
        ids = features.filter(condition)["person_id"].to_list()
        ids = [person for person in ids if person not in kinds]
        for row in sample_rows(ids, 1, "example", records.meta.panel_id, seed, kind):
            kinds[ids[row]] = kind
    return records.only(list(kinds)), kinds


def invent_persons(panel: Panel, usual_earnings: float) -> Examples:
    """Invented records in the panel's money, in its last years and at ages that it has.

    A kind that the panel does not have is left out: an age of which nobody is in the last year,
    or that nobody has outlived, years without earnings, gaps.
    """
    known = panel.frame.drop_nulls("earnings").with_columns(
        age=pl.col("year") - pl.col("birth_year")
    )
    years, end = known["year"].unique().sort().to_list(), last_year(panel)
    of_last_year = pl.col("year").eq(end) & pl.col("age").is_between(MIN_AGE, MAX_AGE - 1)
    ages = known.filter(of_last_year, pl.col("age") < pl.col("age").max())["age"].unique().to_list()
    youngest = known["age"].min()
    has = {0.0: bool((known["earnings"] == 0).any()), None: _has_gaps(known, years)}
    rows, kinds = list[dict[str, Any]](), dict[str, str]()
    for i, (kind, (age, multiples)) in enumerate(INVENTED.items()):
        nearest = min(ages, key=lambda each: abs(each - age), default=None)
        if nearest is None or not all(has.get(multiple, True) for multiple in multiples):
            continue
        if kind in AT_THEIR_AGE and abs(nearest - age) > 2:
            continue
        person = f"example-{i}"
        kinds[person] = kind
        birth_year = end - nearest
        record = zip(reversed(years), reversed(multiples), strict=False)
        rows += [
            {
                "person_id": person,
                "year": year,
                "birth_year": birth_year,
                "earnings": None if multiple is None else multiple * usual_earnings,
            }
            for year, multiple in reversed(list(record))
            if year - birth_year >= youngest
        ]
    if not kinds:
        return panel.only([]), kinds
    meta = replace(panel.meta, present=(), simulated=True)
    return Panel.of(pl.DataFrame(rows), meta), kinds


def _has_gaps(known: pl.DataFrame, years: Sequence[int]) -> bool:
    """Whether earnings of a person are unknown in one of the panel's years between known ones."""
    position = pl.col("year").replace_strict(years, range(len(years)), return_dtype=pl.Int64)
    spans = known.group_by("person_id").agg(span=position.max() - position.min() + 1, n=pl.len())
    return bool((spans["span"] > spans["n"]).any())


def tabulate_example_persons(forecaster: Forecaster, examples: Examples) -> Rows:
    """One row per person and year: earnings of the record, or the forecast as a user gets it."""
    records, kinds = examples
    if not kinds:
        return []
    coverage = tuple(share for share in COVERAGE if share in forecaster.calibrator.coverage)
    horizons = range(1, MAX_HORIZON + 1)
    request = ForecastRequest(horizons=horizons, coverage=coverage or COVERAGE, quantiles=(0.5,))
    try:
        ahead = forecaster.forecast(records, request).table.rename({"q50": "median"})
    except InputError:  # nobody can be forecast, as at the last age of the training records
        return []
    past = records.frame.select("person_id", "year", pl.col("earnings").round())
    born = records.frame.group_by("person_id").agg(pl.col("birth_year").first())
    kind = pl.DataFrame({"person_id": list(kinds), "kind": list(kinds.values())})
    people = (
        pl.concat([past, ahead], how="diagonal_relaxed")
        .join(kind.with_row_index("person", offset=1), on="person_id")
        .join(born, on="person_id")
        .join(ahead.select("person_id").unique(), on="person_id", how="semi")
        .with_columns(age=pl.col("year") - pl.col("birth_year"))
        .sort("person", "year")
    )
    columns = [name for name in TABLES["people"].columns if name in people.columns]
    return people.select(columns).to_dicts()
