"""Scales and vocabularies that convert panel values to the model's inputs, stored as JSON.

They are fitted on training persons. Earnings are logs relative to the real wage index, so that
years after the panel resemble the years in it. Other money is transformed by a signed logarithm.
Categories are numbers of the codes that training persons have (0: missing or another code).
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
from saga.features.training_reference import TrainingReference

Floats = NDArray[np.float64]
OTHER = tuple(name for name in schema.CONTINUOUS if name != "earnings")
_LOGGED = (*(name for name in schema.MONEY if name != "earnings"), "employer_size")
# Inputs of the network that are not columns, for `Transforms.without`.
CALENDAR, AGE, MISSINGNESS = "calendar", "age", "missingness"
HIDEABLE = (*OTHER, *schema.CATEGORICAL, CALENDAR, AGE, MISSINGNESS)
_CONVERTED = ("knots", "codes", "without", "reference")  # fields with another form in JSON
_LONGEST_RHYTHM = 5  # years; the longest gap that the model learns


@dataclass(frozen=True)
class Transforms:
    """Conversion of a panel to the model's inputs, fitted on training persons.

    Attributes:
        knots: edges of the head's bins, shape (n_bin + 1,), on the scale
            z = log earnings - log wage index.
        centre: mean of z.
        scale: standard deviation of z.
        location: means of the other continuous columns after the signed logarithm.
        spread: their standard deviations.
        codes: codes of each categorical column.
        currency: currency of the panel.
        price_year: year of its prices.
        floor: floor of log scores, None if there is none.
        has_zeros: whether zero earnings occur.
        has_death: whether deaths are observed.
        rhythm: years between records at the end of the panel, see `record_rhythm`.
        without: inputs in HIDEABLE that the network never receives: names of columns, "calendar"
            (macro series), "age" (attention still depends on the distance between two records) or
            "missingness" (missing values are then encoded as average).
        span: largest number of years between the first and the last record of a person.
        reference: quantiles of training persons, for warnings; None if they were not stored.
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
    rhythm: int = 1
    without: tuple[str, ...] = ()
    span: int = schema.MAX_AGE - schema.MIN_AGE
    reference: TrainingReference | None = None

    @classmethod
    def fit(
        cls, panel: Panel, calendar: Calendar, bins: int, without: Sequence[str] = ()
    ) -> Transforms:
        """Fit on a panel of training persons, with `bins` bins between the outer knots.

        Raises InputError if the panel has fewer than 200 positive earnings.
        """
        frame = panel.frame
        positive = frame.filter(pl.col("earnings") > 0)
        if positive.height < 200:
            why = f"Only {positive.height} positive earnings in the training part; 200 are needed"
            fix = "Use a panel with more persons or years."
            problem = Problem("too-few-records", why, fix, column="earnings")
            raise InputError("The panel is too small to train on.", [problem])
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
        observed = frame.filter(pl.col("earnings").is_not_null())
        spans = frame.group_by("person_id").agg(pl.col("year").max() - pl.col("year").min())
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
            rhythm=record_rhythm(
                observed["person_id"].rle_id().to_numpy(),
                observed["year"].to_numpy(),
                end=int(frame["year"].to_numpy().max()),
                longest=_LONGEST_RHYTHM,
            ),
            has_death=bool((frame["exit_reason"] == "dead").any()),
            without=tuple(without),
            span=max(1, int(spans["year"].to_numpy().max())),
            reference=TrainingReference.fit(panel),
        )

    def continuous(self, frame: pl.DataFrame) -> NDArray[np.float32]:
        """Standardised values (n_row, 14) of the columns OTHER, NaN if missing."""
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
        """Code numbers (n_row, 10) of schema.CATEGORICAL, 0 if missing or not in training."""
        out = np.zeros((frame.height, len(schema.CATEGORICAL)), dtype=np.int16)
        for j, name in enumerate(schema.CATEGORICAL):
            column, codes = frame[name], self.codes[name]
            if column.null_count() < frame.height and codes and name not in self.without:
                number = {code: i for i, code in enumerate(codes, start=1)}
                numbers = column.replace_strict(number, default=0, return_dtype=pl.Int16)
                out[:, j] = numbers.fill_null(0).to_numpy()
        return out

    @property
    def vocabulary(self) -> tuple[int, ...]:
        """Number of codes of each categorical column, the missing code included."""
        return tuple(len(self.codes[name]) + 1 for name in schema.CATEGORICAL)

    @property
    def decimals(self) -> int:
        """Decimals of published amounts: none, or two if the typical amount is below 1,000."""
        return 0 if np.exp(self.centre) >= 1_000 else 2

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for transforms.json."""
        return {
            **{name: value for name, value in vars(self).items() if name not in _CONVERTED},
            "without": list(self.without),
            "knots": self.knots.tolist(),
            "codes": {k: list(v) for k, v in self.codes.items()},
            "reference": None if self.reference is None else self.reference.as_dict(),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Transforms:
        """Inverse of `as_dict`."""
        rest = {k: v for k, v in d.items() if k not in _CONVERTED}
        codes = {k: tuple(v) for k, v in d["codes"].items()}
        reference = d.get("reference")
        return cls(
            knots=np.array(d["knots"]),
            codes=codes,
            without=tuple(d.get("without", ())),
            reference=None if reference is None else TrainingReference.from_dict(reference),
            **rest,
        )


def record_rhythm(
    person: NDArray[Any], year: NDArray[np.integer[Any]], *, end: int, longest: int
) -> int:
    """The most common distance in years between successive records of a person, 1..`longest`.

    Only records of the last five years up to `end` count. A panel that changed from records every
    year to records every second year therefore has rhythm 2.

    Args:
        person: person of each record, shape (n,); records are sorted by person and year.
        year: year of each record, shape (n,).
        end: the panel's last year.
        longest: longer distances count as this distance.
    """
    gap = np.diff(year)
    counts = (person[1:] == person[:-1]) & (year[1:] > end - 5)
    return int(np.bincount(np.minimum(gap[counts], longest), minlength=2)[1:].argmax()) + 1


def _signed_log(name: str, x: NDArray[Any]) -> Floats:
    """Signed log1p of money in thousands or of counts; shares and flags do not change."""
    x = x.astype(np.float64)
    if name not in _LOGGED:
        return x
    unit = 1.0 if name == "employer_size" else 1_000.0
    out: Floats = np.sign(x) * np.log1p(np.abs(x) / unit)
    return out


def _knots(z: Floats, bins: int) -> Floats:
    """Bin edges between the 0.2 % and 99.8 % quantiles, strictly increasing.

    70 % of the bins follow the distribution. 30 % are spread evenly for detail in sparse parts.
    """
    quantiles = np.quantile(z, np.linspace(0.002, 0.998, 2_001))
    grid = np.linspace(quantiles[0], quantiles[-1], 20_001)
    distribution = np.searchsorted(quantiles, grid, side="right") / len(quantiles)
    measure = 0.7 * distribution / distribution[-1] + 0.3 * np.linspace(0, 1, len(grid))
    return np.interp(np.linspace(measure[0], measure[-1], bins + 1), measure, grid)
