"""The simulated population beside the true futures of the same people: does its cross-section drift as the years go by.

A path is one macro future for everybody, and so is a drawn future of the register. Each gives one cross-section a year, and each
statistic a law over futures: its mean and its spread. A difference of means is uncertain for two reasons, whose variances are added: few
futures were drawn, and few persons, all of whose true futures start from the one life that each of them has led.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import rankdata

from evaluation.scoring.futures import true_economies, true_futures
from saga.data.origins import Origins, history, last_year, origins_at
from saga.data.panel import FLOOR, Panel
from saga.data.split import unseen_persons
from saga.errors import InputError, Problem
from saga.keyed_random import sample_rows
from saga.schema import MAX_AGE

Array = NDArray[np.float64]
MOBILITY = 5  # years between the ranks that are correlated
AGES = ((20, 34), (35, 49), (50, 64))
SURE = 3.0  # standard errors
GROUPS = 10  # of persons, for the standard error over persons (random groups: Wolter 2007, ch. 2)
FEWEST = 50  # persons of whom a statistic is taken
EVERYBODY = -1


@dataclass(frozen=True)
class Statistic:
    """What is compared: `tolerance` is what a difference of means may be, as a share of the true mean (`relative`) or as it is."""

    name: str
    meaning: str
    tolerance: float
    relative: bool = False


STATISTICS = (
    Statistic(
        "wages", "real wage index of the economy, 1 in the last year of record", 0.05, relative=True
    ),
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
        for a, b in AGES
    ),
)
BY_NAME = {statistic.name: statistic for statistic in STATISTICS}


@dataclass(frozen=True)
class Persons:
    """Who is followed: `origins`, birth years (n,), sex (n,) ("female", "male" or ""), earnings at the origin (n,), NaN unknown."""

    past: Panel
    origins: Origins
    born: NDArray[np.int64]
    sex: NDArray[np.str_]
    before: Array


def followed(panel: Panel, *, trained_on: str | None, persons: int | None = None) -> Persons:
    """Everybody with an origin in the panel's last year; a keyed choice of `persons` of them, and of the test persons alone where the
    panel is the one that the model was trained on."""
    origins = origins_at(unseen_persons(panel, trained_on), last_year(panel))
    if not len(origins):
        fix = "Give a register with residents of 20 to 60 years in its last year."
        raise InputError(
            "There is nobody to follow",
            [Problem("no-origins", "no person is eligible in the panel's last year", fix)],
        )
    ids = origins.person_id.tolist()
    origins = origins.take(sample_rows(ids, persons, "cross-section", panel.meta.panel_id))
    past = history(panel.only(origins.person_id.tolist()), origins)
    last = past.frame.filter(pl.col("year") == last_year(panel)).select(
        "birth_year", "sex", "earnings"
    )
    sex = np.array(last["sex"].fill_null("").to_list(), dtype=np.str_)
    before = last["earnings"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return Persons(past, origins, last["birth_year"].to_numpy().astype(np.int64), sex, before)


def cross_sections(who: Persons, future: Array, floor: float = FLOOR) -> Iterator[dict[str, Any]]:
    """`year` (ahead), `group`, `statistic`, `value` of one future: `future` (n, H) real earnings, NaN not observed.

    `group` is -1 for everybody, and 0 to 9 for tenths of the persons. The dead count as zeros until the age of 64, after which nobody
    counts. A statistic of fewer than 50 persons (5 in a tenth) is left out.
    """
    yield from _sections(who, future, np.ones(len(future), np.bool_), EVERYBODY, floor, FEWEST)
    for group in range(GROUPS):
        yield from _sections(
            who, future, np.arange(len(future)) % GROUPS == group, group, floor, FEWEST // GROUPS
        )


def _sections(
    who: Persons, future: Array, mine: NDArray[np.bool_], group: int, floor: float, fewest: int
) -> Iterator[dict[str, Any]]:
    lives = np.column_stack([who.before, future])
    age = who.origins.year - who.born
    for h in range(1, lives.shape[1]):
        now, past = lives[:, h], lives[:, h - 1]
        known = mine & np.isfinite(now) & (age + h <= MAX_AGE)
        if known.sum() < fewest:
            return
        positive = now[known & (now > 0)]
        p10, p50, p90 = np.quantile(positive, [0.1, 0.5, 0.9]) if len(positive) else [np.nan] * 3
        found = {
            "mean": now[known].mean(),
            "p10": p10,
            "p50": p50,
            "p90": p90,
            "p10_p50": p10 / p50,
            "p90_p50": p90 / p50,
        }
        found |= {"gini": gini(now[known]), "zero": (now[known] == 0).mean()}
        working = known & (now >= floor) & (past >= floor)
        found["volatility"] = (
            np.std(np.log(now[working] / past[working])) if working.sum() >= fewest else np.nan
        )
        if h >= MOBILITY:
            both = known & np.isfinite(lives[:, h - MOBILITY])
            ranks = (rankdata(lives[both, year]) for year in (h, h - MOBILITY))
            found["mobility"] = np.corrcoef(*ranks)[0, 1] if both.sum() >= fewest else np.nan
        for sex, code in (("women", "female"), ("men", "male")):
            for low, high in AGES:
                cell = known & (who.sex == code) & (age + h >= low) & (age + h <= high)
                found[f"zero_{sex}_{low}_{high}"] = (
                    (now[cell] == 0).mean() if cell.sum() >= fewest else np.nan
                )
        yield from (
            {"year": h, "group": group, "statistic": name, "value": float(value)}
            for name, value in found.items()
            if np.isfinite(value)
        )


def gini(earnings: Array) -> float:
    """Gini coefficient of non-negative amounts (n,): half the mean absolute difference over the mean; NaN where all are zero."""
    ordered = np.sort(np.asarray(earnings, np.float64))
    n, total = len(ordered), ordered.sum()
    return (
        float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total))
        if total > 0
        else float("nan")
    )


def simulated(
    who: Persons, drawn: NDArray[np.floating[Any]], *, wages: Array | None = None
) -> pl.DataFrame:
    """Cross-sections of every path: columns `source` ("model"), `future` and those of `cross_sections`.

    `drawn` (n, H, K): the model's paths of the persons, real money; `wages` (K, H): the real wage index of its economies, 1 in the last
    year of record, to be set beside the true one: it tells drift of the economy from drift of the people in it.
    """
    floor = who.past.meta.floor or 1.0
    rows: list[dict[str, Any]] = []
    for k in range(drawn.shape[2]):
        found = [
            *cross_sections(who, drawn[..., k].astype(np.float64), floor),
            *_economy([] if wages is None else wages[k].tolist()),
        ]
        rows += [{"source": "model", "future": k, **row} for row in found]
    return pl.DataFrame(rows)


def true(who: Persons, futures: Path, years: int) -> pl.DataFrame:
    """As `simulated`, of every drawn future of the register in the directory `futures`; `source` is "truth"."""
    wages, rows = true_wages(futures), []
    for draw, outcomes in true_futures(
        futures, who.origins, range(1, years + 1), price_year=who.past.meta.price_year
    ):
        found = [
            *cross_sections(who, outcomes, who.past.meta.floor or 1.0),
            *_economy(wages[draw][:years]),
        ]
        rows += [{"source": "truth", "future": draw, **row} for row in found]
    return pl.DataFrame(rows)


def _economy(wages: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"year": h, "group": EVERYBODY, "statistic": "wages", "value": float(value)}
        for h, value in enumerate(wages, start=1)
    ]


def true_wages(futures: Path) -> dict[int, list[float]]:
    """The real wage index by draw of the register's future economies, one number a year, 1 in the last year of record."""
    return {
        draw: (1 + economy["real_wage_growth"]).cum_prod().to_list()
        for draw, economy in true_economies(futures).items()
    }


def compare(sections: pl.DataFrame, *, paired: bool = False) -> pl.DataFrame:
    """One row a statistic and year from `simulated` and `true` together: means and standard deviations over futures of both, the
    `difference` of means with its standard error (as a share of the true mean for relative statistics), and how many futures each has.

    `paired`: a future of one number is the same economy on both sides, and the standard error over futures that of their differences. It
    holds the persons' luck in each future, which the part over persons holds again: it errs on the wide side.
    Rows stop where the truth does. With a single future on a side there is no standard error: null.
    """
    laws = (
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
    model, truth = (laws.filter(source=source).drop("source") for source in ("model", "truth"))
    both = model.join(truth, on=["statistic", "year"], suffix="_true").join(
        _over_persons(sections), on=["statistic", "year"], how="left"
    )
    relative = pl.col("statistic").is_in([s.name for s in STATISTICS if s.relative])
    unit = pl.when(relative).then(pl.col("mean_true").abs()).otherwise(pl.lit(1.0))
    over_futures = pl.col("sd") ** 2 / pl.col("futures") + pl.col("sd_true") ** 2 / pl.col(
        "futures_true"
    )
    if paired:
        both = both.join(_apart(sections), on=["statistic", "year"], how="left")
        over_futures = pl.col("sd_apart") ** 2 / pl.col("pairs")
    error = (over_futures + pl.col("over_persons").fill_null(0.0) ** 2).sqrt()
    order = {statistic.name: i for i, statistic in enumerate(STATISTICS)}
    rank = pl.col("statistic").replace_strict(order, return_dtype=pl.Int32)
    judged = both.with_columns(
        difference=(pl.col("mean") - pl.col("mean_true")) / unit, se=error / unit
    )
    return judged.drop("over_persons", "sd_apart", "pairs", strict=False).sort(rank, "year")


def _apart(sections: pl.DataFrame) -> pl.DataFrame:
    """Standard deviation over futures of the difference between the model and the truth in the same one, by statistic and year."""
    everybody = sections.filter(group=EVERYBODY)
    model, truth = (
        everybody.filter(source=source).drop("source", "group") for source in ("model", "truth")
    )
    both = model.join(truth, on=["future", "statistic", "year"], suffix="_true")
    return both.group_by("statistic", "year").agg(
        sd_apart=(pl.col("value") - pl.col("value_true")).std(), pairs=pl.len()
    )


def _over_persons(sections: pl.DataFrame) -> pl.DataFrame:
    """Standard error of the difference of means over persons, by statistic and year: from the spread of the differences between groups."""
    means = (
        sections.filter(pl.col("group") != EVERYBODY)
        .group_by("source", "group", "statistic", "year")
        .agg(pl.col("value").mean())
    )
    model, truth = (means.filter(source=source).drop("source") for source in ("model", "truth"))
    apart = model.join(truth, on=["group", "statistic", "year"], suffix="_true")
    difference = pl.col("value") - pl.col("value_true")
    return apart.group_by("statistic", "year").agg(
        over_persons=difference.std() / pl.len().cast(pl.Float64).sqrt()
    )


def verdicts(table: pl.DataFrame) -> pl.DataFrame:
    """One row a statistic from `compare`: the difference in the first and last year, the worst one with its year, and the verdict.

    `holds`: within the tolerance in every year; `fails`: beyond it by more than 3 standard errors in some year; else `unclear`.
    `sd_ratio`: how far futures lie apart in the model over how far they do in truth, root mean square over years (1: an honest spread).
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
    known = values.drop_nulls().to_numpy()
    return float(np.sqrt((known**2).mean())) if len(known) else float("nan")


def as_markdown(
    judged: pl.DataFrame, table: pl.DataFrame, years: Sequence[int], provenance: Mapping[str, Any]
) -> str:
    """The page: verdicts, then model and truth in some years."""
    lines = [
        "# The cross-section as the years go by",
        "",
        *(f"- {name}: {value}" for name, value in provenance.items()),
        "",
    ]
    lines += _verdict_lines(judged)
    lines += [
        "",
        "Model / truth, means over futures (± one standard deviation between true futures):",
        "",
    ]
    shown = [year for year in years if year in set(table["year"].to_list())]
    lines += [
        f"| statistic | {' | '.join(f'{year} years' for year in shown)} |",
        "|---|" + "---|" * len(shown),
    ]
    values = {(r["statistic"], r["year"]): r for r in table.iter_rows(named=True)}
    for name in judged["statistic"]:
        cells = [
            _pair(values.get((name, year)), money=name in ("mean", "p10", "p50", "p90"))
            for year in shown
        ]
        lines.append(f"| {BY_NAME[name].meaning} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def differences(judged: pl.DataFrame, table: pl.DataFrame, years: Sequence[int]) -> str:
    """A row a statistic: the difference of means in some years with its standard error, and the verdict."""
    shown = [year for year in years if year in set(table["year"].to_list())]
    lines = [
        f"| statistic | {' | '.join(f'{year} years' for year in shown)} | tolerance | verdict |",
        "|---|" + "---|" * (len(shown) + 2),
    ]
    found = {(r["statistic"], r["year"]): r for r in table.iter_rows(named=True)}
    for row in judged.iter_rows(named=True):
        form = _percent if row["relative"] else _plain
        cells = []
        for year in shown:
            at = found.get((row["statistic"], year))
            error = "" if at is None or at["se"] is None else f" ± {form(at['se'], sign=False)}"
            cells.append("" if at is None else form(at["difference"]) + error)
        lines.append(
            f"| {row['meaning']} | {' | '.join(cells)} | {form(row['tolerance'], sign=False)} | {row['verdict']} |"
        )
    return "\n".join(lines) + "\n"


def _verdict_lines(judged: pl.DataFrame) -> list[str]:
    lines = [
        "| statistic | first year | last year | worst (year) | tolerance | spread of futures over the true one | verdict |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for row in judged.iter_rows(named=True):
        form = _percent if row["relative"] else _plain
        error = "" if row["worst_se"] is None else f" ± {form(row['worst_se'], sign=False)}"
        lines.append(
            f"| {row['meaning']} | {form(row['first'])} | {form(row['last'])} | {form(row['worst'])}{error} ({row['worst_year']}) "
            f"| {form(row['tolerance'], sign=False)} | {row['sd_ratio']:.2f} | {row['verdict']} |"
        )
    return lines


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
