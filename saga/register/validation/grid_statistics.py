"""Statistics of changes of earnings as the Global Repository of Income Dynamics defines them.

Definitions are those of its master code (Ozkan and Salgado, `1_Gen_Base_Sample.do`, 2023), for
persons of 25-55:

- *log*: change of log real earnings over 1 or 5 years, both above the minimum.
- *residual*: log earnings less their mean at the same age, by sex and year (a regression on a full
  set of age dummies); above the minimum at the start, above a third of it at the end.
- *arc*: arc-percent change of earnings relative to the mean of the same sex, age and year; zeros
  count.
- *permanent income*: earnings over the three years that end before the start of a change, divided
  by the number of these years above the minimum, which is two or three; its log less the mean at
  the same age, by sex and year. Fifths are within age groups and years.

Differences: the minimum is half a price base amount in every year (the Swedish study: one and a
half monthly minimum wages of retail trade), age is that at the end of the year, nothing is
winsorised, and no noise is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from saga.data.panel import FLOOR
from saga.register.simulation.economy import CPI
from saga.register.validation.estimators import NORMAL_CROW_SIDDIQUI
from saga.register.validation.register_arrays import read_metadata

# Read off the vector graphs of the slides of Friedrich, Laun and Meghir, "Global Income Dynamics:
# Sweden", conference of November 2020 (in the repository of the master code), pages 13, 15 and 16:
# 1-year changes of residual earnings, 1985-2015. Their Crow-Siddiqui is not in excess of a normal.
PUBLISHED = Path(__file__).with_name("published_changes.csv")
PUBLISHED_SOURCE = "Friedrich, Laun and Meghir (2020), slides, read off the graphs"
AGES = (25, 55)
AGE_GROUPS = {"25-34": (25, 34), "35-44": (35, 44), "45-55": (45, 55)}
LAGS = (1, 5)
MEASURES = ("log", "residual", "arc")
_KEYS = ("sex", "age", "permanent_income", "start")


def changes_of_register(directory: Path) -> pl.DataFrame:
    """The table of a generated register.

    Returns:
        Columns measure, years (1 or 5), sex, age and permanent_income (fifth; "all": everybody),
        start (year, null: all), n, sd, p90_p10, kelley, crow_siddiqui (excess over a normal),
        skewness and kurtosis. Groups of fewer than 100 changes are left out.

    Raises:
        InputError: If there is no register of the process `full`.
    """
    read_metadata(directory)
    files = sorted((directory / "panel").glob("birth_year=*/*.parquet"))
    rows = pl.scan_parquet(files, glob=False, hive_partitioning=False)
    index = pl.col("year").replace_strict(CPI, return_dtype=pl.Float64)
    persons = rows.select(
        "person_id",
        "sex",
        "year",
        age=pl.col("year") - pl.col("birth_year"),
        real=pl.col("earnings") / index,
    ).filter(pl.col("age").is_between(*AGES), pl.col("real").is_not_null())
    changes = _changes(_with_residuals(persons.collect()))
    tables = [
        _statistics(changes, measure, lag, keys)
        for measure in MEASURES
        for lag in LAGS
        for keys in (
            (),
            ("sex",),
            ("sex", "start"),
            ("sex", "age"),
            ("sex", "permanent_income"),
            ("age", "permanent_income"),
        )
    ]
    return pl.concat(tables)


def compare_with_sweden(changes: pl.DataFrame) -> pl.DataFrame:
    """Means over the years that both have of the register's and of published statistics.

    Args:
        changes: The table of `changes_of_register`.

    Returns:
        Columns statistic, sex, first and last start, register, sweden; empty without such years.
    """
    published = pl.read_csv(PUBLISHED, glob=False, schema_overrides={"start": pl.Int32})
    normal = pl.when(pl.col("statistic") == "crow_siddiqui").then(NORMAL_CROW_SIDDIQUI).otherwise(0)
    published = published.with_columns(pl.col("value") - normal)
    yearly = changes.filter(pl.col("years") == 1, pl.col("start").is_not_null())
    names = published["statistic"].unique(maintain_order=True).to_list()
    measured = yearly.unpivot(
        names, index=["measure", "sex", "start"], variable_name="statistic", value_name="register"
    )
    both = published.join(measured, on=["measure", "statistic", "sex", "start"])
    return (
        both.group_by("statistic", "sex", maintain_order=True)
        .agg(
            first=pl.col("start").min(),
            last=pl.col("start").max(),
            register=pl.col("register").mean(),
            sweden=pl.col("value").mean(),
        )
        .sort("statistic", "sex", descending=True)
    )


def _with_residuals(persons: pl.DataFrame) -> pl.DataFrame:
    """Adds logs, residuals and permanent income up to each year."""
    cell = ("sex", "age", "year")
    log = pl.col("real").log()
    persons = persons.with_columns(
        log=pl.when(pl.col("real") >= FLOOR).then(log),
        low_log=pl.when(pl.col("real") >= FLOOR / 3).then(log),
        relative=pl.col("real") / pl.col("real").mean().over(cell),
    )
    persons = persons.with_columns(
        residual=pl.col("log") - pl.col("log").mean().over(cell),
        low_residual=pl.col("low_log") - pl.col("low_log").mean().over(cell),
    )
    windows = pl.concat(
        persons.select(
            "person_id", pl.col("year") + lag, earned="real", above=pl.col("log").is_not_null()
        )
        for lag in range(3)
    )
    windows = windows.group_by("person_id", "year").agg(
        pl.col("earned").sum(), pl.col("above").sum()
    )
    permanent = (pl.col("earned") / pl.col("above")).log()
    persons = persons.join(
        windows.filter(pl.col("above") >= 2).with_columns(permanent=permanent),
        on=["person_id", "year"],
        how="left",
    )
    return persons.with_columns(pl.col("permanent") - pl.col("permanent").mean().over(cell))


def _changes(persons: pl.DataFrame) -> pl.DataFrame:
    """A row per start of a change, with the groups, and a column per measure and lag."""
    group = pl.lit(None, dtype=pl.String)
    for name, (first, last) in AGE_GROUPS.items():
        group = pl.when(pl.col("age").is_between(first, last)).then(pl.lit(name)).otherwise(group)
    before = persons.select("person_id", pl.col("year") + 1, "permanent")
    starts = persons.drop("permanent").join(before, on=["person_id", "year"], how="left")
    starts = starts.with_columns(age=group).with_columns(
        permanent_income=(
            (pl.col("permanent").rank("ordinal") - 1) * 5 // pl.col("permanent").count() + 1
        )
        .over("age", "year")
        .cast(pl.String)
    )
    ends = persons.select("person_id", "year", "log", "low_residual", "relative")
    for lag in LAGS:
        later = ends.with_columns(pl.col("year") - lag)
        mean = (pl.col("relative") + pl.col("relative_end")) / 2
        starts = (
            starts.join(later, on=["person_id", "year"], how="left", suffix="_end")
            .with_columns(
                (pl.col("log_end") - pl.col("log")).alias(f"log{lag}"),
                (pl.col("low_residual_end") - pl.col("residual")).alias(f"residual{lag}"),
                pl.when(mean > 0)
                .then((pl.col("relative_end") - pl.col("relative")) / mean)
                .alias(f"arc{lag}"),
            )
            .drop("log_end", "low_residual_end", "relative_end")
        )
    return starts.rename({"year": "start"})


def _statistics(
    changes: pl.DataFrame, measure: str, lag: int, keys: tuple[str, ...]
) -> pl.DataFrame:
    """The moments of one measure by groups."""
    rows = changes.select(*keys, x=f"{measure}{lag}").drop_nulls()
    x = pl.col("x")
    quantile = {p: x.quantile(p / 1000, "linear") for p in (25, 100, 250, 500, 750, 900, 975)}
    spread = quantile[900] - quantile[100]
    moments = {
        "n": pl.len().cast(pl.Int64),
        "sd": x.std(),
        "p90_p10": spread,
        "kelley": (quantile[900] + quantile[100] - 2 * quantile[500]) / spread,
        "crow_siddiqui": (quantile[975] - quantile[25]) / (quantile[750] - quantile[250])
        - NORMAL_CROW_SIDDIQUI,
        "skewness": x.skew(),
        "kurtosis": x.kurtosis(fisher=False),
    }
    grouped = rows.group_by(keys).agg(**moments) if keys else rows.select(**moments)
    return (
        grouped.filter(pl.col("n") >= 100)
        .with_columns(measure=pl.lit(measure), years=pl.lit(lag), **dict(_margins(keys)))
        .select("measure", "years", *_KEYS, *moments)
        .sort(*_KEYS)
    )


def _margins(keys: tuple[str, ...]) -> Iterator[tuple[str, pl.Expr]]:
    """The group columns, with "all" (of years: null) where there is no grouping."""
    for name in _KEYS:
        if name == "start":
            yield name, (pl.col(name) if name in keys else pl.lit(None)).cast(pl.Int32)
        else:
            yield name, pl.col(name) if name in keys else pl.lit("all")
