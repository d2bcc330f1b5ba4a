"""The model's own error of group statistics, from drawn histories that judges do not use.

    python -m studies.history_errors BUNDLE [--histories 20] [--futures 2] [--persons 4000]
        [--paths 200] [--seed 0] [--out build/history_errors] [--store]

Each history is a register of its own economy and trends (`studies.group_futures`), from number
`FOR_TRAINING` + 1000 on: it resamples the countries of the training histories, and the network has
not seen it. Persons of 20 to 60 in 2022 are forecast, told the macro series of each future, so that
what bands do not know is the model's. With --store the errors become the bundle's vintages, one a
history. Finished histories are kept in --out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
from saga.evaluation.report.vintage_table import describe_vintages
from saga.evaluation.scoring.futures import true_futures
from saga.evaluation.vintages import store_vintages

from saga.bundle import Bundle
from saga.data.origins import Origins, cut, history, origins_at
from saga.data.reading import read_panel
from saga.files.atomic import commit, digest_json
from saga.forecaster import Forecaster
from saga.population.group_errors import judge_groups
from saga.population.growth_rule import GrowthRule
from saga.population.scored_paths import last_known
from saga.register import RegisterSettings, generate_register
from saga.register.simulation.realised_trends import FOR_TRAINING
from saga.requests import Draws
from studies.group_futures import HORIZONS, LAST_YEAR, in_history
from studies.study_page import command_line, say, study_parser
from studies.unemployment_response import true_scenarios

FIRST = FOR_TRAINING + 1_000
YEARS = (*HORIZONS, 30)
BY = ("sex", "education_level", "age")


def errors_of(
    forecaster: Forecaster, directory: Path, number: int, draws: Draws
) -> Iterator[pl.DataFrame]:
    """The errors (`judge_groups`) in each future of history `number`."""
    panel = read_panel(directory)
    origins = origins_at(panel, LAST_YEAR)
    past, here = history(panel, origins), in_history(forecaster, panel, number)
    people, rule = last_known(past, BY), GrowthRule.fit(cut(panel, LAST_YEAR))
    scenarios = true_scenarios(directory)
    paths_of = {
        future: here.simulate(past, replace(draws, scenario=known), to_horizon=max(YEARS))
        for future, known in scenarios.items()
    }
    ids = next(iter(paths_of.values()))
    order = Origins(ids.person_id, ids.origin_year)
    for future, outcomes in true_futures(directory, order, YEARS, price_year=panel.meta.price_year):
        yield judge_groups(paths_of[future], outcomes, people, rule, YEARS, BY)


def main() -> None:
    """Run the study."""
    parser, sizes = study_parser(__doc__), {"histories": 20, "futures": 2, "persons": 4000}
    parser.add_argument("bundle", type=Path)
    for name, value in {**sizes, "paths": 200, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path, default=Path("build/history_errors"))
    parser.add_argument("--store", action="store_true", help="Store them in the bundle.")
    args = parser.parse_args()
    bundle, parts = Bundle.load(args.bundle), []
    forecaster = Forecaster(bundle)
    numbers = (args.persons, args.futures, args.paths, args.seed)
    folder = args.out / digest_json([bundle.digest, *numbers])[:12]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FIRST + args.seed, FIRST + args.seed + args.histories):
        file = folder / f"history-{number}.parquet"
        if not file.exists():
            settings = RegisterSettings(
                args.persons,
                number,
                future_to=LAST_YEAR + max(YEARS),
                future_draws=args.futures,
                history=number,
            )
            with tempfile.TemporaryDirectory() as scratch:
                generate_register(Path(scratch), settings)
                draws = Draws(args.paths, args.seed)
                errors = pl.concat(errors_of(forecaster, Path(scratch), number, draws))
            numbered = errors.select(
                pl.lit(number).alias("history"), pl.lit(LAST_YEAR).alias("cutoff"), pl.all()
            )
            commit(file, numbered.write_parquet)
        parts.append(pl.read_parquet(file))
        say(f"  history {len(parts)} of {args.histories}")
    errors = pl.concat(parts)
    print(describe_vintages(errors))
    if args.store:
        store_vintages(errors, args.bundle, bundle.panel_id, command_line(__file__))


if __name__ == "__main__":
    main()
