"""Entries of the benchmark: a table of quantiles that any tool can write, as distributions.

An entry has one row per person and horizon of the round: `person_id`, `horizon`, quantiles of
earnings `q01 ... q99` and `p_zero`. Between two quantiles the distribution is linear in log
earnings; so it is between the scores' floor and the lowest positive quantile, and the probability
above the highest quantile lies on it. A file that breaks a rule is refused: the error names the
first row, person and column, and how many rows are alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.contestants import Contestant
from saga.evaluation.scoring.evaluation_settings import Setting
from saga.evaluation.scoring.year_forecasts import YearForecasts

from saga.arrays import Floats
from saga.data.origins import Origins
from saga.data.panel import FLOOR, Panel
from saga.distributions import Marginals
from saga.errors import InputError, Problem
from saga.requests import COVERAGE, QUANTILES, percent_label
from saga.schema import MAX_AGE

KEYS = ("person_id", "horizon")
REQUIRED = (*KEYS, *(f"q{percent_label(level)}" for level in QUANTILES), "p_zero")
_QUANTILE = re.compile(r"q(\d{2}(?:[._]\d+)?)")
_TOLERANCE = 0.001  # of p_zero against the levels of quantiles, for entries with rounded numbers
MOST_PROBLEMS = 20  # that one error lists


@dataclass(frozen=True)
class Entry:
    """The forecasts of n persons at H horizons, in the order of a setting; a contestant.

    Args:
        name: Its row in the tables.
        marginals: The distributions (n, H).
        means: Expected earnings (n, H) as the entry states them, or of the distributions.
    """

    name: str
    marginals: Marginals
    means: Floats

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """The distributions, with the sets between their own quantiles."""
        del past, origins, horizons, n_paths, seed
        tail = (1 - np.asarray(COVERAGE)) / 2
        lower, upper = self.marginals.quantiles(tail), self.marginals.quantiles(1 - tail)
        yield YearForecasts(self.marginals.person_id, self.marginals, lower, upper, lower == 0)


def required_rows(setting: Setting, horizons: Sequence[int]) -> pl.DataFrame:
    """The rows of an entry: `person_id`, `horizon` and the birth year, up to age 64."""
    born = setting.past.frame.group_by("person_id").agg(pl.col("birth_year").first())
    return (
        setting.origins.frame()
        .join(born, on="person_id", how="left", maintain_order="left")
        .join(pl.DataFrame({"horizon": pl.Series(horizons, dtype=pl.Int32)}), how="cross")
        .filter(pl.col("origin") + pl.col("horizon") - pl.col("birth_year") <= MAX_AGE)
        .select(*KEYS, "birth_year")
    )


def read_entry(
    file: Path, name: str, setting: Setting, horizons: Sequence[int], floor: float | None = FLOOR
) -> Entry:
    """The entry in a CSV or Parquet file.

    Raises:
        InputError: If a column or row is missing or would not be read, or a value breaks a rule.
    """
    required = required_rows(setting, horizons)
    table = _read_table(file, REQUIRED)
    levels = {
        float(match[1].replace("_", ".")) / 100: column
        for column in table.columns
        if (match := _QUANTILE.fullmatch(column))
    }
    levels = dict(sorted(levels.items()))
    used = [*levels.values(), "p_zero", *({"mean"} & set(table.columns))]
    if unread := [name for name in table.columns if name not in ("row", *KEYS, *used)]:
        fix = f"Leave it out; columns are {REQUIRED}, mean and further quantiles such as q02."
        problems = [Problem("entry-columns", "a column is not read", fix, name) for name in unread]
        raise InputError(f"{file.name} has other columns", problems[:MOST_PROBLEMS])
    rows = _checked(file, table.select("row", *KEYS, *used), levels, required, floor)
    ids = setting.origins.person_id
    frame = pl.DataFrame({"person_id": ids.tolist()}).join(
        pl.DataFrame({"horizon": pl.Series(horizons, dtype=pl.Int32)}), how="cross"
    )
    frame = frame.join(rows, on=KEYS, how="left", maintain_order="left")
    values = {
        column: frame[column].fill_null(np.nan).to_numpy().reshape(len(ids), len(horizons))
        for column in used
    }
    quantiles = np.stack([values[column] for column in levels.values()], axis=-1)
    grid, cdf = grid_of_quantiles(np.array(list(levels)), quantiles, values["p_zero"], floor)
    born = setting.origins.frame().join(
        required.unique("person_id"), on="person_id", how="left", maintain_order="left"
    )
    marginals = Marginals(
        ids,
        born["birth_year"].fill_null(0).to_numpy().astype(np.int64),
        setting.origins.year,
        grid,
        cdf,
        values["p_zero"],
        recalibrated=True,
    )
    means = values["mean"] if "mean" in values else np.where(marginals.exists, marginals.mean, 0)
    return Entry(name, marginals, means)


def grid_of_quantiles(
    levels: Floats, quantiles: Floats, p_zero: Floats, floor: float | None = FLOOR
) -> tuple[Floats, Floats]:
    """Grid and CDF (n, H, L + 2) of quantiles (n, H, L) at `levels` (L,) and `p_zero` (n, H).

    The form is stated at the head of this module. Where no quantile is positive, the probability
    of positive earnings lies on the floor.
    """
    logs = np.log(np.maximum(np.nan_to_num(quantiles), 1.0))
    positive = levels > p_zero[..., None]
    lowest = np.where(positive, logs, np.inf).min(axis=-1, keepdims=True)
    start = np.minimum(lowest, np.log(floor or 1.0))
    grid = np.where(positive, logs, start)
    cdf = np.where(positive, levels, p_zero[..., None])
    cdf = np.concatenate([p_zero[..., None], cdf, np.ones_like(start)], axis=-1)
    cdf[np.isnan(p_zero)] = np.nan
    return np.concatenate([start, grid, grid[..., -1:]], axis=-1), cdf


def entry_table(contestant: Contestant, setting: Setting, horizons: Sequence[int]) -> pl.DataFrame:
    """What a contestant forecasts, as an entry with the required columns and `mean`."""
    blocks = contestant.forecasts(
        setting.past, setting.origins, horizons=horizons, n_paths=500, seed=0
    )
    tables = []
    for block in blocks:
        marginals = block.marginals
        at = np.nonzero(marginals.exists)
        quantiles = marginals.quantiles(QUANTILES)[at].round()
        columns = dict(zip(REQUIRED[2:-1], quantiles.T, strict=True))
        tables.append(
            pl.DataFrame(
                {
                    "person_id": block.person_id[at[0]].tolist(),
                    "horizon": np.asarray(horizons, dtype=np.int32)[at[1]],
                    **columns,
                    "p_zero": marginals.p_zero[at].astype(np.float64),
                    "mean": marginals.mean[at].round(),
                }
            )
        )
    return pl.concat(tables)


def read_paths(
    file: Path, setting: Setting, horizons: Sequence[int], rows: pl.DataFrame
) -> NDArray[np.float32]:
    """Joint futures (n, H, M) from the columns `person_id`, `path`, `year` and `earnings`.

    Path k of all persons is one future. Other years than those of the horizons are not used.

    Raises:
        InputError: If a column, or a path of a person in `rows`, is missing or no amount.
    """
    table = _read_table(file, ("person_id", "path", "year", "earnings"))
    origin = int(setting.origins.year[0])
    table = table.with_columns(horizon=pl.col("year").cast(pl.Int32, strict=False) - origin)
    numbers = table["path"].unique().drop_nulls().sort()
    combinations = rows.select(KEYS).join(numbers.to_frame("path"), how="cross")
    amount = pl.col("earnings").cast(pl.Float64, strict=False)
    table = table.with_columns(amount).unique([*KEYS, "path"], keep="first", maintain_order=True)
    joined = combinations.join(table, on=[*KEYS, "path"], how="left", maintain_order="left")
    bad = joined.filter(~(pl.col("earnings") >= 0).fill_null(False))
    if bad.height or len(numbers) < 2:
        person, horizon, path = bad.row(0)[:3] if bad.height else (None, None, None)
        why = (
            f"path {path} lacks an amount at horizon {horizon}"
            if bad.height
            else "there are fewer than two paths"
        )
        fix = "Give every person of rows.csv the same paths: earnings in each of these years."
        problem = Problem("paths", why, fix, "earnings", person, None, max(bad.height, 1))
        raise InputError(f"{file.name} has no joint paths for all rows", [problem])
    shape = (len(setting.origins), len(horizons), len(numbers))
    paths = np.full(shape, np.nan, dtype=np.float32)
    person = {name: k for k, name in enumerate(setting.origins.person_id.tolist())}
    column = {h: k for k, h in enumerate(horizons)}
    at = [person[name] for name in rows["person_id"]], [column[h] for h in rows["horizon"]]
    paths[at] = joined["earnings"].to_numpy().reshape(rows.height, len(numbers))
    return paths


def _read_table(file: Path, required: Sequence[str]) -> pl.DataFrame:
    """The table as it is, with a column `row`; text of a CSV stays text until it is checked."""
    if file.suffix.lower() not in (".csv", ".parquet") or not file.is_file():
        raise InputError.of(
            f"{file} is no entry",
            "entry-format",
            "there is no .csv or .parquet file of this name",
            "Write one of these formats.",
        )
    is_csv = file.suffix.lower() == ".csv"
    table = (
        pl.read_csv(file, glob=False, infer_schema=False)
        if is_csv
        else pl.read_parquet(file, glob=False)
    )
    if missing := [name for name in required if name not in table.columns]:
        problems = [
            Problem("entry-columns", "a column is missing", f"Add it; all are {required}.", name)
            for name in missing
        ]
        raise InputError(f"{file.name} lacks columns", problems)
    keys = [pl.col("person_id").cast(pl.String)]
    if "horizon" in required:
        keys.append(pl.col("horizon").cast(pl.Float64, strict=False).cast(pl.Int32, strict=False))
    return table.with_row_index("row", offset=1).with_columns(keys)


def _checked(
    file: Path,
    table: pl.DataFrame,
    levels: dict[float, str],
    required: pl.DataFrame,
    floor: float | None,
) -> pl.DataFrame:
    """The required rows with numbers. Raises InputError with a problem for each broken rule."""
    numbers = [name for name in table.columns if name not in ("row", *KEYS)]
    rows = table.with_columns(pl.col(numbers).cast(pl.Float64, strict=False)).join(
        required.select(KEYS), on=KEYS, how="semi", maintain_order="left"
    )
    names = list(levels.values())
    not_ascending = "Quantiles must not fall from one level to the next: sort them."
    rules: list[tuple[str, str | None, pl.Expr, str]] = [
        ("no finite number", name, ~pl.col(name).is_finite().fill_null(False), "Give a number.")
        for name in numbers
    ]
    rules += [
        ("below 0", name, pl.col(name) < 0, "Earnings and probabilities are 0 or more.")
        for name in numbers
    ]
    rules += [("above 1", "p_zero", pl.col("p_zero") > 1, "Give a share, such as 0.05.")]
    rules += [
        (f"below {low}", high, pl.col(high) < pl.col(low), not_ascending)
        for low, high in pairwise(names)
    ]
    rules += [
        (
            "positive, but its level is below p_zero",
            name,
            (pl.col(name) > 0) & (pl.col("p_zero") > level + _TOLERANCE),
            "Quantiles up to p_zero are 0: mix the quantiles of positive earnings with p_zero.",
        )
        for level, name in levels.items()
    ]
    rules += [
        (
            "there a second time",
            None,
            pl.struct(KEYS).is_duplicated() & ~pl.struct(KEYS).is_first_distinct(),
            "Give one row per person and horizon.",
        )
    ]
    if "mean" in numbers:
        # At least the share above a quantile has its amount; 1 SEK is rounding.
        least = pl.max_horizontal((1 - level) * pl.col(name) for level, name in levels.items())
        high, too_low = names[-1], pl.col("mean") < least - 1
        too_high = (pl.col("mean") > pl.col(high) + 1) & (pl.col(high) > 0)
        not_alike = "Give expected earnings in SEK, zeros counted, or leave the column out."
        rules += [("outside what the row's quantiles allow", "mean", too_low | too_high, not_alike)]
    problems = []
    highest = rows.filter(pl.col(names[-1]) > 0)[names[-1]].median()
    if floor and isinstance(highest, float) and highest < floor:
        message = f"in most rows {names[-1]} is below {floor:,.0f} SEK, the floor of the scores"
        fix = "Give earnings in SEK, not their logs or thousands."
        problems.append(Problem("entry", message, fix, names[-1]))
    for what, column, broken, fix in rules:
        violations = rows.filter(broken)
        if violations.height:
            row, person, horizon = violations.select("row", *KEYS).row(0)
            message = (
                f"{column or 'a person and horizon'} is {what} in row {row}, horizon {horizon}"
            )
            problems.append(Problem("entry", message, fix, column, person, None, violations.height))
    lacking = required.join(rows, on=KEYS, how="anti", maintain_order="left")
    if lacking.height:
        person, horizon = lacking.row(0)[:2]
        problems.append(
            Problem(
                "entry-rows",
                f"there is no row of horizon {horizon}",
                "Give every row of rows.csv of the round.",
                "horizon",
                person,
                None,
                lacking.height,
            )
        )
    unread = table.join(required, on=KEYS, how="anti", maintain_order="left")
    if unread.height:
        row, person, horizon = unread.select("row", *KEYS).row(0)
        message = f"row {row}, horizon {horizon}, is not in the round"
        fix = "Give the rows of rows.csv only."
        problems.append(Problem("entry-rows", message, fix, None, person, None, unread.height))
    if problems:
        raise InputError(f"{file.name} is no valid entry", problems[:MOST_PROBLEMS])
    return rows
