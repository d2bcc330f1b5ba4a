"""Does the simulated cross-section drift over the years?

    python -m studies.cross_section_drift --register DIR [--bundle bundles/small] [--persons 5000]
        [--paths 100] [--rollout exact|light] [--raw] [--seed 0] [--workers 1] --out DIR
        [--report FILE]

Compares Gini, quantiles, zeros, volatility and mobility of the paths with the register's true
futures. DIR is a generated register with futures (`saga register generate --future-to 2052
--future-draws 20`). Paths are recalibrated unless --raw is given. Exit 1 if a statistic fails in
the model's own macro futures. Writes to --out:

    cross_section.parquet   one row per statistic and year
    conditioned.parquet     the same, conditioned on the register's macro futures
    responses.parquet       responses to unemployment
    cross_section.md        all three
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.macro.history import log_wage_index
from saga.macro.scenarios import Scenario
from saga.requests import Draws
from studies.cross_section import (
    FollowedPersons,
    compare,
    differences_markdown,
    follow_persons,
    judge,
    simulated_sections,
    to_markdown,
    true_sections,
)
from studies.study_page import bundle_parser, code_commit, command_line, publish_page
from studies.unemployment_response import (
    conditioned_sections,
    responses,
    true_scenarios,
    true_unemployment,
)
from studies.unemployment_response import to_markdown as response_markdown

SHOWN = (1, 2, 5, 10, 15, 20, 25, 30)
CONDITIONED = """Drift of the persons, separated from drift of macro: the model conditioned on
the register's own macro futures, model minus truth (± standard error)."""


def paths_in_macro_futures(
    forecaster: Forecaster,
    persons: FollowedPersons,
    scenarios: Mapping[int, Scenario],
    *,
    years: int,
    draws: Draws,
    recalibrate: bool,
) -> dict[int, NDArray[np.float32]]:
    """`draws.n_paths` paths (n, years, n_paths) in each macro future, the values of `scenarios`.

    Recalibrated paths follow the marginals conditioned on it.
    """
    return {
        number: forecaster.simulate(
            persons.past,
            Draws(draws.n_paths, draws.seed + i, scenario),
            to_horizon=years,
            recalibrate=recalibrate,
        ).earnings
        for i, (number, scenario) in enumerate(scenarios.items())
    }


def compare_under_true_macro(
    forecaster: Forecaster,
    persons: FollowedPersons,
    truth: pl.DataFrame,
    years: int,
    args: argparse.Namespace,
) -> str:
    """Compare paths and truth under the register's own macro futures, and write both tables.

    Args:
        forecaster: Forecaster of the bundle.
        persons: The persons compared.
        truth: Their true sections.
        years: Years after the origin.
        args: Options of the command.

    Returns:
        The tables as Markdown.
    """
    scenarios = true_scenarios(args.register)
    paths_by_draw = paths_in_macro_futures(
        forecaster,
        persons,
        scenarios,
        years=years,
        draws=Draws(max(4, args.paths // len(scenarios)), args.seed),
        recalibrate=not args.raw,
    )
    conditioned = conditioned_sections(persons, paths_by_draw)
    truth = truth.filter(pl.col("statistic") != "wages").select(conditioned.columns)
    sections = pl.concat([conditioned, truth])
    paired = compare(sections, paired=True)
    paired.write_parquet(args.out / "conditioned.parquet")
    slopes = responses(sections, true_unemployment(args.register))
    slopes.write_parquet(args.out / "responses.parquet")
    differences = differences_markdown(judge(paired), paired, SHOWN)
    return f"{CONDITIONED}\n\n{differences}\n{response_markdown(slopes)}"


def main() -> int:
    """Simulate, measure, write the files, print the page."""
    parser = bundle_parser(__doc__, n_persons=5_000, n_paths=100)
    parser.add_argument("--register", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rollout", choices=["exact", "light"])
    parser.add_argument("--raw", action="store_true", help="raw paths, without recalibration")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    description = json.loads((args.register / "register.json").read_text(encoding="utf-8"))
    if not description["future_to"]:
        parser.error(
            f"{args.register} has no futures: generate it with --future-to and --future-draws"
        )
    forecaster = Forecaster.load(args.bundle, workers=args.workers, rollout=args.rollout)
    persons = follow_persons(
        read_panel(args.register),
        trained_on=forecaster.bundle.panel_id,
        n_persons=args.persons,
    )
    last = description["years"][1]
    years = description["future_to"] - last
    draws = Draws(args.paths, args.seed)
    paths = forecaster.simulate(
        persons.past, draws, to_horizon=years, recalibrate=not args.raw
    ).earnings
    process = forecaster.process  # None if the bundle has no macro series
    macro_draws = (
        None if process is None else process.draw(args.seed, args.paths, last, last + years)
    )
    wages = None if macro_draws is None else np.exp(log_wage_index(macro_draws[..., 1]))
    truth = true_sections(persons, args.register, years)
    table = compare(pl.concat([simulated_sections(persons, paths, wages=wages), truth]))
    judged = judge(table)
    kind = "raw" if args.raw else "recalibrated"
    provenance = {
        "command": command_line(__file__),
        "commit": code_commit(),
        "bundle": forecaster.bundle.digest,
        "register": description["register_id"],
        "persons": f"{len(persons.origins):,}",
        "futures": f"{args.paths} {kind} paths ({forecaster.rollout}), "
        f"{description['future_draws']} true futures",
    }
    args.out.mkdir(parents=True, exist_ok=True)
    table.write_parquet(args.out / "cross_section.parquet")
    page = to_markdown(judged, table, SHOWN, provenance)
    if macro_draws is not None:
        page += "\n" + compare_under_true_macro(forecaster, persons, truth, years, args)
    publish_page(page, args.out / "cross_section.md", args.report)
    return int((judged["verdict"] == "fails").any())


if __name__ == "__main__":
    sys.exit(main())
