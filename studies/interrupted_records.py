"""Is `p_zero` right for persons whose records have interruptions, and how rare are they?

    python -m studies.interrupted_records REGISTER [--bundle bundles/small]
        [--origins 2007,2012,2017,2021] [--years 17] [--report FILE]

REGISTER is a generated register of another seed than the bundle's. An interruption is one or more
years without earnings between two years with earnings, from age 25 on and within `--years` years up
to the origin. Records have 10 or more known years there, and earnings in the year of the origin.
The tables compare the forecast probability of no earnings in the next year with the share of
persons who had none, for whole records and for those of earnings, age and sex. ± is the standard
error if the forecasts are right: errors of one person in different years are then uncorrelated. It
does not contain that persons share the economy of a year.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.groups import reduce_to_profile
from saga.data.origins import Origins, history, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.rules import find_ineligible, keep_eligible
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table
from saga.schema import MAX_AGE
from studies.study_page import page_head, publish_page, study_parser

Array = NDArray[np.float64]
FIRST_AGE = 25  # years of study before are no interruptions
MIN_KNOWN = 10
PROFILES = {"register": "Whole records", "earnings": "Earnings, age and sex"}
_COUNT, _SINGLE = pl.col("interruptions"), pl.col("interruptions") == pl.col("zeros")
GROUPS: Mapping[str, pl.Expr] = {
    "none": _COUNT == 0,
    "1": _COUNT == 1,
    "2": _COUNT == 2,
    "3": _COUNT == 3,
    "4 or more": _COUNT >= 4,
    "2 or more": _COUNT >= 2,
    "2 or more, of one year each": (_COUNT >= 2) & _SINGLE,
    "3 or more, of one year each": (_COUNT >= 3) & _SINGLE,
    "4 or more, of one year each": (_COUNT >= 4) & _SINGLE,
}


def main() -> None:
    """Print one table for each kind of record."""
    parser = study_parser(__doc__)
    parser.add_argument("register", type=Path)
    parser.add_argument("--bundle", type=Path, default=Path("bundles/small"))
    parser.add_argument("--origins", default="2007,2012,2017,2021")
    parser.add_argument("--years", type=int, default=17)
    parser.add_argument("--report", type=Path, help="Markdown file to write as well.")
    args = parser.parse_args()
    forecaster, panel = Forecaster.load(args.bundle), read_panel(args.register)
    parts = [
        page_head(
            "Chance of no earnings after interruptions",
            __file__,
            bundle=forecaster.bundle.digest[:12],
            register=panel.meta.panel_id,
        )
    ]
    origins = [int(year) for year in args.origins.split(",")]
    header = ["interruptions", "records", "share, %", "mean p_zero, %", "without earnings, %"]
    for profile, title in PROFILES.items():
        records = judged_records(forecaster, panel, origins, args.years, profile)
        rows = [
            [name, *compare(records.filter(group)).cells(len(records))]
            for name, group in GROUPS.items()
        ]
        parts += [f"## {title}", markdown_table(header, rows)]
    publish_page("\n\n".join(parts), args.report)


def count_interruptions(panel: Panel, origin: int, years: int) -> pl.DataFrame:
    """The records of one origin: `person_id`, `interruptions`, `zeros` (their years)."""
    rows = panel.frame.filter(
        pl.col("earnings").is_not_null(),
        pl.col("year").is_between(origin - years + 1, origin),
        pl.col("year") - pl.col("birth_year") >= FIRST_AGE,
    ).select("person_id", "birth_year", "year", zero=pl.col("earnings") == 0)
    after = (~pl.col("zero")).cum_sum().over("person_id") > 0  # of the first year with earnings
    begins = pl.col("zero") & ~pl.col("zero").shift(1, fill_value=True).over("person_id")
    marked = rows.with_columns(after=after, begins=begins)
    records = marked.group_by("person_id", maintain_order=True)
    return (
        records.agg(
            pl.col("birth_year").first(),
            known=pl.len(),
            last=pl.col("year").last(),
            ends_zero=pl.col("zero").last(),
            interruptions=pl.col("begins").sum(),
            zeros=(pl.col("zero") & pl.col("after")).sum(),
        )
        .filter(
            pl.col("known") >= MIN_KNOWN,
            pl.col("last") == origin,
            ~pl.col("ends_zero"),
            origin - pl.col("birth_year") < MAX_AGE,
        )
        .select("person_id", "interruptions", "zeros")
    )


def judged_records(
    forecaster: Forecaster, panel: Panel, origins: Sequence[int], years: int, profile: str
) -> pl.DataFrame:
    """The records of all origins with `p_zero` of the next year and whether it was `zero`."""
    return pl.concat(
        _judged(forecaster, panel, count_interruptions(panel, year, years), year, profile)
        for year in origins
    )


def _judged(
    forecaster: Forecaster, panel: Panel, records: pl.DataFrame, origin: int, profile: str
) -> pl.DataFrame:
    at = Origins.from_rows(records.select("person_id", year=pl.lit(origin, pl.Int32)))
    outcomes = pl.DataFrame(
        {"person_id": records["person_id"], "earnings": realised_earnings(panel, at, [1])[:, 0]}
    ).filter(pl.col("earnings").is_not_nan())
    past = reduce_to_profile(history(panel, at), profile)
    past = keep_eligible(past, find_ineligible(past))
    forecasts = pl.concat(_probabilities(forecaster, past))
    joined = records.join(outcomes, on="person_id").join(forecasts, on="person_id")
    return joined.with_columns(zero=pl.col("earnings") == 0).drop("earnings")


def _probabilities(forecaster: Forecaster, past: Panel) -> Iterator[pl.DataFrame]:
    for block in forecaster.marginals(past, n_horizons=1):
        p_zero = block.p_zero[:, 0].astype(np.float64)
        yield pl.DataFrame({"person_id": block.person_id.tolist(), "p_zero": p_zero})


@dataclass(frozen=True)
class Comparison:
    """Records, the mean `p_zero`, the share without earnings and its standard error."""

    records: int
    forecast: float
    share: float
    error: float

    def cells(self, all_records: int) -> list[str]:
        """The row of a table."""
        shares = (self.records / all_records, self.forecast)
        return [
            f"{self.records:,}",
            *(f"{100 * share:.2f}" for share in shares),
            f"{100 * self.share:.2f} ± {100 * self.error:.2f}",
        ]


def compare(records: pl.DataFrame) -> Comparison:
    """The forecasts and outcomes of records (`p_zero`, `zero`)."""
    n = len(records)
    if n == 0:
        return Comparison(0, np.nan, np.nan, np.nan)
    p_zero, zero = (records[name].cast(pl.Float64).to_numpy() for name in ("p_zero", "zero"))
    error = np.sqrt((p_zero * (1 - p_zero)).sum()) / n
    return Comparison(n, float(p_zero.mean()), float(zero.mean()), float(error))


if __name__ == "__main__":
    main()
