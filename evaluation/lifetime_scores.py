"""Lifetimes in the contest: present values, simulated and realised, and the tax on them.

Origins are those of the forward setting. A lifetime is counted from the year after the origin to
age 64, or to the last year of the register's futures. Realised lifetimes are stored in the same
form as simulated ones, with a drawn macro future instead of a path. A person who emigrates in
future k has no realised lifetime in it. Statistics of future k leave the person out, and so do
those of every simulated path whose number is k modulo the number of futures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from saga.evaluation.cache import file_name, store
from saga.evaluation.contestants import (
    BundleContestant,
    Contestant,
    LazyContestant,
    PathContestant,
)
from saga.evaluation.scoring.comparison import two_way_test
from saga.evaluation.scoring.ensemble_scores import crps
from saga.evaluation.scoring.evaluation_settings import Setting
from saga.evaluation.scoring.futures import true_futures
from saga.evaluation.scoring.year_forecasts import nominal_sets

from saga.arrays import Floats
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.published_sets import value_intervals
from saga.data.origins import Origins
from saga.lifetime import STATISTICS, gini, realised_value
from saga.paths import Paths
from saga.requests import RATE
from saga.schema import MAX_AGE, PRICE_YEAR
from saga.tax.tax_rules import resolve_tax

LIFETIMES_VERSION = 2
RATES = (0.0, 0.01, RATE, 0.03)
RULES = ("paper", "se-2022")
TRUTH = "true"
AGE_BAND = 10  # years
COVERAGE_90 = 0.9
VALUES = (*(f"value:{rate:g}" for rate in RATES), *(f"tax:{rule}" for rule in RULES))
SCHEMA = pa.schema(
    [
        ("person_id", pa.string()),
        ("age", pa.int32()),
        ("years", pa.int32()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
    ]
    + [(name, pa.list_(pa.float32())) for name in VALUES]
)
COLUMNS = {
    "model": pl.String(),
    "group": pl.String(),
    "statistic": pl.String(),
    "rate": pl.Float64(),
    "value": pl.Float64(),
    "se": pl.Float64(),
    "sd_futures": pl.Float64(),
    "n": pl.Int64(),
    "years": pl.String(),
}


@dataclass(frozen=True, eq=False)
class LifetimeValues:
    """Present values and taxes of n persons.

    Args:
        person_id: (n,).
        age: (n,), at the origin.
        lower: (n,), lower end of the 90 % interval of the present value at 2 %, real money; NaN
            for realised lifetimes.
        upper: (n,), upper end of that interval.
        values: Name of VALUES -> (n, M), real money.
    """

    person_id: NDArray[np.str_]
    age: NDArray[np.int64]
    lower: Floats
    upper: Floats
    values: Mapping[str, Floats]

    @classmethod
    def read(cls, file: Path) -> LifetimeValues:
        """A file of `LifetimeTask`."""
        frame = pl.read_parquet(file, glob=False)
        values = {
            name: frame[name].explode().to_numpy().reshape(frame.height, -1).astype(np.float64)
            for name in VALUES
        }
        lower, upper = (frame[name].fill_null(np.nan).to_numpy() for name in ("lower", "upper"))
        person_id = np.array(frame["person_id"].to_list())
        return cls(person_id, frame["age"].to_numpy().astype(np.int64), lower, upper, values)


@dataclass(frozen=True)
class LifetimeTask:
    """The lifetimes to forecast: persons of the forward setting, futures in `directory`."""

    directory: Path
    setting: Setting
    n_paths: int
    seed: int

    @cached_property
    def birth_year(self) -> NDArray[np.int64]:
        """Birth years (n,) in the order of the origins."""
        born = self.setting.past.frame.group_by("person_id").agg(pl.col("birth_year").first())
        order = self.setting.origins.frame().join(
            born, on="person_id", how="left", maintain_order="left"
        )
        return order["birth_year"].to_numpy().astype(np.int64)

    @cached_property
    def years(self) -> NDArray[np.int64]:
        """Number of years (n,) in each lifetime: to age 64, or as far as the futures reach."""
        register = json.loads((self.directory / "register.json").read_text(encoding="utf-8"))
        future_years = int(register["future_to"]) - self.setting.origins.year
        return np.asarray(np.minimum(self._years_to_64, future_years))

    @property
    def reach(self) -> str:
        """How far lifetimes are counted, in words."""
        if np.array_equal(self.years, self._years_to_64):
            return f"to age {MAX_AGE}"
        return f"to age {MAX_AGE}, at most {int(self.years.max())} years"

    def store_simulated(self, contestant: Contestant, folder: Path) -> Path:
        """The file in `folder` of one contestant's lifetimes, computed unless it is stored."""
        lazy = LazyContestant.of(contestant)

        def tables() -> Iterator[pa.Table]:
            opened = lazy.open()
            if not isinstance(opened, PathContestant):
                raise TypeError(f"{lazy.name} simulates no paths, which lifetimes need")
            blocks = opened.paths(
                self.setting.past,
                self.setting.origins,
                to_horizon=int(self.years.max()),
                n_paths=self.n_paths,
                seed=self.seed,
            )
            yield from simulated_lifetimes(opened, blocks, self.years, taxed=self._taxed)

        inputs = {**self._inputs, "key": lazy.key, "paths": self.n_paths, "seed": self.seed}
        path = folder / file_name(lazy.name, "lives", inputs)
        if lazy.key is None:  # a stored file may be of another contestant
            path.unlink(missing_ok=True)
        return store(path, SCHEMA, tables(), lambda: {"model": lazy.name})

    def store_realised(self, folder: Path) -> Path:
        """The file in `folder` of the lifetimes that the register drew."""
        tables = realised_lifetimes(
            self.directory,
            self.setting.origins,
            self.birth_year,
            self.years,
            price_year=self.setting.past.meta.price_year,
            taxed=self._taxed,
        )
        path = folder / file_name(TRUTH, "lives", self._inputs)
        return store(path, SCHEMA, tables, lambda: {"model": TRUTH})

    @property
    def _years_to_64(self) -> NDArray[np.int64]:
        return np.asarray(self.birth_year + MAX_AGE - self.setting.origins.year)

    @property
    def _taxed(self) -> bool:
        """Whether the tax rules apply: only to Swedish money in prices of their year."""
        meta = self.setting.past.meta
        return (meta.currency, meta.price_year) == ("SEK", PRICE_YEAR)

    @property
    def _inputs(self) -> dict[str, Any]:
        return {
            "setting": self.setting.digest,
            "years": self.years.tolist(),
            "version": LIFETIMES_VERSION,
        }


def simulated_lifetimes(
    contestant: Contestant, blocks: Iterator[Paths], years: NDArray[np.int64], *, taxed: bool
) -> Iterator[pa.Table]:
    """Tables of SCHEMA, one per block of persons, from a contestant's paths (n, H, M).

    The first `years` (n,) of each person count. Intervals of the bundle are those of its calibrator
    if it has thresholds of present values; others contain 90 % of the samples.
    """
    done = 0
    for paths in blocks:
        block_years = years[done : done + len(paths)]
        earnings = np.moveaxis(paths.earnings, 2, 0).astype(np.float64)
        values = _values(earnings, block_years, taxed)
        counted = _counted(np.sort(earnings, axis=0), block_years)
        simulated = SimulatedValues(values[f"value:{RATE:g}"], _present_values(counted, RATE))
        calibrator = (
            contestant.forecaster.calibrator if isinstance(contestant, BundleContestant) else None
        )
        if calibrator is not None and calibrator.has_present_values:
            intervals = value_intervals(calibrator, simulated, block_years, [COVERAGE_90], RATE)
            lower, upper = intervals.lower[:, 0], intervals.upper[:, 0]
        else:
            ends = nominal_sets(simulated.distribution, [COVERAGE_90], simulated.n_paths)
            lower, upper = ends[0][:, 0, 0], ends[1][:, 0, 0]
        age = paths.origin_year - paths.birth_year
        yield _table(paths.person_id, age, block_years, lower, upper, values)
        done += len(paths)


def realised_lifetimes(
    directory: Path,
    origins: Origins,
    birth_year: NDArray[np.int64],
    years: NDArray[np.int64],
    *,
    price_year: int,
    taxed: bool,
) -> Iterator[pa.Table]:
    """One table of SCHEMA: drawn lifetimes (n, D) over macro futures, NaN if a year is abroad."""
    horizons = range(1, int(years.max()) + 1)
    draws = [
        _values(outcomes[None], years, taxed)
        for _, outcomes in true_futures(directory, origins, horizons, price_year=price_year)
    ]
    values = {name: np.concatenate([draw[name] for draw in draws], axis=1) for name in VALUES}
    no_sets = np.full(len(origins), np.nan)
    yield _table(origins.person_id, origins.year - birth_year, years, no_sets, no_sets, values)


def lifetime_table(files: Mapping[str, Path], years: str) -> pl.DataFrame:
    """Statistics of lifetimes from the files of every model and of TRUTH.

    Distributions over persons are computed for each path and averaged over paths:

    - earnings: `mean`, `p10`, `p50`, `p90`, `p99`, `gini` and `top_1_share`;
    - tax, with the rule in the name: `tax:*:mean`, `tax:*:rate` (mean of tax / lifetime earnings
      over positive lifetime earnings), `tax:*:rate_p99` and `tax:*:gini`.

    Forecasts of single lifetimes have `crps` at every rate, `coverage_90` and `bias` (mean forecast
    divided by mean outcome, less 1); their `se` is clustered by person and future. `sd_futures` is
    the standard deviation over paths or futures. Groups are `all` and 10-year age bands at the
    origin.

    Args:
        files: Model -> file.
        years: How far lifetimes are counted, in words.

    Returns:
        Rows of COLUMNS, one per (model, group, statistic, rate).
    """
    truth = LifetimeValues.read(files[TRUTH])
    bands = truth.age // AGE_BAND * AGE_BAND
    masks = {"all": np.ones(len(bands), dtype=bool)}
    masks |= {
        f"age={band}-{band + AGE_BAND - 1}": bands == band for band in np.unique(bands).tolist()
    }
    rows: list[dict[str, Any]] = []
    for model, file in files.items():
        lifetimes = LifetimeValues.read(file)
        if not np.array_equal(lifetimes.person_id, truth.person_id):
            raise ValueError(
                f"the lifetimes of {model} belong to other persons than those of {TRUTH}"
            )
        for group, mask in masks.items():
            shared = {"model": model, "group": group, "years": years, "n": int(mask.sum())}
            rows += [{**shared, **row} for row in _distribution(lifetimes, truth, mask)]
            if model != TRUTH:
                rows += [{**shared, **row} for row in _scores(lifetimes, truth, mask)]
    return pl.DataFrame(rows, schema=COLUMNS)


def _values(earnings: Floats, years: NDArray[np.int64], taxed: bool) -> dict[str, Floats]:
    """Name of VALUES -> (n, M) from earnings (M, n, H); taxes are NaN unless `taxed`."""
    counted = _counted(earnings, years)
    values = {f"value:{rate:g}": _present_values(counted, rate) for rate in RATES}
    for rule in RULES:
        tax = resolve_tax(rule).policy.tax(counted) if taxed else np.full(counted.shape, np.nan)
        values[f"tax:{rule}"] = _present_values(tax, RATE)
    return values


def _counted(earnings: Floats, years: NDArray[np.int64]) -> Floats:
    """Earnings (M, n, H), 0 after the first `years` (n,) of each person."""
    return np.where(np.arange(1, earnings.shape[2] + 1) <= years[:, None], earnings, 0.0)


def _present_values(amounts: Floats, rate: float) -> Floats:
    """Present values (n, M) of amounts (M, n, H)."""
    return np.stack([realised_value(path, rate=rate) for path in amounts], axis=1)


def _table(
    person_id: NDArray[np.str_],
    age: NDArray[Any],
    years: NDArray[Any],
    lower: Floats,
    upper: Floats,
    values: Mapping[str, Floats],
) -> pa.Table:
    columns: dict[str, Any] = {
        "person_id": person_id.tolist(),
        "age": age.astype(np.int32),
        "years": years.astype(np.int32),
        "lower": lower,
        "upper": upper,
    }
    for name in VALUES:
        flat = pa.array(values[name].astype(np.float32).ravel())
        offsets = np.arange(len(person_id) + 1, dtype=np.int32) * values[name].shape[1]
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets), flat)
    return pa.table(columns).select(SCHEMA.names)


def _distribution(
    lifetimes: LifetimeValues, truth: LifetimeValues, mask: NDArray[np.bool_]
) -> Iterator[dict[str, Any]]:
    """Rows of the statistics of present values and taxes over persons, as means over paths."""
    value_name = f"value:{RATE:g}"
    value = lifetimes.values[value_name]
    realised = ~np.isnan(truth.values[value_name])
    paths = range(value.shape[1])
    included = [mask & realised[:, k % realised.shape[1]] for k in paths]

    def over_paths(
        name: str, statistic: Callable[[Floats, Floats], float]
    ) -> dict[str, Any] | None:
        amounts = lifetimes.values[name]
        by_path = np.array(
            [
                statistic(amounts[persons, k], value[persons, k]) if persons.any() else np.nan
                for k, persons in zip(paths, included, strict=True)
            ]
        )
        by_path = by_path[np.isfinite(by_path)]
        if not len(by_path):
            return None
        sd = float(by_path.std(ddof=1)) if len(by_path) > 1 else None
        return {"rate": RATE, "value": float(by_path.mean()), "se": None, "sd_futures": sd}

    for statistic, function in STATISTICS.items():
        if row := over_paths(value_name, partial(_ranked_statistic, function)):
            yield {"statistic": statistic, **row}
    for rule in (rule for rule in RULES if np.isfinite(lifetimes.values[f"tax:{rule}"]).any()):
        for kind, measure in _TAX.items():
            if row := over_paths(f"tax:{rule}", measure):
                yield {"statistic": f"tax:{rule}:{kind}", **row}


def _ranked_statistic(function: Callable[[Floats], Any], amounts: Floats, _: Floats) -> float:
    return float(function(np.sort(amounts)))


def _effective(tax: Floats, value: Floats) -> Floats:
    earned = value > 0
    return np.asarray(tax[earned] / value[earned])


_TAX: dict[str, Callable[[Floats, Floats], float]] = {
    "mean": lambda tax, _: float(tax.mean()),
    "rate": lambda tax, value: (
        float(_effective(tax, value).mean()) if (value > 0).any() else np.nan
    ),
    "rate_p99": lambda tax, value: (
        float(np.quantile(_effective(tax, value), 0.99)) if (value > 0).any() else np.nan
    ),
    "gini": lambda tax, _: float(gini(np.sort(tax, axis=0))),
}


def _scores(
    lifetimes: LifetimeValues, truth: LifetimeValues, mask: NDArray[np.bool_]
) -> Iterator[dict[str, Any]]:
    """Rows of the scores of present values: CRPS, coverage and relative bias."""
    for rate in RATES:
        samples = lifetimes.values[f"value:{rate:g}"][mask]
        outcomes = truth.values[f"value:{rate:g}"][mask]
        scores = [crps(samples[:, None], outcome[:, None])[:, 0] for outcome in outcomes.T]
        if row := _mean_row(np.stack(scores, axis=1)):
            yield {"statistic": "crps", "rate": rate, **row}
    present = truth.values[f"value:{RATE:g}"][mask]
    lower, upper = lifetimes.lower[mask, None], lifetimes.upper[mask, None]
    inside = np.where(
        np.isnan(present) | np.isnan(lower), np.nan, (lower <= present) & (present <= upper)
    )
    if row := _mean_row(inside):
        yield {"statistic": "coverage_90", "rate": RATE, **row}
    observed = ~np.isnan(present)
    mean = present[observed].mean() if observed.any() else np.nan
    forecast = lifetimes.values[f"value:{RATE:g}"][mask].mean(axis=1)
    if mean > 0 and (row := _mean_row(np.where(observed, forecast[:, None] / mean, np.nan))):
        # The standard error is that of forecast minus outcome; `sd_futures` is of forecasts alone.
        error = _mean_row(np.where(observed, (forecast[:, None] - present) / mean, np.nan))
        row |= {"value": row["value"] - 1, "se": error and error["se"]}
        yield {"statistic": "bias", "rate": RATE, **row}


def _mean_row(scores: Floats) -> dict[str, Any] | None:
    """Mean of scores (n, D), its standard error clustered by person and future, and spread."""
    person, draw = np.nonzero(np.isfinite(scores))
    if not len(person):
        return None
    test = two_way_test(scores[person, draw], person, draw)
    means = np.array([scores[np.isfinite(scores[:, k]), k].mean() for k in np.unique(draw)])
    return {
        "value": float(scores[person, draw].mean()),
        "se": test["se"] if test else None,
        "sd_futures": float(means.std(ddof=1)) if len(means) > 1 else None,
    }
