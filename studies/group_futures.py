"""Is the sum right? Group means beside the register's futures, in many histories.

    python -m studies.group_futures BUNDLE [--histories 20] [--futures 20] [--persons 6000]
        [--paths 200] [--seed 0] [--told] [--out build/group_futures]

Each history, numbered from --seed on (modulo 100,000 less --histories), is a register of --persons
persons with an economy and trends of its own up to 2022, and --futures futures after it
(`saga.register.simulation.realised_trends`). Persons of 20 to 60 in 2022 are forecast from their
records. The macro process and the past of groups are fitted to the history, with priors from
countries that feed no future; the rest is the bundle's, with the model's own error if the bundle
stores vintages. Too few persons tell nothing of groups, and then none are drawn. With --told the
macro series of each future are known. Over the persons with an outcome in a future, the mean, the
share of zeros, the ratio of men's mean to women's, and for all persons quantiles of positive
earnings, the Gini coefficient, the spread of changes since the year before (logs of earnings above
the floor) and the correlation of ranks with those five years before are compared with their values
on each path, and lifetimes (sums up to 64, discounted at 2 %) likewise; horizon 0 stands for these.

Bias is that of the mean over paths: relative, of zeros in points. Coverage is that of the 90 % band
over paths and of the model's error, as in group tables. Futures of one history are not independent,
so standard errors are those of the means of histories; p is of a coverage of 90 %, by t, with
Holm's adjustment over the cells; the page `results.md` in --out has the cells with p < .05.
Finished histories are kept there, so an interrupted run can be started again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from saga.evaluation.scoring.comparison import adjust_holm
from saga.evaluation.scoring.futures import macro_of_futures, true_futures
from saga.training.group_fit import beside_network, group_history
from scipy import stats

from saga.arrays import Bools, Floats
from saga.data.macro_rows import SERIES
from saga.data.origins import history, origins_at
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.features.calendar import Calendar
from saga.files.atomic import commit, digest_json
from saga.forecaster import Forecaster
from saga.lifetime import gini, present_value, realised_value
from saga.macro.history import MacroHistory
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario
from saga.macro.wage_trends import CountryWages, with_moving_mean
from saga.model_error import EVERYBODY, GROUPS, ModelError
from saga.pages.format import markdown_table
from saga.population.group_bands import central_range
from saga.register import RegisterSettings, generate_register
from saga.register.simulation.realised_trends import FOR_TRAINING, countries_of
from saga.requests import RATE, Draws
from saga.simulation.group_layer import GroupLayer
from studies.study_page import page_head, publish_page, say, study_parser

HORIZONS, LIFETIME = (1, 5, 10, 20), 0
STATED = 0.9  # coverage of the bands
LAST_YEAR, YEARS = 2022, 44  # of the records; to age 64 from 20
MIN_PERSONS = 30  # of a group
AGES = (35, 50)  # at which the middle and the older begin
TABLE_NAMES = {"mean": "mean", "zeros": "zero_share", "ratio": "mean_ratio"}
WITH_ERROR = TABLE_NAMES | {"gini": "gini"}  # of which vintages show the model's own error
CHANCE = 0.05  # below this p a cell is on the page
MOBILITY = 5  # years between the ranks that are correlated
# Files of a bundle that paths depend on; its stored vintages only stretch the bands.
FORECAST_FILES = ("model.safetensors", "transforms.json", "macro.json", "calibration.parquet")
CELL = ["horizon", "statistic", "group"]


def in_history(forecaster: Forecaster, panel: Panel, number: int) -> Forecaster:
    """The forecaster with the macro process, calendar and groups of history `number`.

    Priors leave out the countries that the history resamples.
    """
    without = countries_of(number)
    past = MacroHistory.of(panel.meta.macro_rows or {})
    wages = CountryWages.shipped(LAST_YEAR, without)
    process = with_moving_mean(MacroProcess.fit(past), past, wages)
    calendar = Calendar(past, past.last_year, float(np.log1p(process.mean[1])))
    here = replace(
        forecaster.model, process=replace(process, known=past), calendar=calendar, groups=None
    )
    network, persons = forecaster.with_model(here), panel.persons()
    trends = group_history(panel, persons, without=without)
    if trends is None:
        return network
    layer = GroupLayer(beside_network(network, panel, persons, trends), here.transforms)
    return forecaster.with_model(replace(here, groups=layer))


def members_of(past: Panel) -> dict[str, Bools]:
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
    outcomes: Floats, paths: Floats, members: dict[str, Bools]
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
    if (everybody := both[members["all"][known]]).shape[0] >= MIN_PERSONS:
        values["gini", "all"] = gini(np.sort(everybody, axis=0))
        positive = np.where(everybody > 0, everybody, np.nan)
        for percent in (10, 50, 90):
            values[f"p{percent}", "all"] = np.nanpercentile(positive, percent, axis=0)
    return values


def added_by_year(counted: Floats, members: dict[str, Bools], group: str) -> list[float]:
    """What each year adds to the lifetimes of a group, or of the two that are compared.

    `counted` (n, n_year) are the means over paths, discounted.
    """
    sides = [f"{sex}{group.removeprefix('male/female')}" for sex in ("male", "female")]
    names = [group] if group in members else sides
    added: list[float] = sum(counted[members[name]].sum(0) for name in names).tolist()
    return added


def change_values(years: Sequence[Floats], floor: float) -> dict[tuple[str, str], Floats]:
    """(statistic, "all") -> the realised value and those on M paths (1 + M,) of changes.

    `years` are amounts (n, 1 + M), NaN if unknown: of the year, of that before and, unless the
    origin is less than MOBILITY years away, of that MOBILITY years before.
    """
    values: dict[tuple[str, str], Floats] = {}
    known = np.logical_and.reduce([np.isfinite(year).all(axis=1) for year in years])
    if known.sum() >= MIN_PERSONS:
        year, before, *earlier = (amounts[known] for amounts in years)
        works = (year >= floor) & (before >= floor)
        change = np.log(year, where=works, out=np.full(year.shape, np.nan))
        change -= np.log(before, where=works, out=np.zeros(year.shape))
        values["volatility", "all"] = np.nanstd(change, axis=0)
        for first in earlier:
            ranks = (stats.zscore(stats.rankdata(amounts, axis=0)) for amounts in (year, first))
            values["mobility", "all"] = np.multiply(*ranks).mean(axis=0)
    return values


def true_scenarios(register: Path) -> dict[int, Scenario]:
    """The drawn economies of a register as scenarios."""
    scenarios = {}
    for draw, economy in macro_of_futures(register).items():
        years = economy.select("year", *SERIES).iter_rows()
        rows = {year: (u, growth, inflation) for year, u, growth, inflation in years}
        scenarios[draw] = Scenario(f"draw {draw}", rows)
    return scenarios


def judge(
    forecaster: Forecaster, directory: Path, number: int, draws: Draws, *, knows_macro: bool
) -> Iterator[dict[str, object]]:
    """One row for each future, horizon, statistic and group of history `number`."""
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
        counted = np.where(of_future.within_age, of_future.earnings.mean(2), 0.0)
        counted *= (1 + RATE) ** -np.arange(1.0, YEARS + 1)
        amounts = np.concatenate([outcomes[..., None], of_future.earnings], axis=2)
        floor = panel.meta.floor or 1.0
        for horizon, both in sums.items():
            lags = [0, 1, MOBILITY] if horizon > MOBILITY else [0, 1] if horizon > 1 else []
            changes = [amounts[:, horizon - 1 - lag] for lag in lags]
            statistics = group_values(*both, members)
            statistics |= change_values(changes, floor) if changes else {}
            for (statistic, group), values in statistics.items():
                lower, upper = central_range(values[1:])
                yield {
                    "future": future,
                    "horizon": horizon,
                    "statistic": statistic,
                    "group": group,
                    "realised": values[0],
                    "mean": values[1:].mean(),
                    "sd": values[1:].std(ddof=1),
                    "lower": lower,
                    "upper": upper,
                    "added": [] if horizon else added_by_year(counted, members, group),
                }


def judged(rows: pl.DataFrame, error: ModelError | None) -> pl.DataFrame:
    """The rows with error, its scale and whether the realised value is inside the band.

    Bands are stretched by the model's own error, as in group tables
    (`saga.population.group_bands`).
    """

    def stretch(row: dict[str, Any]) -> float:
        of = EVERYBODY if row["group"] == "all" else GROUPS
        amounts = {row["horizon"]: 1.0} if row["horizon"] else dict(enumerate(row["added"], 1))
        name = WITH_ERROR.get(row["statistic"])
        sd = error.sd(name, of, amounts, row["mean"]) if error and name else None
        return float(np.sqrt(1 + (sd / row["sd"]) ** 2)) if sd and row["sd"] else 1.0

    mean, realised, widened = pl.col("mean"), pl.col("realised"), pl.col("stretch")
    lower, upper = (mean + (pl.col(end) - mean) * widened for end in ("lower", "upper"))
    stretched = pl.Series("stretch", [stretch(row) for row in rows.iter_rows(named=True)])
    return rows.with_columns(stretched).with_columns(
        error=mean - realised,
        scale=pl.when(pl.col("statistic") == "zeros").then(1.0).otherwise(realised),
        inside=realised.is_between(lower, upper),
    )


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


def history_parser(
    description: str | None, out: str, *, futures: int, persons: int
) -> argparse.ArgumentParser:
    """The parser of a study of many histories, with these defaults."""
    parser = study_parser(description)
    parser.add_argument("bundle", type=Path)
    sizes = {"histories": 20, "futures": futures, "persons": persons, "paths": 200, "seed": 0}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path, default=Path(out))
    return parser


def judge_histories(
    args: argparse.Namespace,
    key: Sequence[object],
    first: int,
    until: int,
    judge_one: Callable[[Path, int, Draws], pl.DataFrame],
) -> pl.DataFrame:
    """The tables of histories `first`, `first` + 1, ..., each with a column `history`.

    A history is a register with futures to the year `until`; `judge_one` has its folder and number,
    and the draws. Tables are kept in a folder of `--out` for the sizes and the `key`.
    """
    folder = args.out / digest_json([*key, args.persons, args.futures, args.paths, args.seed])[:12]
    folder.mkdir(parents=True, exist_ok=True)
    draws, parts = Draws(args.paths, args.seed), []
    for number in range(first, first + args.histories):
        file = folder / f"history-{number}.parquet"
        if not file.exists():
            settings = RegisterSettings(
                args.persons,
                number,
                future_to=until,
                future_draws=args.futures,
                history=number,
            )
            with tempfile.TemporaryDirectory() as scratch:
                generate_register(Path(scratch), settings)
                table = judge_one(Path(scratch), number, draws)
            commit(file, table.with_columns(history=number).write_parquet)
        parts.append(pl.read_parquet(file, glob=False))
        say(f"  history {len(parts)} of {args.histories}")
    return pl.concat(parts)


def share_text(row: dict[str, Any], name: str) -> str:
    """A share or relative bias and its standard error, in %."""
    error = row[f"{name}_se"]  # unknown of one history
    value, error = 100 * row[name], np.nan if error is None else 100 * error
    digits = 0 if name == "coverage" or abs(value) >= 10 else 1
    return f"{value:{'' if name == 'coverage' else '+'}.{digits}f} ({error:.{digits}f})"


def page_of(rows: pl.DataFrame, error: ModelError | None) -> str:
    """Tables in Markdown: figures of group tables, of paths, and cells that bands do not hold."""
    # Hardly anybody never works again.
    yearly = (pl.col("horizon") != LIFETIME) | (pl.col("statistic") != "zeros")
    every, without = (judged(rows, of).filter(yearly) for of in (error, None))
    tabled = pl.col("statistic").is_in(list(TABLE_NAMES))
    parts: dict[str, pl.DataFrame] = {
        "all": summarise(every.filter(tabled), ["horizon"]),
        "alone": summarise(without.filter(tabled), ["horizon"]),
        "everybody": summarise(every.filter(statistic="mean", group="all"), ["horizon"]),
    }
    by_statistic = summarise(every, ["horizon", "statistic"])
    parts |= {str(name): of for (name,), of in by_statistic.group_by("statistic")}
    figures = {
        (row["horizon"], name): row
        for name, table in parts.items()
        for row in table.iter_rows(named=True)
    }

    def table(columns: dict[str, tuple[str, str]]) -> str:
        lines = [
            [
                str(horizon or "lifetimes"),
                *(
                    share_text(row, figure) if (row := figures.get((horizon, part))) else ""
                    for part, figure in columns.values()
                ),
            ]
            for horizon in (*HORIZONS, LIFETIME)
        ]
        return markdown_table(["years ahead", *columns], lines)

    sums = {
        "all figures": ("all", "coverage"),
        "without the model's own error": ("alone", "coverage"),
        "means": ("mean", "coverage"),
        "men beside women": ("ratio", "coverage"),
        "zeros": ("zeros", "coverage"),
        "bias of means, %": ("mean", "bias"),
        "mean of everybody": ("everybody", "coverage"),
        "its bias, %": ("everybody", "bias"),
    }
    of_paths = {
        f"{title}: {word}": (name, figure)
        for name, title in (
            ("gini", "Gini"),
            ("volatility", "changes of logs"),
            ("mobility", "rank correlation over 5 years"),
        )
        for word, figure in (("bias, %", "bias"), ("inside, %", "coverage"))
    }
    cells = summarise(every.filter(tabled), CELL).filter(pl.col("p_holm") < CHANCE)
    outside = markdown_table(
        [*CELL, "inside, %", "p"],
        [
            [*(str(row[key]) for key in CELL), share_text(row, "coverage"), f"{row['p_holm']:.4f}"]
            for row in cells.iter_rows(named=True)
        ],
    )
    return "\n\n".join([table(sums), table(of_paths), outside])


def main() -> None:
    """Run the study."""
    parser = history_parser(__doc__, "build/group_futures", futures=20, persons=6000)
    parser.add_argument("--told", action="store_true", help="Forecasts know each future's macro.")
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle)

    def judge_one(register: Path, number: int, draws: Draws) -> pl.DataFrame:
        return pl.DataFrame(list(judge(forecaster, register, number, draws, knows_macro=args.told)))

    bundle = forecaster.bundle
    files = {name: bundle.manifest["files"].get(name) for name in FORECAST_FILES}
    until = LAST_YEAR + YEARS
    first = args.seed % (FOR_TRAINING - args.histories)  # no network has learnt from these
    rows = judge_histories(args, (files, args.told), first, until, judge_one)
    error = None if bundle.vintages is None else ModelError.fit(bundle.vintages)
    head = page_head("Group means in many histories", __file__, bundle=bundle.digest)
    publish_page(f"{head}\n\n{page_of(rows, error)}", args.out / "results.md")


if __name__ == "__main__":
    main()
