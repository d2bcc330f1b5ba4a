"""Do intervals of present values hold for persons who all have the same age at the origin?

    python -m studies.lifetimes_by_age REGISTER [--years 1,3,5,10,20] [--bundle bundles/small]
        [--persons N] [--paths 100] [--seed 0] [--report FILE]

A lifetime to age 64 that covers the next K years has its origin at age 64 - K, but the thresholds
of present values over K years were fitted on persons of all ages. REGISTER is a generated register;
if the bundle was trained on it, only test persons take part. The intervals are compared with
outcomes inside the panel's years, from two kinds of origins: all persons at age 64 - K, and one
drawn origin a person, as in calibration. Standard errors are over persons; they ignore that persons
of one year share its shocks.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.published_sets import value_intervals
from saga.data.origins import Origins, draw_origins, eligible_origins, history, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import unseen_persons
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.lifetime import present_value, realised_value
from saga.pages.format import markdown_table
from saga.requests import MAX_HORIZON, RATE, Draws
from saga.schema import MAX_AGE
from studies.study_page import bundle_parser, page_head, publish_page


def main() -> None:
    """Print the table of coverage."""
    parser = bundle_parser(__doc__, n_persons=None, n_paths=100)
    parser.add_argument("register", type=Path)
    parser.add_argument("--years", default="1,3,5,10,20")
    args = parser.parse_args()
    forecaster, panel = Forecaster.load(args.bundle), read_panel(args.register)
    panel = unseen_persons(panel, forecaster.bundle.panel_id)
    key = ("last-years", panel.meta.panel_id)
    panel = panel.only(sample_persons(panel.persons(), args.persons, *key))
    draws, rows = Draws(args.paths, args.seed), []
    for years in (int(text) for text in args.years.split(",")):
        origins_by_row = {
            f"age {MAX_AGE - years}": origins_at_age(panel, MAX_AGE - years),
            "drawn": draw_origins(panel, max_horizon=MAX_HORIZON, seed=args.seed),
        }
        for label, origins in origins_by_row.items():
            inside = value_inside(forecaster, panel, origins, years, draws)
            share = inside.mean(axis=0)
            error = np.sqrt(share * (1 - share) / len(inside))
            shares = [f"{100 * s:.1f} ± {100 * e:.1f}" for s, e in zip(share, error, strict=True)]
            rows.append([str(years), label, f"{len(inside):,}", *shares])
    header = ["K", "origin", "persons", *(f"{c:.0%}" for c in forecaster.calibrator.coverage)]
    head = page_head(
        "Lifetimes that start at one age",
        __file__,
        bundle=forecaster.bundle.digest[:12],
        register=panel.meta.panel_id,
    )
    publish_page(f"{head}\n\n{markdown_table(header, rows)}", args.report)


def origins_at_age(panel: Panel, age: int) -> Origins:
    """Origins of all eligible persons in the year of this age."""
    return Origins.from_rows(eligible_origins(panel, ages=(age, age)))


def value_inside(
    forecaster: Forecaster, panel: Panel, origins: Origins, years: int, draws: Draws
) -> NDArray[np.bool_]:
    """Whether the value of the next `years` lies in its interval, (n, n_coverage).

    n counts the persons of `origins` with outcomes in all these years.
    """
    value = realised_value(realised_earnings(panel, origins, range(1, years + 1)), rate=RATE)
    observed = ~np.isnan(value)
    origins = origins.take(observed)
    outcome = dict(zip(origins.person_id.tolist(), value[observed].tolist(), strict=True))
    coverage, inside = forecaster.calibrator.coverage, []
    for block in forecaster.blocks(history(panel, origins), draws, to_horizon=years):
        values = SimulatedValues.of(block, partial(present_value, years=years))
        n_years = np.full(len(block), years)
        interval = value_intervals(forecaster.calibrator, values, n_years, coverage, RATE)
        y = np.array([outcome[person] for person in block.person_id.tolist()])[:, None]
        inside.append((interval.lower <= y) & (y <= interval.upper))
    return np.concatenate(inside)


if __name__ == "__main__":
    main()
