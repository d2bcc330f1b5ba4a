"""Does the simulated cross-section drift: Gini, quantiles, zeros, volatility, mobility of the paths beside the register's true futures.

    python -m studies.cross_section_drift --register DIR [--bundle bundles/small] [--persons 5000] [--paths 100] [--raw] --out DIR

DIR is a generated register with futures (`saga register generate --future-to 2052 --future-draws 20`); the paths are calibrated unless
--raw is given. Writes cross_section.parquet (a row a statistic and year), the same for the model told the register's economies, as many
paths in all (told.parquet), what unemployment does there (responses.parquet), cross_section.md with all three, and cross_section.html.
Exit 1 where a statistic fails in the model's own economies.
"""

from __future__ import annotations

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
    Persons,
    as_markdown,
    compare,
    differences,
    followed,
    simulated,
    true,
    verdicts,
)
from studies.cross_section_page import write_page
from studies.harness import code_commit, command_line, study_parser
from studies.unemployment_response import as_markdown as response_markdown
from studies.unemployment_response import responses, told, true_scenarios, true_unemployment

SHOWN = (1, 2, 5, 10, 15, 20, 25, 30)
TOLD = "Drift of the people apart from that of the economy: the model told the register's own economies, model less truth (± standard error)."


def in_economies(
    forecaster: Forecaster,
    who: Persons,
    scenarios: Mapping[int, Scenario],
    years: int,
    each: int,
    seed: int,
    *,
    calibrated: bool,
) -> dict[int, NDArray[np.float32]]:
    """`each` paths (n, years, each) in every economy. They are calibrated all together: maps move ranks, and few paths have few."""
    drawn = [
        forecaster.simulate(
            who.past,
            Draws(each, seed + i, scenario),
            to_horizon=years,
            recalibrate=False,
        )
        for i, scenario in enumerate(scenarios.values())
    ]
    joined = drawn[0].with_earnings(np.concatenate([paths.earnings for paths in drawn], 2))
    if calibrated:
        joined = forecaster.calibrator.recalibrate(joined)
    return dict(zip(scenarios, np.split(joined.earnings, len(scenarios), 2), strict=True))


def main() -> int:
    """Simulates, measures, writes the files and prints the verdicts."""
    parser = study_parser(__doc__, n_persons=5_000, n_paths=100)
    parser.add_argument("--register", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--rollout",
        choices=["exact", "light"],
        help="how paths are carried; as the bundle was calibrated",
    )
    parser.add_argument(
        "--raw", action="store_true", help="the model's own paths, not the calibrated ones"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    about = json.loads((args.register / "register.json").read_text(encoding="utf-8"))
    if not about["future_to"]:
        parser.error(
            f"{args.register} has no futures: generate it with --future-to and --future-draws"
        )
    forecaster = Forecaster.load(args.bundle, workers=args.workers, rollout=args.rollout)
    panel = read_panel(args.register)
    who = followed(panel, trained_on=forecaster.bundle.split["panel_id"], persons=args.persons)
    years = about["future_to"] - about["years"][1]
    drawn = forecaster.simulate(
        who.past, Draws(args.paths, args.seed), to_horizon=years, recalibrate=not args.raw
    ).earnings
    last, process = about["years"][1], forecaster.process  # a bundle may know no economy
    economy = None if process is None else process.draw(args.seed, args.paths, last, last + years)
    wages = None if economy is None else np.exp(log_wage_index(economy[..., 1]))
    sections = pl.concat([simulated(who, drawn, wages=wages), true(who, args.register, years)])
    table = compare(sections)
    judged = verdicts(table)
    provenance = {
        "command": command_line(__file__),
        "commit": code_commit(),
        "bundle": forecaster.bundle.digest,
        "register": about["register_id"],
        "persons": f"{len(who.origins):,}",
        "futures": f"{args.paths} {'raw' if args.raw else 'calibrated'} paths ({forecaster.rollout}), {about['future_draws']} true futures",
    }
    args.out.mkdir(parents=True, exist_ok=True)
    table.write_parquet(args.out / "cross_section.parquet")
    page = as_markdown(judged, table, SHOWN, provenance)
    if economy is not None:
        scenarios = true_scenarios(args.register)
        each = max(4, args.paths // len(scenarios))

        answers = told(
            who,
            in_economies(
                forecaster, who, scenarios, years, each, args.seed, calibrated=not args.raw
            ),
        )
        same = pl.concat(
            [
                answers,
                sections.filter(pl.col("source") == "truth", pl.col("statistic") != "wages").select(
                    answers.columns
                ),
            ]
        )
        people = compare(same, paired=True)
        people.write_parquet(args.out / "told.parquet")
        page += f"\n{TOLD}\n\n{differences(verdicts(people), people, SHOWN)}"
        answered = responses(same, true_unemployment(args.register))
        answered.write_parquet(args.out / "responses.parquet")
        page += "\n" + response_markdown(answered)
    (args.out / "cross_section.md").write_text(page, encoding="utf-8")
    write_page(judged, table, args.out / "cross_section.html", provenance)
    print(page)
    return int((judged["verdict"] == "fails").any())


if __name__ == "__main__":
    sys.exit(main())
