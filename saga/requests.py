"""Typed requests: the tables that a user can request, checked once when the object is made.

The command line, the HTTP service and the batch engine make these objects and pass them to the
forecaster unchanged. This module defines the defaults and the allowed values of every option.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, ClassVar, Literal

from saga.errors import UsageError
from saga.schema import MAX_AGE, MIN_AGE

if TYPE_CHECKING:
    from saga.macro.scenarios import ScenarioSource

CalibrationMethod = Literal["sets", "cqr", "cv+"]
OnError = Literal["fail", "drop"]
Precision = Literal["float32", "bfloat16"]
Product = Literal["forecasts", "lifetimes", "paths"]
RolloutName = Literal["exact", "light"]
Uprating = Literal["prices", "wages", "law"]

MAX_HORIZON = 30
MAX_PATHS = 10_000
HORIZONS = tuple(range(1, MAX_HORIZON + 1))
COVERAGE = (0.5, 0.8, 0.9, 0.95)
LIFETIME_COVERAGE = (0.9,)
QUANTILES = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
PATHS = 500
RATE = 0.02
TAX_PATTERN = r"none|paper|se-(?P<year>20\d\d)"


@dataclass(frozen=True)
class Draws:
    """How futures are drawn: the number of paths per person, the seed and the scenario.

    A `scenario` of None draws the macro series from the bundle's process.

    Raises:
        UsageError: If `n_paths` is not 2 to 10,000, or `seed` not 0 to 2^63 - 1.
    """

    n_paths: int = PATHS
    seed: int = 0
    scenario: ScenarioSource = None

    def __post_init__(self) -> None:
        _check_whole("n_paths", self.n_paths)
        if not 2 <= self.n_paths <= MAX_PATHS:
            raise UsageError(
                f"The number of paths is between 2 and {MAX_PATHS:,}, not {self.n_paths:,}. "
                f"{PATHS} is a good start."
            )
        check_seed(self.seed)


@dataclass(frozen=True)
class ForecastRequest:
    """A table of yearly earnings: one row per person and horizon.

    Args:
        horizons: Years after the origin, 1 to 30; stored ascending and distinct.
        coverage: Coverage of the intervals, each strictly between 0 and 1; stored ascending.
        quantiles: Quantiles, each strictly between 0 and 1; stored ascending.
        limits: Whether to add one-sided limits and intervals given positive earnings.
        bands: K, to add path bands over the first K years; None: no bands.
        unrounded: Whether amounts have all digits, instead of whole units of the currency.

    Raises:
        UsageError: If a value is not allowed.
    """

    product: ClassVar[Product] = "forecasts"

    horizons: Sequence[int] = HORIZONS
    coverage: Sequence[float] = COVERAGE
    quantiles: Sequence[float] = QUANTILES
    limits: bool = False
    bands: int | None = None
    unrounded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizons", check_horizons(self.horizons))
        _store_fractions(self)
        if self.bands is not None:
            _check_whole("bands", self.bands)
        if self.bands is not None and not 1 <= self.bands <= MAX_HORIZON:
            raise UsageError(f"Bands cover the first 1 to {MAX_HORIZON} years, not {self.bands}.")

    @property
    def n_years(self) -> int:
        """Number of years after the origin that are forecast."""
        return max(self.horizons[-1], self.bands or 1)


@dataclass(frozen=True)
class TaxReform:
    """Changed tax rules: those of a year with other parameters, and the uprating of later years.

    Args:
        name: Name of the reform.
        base: The rule from which it starts, such as se-2026.
        uprating: What the amounts follow after that year: prices (they are constant in real terms),
            wages, or the law (docs/method/tax.md).
        real_wage_growth: Assumed growth of real wages a year, a fraction; None: the mean of the
            facts.
        parameters: Names and values of the changed parameters.

    Raises:
        UsageError: If the base is not the rule of a year.
    """

    name: str
    base: str
    uprating: Uprating = "prices"
    real_wage_growth: float | None = None
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        law_year_of(self.base)


TaxSource = str | TaxReform
"""A tax rule: none, paper, the rule of a year such as se-2026, or a reform."""


def law_year_of(name: str) -> int:
    """The year of the rule `se-2026`. UsageError if the name is not of this form."""
    match = re.fullmatch(TAX_PATTERN, name)
    if match is None or match["year"] is None:
        raise UsageError(
            f"There is no tax rule {name!r}. Use none, paper, the rule of a year such as se-2026, "
            "or a reform."
        )
    return int(match["year"])


@dataclass(frozen=True)
class LifetimeRequest:
    """A table of present values: one row per person.

    Args:
        rate: Real discount rate a year, as a fraction above -0.5 and below 1.
        to_age: Last age that counts, 17 to 64.
        from_age: Age from which observed past earnings are added, or None for the future alone.
        tax: Name of the tax rule (none, paper, se-2026), or a reform.
        coverage: Coverage of the intervals, each strictly between 0 and 1; stored ascending.
        quantiles: Quantiles, each strictly between 0 and 1; stored ascending.
        unrounded: Whether amounts have all digits, instead of whole units of the currency.

    Raises:
        UsageError: If a value is not allowed.
    """

    product: ClassVar[Product] = "lifetimes"

    rate: float = RATE
    to_age: int = MAX_AGE
    from_age: int | None = None
    tax: TaxSource = "none"
    coverage: Sequence[float] = LIFETIME_COVERAGE
    quantiles: Sequence[float] = QUANTILES
    unrounded: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.rate, Real) or not -0.5 < self.rate < 1.0:  # also refuses NaN
            raise UsageError("The discount rate is a fraction a year, for example 0.02 for 2 %.")
        _check_to_age(self.to_age)
        if self.from_age is not None:
            _check_whole("from_age", self.from_age)
        if self.from_age is not None and not MIN_AGE <= self.from_age < self.to_age:
            raise UsageError(
                f"A lifetime starts at an age from {MIN_AGE} to below its end ({self.to_age}), "
                f"not {self.from_age}."
            )
        if not isinstance(self.tax, TaxReform) and self.tax not in ("none", "paper"):
            law_year_of(str(self.tax))
        _store_fractions(self)


@dataclass(frozen=True)
class PathsRequest:
    """The simulated paths themselves, up to `to_age`; with `states` also the state of each year.

    `unrounded` paths have all digits, instead of whole units of the currency.

    Raises:
        UsageError: If `to_age` is not 17 to 64.
    """

    product: ClassVar[Product] = "paths"

    to_age: int = MAX_AGE
    states: bool = False
    unrounded: bool = False

    def __post_init__(self) -> None:
        _check_to_age(self.to_age)


Request = ForecastRequest | LifetimeRequest | PathsRequest


def check_horizons(horizons: Sequence[int]) -> tuple[int, ...]:
    """Ascending distinct horizons; UsageError unless each is 1 to 30 years."""
    values = _distinct("horizons", horizons, Integral)
    if not values or values[0] < 1 or values[-1] > MAX_HORIZON:
        raise UsageError(
            f"Horizons are whole years from 1 to {MAX_HORIZON}, at least one. Later years are part "
            "of a lifetime, not of a forecast."
        )
    return tuple(int(value) for value in values)


def check_seed(seed: int) -> int:
    """The seed; UsageError unless it is 0 to 2^63 - 1."""
    if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
        raise UsageError("The seed is a whole number from 0 to 2^63 - 1.")
    return seed


def _distinct(name: str, values: object, kind: type) -> list[float]:
    """The values, ascending and distinct. UsageError unless they are a sequence of numbers."""
    numbers = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else None
    if numbers is None or not all(isinstance(value, kind) for value in numbers):
        example = "(1, 5, 10)" if kind is Integral else "(0.5, 0.9)"
        whole = "whole " if kind is Integral else ""
        raise UsageError(f"{name} is a sequence of {whole}numbers, such as {example}.")
    return sorted(set(numbers))


def _check_whole(name: str, value: object) -> None:
    if not isinstance(value, Integral):
        raise UsageError(f"{name} is a whole number, not a {type(value).__name__}.")


def _check_to_age(to_age: int) -> None:
    _check_whole("to_age", to_age)
    if not MIN_AGE < to_age <= MAX_AGE:
        raise UsageError(
            f"A lifetime ends at an age from {MIN_AGE + 1} to {MAX_AGE}, not {to_age}."
        )


def _store_fractions(request: ForecastRequest | LifetimeRequest) -> None:
    """Check `coverage` and `quantiles` of a frozen request, and store them ascending."""
    hints = {
        "coverage": "An interval with coverage 0 or 1 is useless; use for example 0.9.",
        "quantiles": "Use for example 0.05, 0.5 and 0.95.",
    }
    for name, hint in hints.items():
        values = _distinct(name, getattr(request, name), Real)
        if not values or not all(0.0 < value < 1.0 for value in values):  # refuses NaN, too
            raise UsageError(
                f"{name.capitalize()} must lie strictly between 0 and 1, and at least one value is "
                f"needed. {hint}"
            )
        object.__setattr__(request, name, tuple(values))
