"""Lifetimes to age 64 start at one age: whether thresholds that were fitted on people of all ages hold there.

    python -m studies.lifetimes_by_age REGISTER [--years 1,3,5,10,20] [--bundle bundles/small] [--persons N] [--paths 100] [--seed 0]

REGISTER is a generated register of another seed than the bundle's; of the bundle's own only the test persons are asked. The value of the
next K years is judged inside the panel's years, once for everybody at age 64 - K and once from one drawn origin each, as in calibration.
Standard errors are of the persons drawn; they do not know that persons of one year share its shocks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saga.conformal.present_value import value_intervals
from saga.data.origins import Origins, draw_origins, eligible_origins, history, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import unseen_persons
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each
from saga.lifetime import present_value, realised_value
from saga.requests import MAX_HORIZON, RATE, Draws
from saga.schema import MAX_AGE
from studies.harness import code_commit, command_line, study_parser


def main() -> None:
    """Prints the table."""
    parser = study_parser(__doc__, n_persons=None, n_paths=100)
    parser.add_argument("register", type=Path)
    parser.add_argument("--years", default="1,3,5,10,20")
    args = parser.parse_args()
    forecaster, panel = Forecaster.load(args.bundle), read_panel(args.register)
    panel = some(unseen_persons(panel, forecaster.bundle.split["panel_id"]), args.persons)
    levels = forecaster.calibrator.coverage
    print(
        f"`{command_line(__file__)}`\nCommit {code_commit()}, bundle {forecaster.bundle.digest[:12]}, register {panel.meta.panel_id}\n"
    )
    print(
        f"| K | who | persons | {' | '.join(f'{100 * level:g} %' for level in levels)} |\n|---|---|---|{'---|' * len(levels)}"
    )
    for years in (int(text) for text in args.years.split(",")):
        drawn = draw_origins(panel, max_horizon=MAX_HORIZON, seed=args.seed)
        for who, origins in (
            (f"age {MAX_AGE - years}", at_age(panel, MAX_AGE - years)),
            ("drawn", drawn),
        ):
            inside = held(forecaster, panel, origins, years, paths=args.paths, seed=args.seed)
            share = inside.mean(axis=0)
            error = np.sqrt(share * (1 - share) / len(inside))
            cells = (f"{100 * s:.1f} ± {100 * e:.1f}" for s, e in zip(share, error, strict=True))
            print(f"| {years} | {who} | {len(inside):,} | {' | '.join(cells)} |", flush=True)


def some(panel: Panel, persons: int | None) -> Panel:
    """A keyed choice of `persons` of the panel's (None: everybody)."""
    ids = panel.persons()
    order = np.argsort(uniform_each(ids, "last-years", panel.meta.panel_id))
    return panel.only(sorted(ids[i] for i in order[:persons]))


def at_age(panel: Panel, age: int) -> Origins:
    """Everybody with enough of a record at this age, in the year they had it."""
    rows = eligible_origins(panel, ages=(age, age))
    return Origins(
        np.array(rows["person_id"].to_list(), dtype=np.str_),
        rows["year"].to_numpy().astype(np.int64),
    )


def held(
    forecaster: Forecaster, panel: Panel, origins: Origins, years: int, *, paths: int, seed: int
) -> NDArray[np.bool_]:
    """Whether the value of the next `years` lies in its interval, (n, L); n: those of `origins` who could be followed so long."""
    truth = realised_value(realised_earnings(panel, origins, range(1, years + 1)), rate=RATE)
    followed = ~np.isnan(truth)
    origins, found = (
        origins.take(followed),
        dict(zip(origins.person_id[followed].tolist(), truth[followed].tolist(), strict=True)),
    )
    inside = []
    for block in forecaster.blocks(history(panel, origins), Draws(paths, seed), to_horizon=years):
        values, reached = present_value(block, years=years), np.full(len(block), years)
        given = value_intervals(
            forecaster.calibrator, values, reached, forecaster.calibrator.coverage, RATE
        )
        came = np.array([found[person] for person in block.person_id.tolist()])[:, None]
        inside.append((given.lower <= came) & (came <= given.upper))
    return np.concatenate(inside)


if __name__ == "__main__":
    main()
