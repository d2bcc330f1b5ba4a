"""The model's own error of group statistics, from drawn histories that judges do not use.

    python -m studies.history_errors BUNDLE [--histories 20] [--futures 2] [--persons 16000]
        [--paths 200] [--seed 0] [--out build/history_errors] [--store]

Each history is a register of its own economy and trends (`studies.group_futures`), from number
`FOR_TRAINING` + 1000 on: it resamples the countries of the training histories, and the network has
not seen it. Every fourth person of 20 to 60 in 2022 is forecast, told what bands draw: the macro
series of each future, and the ratios of groups among the other persons (`studies.told_bias`). What
is still wrong is the model's. With --store the errors become the bundle's vintages, one a history.
Finished histories are kept in --out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from saga.calibration.diagnostics.simple_rules import GrowthRule
from saga.evaluation.group_errors import judge_groups
from saga.evaluation.report.vintage_table import describe_vintages
from saga.evaluation.scoring.futures import true_futures
from saga.evaluation.vintages import store_vintages

from saga.bundle import Bundle
from saga.data.origins import Origins, cut, history, origins_at
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.population.scored_paths import last_known
from saga.register.simulation.realised_trends import FOR_TRAINING
from saga.requests import Draws
from studies.group_futures import (
    HORIZONS,
    LAST_YEAR,
    history_parser,
    in_history,
    judge_histories,
    true_scenarios,
)
from studies.study_page import command_line
from studies.told_bias import told_futures

FIRST = FOR_TRAINING + 1_000
BY = ("sex", "education_level", "age")
JUDGED = 4  # one person in so many is judged; the others tell the ratios of groups


def errors_of(
    forecaster: Forecaster, directory: Path, number: int, draws: Draws
) -> Iterator[pl.DataFrame]:
    """The errors (`judge_groups`) in each future of history `number`."""
    panel = read_panel(directory)
    origins, here = origins_at(panel, LAST_YEAR), in_history(forecaster, panel, number)
    is_judged = np.arange(len(origins)) % JUDGED == 0
    judged, others = origins.take(is_judged), origins.take(~is_judged)
    past, groups = history(panel, judged), here.model.groups
    people, rule = last_known(past, BY), GrowthRule.fit(cut(panel, LAST_YEAR))
    if groups is None:  # these persons are too few for an economy of groups
        scenarios = true_scenarios(directory)
    else:
        scenarios = told_futures(panel, directory, others, groups.trends)
    paths_of = {
        future: here.simulate(past, replace(draws, scenario=known), to_horizon=max(HORIZONS))
        for future, known in scenarios.items()
    }
    ids = next(iter(paths_of.values()))
    order = Origins(ids.person_id, ids.origin_year)
    for future, outcomes in true_futures(
        directory, order, HORIZONS, price_year=panel.meta.price_year
    ):
        yield judge_groups(paths_of[future], outcomes, people, rule, HORIZONS, BY)


def main() -> None:
    """Run the study."""
    parser = history_parser(__doc__, "build/history_errors", futures=2, persons=16000)
    parser.add_argument("--store", action="store_true", help="Store them in the bundle.")
    args = parser.parse_args()
    bundle = Bundle.load(args.bundle)
    forecaster = Forecaster(bundle)

    def judge_one(register: Path, number: int, draws: Draws) -> pl.DataFrame:
        errors = pl.concat(errors_of(forecaster, register, number, draws))
        return errors.select(pl.lit(LAST_YEAR).alias("cutoff"), pl.all())

    until = LAST_YEAR + max(HORIZONS)
    errors = judge_histories(args, [bundle.digest], FIRST + args.seed, until, judge_one)
    print(describe_vintages(errors))
    if args.store:
        store_vintages(errors, args.bundle, bundle.panel_id, command_line(__file__))


if __name__ == "__main__":
    main()
