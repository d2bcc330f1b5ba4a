"""Ten example persons: their record and what a reader of the forecast sees.

If the panel is a generated register, they are test persons, drawn by a keyed rule from ten kinds.
Otherwise the records are invented, so that no person of the panel is shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from saga.calibration.diagnostics.person_results import Rows

from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.forecast_tables import percent_label
from saga.forecaster import Forecaster
from saga.keyed_random import sample_rows

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
    """Ten invented records in the panel's money, which end in the panel's last year."""
    end, rows, kinds = last_year(panel), list[dict[str, Any]](), {}
    for i, (kind, (age, multiples)) in enumerate(INVENTED.items()):
        person = f"example-{i}"
        kinds[person] = kind
        rows += [
            {
                "person_id": person,
                "year": end - len(multiples) + 1 + j,
                "birth_year": end - age,
                "earnings": None if multiple is None else multiple * usual_earnings,
            }
            for j, multiple in enumerate(multiples)
        ]
    meta = replace(panel.meta, present=(), simulated=True)
    return Panel.of(pl.DataFrame(rows), meta), kinds


def tabulate_example_persons(forecaster: Forecaster, examples: Examples) -> Rows:
    """One row per person and year: earnings of the record, or the forecast."""
    records, kinds = examples
    if not kinds:
        return []
    marginals = Marginals.joined(list(forecaster.marginals(records)))
    calibrator = forecaster.calibrator
    coverage = tuple(share for share in COVERAGE if share in calibrator.coverage)
    sets, median = calibrator.intervals(marginals, coverage), marginals.quantiles([0.5])[..., 0]
    row_of = {person: i for i, person in enumerate(marginals.person_id.tolist())}
    past = records.frame.partition_by("person_id", as_dict=True)
    rows: Rows = []
    for number, (person, kind) in enumerate(kinds.items(), start=1):
        i, birth_year = row_of[person], int(past[(person,)]["birth_year"][0])
        for year, earnings in past[(person,)].select("year", "earnings").iter_rows():
            row = {"person": number, "kind": kind, "year": year, "age": year - birth_year}
            rows.append(row | {"earnings": None if earnings is None else round(earnings)})
        for h in np.flatnonzero(marginals.exists[i]).tolist():
            year = int(marginals.origin_year[i]) + h + 1
            row = {"person": number, "kind": kind, "year": year, "age": year - birth_year}
            row |= {"horizon": h + 1, "p_zero": float(marginals.p_zero[i, h])}
            row["median"] = round(float(median[i, h]))
            for j, share in enumerate(coverage):
                ends = float(sets.lower[i, h, j]), float(sets.upper[i, h, j])
                if not np.isnan(ends[0]):
                    label = percent_label(share)
                    row |= {f"lower_{label}": round(ends[0]), f"upper_{label}": round(ends[1])}
            rows.append(row)
    return rows
