"""Scales and vocabularies that convert panel values to the model's inputs, stored as JSON.

They are fitted on training persons. Earnings are logs relative to the real wage index, so that
years after the panel resemble the years in it, and if the configuration says so also relative to
the panel's level by age and year (`saga.features.units`). Other money is transformed by a signed
logarithm. A category becomes the number of its code among those of training persons, or 0 if it is
missing or has another code. The panel's own columns follow those of the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, PlainValidator

from saga import schema
from saga.arrays import Floats
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.features.calendar import CLIP, Calendar
from saga.features.training_reference import TrainingReference
from saga.features.units import IDENTITY, STANDARD_QUARTILES, Units
from saga.files.stored_values import Log, Number, Shape, Spread, Year, Years, faults_of, read_values
from saga.small_groups import MIN_PERSONS, frequent_codes, person_quantiles
from saga.training_records import TrainingRecords

OTHER = tuple(name for name in schema.CONTINUOUS if name != "earnings")
_LOGGED = (*(name for name in schema.MONEY if name != "earnings"), "employer_size")
# Inputs of the network that are not columns, for `Transforms.without`.
CALENDAR, AGE, MISSINGNESS = "calendar", "age", "missingness"
HIDEABLE = (*OTHER, *schema.CATEGORICAL, CALENDAR, AGE, MISSINGNESS)
_CONVERTED = ("knots", "codes", "without", "extra", "reference", "units")  # other forms in JSON
_LONGEST_RHYTHM = 5  # years; the longest gap that the model learns
TYPICAL_SEK = 300_000.0  # typical earnings of a year in Sweden
# Unit of other money than earnings, in the currency. If earnings are relative, it is the same share
# of the panel's typical earnings as it is of TYPICAL_SEK.
_MONEY_UNIT = 1_000.0
# Share of the knots that follow the distribution of earnings, and share spread evenly.
_BY_DISTRIBUTION, _EVEN = 0.7, 0.3
_LOWEST, _HIGHEST = 0.002, 0.998  # probabilities of the outer knots


@dataclass(frozen=True, eq=False)
class ContinuedInputs:
    """Masks of the columns that have values after the origin; all others are missing there.

    Attributes:
        static_codes: Categories that have the code of the origin (C,).
        lasting_codes: Categories that have their last known code (C,).
        lasting_other: Numbers that have their last known value (K,).
    """

    static_codes: NDArray[np.bool_]
    lasting_codes: NDArray[np.bool_]
    lasting_other: NDArray[np.bool_]

    @classmethod
    def of(cls, extra: Sequence[schema.Column] = ()) -> ContinuedInputs:
        """The masks of the schema's columns, followed by the panel's own columns."""
        columns = [schema.BY_NAME[name] for name in schema.CATEGORICAL]
        extra_of_kind = {
            kind: [column.static or column.lasting for column in extra if column.kind == kind]
            for kind in ("category", "number")
        }
        return cls(
            np.array([c.static for c in columns] + [False] * len(extra_of_kind["category"])),
            np.array([c.lasting for c in columns] + extra_of_kind["category"]),
            np.array([False] * len(OTHER) + extra_of_kind["number"]),
        )


OF_SCHEMA = ContinuedInputs.of()


def _read_columns(described: Sequence[Mapping[str, Any]]) -> tuple[schema.Column, ...]:
    """The panel's own columns, as transforms.json has them."""
    return tuple(
        schema.extra_column(c["name"], c["kind"], static=c["static"], lasting=c["lasting"])
        for c in described
    )


@dataclass(frozen=True)
class Transforms:
    """Conversion of a panel to the model's inputs, fitted on training persons.

    Attributes:
        knots: Edges of the head's bins, shape (n_bin + 1,), in the units of z.
        centre: Mean of z.
        scale: Standard deviation of z.
        location: Means of the other continuous columns after the signed logarithm.
        spread: Their standard deviations.
        codes: Codes of each categorical column.
        currency: Currency of the panel.
        price_year: Year of its prices.
        floor: Floor of log scores, None if there is none.
        has_zeros: Whether zero earnings occur.
        has_death: Whether deaths are observed.
        rhythm: Years between records at the end of the panel, see `record_rhythm`.
        without: Inputs in HIDEABLE that the network never receives: names of columns, "calendar"
            (macro series), "age" (attention still depends on the distance between two records) or
            "missingness" (missing values are then encoded as average).
        span: Largest number of years between the first and the last record of a person.
        reference: Quantiles of training persons, for warnings; None if they were not stored.
        extra: The panel's own columns, categories and numbers.
        units: Units of z; by default z = log earnings - log wage index.
    """

    knots: Annotated[Floats, Shape("knot")]
    centre: Log
    scale: Spread
    location: dict[str, Number]
    spread: dict[str, Spread]
    codes: dict[str, tuple[str, ...]]
    currency: str
    price_year: Year
    floor: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    has_zeros: bool
    has_death: bool
    rhythm: Annotated[int, Field(ge=1, le=_LONGEST_RHYTHM)] = 1
    without: tuple[str, ...] = ()
    span: Years = schema.MAX_AGE - schema.MIN_AGE
    reference: TrainingReference | None = None
    extra: Annotated[tuple[schema.Column, ...], PlainValidator(_read_columns)] = ()
    units: Units = IDENTITY

    @classmethod
    def fit(
        cls,
        panel: Panel,
        calendar: Calendar,
        bins: int,
        without: Sequence[str] = (),
        *,
        scale_free: bool = False,
        like: Transforms | None = None,
    ) -> Transforms:
        """Fit on a panel of training persons.

        With `like`, the result fits a network that was trained with those transforms: knots and
        hidden inputs are the same, z has the same meaning in units of this panel, and codes keep
        their numbers; codes that `like` does not have follow. Columns without values keep their
        location and spread.

        Args:
            panel: Training persons.
            calendar: The panel's macro series.
            bins: Number of bins between the outer knots.
            without: Inputs that the network never receives.
            scale_free: Whether earnings are relative to the panel's level (`Units.fit`).
            like: Transforms of another panel; `bins`, `without` and `scale_free` then do not count.

        Raises:
            InputError: If the panel has fewer than 200 positive earnings, or if an own column is
                empty.
        """
        frame = panel.frame
        longest = TrainingRecords.of(panel).longest
        z, units = _relative_earnings(panel, calendar, longest, scale_free=scale_free, like=like)
        extra = _own_columns(panel)
        location, spread = _scales(frame, extra, units, like)
        codes = _codes(frame, extra, like)
        if like is not None:
            without = like.without
        observed = frame.filter(pl.col("earnings").is_not_null())
        spans = frame.group_by("person_id").agg(pl.col("year").max() - pl.col("year").min())
        return cls(
            knots=_knots(z, _whose(panel), bins) if like is None else like.knots,
            centre=float(z.mean()) if like is None else like.centre,
            scale=float(z.std()) if like is None else like.scale,
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
            span=max(1 if like is None else like.span, int(spans["year"].to_numpy().max())),
            reference=TrainingReference.fit(panel),
            extra=extra,
            units=units,
        )

    @property
    def numbers(self) -> tuple[str, ...]:
        """The continuous inputs: OTHER and the panel's own numbers."""
        return (*OTHER, *_names(self.extra, "number"))

    @property
    def categories(self) -> tuple[str, ...]:
        """The categorical inputs: those of the schema and the panel's own."""
        return (*schema.CATEGORICAL, *_names(self.extra, "category"))

    @cached_property
    def continued(self) -> ContinuedInputs:
        """The columns that have values after the origin."""
        return ContinuedInputs.of(self.extra)

    def continuous(self, frame: pl.DataFrame) -> NDArray[np.float32]:
        """Standardised values (n_row, K) of the K `numbers`, NaN if missing."""
        unit = _money_unit(self.units)
        out = np.full((frame.height, len(self.numbers)), np.nan, dtype=np.float32)
        for j, name in enumerate(_names(self.extra, "number"), start=len(OTHER)):
            if name in frame.columns:
                x = frame[name].to_numpy().astype(np.float64)
                # The inverse hyperbolic sine compresses long tails, such as those of wealth.
                z = np.arcsinh((x - self.location[name]) / self.spread[name])
                out[:, j] = np.clip(z, -CLIP, CLIP)
        for j, name in enumerate(OTHER):
            column = frame[name]
            if column.null_count() < frame.height and name not in self.without:
                x = column.to_numpy().astype(np.float64)
                values = (_signed_log(name, x, unit) - self.location[name]) / self.spread[name]
                out[:, j] = np.clip(values, -CLIP, CLIP)
        return out

    def categorical(self, frame: pl.DataFrame) -> NDArray[np.int16]:
        """Code numbers (n_row, C) of the C `categories`, 0 if missing or not in training."""
        out = np.zeros((frame.height, len(self.categories)), dtype=np.int16)
        for j, name in enumerate(self.categories):
            if name not in frame.columns:  # a panel without a column that the bundle knows
                continue
            column, codes = frame[name], self.codes[name]
            if column.null_count() < frame.height and codes and name not in self.without:
                # An Enum is five times as fast as a replacement; unknown codes become null.
                numbers = column.cast(pl.Enum(codes), strict=False).to_physical()
                out[:, j] = np.nan_to_num(numbers.to_numpy() + np.float64(1))
        return out

    @property
    def vocabulary(self) -> tuple[int, ...]:
        """Number of codes of each categorical column, code 0 included."""
        return tuple(len(self.codes[name]) + 1 for name in self.categories)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Quartiles of z of the training persons: the inverse of how `_knots` places knots."""
        even = np.linspace(0, 1, len(self.knots))
        position = (self.knots - self.knots[0]) / (self.knots[-1] - self.knots[0])
        share = (even - _EVEN * position) / _BY_DISTRIBUTION
        probability = _LOWEST + (_HIGHEST - _LOWEST) * np.maximum.accumulate(share)
        low, middle, high = np.interp([0.25, 0.5, 0.75], probability, self.knots).tolist()
        return low, middle, high

    @property
    def typical_amount(self) -> float:
        """A typical amount of earnings."""
        return float(np.exp(self.units.typical + self.units.scale * self.centre))

    @property
    def decimals(self) -> int:
        """Decimals of published amounts: none, or two if the typical amount is below 1,000."""
        return 0 if self.typical_amount >= 1_000 else 2

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for transforms.json."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in _CONVERTED},
            "without": list(self.without),
            "knots": self.knots.tolist(),
            "codes": {k: list(v) for k, v in self.codes.items()},
            "reference": None if self.reference is None else self.reference.as_dict(),
            **({"extra": [_column_values(column) for column in self.extra]} if self.extra else {}),
            **({} if self.units is IDENTITY else {"units": self.units.as_dict()}),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Transforms:
        """Inverse of `as_dict`. Raises BundleError for other values."""
        with faults_of("transforms.json"):
            read = read_values(cls, d)
            if (np.diff(read.knots.astype(np.float32)) <= 0).any():
                raise ValueError("'knots' do not increase")
            scaled = read.location.keys() & read.spread.keys()
            if lacking := {*read.categories} - read.codes.keys() | {*read.numbers} - scaled:
                raise ValueError(f"the column {min(lacking)} has no codes or no scale")
            if any(len(set(codes)) < len(codes) for codes in read.codes.values()):
                raise ValueError("a code occurs twice")
        return read


def _relative_earnings(
    panel: Panel, calendar: Calendar, longest: int, *, scale_free: bool, like: Transforms | None
) -> tuple[Floats, Units]:
    """Positive earnings as z, and the units of z. InputError if there are fewer than 200."""
    positive = panel.frame.filter(pl.col("earnings") > 0)
    if positive.height < 200:
        why = f"Only {positive.height} positive earnings in the training part; 200 are needed"
        fix = "Use a panel with more persons or years."
        problem = Problem("too-few-records", why, fix, column="earnings")
        raise InputError("The panel is too small to train on.", [problem])
    year = positive["year"].to_numpy().astype(np.int64)
    age = year - positive["birth_year"].to_numpy()
    z = np.log(positive["earnings"].to_numpy()) - calendar.wage_index(year)
    if not scale_free and like is None:
        return z, IDENTITY
    by_age = like is None or like.units.by_age
    units = Units.fit(
        z,
        age,
        year,
        longest=longest,
        by_age=by_age,
        continues=calendar.history is None,
        quartiles=STANDARD_QUARTILES if like is None or by_age else like.quartiles,
    )
    return units.relative(z, age, year), units


def _scales(
    frame: pl.DataFrame, extra: Sequence[schema.Column], units: Units, like: Transforms | None
) -> tuple[dict[str, float], dict[str, float]]:
    """Location and spread of each continuous column but earnings."""
    location = dict.fromkeys(OTHER, 0.0) if like is None else dict(like.location)
    spread = dict.fromkeys(OTHER, 1.0) if like is None else dict(like.spread)
    for name in OTHER:
        known = frame.select("person_id", name).drop_nulls()
        if known["person_id"].n_unique() >= MIN_PERSONS:
            values = _signed_log(name, known[name].to_numpy(), _money_unit(units))
            location[name] = float(values.mean())
            spread[name] = float(max(values.std(), 1e-3))
    numbers = _names(extra, "number")
    for name in numbers:
        location[name], spread[name] = _middle(frame, name)
    names = (*OTHER, *numbers)
    return {name: location[name] for name in names}, {name: spread[name] for name in names}


def _codes(
    frame: pl.DataFrame, extra: Sequence[schema.Column], like: Transforms | None
) -> dict[str, tuple[str, ...]]:
    """The codes of each categorical column; those of `like` first, with their numbers."""
    names = (*schema.CATEGORICAL, *_names(extra, "category"))
    codes = {name: frequent_codes(frame, name) for name in names}
    if like is None:
        return codes
    return {name: _appended(like.codes.get(name, ()), codes[name]) for name in codes}


def _names(extra: Sequence[schema.Column], kind: schema.Kind) -> tuple[str, ...]:
    return tuple(column.name for column in extra if column.kind == kind)


def _appended(first: Sequence[str], codes: Sequence[str]) -> tuple[str, ...]:
    """The codes of `first`, then all others."""
    return (*first, *(code for code in codes if code not in first))


def _money_unit(units: Units) -> float:
    """Unit in which other money than earnings is measured before the signed logarithm."""
    if units is IDENTITY:
        return _MONEY_UNIT
    return float(np.exp(units.typical)) * _MONEY_UNIT / TYPICAL_SEK


def _own_columns(panel: Panel) -> tuple[schema.Column, ...]:
    """The panel's own categories and numbers. Raises InputError if one has no known value."""
    columns = [column for column in panel.meta.extra if column.kind in ("category", "number")]
    problems = [
        Problem(
            "missing-column",
            f"{column.name} of `extra` in the mapping has no known value",
            "Correct its name in the mapping, or leave it out there.",
            column=column.name,
        )
        for column in columns
        if panel.frame[column.name].null_count() == len(panel)
    ]
    if problems:
        raise InputError("The panel lacks columns that its mapping names.", problems)
    return tuple(columns)


def _column_values(column: schema.Column) -> dict[str, Any]:
    """What transforms.json has of an own column."""
    return {name: getattr(column, name) for name in ("name", "kind", "static", "lasting")}


def _middle(frame: pl.DataFrame, name: str) -> tuple[float, float]:
    """Median and spread of the known values; the spread is robust unless it would be 0."""
    known = frame.select("person_id", name).drop_nulls()
    x = known[name].to_numpy().astype(np.float64)
    low, middle, high = person_quantiles(x, known["person_id"].to_numpy(), [0.25, 0.5, 0.75])
    return float(middle), float(max((high - low) / 1.349 or x.std(), 1e-6))


def record_rhythm(
    person: NDArray[Any], year: NDArray[np.integer[Any]], *, end: int, longest: int
) -> int:
    """The most common distance in years between successive records of a person, 1..`longest`.

    Only records of the last five years up to `end` count. A panel that changed from records every
    year to records every second year therefore has rhythm 2.

    Args:
        person: Person of each record, shape (n,); records are sorted by person and year.
        year: Year of each record, shape (n,).
        end: The panel's last year.
        longest: Longer distances count as this distance.
    """
    gap = np.diff(year)
    counts = (person[1:] == person[:-1]) & (year[1:] > end - 5)
    return int(np.bincount(np.minimum(gap[counts], longest), minlength=2)[1:].argmax()) + 1


def _signed_log(name: str, x: NDArray[Any], money_unit: float) -> Floats:
    """Signed log1p of money in `money_unit` or of counts; shares and flags do not change."""
    x = x.astype(np.float64)
    if name not in _LOGGED:
        return x
    unit = 1.0 if name == "employer_size" else money_unit
    out: Floats = np.sign(x) * np.log1p(np.abs(x) / unit)
    return out


def _whose(panel: Panel) -> NDArray[np.int64]:
    """Number of the person of each positive amount."""
    positive = (panel.frame["earnings"] > 0).fill_null(value=False).to_numpy()
    return np.asarray(panel.person_numbers[positive])


def _knots(z: Floats, persons: NDArray[np.int64], bins: int) -> Floats:
    """Bin edges between the 0.2 % and 99.8 % quantiles, strictly increasing.

    70 % of the bins follow the distribution. 30 % are spread evenly for detail in sparse parts.
    """
    quantiles = person_quantiles(z, persons, np.linspace(_LOWEST, _HIGHEST, 2_001))
    grid = np.linspace(quantiles[0], quantiles[-1], 20_001)
    distribution = np.searchsorted(quantiles, grid, side="right") / len(quantiles)
    even = np.linspace(0, 1, len(grid))
    measure = _BY_DISTRIBUTION * distribution / distribution[-1] + _EVEN * even
    return np.interp(np.linspace(measure[0], measure[-1], bins + 1), measure, grid)
