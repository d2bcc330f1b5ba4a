"""Are group means right, if the economy is known? Bias told macro and groups, in true futures.

    python -m studies.told_bias BUNDLE [--persons 62000] [--futures 8] [--seed 0] [--json]

A register of --persons persons lives through Sweden's history, and has --futures drawn futures.
Persons of 20 to 60 in 2022, about half of all, are forecast told the macro series of each future
and the series of its economy of groups: the pay of women beside men, of levels of education, and
of ages 22 beside 62. They are estimated on the future's cross-sections, as those of the past are
(`saga.training.group_fit`). Nothing else is told, and nothing is aligned: how many work, the level
of the whole, and the groups by age and record that are judged. Means are those of marginals, so no
paths are drawn.

Bias is that of the sum over persons with an outcome, relative, over all futures. Standard errors
are clustered by person and by future (Cameron, Gelbach and Miller 2011, equation 2.12).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.scoring.futures import true_futures
from saga.training.group_fit import SETTLED_AGE, effects_of
from saga.training.panel_cells import BAND, LAST_AGE, cells_of

from saga.arrays import Floats
from saga.data.origins import Origins, history, origins_at
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.macro.group_trends import GroupTrends
from saga.macro.scenarios import Scenario
from saga.register import RegisterSettings, generate_register
from studies.group_futures import LAST_YEAR, members_of, true_scenarios
from studies.study_page import say, study_parser

HORIZONS = (1, 5, 10, 20)
SINCE = (10, 20)  # known years at which records of middle and great length begin


def told_ratios(
    trends: GroupTrends, now: pl.DataFrame, people: pl.DataFrame, outcomes: Floats
) -> dict[int, dict[str, float]]:
    """The ratios of the levels of each column to its first one in the years of outcomes (n, H).

    A year's effects are compared with those of the same ages in the last year of the records.

    Args:
        trends: The economy of groups.
        now: Age, levels and earnings of all persons of the last year.
        people: Age and levels of n persons in the last year. Those below 28 tell nothing, because
            their education is not finished.
        outcomes: Their later earnings, NaN if unknown.
    """
    columns = [column for column, _ in trends.columns if column != "age"]
    by = ["band", *columns]

    def cells(rows: pl.DataFrame, ages: tuple[int, int]) -> pl.DataFrame:
        bands = rows.with_columns(year=0, band=pl.col("age") // BAND).drop_nulls([*columns])
        known = bands.filter(pl.col("age").is_between(*ages), pl.col("earnings").is_not_nan())
        return cells_of(known, ["year", *by])

    names = list(trends.ratios())
    contrasts = np.stack([trends.contrast(name) for name in names])
    start = contrasts @ trends.series["earnings"].level[-1]
    ratios = {}
    for h in range(1, outcomes.shape[1] + 1):
        later = people.with_columns(pl.col("age") + h, earnings=pl.Series(outcomes[:, h - 1]))
        later = later.filter(pl.col("age") >= SETTLED_AGE + h)
        oldest = min(int(later["age"].to_numpy().max()), LAST_AGE)
        ages = int(later["age"].to_numpy().min()), oldest
        then = cells(later, ages)
        same = cells(now, ages).join(then, on=by, how="semi")
        then = then.join(same, on=by, how="semi")
        change = effects_of(trends, then, "earnings")[0] - effects_of(trends, same, "earnings")[0]
        known = np.exp(start + contrasts @ np.nan_to_num(change))
        ratios[LAST_YEAR + h] = dict(zip(names, known.tolist(), strict=True))
    return ratios


def told_futures(
    panel: Panel, directory: Path, origins: Origins, trends: GroupTrends
) -> dict[int, Scenario]:
    """The economy of each future as a scenario: macro series, and ratios told by these persons."""
    past = history(panel, origins)
    now, people = (
        rows.select(
            "sex",
            "education_level",
            pl.col("earnings").cast(pl.Float64).fill_null(np.nan),
            age=pl.col("year") - pl.col("birth_year"),
        )
        for rows in (panel.frame.filter(pl.col("year") == LAST_YEAR), past.frame[past.last_rows])
    )
    known, years = true_scenarios(directory), range(1, max(HORIZONS) + 1)
    return {
        future: replace(known[future], ratios=told_ratios(trends, now, people, outcomes))
        for future, outcomes in true_futures(
            directory, origins, years, price_year=panel.meta.price_year
        )
    }


def judged_groups(past: Panel) -> dict[str, NDArray[np.bool_]]:
    """The groups by name; those of the length of the record and of education beside others."""
    groups = {name: flags for name, flags in members_of(past).items() if " " not in name}
    frame, starts = past.frame, past.last_rows
    length = frame.group_by("person_id", maintain_order=True).agg(n=pl.col("earnings").count())["n"]
    education = frame[starts]["education_level"].cast(pl.String)
    for level in education.drop_nulls().unique().sort():
        groups[level] = (education == level).fill_null(value=False).to_numpy()
    middle, long = SINCE
    lengths = {
        f"records below {middle} years": length < middle,
        f"records of {middle} to {long - 1} years": length.is_between(middle, long - 1),
        f"records of {long} years and more": length >= long,
    }
    groups |= {name: flags.to_numpy() for name, flags in lengths.items()}
    return groups


def bias_of(forecasts: Floats, outcomes: Floats) -> tuple[float, float]:
    """Relative bias of a sum and its standard error; forecasts and outcomes (F, n), NaN unknown."""
    error = np.where(np.isnan(outcomes), 0.0, forecasts - outcomes)
    total = np.nansum(outcomes)
    bias = error.sum() / total
    influence = error - bias * np.nan_to_num(outcomes)
    variance = (influence.sum(0) ** 2).sum() + (influence.sum(1) ** 2).sum() - (influence**2).sum()
    return float(bias), float(np.sqrt(max(variance, 0.0)) / total)


def judge(forecaster: Forecaster, directory: Path) -> Iterator[dict[str, object]]:
    """One row for each horizon and group."""
    panel, trends = read_panel(directory), forecaster.model.groups
    if trends is None:
        raise SystemExit("The bundle has no economy of groups.")
    origins = origins_at(panel, LAST_YEAR)
    past = history(panel, origins)
    scenarios, forecasts, realised = told_futures(panel, directory, origins, trends.trends), [], []
    at = [h - 1 for h in HORIZONS]
    for future, outcomes in true_futures(
        directory, origins, HORIZONS, price_year=panel.meta.price_year
    ):
        blocks = forecaster.marginals(past, scenarios[future], n_horizons=max(HORIZONS))
        forecasts.append(np.concatenate([block.mean[:, at] for block in blocks]))
        realised.append(outcomes)
        say(f"  future {len(realised)} of {len(scenarios)}")
    f, y = np.stack(forecasts), np.stack(realised)
    for i, h in enumerate(HORIZONS):
        for name, flags in judged_groups(past).items():
            if np.isfinite(y[:, flags, i]).any():
                bias, se = bias_of(f[:, flags, i], y[:, flags, i])
                yield {"horizon": h, "group": name, "bias": bias, "se": se, "n": int(flags.sum())}


def main() -> None:
    """Run the study."""
    parser = study_parser(__doc__)
    parser.add_argument("bundle", type=Path)
    for name, value in {"persons": 62_000, "futures": 8, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    args = parser.parse_args()
    if args.futures < 2:
        parser.error("--futures is 2 or more: one future says nothing about the error of a bias.")
    settings = RegisterSettings(
        args.persons, args.seed, future_to=LAST_YEAR + max(HORIZONS), future_draws=args.futures
    )
    with tempfile.TemporaryDirectory() as scratch:
        generate_register(Path(scratch), settings)
        table = pl.DataFrame(list(judge(Forecaster.load(args.bundle), Path(scratch))))
    if args.json:
        print(json.dumps(table.to_dicts(), indent=2))
        return
    with pl.Config(tbl_rows=-1, tbl_formatting="ASCII_MARKDOWN", float_precision=4):
        print(table)


if __name__ == "__main__":
    main()
