"""Is the sum right? Group means beside the register's futures, in many histories.

    python -m studies.group_futures BUNDLE [--histories 20] [--futures 20] [--persons 6000]
        [--paths 200] [--seed 0] [--told] [--out build/group_futures] [--json]

Each history is a register of --persons persons with an economy and trends of its own up to 2022,
and --futures futures after it (`saga.register.simulation.realised_trends`). Persons of 20 to 60 in
2022 are forecast from their records. The macro process and the past of groups are fitted to the
history, with priors from countries that feed no future; the rest is the bundle's, with the model's
own error if the bundle stores vintages. Too few persons tell nothing of groups, and then none are
drawn. With --told the macro series of each future are
known. Over the persons with an outcome in a future, the mean, the share of zeros and the ratio of
men's mean to women's are compared with their values on each path, and lifetimes (sums up to 64,
discounted at 2 %) likewise; horizon 0 stands for these.

Bias is that of the mean over paths: relative, of zeros in points. Coverage is that of the 90 % band
over paths and of the model's error, as in group tables. Futures of one history are not independent,
so standard errors are those of the means of histories; p is of a coverage of 90 %, by t, with
Holm's adjustment over the cells. Finished histories are kept in --out, so an interrupted run can be
started again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.scoring.comparison import adjust_holm
from saga.evaluation.scoring.futures import true_futures
from saga.training.group_fit import group_history
from scipy import stats

from saga.data.origins import history, origins_at
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.features.calendar import Calendar
from saga.files.atomic import commit, digest_json
from saga.forecaster import Forecaster
from saga.lifetime import present_value, realised_value
from saga.macro.history import MacroHistory
from saga.macro.process import MacroProcess
from saga.macro.wage_trends import CountryWages, with_moving_mean
from saga.model_error import EVERYBODY, GROUPS, ModelError
from saga.population.group_bands import central_range
from saga.register import RegisterSettings, generate_register
from saga.register.simulation.realised_trends import countries_of
from saga.requests import Draws
from saga.simulation.group_layer import GroupLayer
from studies.study_page import say, study_parser
from studies.unemployment_response import true_scenarios

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
HORIZONS, LIFETIME = (1, 5, 10, 20), 0
STATED = 0.9  # coverage of the bands
LAST_YEAR, YEARS = 2022, 44  # of the records; to age 64 from 20
MIN_PERSONS = 30  # of a group
AGES = (35, 50)  # at which the middle and the older begin
TABLE_NAMES = {"mean": "mean", "zeros": "zero_share", "ratio": "mean_ratio"}
CELL = ["horizon", "statistic", "group"]


def in_history(forecaster: Forecaster, panel: Panel, number: int) -> Forecaster:
    """The forecaster with the macro process, calendar and groups of history `number`.

    Priors leave out the countries that the history resamples. What the network makes of groups'
    trends without draws is that of the bundle.
    """
    without = countries_of(number)
    past = MacroHistory.of(panel.meta.macro_rows or {})
    wages = CountryWages.shipped(LAST_YEAR, without)
    process = with_moving_mean(MacroProcess.fit(past), past, wages)
    calendar = Calendar(past, past.last_year, float(np.log1p(process.mean[1])))
    model, trends = forecaster.model, group_history(panel, panel.persons(), without=without)
    groups = None
    if model.groups is not None and trends is not None:
        known = model.groups.trends
        implied = known.series["earnings"].implied[:, list(map(known.levels.index, trends.levels))]
        groups = GroupLayer(trends.beside(implied), model.transforms)
    process = replace(process, known=past)
    return forecaster.with_model(replace(model, process=process, calendar=calendar, groups=groups))


def members_of(past: Panel) -> dict[str, Flags]:
    """The groups by name: whether each person, in the order of the panel, belongs to it."""
    sex, age = pl.col("sex").cast(pl.String), pl.col("year") - pl.col("birth_year")
    tertiary = pl.col("education_level").cast(pl.String).str.ends_with("tertiary")
    level = pl.when(tertiary).then(pl.lit(" tertiary")).otherwise(pl.lit(" shorter"))
    ages = pl.when(age < AGES[0]).then(pl.lit("young")).when(age < AGES[1])
    labels = past.frame[past.last_rows].select(
        all=pl.lit("all"),
        sex=sex,
        level=sex + level,
        age=ages.then(pl.lit("middle")).otherwise(pl.lit("older")),
    )
    return {
        str(name): (group == name).to_numpy()
        for group in labels
        for name in group.unique().sort().drop_nulls()
    }


def group_values(
    outcomes: Floats, paths: Floats, members: dict[str, Flags]
) -> dict[tuple[str, str], Floats]:
    """(statistic, group) -> the realised value and those on M paths (1 + M,).

    `outcomes` are (n,), of which those known count, and `paths` (n, M).
    """
    known = np.isfinite(outcomes)
    both = np.column_stack([outcomes, paths])[known]
    values: dict[tuple[str, str], Floats] = {}
    for name, flags in members.items():
        if (of_group := both[flags[known]]).shape[0] >= MIN_PERSONS:
            values["mean", name] = of_group.mean(axis=0)
            values["zeros", name] = (of_group == 0).mean(axis=0)
    for level in ("", " tertiary", " shorter"):
        men, women = (values.get(("mean", f"{sex}{level}")) for sex in ("male", "female"))
        if men is not None and women is not None:
            values["ratio", f"male/female{level}"] = men / women
    return values


def judge(
    forecaster: Forecaster, directory: Path, number: int, draws: Draws, *, knows_macro: bool
) -> Iterator[dict[str, object]]:
    """One row for each future, horizon, statistic and group of history `number`."""
    stored = forecaster.bundle.vintages
    error = None if stored is None else ModelError.fit(stored)
    panel = read_panel(directory)
    origins = origins_at(panel, LAST_YEAR)
    past = history(panel, origins)
    here, members = in_history(forecaster, panel, number), members_of(past)
    known = true_scenarios(directory) if knows_macro else {}
    paths = None if knows_macro else here.simulate(past, draws, to_horizon=YEARS)
    for future, outcomes in true_futures(
        directory, origins, range(1, YEARS + 1), price_year=panel.meta.price_year
    ):
        of_future = paths or here.simulate(
            past, replace(draws, scenario=known[future]), to_horizon=YEARS
        )
        lifetime = realised_value(np.where(of_future.within_age, outcomes, 0.0))
        sums: dict[int, tuple[Floats, Floats]] = {
            **{
                h: (outcomes[:, h - 1], of_future.earnings[:, h - 1].astype(float))
                for h in HORIZONS
            },
            LIFETIME: (lifetime, present_value(of_future)),
        }
        for horizon, both in sums.items():
            for (statistic, group), values in group_values(*both, members).items():
                lower, upper = central_range(
                    _with_error(values[1:], error, statistic, group, horizon)
                )
                yield {
                    "future": future,
                    "horizon": horizon,
                    "statistic": statistic,
                    "group": group,
                    "error": values[1:].mean() - values[0],
                    "scale": 1.0 if statistic == "zeros" else values[0],
                    "inside": lower <= values[0] <= upper,
                }


def _with_error(
    values: Floats, error: ModelError | None, statistic: str, group: str, horizon: int
) -> Floats:
    """Values on paths, stretched by the model's own error (`saga.population.group_bands`)."""
    centre, variance = values.mean(), values.var(ddof=1)
    of = EVERYBODY if group == "all" else GROUPS
    years = [horizon] if horizon else range(1, YEARS + 1)
    sd = error and error.sd(TABLE_NAMES[statistic], of, years, centre)
    if not sd or not variance > 0:
        return values
    return np.asarray(centre + (values - centre) * np.sqrt(1 + sd**2 / variance))


def summarise(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Bias and coverage by `keys`, with standard errors over histories and p of 90 %."""
    of_history = rows.group_by(*keys, "history", maintain_order=True).agg(
        bias=pl.col("error").sum() / pl.col("scale").sum(),
        coverage=pl.col("inside").mean(),
        n=pl.len(),
    )
    root = pl.len().sqrt()
    table = of_history.group_by(keys, maintain_order=True).agg(
        pl.col("bias", "coverage").mean(),
        (pl.col("bias", "coverage").std() / root).name.suffix("_se"),
        histories=pl.len(),
        n=pl.col("n").sum(),
    )
    # A coverage that is the same in all histories is no surer than independent futures make it.
    least = np.sqrt(STATED * (1 - STATED) / table["n"].to_numpy())
    se = np.fmax(table["coverage_se"].to_numpy(), least)
    t = np.abs(table["coverage"].to_numpy() - STATED) / se
    p = 2 * stats.t.sf(t, np.maximum(table["histories"].to_numpy() - 1, 1))
    return table.with_columns(p_holm=adjust_holm(p)).sort(keys)


def main() -> None:
    """Run the study."""
    parser, sizes = study_parser(__doc__), {"histories": 20, "futures": 20, "persons": 6000}
    parser.add_argument("bundle", type=Path)
    for name, value in {**sizes, "paths": 200, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--told", action="store_true", help="Forecasts know each future's macro.")
    parser.add_argument("--out", type=Path, default=Path("build/group_futures"))
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    args = parser.parse_args()
    forecaster, parts = Forecaster.load(args.bundle), []
    numbers = (args.persons, args.futures, args.paths, args.seed, args.told)
    folder = args.out / digest_json([forecaster.bundle.digest, *numbers])[:12]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(args.seed, args.seed + args.histories):
        file = folder / f"history-{number}.parquet"
        if not file.exists():
            settings = RegisterSettings(
                args.persons,
                number,
                future_to=LAST_YEAR + YEARS,
                future_draws=args.futures,
                history=number,
            )
            with tempfile.TemporaryDirectory() as scratch:
                generate_register(Path(scratch), settings)
                draws = Draws(args.paths, args.seed)
                folder = Path(scratch)
                rows = list(judge(forecaster, folder, number, draws, knows_macro=args.told))
            commit(file, pl.DataFrame(rows).with_columns(history=number).write_parquet)
        parts.append(pl.read_parquet(file))
        say(f"  history {len(parts)} of {args.histories}")
    yearly = (pl.col("horizon") != LIFETIME) | (pl.col("statistic") != "zeros")
    every = pl.concat(parts).filter(yearly)  # hardly anybody never works again
    tables = {" and ".join(keys): summarise(every, keys) for keys in (CELL[:1], CELL[:2], CELL)}
    if args.json:
        print(json.dumps({by: table.to_dicts() for by, table in tables.items()}, indent=2))
        return
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_formatting="ASCII_MARKDOWN", float_precision=3):
        for by, table in tables.items():
            print(f"By {by}\n\n{table}\n")


if __name__ == "__main__":
    main()
