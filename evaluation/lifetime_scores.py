"""Lifetimes in the contest: what simulated lives add up to, and the tax on them, against the lives that the register truly drew.

Origins are the forward setting's. A life is counted from the year after the origin to age 64, or as many years as the register's futures
reach. True lives come in the same form as simulated ones, a drawn macro future in the place of a path, and are judged by the same
functions. Emigrants are nobody's in the futures they leave in: path k leaves out whom draw k (counted round) has lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from evaluation.cache import code_digest, file_name, keep
from evaluation.contestants import Contestant, Entrant, Model
from evaluation.scoring.comparison import two_way
from evaluation.scoring.evaluation_settings import Setting
from evaluation.scoring.futures import true_futures
from evaluation.scoring.sample_sets import sample_sets
from saga.conformal.present_value import value_intervals
from saga.data.origins import Origins
from saga.lifetime import STATISTICS, Ranked, gini, realised_value
from saga.paths import Paths
from saga.requests import RATE, TaxName
from saga.schema import MAX_AGE, PRICE_YEAR
from saga.scores import crps
from saga.tax import POLICIES

Array = NDArray[np.float64]
RATES = (0.0, 0.01, RATE, 0.03)
RULES: tuple[TaxName, ...] = ("paper", "se-2022")
TRUTH = "true"
AGE_BAND = 10
LEVEL = 0.9
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
class Lives:
    """Present values and taxes of n persons: name -> (n, M) real money; `age` (n,) at the origin; 90 % sets of the value at 2 %."""

    person_id: NDArray[np.str_]
    age: NDArray[np.int64]
    lower: Array
    upper: Array
    values: Mapping[str, Array]

    @classmethod
    def read(cls, file: Path) -> Lives:
        """What `lives_of` or `true_lives` wrote."""
        frame = pl.read_parquet(file)
        values = {
            name: frame[name].explode().to_numpy().reshape(frame.height, -1).astype(np.float64)
            for name in VALUES
        }
        lower, upper = (frame[name].fill_null(np.nan).to_numpy() for name in ("lower", "upper"))
        return cls(
            np.array(frame["person_id"].to_list()),
            frame["age"].to_numpy().astype(np.int64),
            lower,
            upper,
            values,
        )


@dataclass(frozen=True)
class Question:
    """Whose lives are asked for: the forward setting's persons, with the register's directory that holds their futures."""

    directory: Path
    setting: Setting
    paths: int
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
        """Years that count (n,): to age 64, at most as far as the futures reach."""
        about = json.loads((self.directory / "register.json").read_text(encoding="utf-8"))
        return np.asarray(
            np.minimum(self._to_64, int(about["future_to"]) - self.setting.origins.year)
        )

    @property
    def reach(self) -> str:
        """How far lives are counted, in words."""
        whole = np.array_equal(self.years, self._to_64)
        return (
            f"to age {MAX_AGE}"
            if whole
            else f"to age {MAX_AGE}, at most {int(self.years.max())} years"
        )

    def answer(self, contestant: Contestant, folder: Path) -> Path:
        """The file of one contestant's lives, made unless it is kept."""

        def tables() -> Iterator[pa.Table]:
            asked = {"to_horizon": int(self.years.max()), "paths": self.paths, "seed": self.seed}
            blocks = contestant.blocks(self.setting.past, self.setting.origins, **asked)
            yield from lives_of(contestant, blocks, self.years, taxed=self._taxed)

        key = contestant.key if isinstance(contestant, Entrant) else None
        path = folder / file_name(
            contestant.name,
            "lives",
            {**self._parts, "key": key, "paths": self.paths, "seed": self.seed},
        )
        if key is None:
            path.unlink(missing_ok=True)
        return keep(path, SCHEMA, tables(), lambda: {"model": contestant.name})

    def truth(self, folder: Path) -> Path:
        """The file of the lives that the register drew."""
        meta = self.setting.past.meta
        origins = self.setting.origins
        lives = true_lives(
            self.directory,
            origins,
            self.birth_year,
            self.years,
            price_year=meta.price_year,
            taxed=self._taxed,
        )
        return keep(
            folder / file_name(TRUTH, "lives", self._parts), SCHEMA, lives, lambda: {"model": TRUTH}
        )

    @property
    def _to_64(self) -> NDArray[np.int64]:
        return np.asarray(self.birth_year + MAX_AGE - self.setting.origins.year)

    @property
    def _taxed(self) -> bool:
        """Tax rules are in prices of their year: they hold for no other money."""
        meta = self.setting.past.meta
        return (meta.currency, meta.price_year) == ("SEK", PRICE_YEAR)

    @property
    def _parts(self) -> dict[str, Any]:
        code = [
            code_digest(module, ())
            for module in ("evaluation.lifetime_scores", "saga.tax", "saga.lifetime")
        ]
        return {"question": self.setting.digest, "years": self.years.tolist(), "code": code}


def lives_of(
    contestant: Contestant,
    blocks: Iterator[tuple[Paths, Any]],
    years: NDArray[np.int64],
    *,
    taxed: bool,
) -> Iterator[pa.Table]:
    """Tables of SCHEMA, a block of persons each, from a contestant's paths (n, H, M); `years` (n,) of each person count.

    The sets are those that the bundle publishes for sums, and follow from the samples for everybody else.
    """
    done = 0
    model = contestant.open() if isinstance(contestant, Entrant) else contestant
    for block, _ in blocks:
        own = years[done : done + len(block)]
        values = _values(np.moveaxis(block.earnings, 2, 0).astype(np.float64), own, taxed)
        present = values[f"value:{RATE:g}"]
        if isinstance(model, Model) and any(
            kind == "present_value" for kind, _ in model.forecaster.calibrator.thresholds_of_kind
        ):
            found = value_intervals(model.forecaster.calibrator, present, own, [LEVEL], RATE)
            ends = found.lower[:, 0], found.upper[:, 0]
        else:
            sets = sample_sets(present[:, None], [LEVEL])
            # The hull: a sum's set is one interval, from 0 where lives without earnings belong to it.
            ends = (
                np.where(sets.includes_zero[:, 0, 0], 0.0, sets.lower[:, 0, 0]),
                sets.upper[:, 0, 0],
            )
        yield _table(block.person_id, block.origin_year - block.birth_year, own, *ends, values)
        done += len(block)


def true_lives(
    directory: Path,
    origins: Origins,
    birth_year: NDArray[np.int64],
    years: NDArray[np.int64],
    *,
    price_year: int,
    taxed: bool,
) -> Iterator[pa.Table]:
    """One table of SCHEMA: the lives drawn, (n, D) over macro futures; NaN where a year is missing (abroad)."""
    horizons = range(1, int(years.max()) + 1)
    draws = [
        _values(_padded(outcomes, years)[None], years, taxed)
        for _, outcomes in true_futures(directory, origins, horizons, price_year=price_year)
    ]
    values = {name: np.concatenate([draw[name] for draw in draws], axis=1) for name in VALUES}
    nothing = np.full(len(origins), np.nan)
    yield _table(origins.person_id, origins.year - birth_year, years, nothing, nothing, values)


def lifetime_table(files: Mapping[str, Path], years: str) -> pl.DataFrame:
    """Rows of COLUMNS from the kept files of every model and of TRUTH: one a (model, group, statistic, rate).

    Statistics of the distribution of lives over persons, path by path and averaged over paths: `mean`, `p10`, `p50`, `p90`, `p99`, `gini`,
    `top_1_share`; of their tax (rule in the name): `tax:*:mean`, `tax:*:rate` (mean of tax over earnings of a life, those without
    earnings left out), `tax:*:rate_p99`, `tax:*:gini`; and of the forecasts of single lives: `crps` at every rate, `coverage_90`, `bias`
    (mean forecast over mean truth, less 1). `sd_futures` is the spread between paths or futures; `se` of the last three is clustered by
    person and future. Groups: `all` and 10-year age bands at the origin. `years` says how far lives are counted.
    """
    truth = Lives.read(files[TRUTH])
    bands = truth.age // AGE_BAND * AGE_BAND
    masks = {"all": np.ones(len(bands), dtype=bool)}
    masks |= {
        f"age={band}-{band + AGE_BAND - 1}": bands == band for band in np.unique(bands).tolist()
    }
    rows: list[dict[str, Any]] = []
    for model, file in files.items():
        lives = Lives.read(file)
        if not np.array_equal(lives.person_id, truth.person_id):
            raise ValueError(f"the lives of {model} are those of other persons")
        for group, mask in masks.items():
            shared = {"model": model, "group": group, "years": years, "n": int(mask.sum())}
            rows += [{**shared, **row} for row in _distribution(lives, truth, mask)]
            if model != TRUTH:
                rows += [{**shared, **row} for row in _scores(lives, truth, mask)]
    return pl.DataFrame(rows, schema=COLUMNS)


def _values(earnings: Array, years: NDArray[np.int64], taxed: bool) -> dict[str, Array]:
    """Name -> (n, M): present values at every rate, and of every tax at 2 %, of earnings (M, n, H); NaN taxes where there is no rule."""
    counted = np.arange(1, earnings.shape[2] + 1) <= years[:, None]
    kept = np.where(counted, earnings, 0.0)
    values = {f"value:{rate:g}": realised_value_each(kept, rate) for rate in RATES}
    for rule in RULES:
        paid = POLICIES[rule].tax(kept) if taxed else np.full(kept.shape, np.nan)
        values[f"tax:{rule}"] = realised_value_each(paid, RATE)
    return values


def realised_value_each(earnings: Array, rate: float) -> Array:
    """Present values (n, M) of earnings (M, n, H)."""
    return np.stack([realised_value(path, rate=rate) for path in earnings], axis=1)


def _padded(outcomes: Array, years: NDArray[np.int64]) -> Array:
    return np.asarray(
        np.where(np.arange(1, outcomes.shape[1] + 1) <= years[:, None], outcomes, 0.0)
    )


def _table(
    person_id: NDArray[np.str_],
    age: NDArray[Any],
    years: NDArray[Any],
    lower: Array,
    upper: Array,
    values: Mapping[str, Array],
) -> pa.Table:
    columns: dict[str, Any] = {
        "person_id": person_id.tolist(),
        "age": age.astype(np.int32),
        "years": years.astype(np.int32),
    }
    columns |= {"lower": lower, "upper": upper}
    for name in VALUES:
        flat = pa.array(values[name].astype(np.float32).ravel())
        offsets = np.arange(len(person_id) + 1, dtype=np.int32) * values[name].shape[1]
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets), flat)
    return pa.table(columns).select(SCHEMA.names)


def _distribution(lives: Lives, truth: Lives, mask: NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
    known = ~np.isnan(truth.values[f"value:{RATE:g}"])
    columns = range(lives.values[f"value:{RATE:g}"].shape[1])
    present = [mask & known[:, k % known.shape[1]] for k in columns]  # whom path k is about

    def over_paths(
        name: str, statistic: Callable[[Array, Array], float], rate: float = RATE
    ) -> dict[str, Any] | None:
        tax, value = lives.values[name], lives.values[f"value:{RATE:g}"]
        each = np.array(
            [
                statistic(tax[who, k], value[who, k]) if who.any() else np.nan
                for k, who in zip(columns, present, strict=True)
            ]
        )
        each = each[np.isfinite(each)]
        if not len(each):
            return None
        sd = float(each.std(ddof=1)) if len(each) > 1 else None
        return {"rate": rate, "value": float(each.mean()), "se": None, "sd_futures": sd}

    for statistic, function in STATISTICS.items():
        if found := over_paths(
            f"value:{RATE:g}",
            lambda own, _, f=function: float(f(Ranked.of(np.sort(own)))),  # type: ignore[misc]
        ):
            yield {"statistic": statistic, **found}
    for rule in (each for each in RULES if np.isfinite(lives.values[f"tax:{each}"]).any()):
        for kind, measure in _TAX.items():
            if found := over_paths(f"tax:{rule}", measure):
                yield {"statistic": f"tax:{rule}:{kind}", **found}


def _effective(tax: Array, value: Array) -> Array:
    earned = value > 0
    return np.asarray(tax[earned] / value[earned])


_TAX: dict[str, Callable[[Array, Array], float]] = {
    "mean": lambda tax, _: float(tax.mean()),
    "rate": lambda tax, value: (
        float(_effective(tax, value).mean()) if (value > 0).any() else np.nan
    ),
    "rate_p99": lambda tax, value: (
        float(np.quantile(_effective(tax, value), 0.99)) if (value > 0).any() else np.nan
    ),
    "gini": lambda tax, _: float(gini(tax)),
}


def _scores(lives: Lives, truth: Lives, mask: NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
    for rate in RATES:
        samples, outcomes = (
            lives.values[f"value:{rate:g}"][mask],
            truth.values[f"value:{rate:g}"][mask],
        )
        scored = np.stack(
            [crps(samples[:, None], outcome[:, None])[:, 0] for outcome in outcomes.T], axis=1
        )
        if row := _averaged(scored):
            yield {"statistic": "crps", "rate": rate, **row}
    present = truth.values[f"value:{RATE:g}"][mask]
    lower, upper = lives.lower[mask, None], lives.upper[mask, None]
    inside = np.where(
        np.isnan(present) | np.isnan(lower), np.nan, (lower <= present) & (present <= upper)
    )
    if row := _averaged(inside):
        yield {"statistic": "coverage_90", "rate": RATE, **row}
    known = ~np.isnan(present)
    level = present[known].mean() if known.any() else np.nan
    forecast = lives.values[f"value:{RATE:g}"][mask].mean(axis=1)
    if level > 0 and (row := _averaged(np.where(known, forecast[:, None] / level, np.nan))):
        error = _averaged(np.where(known, (forecast[:, None] - present) / level, np.nan))
        yield {
            "statistic": "bias",
            "rate": RATE,
            **row,
            "value": row["value"] - 1,
            "se": error and error["se"],
        }


def _averaged(scores: Array) -> dict[str, Any] | None:
    """Mean of (n, D) scores with its error clustered by person and future."""
    person, draw = np.nonzero(np.isfinite(scores))
    if not len(person):
        return None
    found = two_way(scores[person, draw], person, draw)
    means = np.array([scores[np.isfinite(scores[:, k]), k].mean() for k in np.unique(draw)])
    sd = float(means.std(ddof=1)) if len(means) > 1 else None
    return {
        "value": float(scores[person, draw].mean()),
        "se": found["se"] if found else None,
        "sd_futures": sd,
    }
