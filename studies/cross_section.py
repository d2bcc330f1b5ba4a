"""Cross-sections of simulated futures, compared with the same persons' true futures.

Path k of all persons has one macro future, and so has each drawn future of the register. Each gives
one cross-section a year, so each statistic has a distribution over futures. A difference of means
is uncertain for two reasons, whose variances are added: there are few futures, and few persons, all
of whose true futures start from one observed record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.scoring.futures import macro_of_futures, true_futures
from scipy.stats import rankdata

from saga.data.origins import Origins, history, last_year, origins_at
from saga.data.panel import FLOOR, Panel
from saga.data.split import unseen_persons
from saga.errors import InputError, Problem
from saga.keyed_random import sample_rows
from saga.pages.format import markdown_table
from saga.schema import MAX_AGE

Array = NDArray[np.float64]
MOBILITY = 5  # years between the ranks that are correlated
AGE_RANGES = ((20, 34), (35, 49), (50, 64))
SURE = 3.0  # standard errors
GROUPS = 10  # random groups for the standard error over persons (Wolter 2007, ch. 2)
MIN_PERSONS = 50  # of a statistic
EVERYBODY = -1
MONEY = ("mean", "p10", "p50", "p90")


@dataclass(frozen=True)
class Statistic:
    """A statistic and the allowed difference of means, absolute or `relative` to the true mean."""

    name: str
    meaning: str
    tolerance: float
    relative: bool = False


STATISTICS = (
    Statistic("wages", "real wage index, 1 in the last year of record", 0.05, relative=True),
    Statistic("mean", "mean earnings, zeros counted (SEK)", 0.05, relative=True),
    Statistic("p10", "10 % quantile of positive earnings (SEK)", 0.10, relative=True),
    Statistic("p50", "median of positive earnings (SEK)", 0.05, relative=True),
    Statistic("p90", "90 % quantile of positive earnings (SEK)", 0.05, relative=True),
    Statistic("p10_p50", "10 % quantile over median", 0.05),
    Statistic("p90_p50", "90 % quantile over median", 0.10),
    Statistic("gini", "Gini coefficient, zeros counted", 0.02),
    Statistic("zero", "share with zero earnings", 0.02),
    Statistic(
        "volatility",
        "standard deviation of one-year changes of logs (both years at or above the floor)",
        0.05,
    ),
    Statistic("mobility", f"correlation of ranks {MOBILITY} years apart", 0.05),
    *(
        Statistic(f"zero_{sex}_{a}_{b}", f"share with zero earnings, {sex} {a}-{b}", 0.03)
        for sex in ("women", "men")
        for a, b in AGE_RANGES
    ),
)
BY_NAME = {statistic.name: statistic for statistic in STATISTICS}


@dataclass(frozen=True)
class FollowedPersons:
    """Persons with their past and origins.

    `born` (n,) are birth years, `sex` (n,) is "female", "male" or "", `origin_earnings` (n,) are
    NaN if unknown.
    """

    past: Panel
    origins: Origins
    born: NDArray[np.int64]
    sex: NDArray[np.str_]
    origin_earnings: Array


def follow_persons(
    panel: Panel, *, trained_on: str | None, n_persons: int | None = None
) -> FollowedPersons:
    """A keyed choice of `n_persons` (None: all) with an origin in the panel's last year.

    Only test persons if the model was trained on this panel. Raises InputError if there is nobody.
    """
    origins = origins_at(unseen_persons(panel, trained_on), last_year(panel))
    if not len(origins):
        fix = "Give a register with residents of 20 to 60 years in its last year."
        raise InputError(
            "There is nobody to follow",
            [Problem("no-origins", "no person is eligible in the panel's last year", fix)],
        )
    ids = origins.person_id.tolist()
    origins = origins.take(sample_rows(ids, n_persons, "cross-section", panel.meta.panel_id))
    past = history(panel.only(origins.person_id.tolist()), origins)
    last = past.frame.filter(pl.col("year") == last_year(panel)).select(
        "birth_year", "sex", "earnings"
    )
    sex = np.array(last["sex"].fill_null("").to_list(), dtype=np.str_)
    earnings = last["earnings"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    born = last["birth_year"].to_numpy().astype(np.int64)
    return FollowedPersons(past, origins, born, sex, earnings)


def cross_sections(
    persons: FollowedPersons, future: Array, floor: float = FLOOR
) -> Iterator[dict[str, Any]]:
    """Rows of `year` (ahead), `group`, `statistic` and `value` of one future.

    `future` (n, n_year) are real earnings, NaN if not observed. `group` is -1 for everybody and 0
    to 9 for tenths of the persons. Dead persons count as zeros up to age 64. A statistic of fewer
    than 50 persons (5 in a tenth) is left out.
    """
    everybody = np.ones(len(future), np.bool_)
    yield from _sections(persons, future, everybody, EVERYBODY, floor)
    for group in range(GROUPS):
        members = np.arange(len(future)) % GROUPS == group
        yield from _sections(persons, future, members, group, floor)


def _sections(
    persons: FollowedPersons, future: Array, members: NDArray[np.bool_], group: int, floor: float
) -> Iterator[dict[str, Any]]:
    min_persons = MIN_PERSONS if group == EVERYBODY else MIN_PERSONS // GROUPS
    earnings = np.column_stack([persons.origin_earnings, future])
    age = persons.origins.year - persons.born
    for h in range(1, earnings.shape[1]):
        y, previous = earnings[:, h], earnings[:, h - 1]
        observed = members & np.isfinite(y) & (age + h <= MAX_AGE)
        if observed.sum() < min_persons:
            return
        positive = y[observed & (y > 0)]
        p10, p50, p90 = np.quantile(positive, [0.1, 0.5, 0.9]) if len(positive) else [np.nan] * 3
        values = {
            "mean": y[observed].mean(),
            "p10": p10,
            "p50": p50,
            "p90": p90,
            "p10_p50": p10 / p50,
            "p90_p50": p90 / p50,
            "gini": gini(y[observed]),
            "zero": (y[observed] == 0).mean(),
        }
        working = observed & (y >= floor) & (previous >= floor)
        if working.sum() >= min_persons:
            values["volatility"] = np.std(np.log(y[working] / previous[working]))
        if h >= MOBILITY:
            both = observed & np.isfinite(earnings[:, h - MOBILITY])
            ranks = (rankdata(earnings[both, year]) for year in (h, h - MOBILITY))
            if both.sum() >= min_persons:
                values["mobility"] = np.corrcoef(*ranks)[0, 1]
        for sex, code in (("women", "female"), ("men", "male")):
            for low, high in AGE_RANGES:
                part = observed & (persons.sex == code) & (age + h >= low) & (age + h <= high)
                if part.sum() >= min_persons:
                    values[f"zero_{sex}_{low}_{high}"] = (y[part] == 0).mean()
        yield from (
            {"year": h, "group": group, "statistic": name, "value": float(value)}
            for name, value in values.items()
            if np.isfinite(value)
        )


def gini(earnings: Array) -> float:
    """Half the mean absolute difference over the mean of amounts (n,) >= 0; NaN if all are zero."""
    ordered = np.sort(np.asarray(earnings, np.float64))
    n, total = len(ordered), ordered.sum()
    if not total > 0:
        return float("nan")
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total))


def simulated_sections(
    persons: FollowedPersons, paths: NDArray[np.floating[Any]], *, wages: Array | None = None
) -> pl.DataFrame:
    """Cross-sections of every path: `source` ("model"), `future` and those of `cross_sections`.

    `paths` (n, n_year, n_path) are real amounts. `wages` (n_path, n_year) is the real wage index of
    their macro futures, 1 in the last year of record. Its difference from the true index is the
    drift that comes from macro, not from persons.
    """
    floor = persons.past.meta.floor or 1.0
    rows: list[dict[str, Any]] = []
    for k in range(paths.shape[2]):
        sections = [
            *cross_sections(persons, paths[..., k].astype(np.float64), floor),
            *_wage_rows([] if wages is None else wages[k].tolist()),
        ]
        rows += [{"source": "model", "future": k, **row} for row in sections]
    return pl.DataFrame(rows)


def true_sections(persons: FollowedPersons, futures: Path, years: int) -> pl.DataFrame:
    """Cross-sections of every drawn future of the register; `source` is "truth"."""
    wages, rows = true_wages(futures), []
    for draw, outcomes in true_futures(
        futures, persons.origins, range(1, years + 1), price_year=persons.past.meta.price_year
    ):
        sections = [
            *cross_sections(persons, outcomes, persons.past.meta.floor or 1.0),
            *_wage_rows(wages[draw][:years]),
        ]
        rows += [{"source": "truth", "future": draw, **row} for row in sections]
    return pl.DataFrame(rows)


def _wage_rows(wages: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"year": h, "group": EVERYBODY, "statistic": "wages", "value": float(value)}
        for h, value in enumerate(wages, start=1)
    ]


def true_wages(futures: Path) -> dict[int, list[float]]:
    """The real wage index of each drawn future by year, 1 in the last year of record."""
    return {
        draw: (1 + economy["real_wage_growth"]).cum_prod().to_list()
        for draw, economy in macro_of_futures(futures).items()
    }


def compare(sections: pl.DataFrame, *, paired: bool = False) -> pl.DataFrame:
    """One row per statistic and year, from simulated and true sections together.

    Columns: means and standard deviations over futures of both, the `difference` of means with its
    standard error (as a share of the true mean for relative statistics), numbers of futures. Years
    without truth have no row. With a single future on a side the standard error is null.

    `paired`: futures with the same number have the same economy on both sides, and the standard
    error over futures is that of their differences. It includes the random variation of persons in
    each future, which the part over persons includes again, so it is too large, not too small.
    """
    summaries = (
        sections.filter(group=EVERYBODY)
        .group_by("source", "statistic", "year")
        .agg(
            mean=pl.col("value").mean(),
            sd=pl.col("value").std(),
            low=pl.col("value").quantile(0.05, "linear"),
            high=pl.col("value").quantile(0.95, "linear"),
            futures=pl.len(),
        )
    )
    model, truth = (summaries.filter(source=source).drop("source") for source in ("model", "truth"))
    both = model.join(truth, on=["statistic", "year"], suffix="_true").join(
        _over_persons(sections), on=["statistic", "year"], how="left"
    )
    relative = pl.col("statistic").is_in([name for name, s in BY_NAME.items() if s.relative])
    unit = pl.when(relative).then(pl.col("mean_true").abs()).otherwise(pl.lit(1.0))
    over_futures = pl.col("sd") ** 2 / pl.col("futures") + pl.col("sd_true") ** 2 / pl.col(
        "futures_true"
    )
    if paired:
        both = both.join(_paired_spread(sections), on=["statistic", "year"], how="left")
        over_futures = pl.col("sd_difference") ** 2 / pl.col("pairs")
    error = (over_futures + pl.col("over_persons").fill_null(0.0) ** 2).sqrt()
    order = {name: i for i, name in enumerate(BY_NAME)}
    rank = pl.col("statistic").replace_strict(order, return_dtype=pl.Int32)
    compared = both.with_columns(
        difference=(pl.col("mean") - pl.col("mean_true")) / unit, se=error / unit
    )
    return compared.drop("over_persons", "sd_difference", "pairs", strict=False).sort(rank, "year")


def _paired_spread(sections: pl.DataFrame) -> pl.DataFrame:
    """Standard deviation over futures of the difference between model and truth."""
    everybody = sections.filter(group=EVERYBODY)
    model, truth = (
        everybody.filter(source=source).drop("source", "group") for source in ("model", "truth")
    )
    both = model.join(truth, on=["future", "statistic", "year"], suffix="_true")
    return both.group_by("statistic", "year").agg(
        sd_difference=(pl.col("value") - pl.col("value_true")).std(), pairs=pl.len()
    )


def _over_persons(sections: pl.DataFrame) -> pl.DataFrame:
    """Standard error of the difference over persons, from the spread over random groups."""
    means = (
        sections.filter(pl.col("group") != EVERYBODY)
        .group_by("source", "group", "statistic", "year")
        .agg(pl.col("value").mean())
    )
    model, truth = (means.filter(source=source).drop("source") for source in ("model", "truth"))
    paired = model.join(truth, on=["group", "statistic", "year"], suffix="_true")
    difference = pl.col("value") - pl.col("value_true")
    return paired.group_by("statistic", "year").agg(
        over_persons=difference.std() / pl.len().cast(pl.Float64).sqrt()
    )


def judge(table: pl.DataFrame) -> pl.DataFrame:
    """One row per statistic: the difference in the first, last and worst year, and the verdict.

    `holds`: within the tolerance in every year. `fails`: beyond it by more than SURE standard
    errors in some year. Otherwise `unclear`. `sd_ratio` is the spread of the model's futures over
    that of the true ones, root mean square over years; 1 is right.
    """
    rows = []
    for (name,), part in table.group_by(["statistic"], maintain_order=True):
        statistic = BY_NAME[str(name)]
        gap, se = part["difference"].to_numpy(), part["se"].fill_null(np.inf).to_numpy()
        spread, spread_true = (_root_mean_square(part[side]) for side in ("sd", "sd_true"))
        worst = int(np.argmax(np.abs(gap)))
        verdict = "holds" if abs(gap[worst]) <= statistic.tolerance else "unclear"
        if (np.abs(gap) - SURE * se > statistic.tolerance).any():
            verdict = "fails"
        rows.append(
            {
                "statistic": statistic.name,
                "meaning": statistic.meaning,
                "relative": statistic.relative,
                "tolerance": statistic.tolerance,
                "first": gap[0],
                "last": gap[-1],
                "worst": gap[worst],
                "worst_se": part["se"][worst],
                "worst_year": part["year"][worst],
                "sd_ratio": spread / spread_true if spread_true else np.nan,
                "verdict": verdict,
            }
        )
    return pl.DataFrame(rows)


def _root_mean_square(values: pl.Series) -> float:
    numbers = values.drop_nulls().to_numpy()
    return float(np.sqrt((numbers**2).mean())) if len(numbers) else float("nan")


def to_markdown(
    judged: pl.DataFrame, table: pl.DataFrame, years: Sequence[int], provenance: Mapping[str, Any]
) -> str:
    """The page: verdicts, then model and truth in some years."""
    shown, values = _in_years(table, years)
    rows = [
        [
            BY_NAME[name].meaning,
            *(_pair(values.get((name, year)), money=name in MONEY) for year in shown),
        ]
        for name in judged["statistic"]
    ]
    parts = [
        "# The cross-section over the years",
        "\n".join(f"- {name}: {value}" for name, value in provenance.items()),
        _verdict_table(judged),
        "Model / truth, means over futures (± one standard deviation between true futures):",
        markdown_table(["statistic", *(f"{year} years" for year in shown)], rows),
    ]
    return "\n\n".join(parts) + "\n"


def differences_markdown(judged: pl.DataFrame, table: pl.DataFrame, years: Sequence[int]) -> str:
    """One row per statistic: differences of means with their standard errors, and the verdict."""
    shown, values = _in_years(table, years)
    rows = []
    for row in judged.iter_rows(named=True):
        form = _percent if row["relative"] else _plain
        cells = []
        for year in shown:
            value = values.get((row["statistic"], year))
            cells.append(
                "" if value is None else _with_error(form, value["difference"], value["se"])
            )
        tolerance = form(row["tolerance"], sign=False)
        rows.append([row["meaning"], *cells, tolerance, row["verdict"]])
    header = ["statistic", *(f"{year} years" for year in shown), "tolerance", "verdict"]
    return markdown_table(header, rows) + "\n"


def _verdict_table(judged: pl.DataFrame) -> str:
    rows = []
    for row in judged.iter_rows(named=True):
        form = _percent if row["relative"] else _plain
        worst = _with_error(form, row["worst"], row["worst_se"])
        rows.append(
            [
                row["meaning"],
                form(row["first"]),
                form(row["last"]),
                f"{worst} ({row['worst_year']})",
                form(row["tolerance"], sign=False),
                f"{row['sd_ratio']:.2f}",
                row["verdict"],
            ]
        )
    header = [
        *("statistic", "first year", "last year", "worst (year)", "tolerance"),
        *("spread of futures over the true one", "verdict"),
    ]
    return markdown_table(header, rows)


def _in_years(
    table: pl.DataFrame, years: Sequence[int]
) -> tuple[list[int], dict[tuple[str, int], dict[str, Any]]]:
    """The years that the table has, and its rows by (statistic, year)."""
    rows = {(r["statistic"], r["year"]): r for r in table.iter_rows(named=True)}
    available = {year for _, year in rows}
    return [year for year in years if year in available], rows


def _with_error(form: Callable[..., str], value: float, error: float | None) -> str:
    return form(value) + ("" if error is None else f" ± {form(error, sign=False)}")


def _pair(row: Mapping[str, Any] | None, *, money: bool) -> str:
    if row is None:
        return ""
    form = "{:,.0f}" if money else "{:.3f}"
    spread = "" if row["sd_true"] is None else " ± " + form.format(row["sd_true"])
    return f"{form.format(row['mean'])} / {form.format(row['mean_true'])}{spread}"


def _percent(value: float, *, sign: bool = True) -> str:
    return f"{100 * value:+.1f} %" if sign else f"{100 * value:.1f} %"


def _plain(value: float, *, sign: bool = True) -> str:
    return f"{value:+.3f}" if sign else f"{value:.3f}"
