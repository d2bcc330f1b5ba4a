"""From panel values to the model's numbers: scales and vocabularies, fitted on training persons, stored as JSON.

Earnings are measured in logs relative to the economy's real wage index, so that a year beyond the panel looks like the years in
it; other money enters as a signed logarithm; categories by the codes that the training persons showed (code 0: missing or unseen).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga import schema
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.features.calendar import CLIP, Calendar

Floats = NDArray[np.float64]
OTHER = tuple(name for name in schema.CONTINUOUS if name != "earnings")
_LOGGED = (*(name for name in schema.MONEY if name != "earnings"), "employer_size")
# What the network is told beside columns, for `Transforms.without`.
CALENDAR, AGE, MISSINGNESS = "calendar", "age", "missingness"
HIDEABLE = (*OTHER, *schema.CATEGORICAL, CALENDAR, AGE, MISSINGNESS)


_CONVERTED = ("knots", "codes", "without")  # what JSON holds in another form


@dataclass(frozen=True)
class Transforms:
    """Everything fitted on the training persons that turns a panel into numbers.

    `knots` (n_bin + 1,) are the edges of the head's bins on the scale z = log earnings - log wage index; `centre`, `scale` standardise z;
    `location`, `spread` standardise the other continuous columns; `codes` maps each categorical column to its known codes. `without`
    names what the network never sees, of HIDEABLE: columns, which look missing to it, or "calendar" (the economy), "age" (of
    which attention keeps the distance between two records), "missingness" (missing values look average). `span` is the most years between
    the first and the last record of a person.
    """

    knots: Floats
    centre: float
    scale: float
    location: dict[str, float]
    spread: dict[str, float]
    codes: dict[str, tuple[str, ...]]
    currency: str
    price_year: int
    floor: float | None
    has_zeros: bool
    has_death: bool
    rhythm: int = 1  # years between records at the end of the training panel
    without: tuple[str, ...] = ()
    span: int = schema.MAX_AGE - schema.MIN_AGE

    @classmethod
    def fit(
        cls, panel: Panel, calendar: Calendar, bins: int, without: Sequence[str] = ()
    ) -> Transforms:
        """Fit on a panel of training persons; `bins` counts the cells between the lowest and the highest knot."""
        frame = panel.frame
        positive = frame.filter(pl.col("earnings") > 0)
        if positive.height < 200:
            fix = "Give more persons or years."
            raise InputError(
                "The panel is too small to train on.",
                [
                    Problem(
                        "too-few-records",
                        f"Only {positive.height} positive earnings in the training part; 200 are needed",
                        fix,
                        column="earnings",
                    )
                ],
            )
        z = np.log(positive["earnings"].to_numpy()) - calendar.wage_index(
            positive["year"].to_numpy()
        )
        location, spread = {}, {}
        for name in OTHER:
            values = _signed_log(name, frame[name].drop_nulls().to_numpy())
            location[name] = float(values.mean()) if values.size else 0.0
            spread[name] = float(max(values.std(), 1e-3)) if values.size else 1.0
        codes = {
            name: tuple(sorted(frame[name].drop_nulls().unique().to_list()))
            for name in schema.CATEGORICAL
        }
        return cls(
            knots=_knots(z, bins),
            centre=float(z.mean()),
            scale=float(z.std()),
            location=location,
            spread=spread,
            codes=codes,
            currency=panel.meta.currency,
            price_year=panel.meta.price_year,
            floor=panel.meta.floor,
            has_zeros=bool((frame["earnings"] == 0).any()),
            rhythm=_rhythm(frame),
            has_death=bool((frame["exit_reason"] == "dead").any()),
            without=tuple(without),
            span=max(
                1,
                int(
                    frame.group_by("person_id")  # type: ignore[arg-type]
                    .agg(pl.col("year").max() - pl.col("year").min())["year"]
                    .max()
                ),
            ),
        )

    def continuous(self, frame: pl.DataFrame) -> NDArray[np.float32]:
        """(n_row, 14) standardised values of OTHER, NaN where missing."""
        out = np.full((frame.height, len(OTHER)), np.nan, dtype=np.float32)
        for j, name in enumerate(OTHER):
            column = frame[name]
            if column.null_count() < frame.height and name not in self.without:
                x = column.to_numpy().astype(np.float64)
                out[:, j] = np.clip(
                    (_signed_log(name, x) - self.location[name]) / self.spread[name], -CLIP, CLIP
                )
        return out

    def categorical(self, frame: pl.DataFrame) -> NDArray[np.int16]:
        """(n_row, 10) code numbers of schema.CATEGORICAL, 0 where missing or not seen in training."""
        out = np.zeros((frame.height, len(schema.CATEGORICAL)), dtype=np.int16)
        for j, name in enumerate(schema.CATEGORICAL):
            if (
                frame[name].null_count() < frame.height
                and self.codes[name]
                and name not in self.without
            ):
                number = {code: i for i, code in enumerate(self.codes[name], start=1)}
                out[:, j] = (
                    frame[name]
                    .replace_strict(number, default=0, return_dtype=pl.Int16)
                    .fill_null(0)
                    .to_numpy()
                )
        return out

    @property
    def vocabulary(self) -> tuple[int, ...]:
        """Embedding rows a categorical column needs, the missing code counted."""
        return tuple(len(self.codes[name]) + 1 for name in schema.CATEGORICAL)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for transforms.json."""
        return {
            **{name: value for name, value in vars(self).items() if name not in _CONVERTED},
            "without": list(self.without),
            "knots": self.knots.tolist(),
            "codes": {k: list(v) for k, v in self.codes.items()},
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Transforms:
        """Inverse of `as_dict`."""
        rest = {k: v for k, v in d.items() if k not in _CONVERTED}
        codes = {k: tuple(v) for k, v in d["codes"].items()}
        return cls(
            knots=np.array(d["knots"]), codes=codes, without=tuple(d.get("without", ())), **rest
        )


def _rhythm(frame: pl.DataFrame) -> int:
    """The most common distance, in years, between a person's records at the panel's end, at most 5 (the largest gap learnt).

    Its last five years: a panel that came to be of every second year goes on so, however long it was of every year.
    """
    gaps = (
        frame.filter(pl.col("earnings").is_not_null())
        .select("year", gap=pl.col("year").diff().over("person_id"))
        .filter(pl.col("year") > frame["year"].max() - 5)  # type: ignore[operator]
        .drop_nulls()["gap"]
    )
    return min(5, int(gaps.mode().min())) if len(gaps) else 1  # type: ignore[arg-type]


def _signed_log(name: str, x: NDArray[Any]) -> Floats:
    """log1p of money in thousands with the sign kept; counts of persons by log1p; shares and flags as they are."""
    x = x.astype(np.float64)
    if name not in _LOGGED:
        return x
    unit = 1.0 if name == "employer_size" else 1_000.0
    out: Floats = np.sign(x) * np.log1p(np.abs(x) / unit)
    return out


def _knots(z: Floats, bins: int) -> Floats:
    """Edges between the 0.2 % and 99.8 % quantiles, strictly increasing: 70 % of the cells follow the people, 30 % are spread evenly over
    the range, so that the thin parts keep detail."""
    quantiles = np.quantile(z, np.linspace(0.002, 0.998, 2_001))
    grid = np.linspace(quantiles[0], quantiles[-1], 20_001)
    people = np.searchsorted(quantiles, grid, side="right") / len(quantiles)
    measure = 0.7 * people / people[-1] + 0.3 * np.linspace(0, 1, len(grid))
    return np.interp(np.linspace(measure[0], measure[-1], bins + 1), measure, grid)
