"""What a run may be asked for: the limits of every option, one owner for the command line and HTTP.

`parse_*` reads the text of the command line, `check_*` judges values wherever they come from. Both return the value in its one
canonical form and raise `UsageError` saying which values are allowed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

from saga.errors import UsageError
from saga.lifetime import RATE as RATE
from saga.schema import MAX_AGE, MIN_AGE, PRICE_YEAR
from saga.tax import POLICIES

MAX_HORIZON = 30
MAX_PATHS = 10_000
HORIZONS = tuple(range(1, MAX_HORIZON + 1))
COVERAGE = (0.5, 0.8, 0.9, 0.95)
QUANTILES = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
PATHS = 500


def parse_horizons(text: str) -> tuple[int, ...]:
    """`1-30`, `1,5,10` or `1-5,10` as ascending years ahead."""
    return check_horizons(_integers(text, "--horizons", "Write a range (1-30) or a list (1,5,10)."))


def check_horizons(horizons: Iterable[int]) -> tuple[int, ...]:
    """Ascending distinct horizons, each 1 to 30 years."""
    values = sorted(set(horizons))
    if not values or values[0] < 1 or values[-1] > MAX_HORIZON:
        raise UsageError(
            f"Horizons are whole years from 1 to {MAX_HORIZON}, at least one. Later years are part of a lifetime, not of a forecast."
        )
    return tuple(values)


def parse_coverage(text: str) -> tuple[float, ...]:
    """`.5,.8,.9` as ascending shares."""
    return check_coverage(
        _numbers(text, "--coverage", "Write shares between 0 and 1, such as .5,.9.")
    )


def check_coverage(levels: Iterable[float]) -> tuple[float, ...]:
    """Ascending distinct coverage levels, each strictly between 0 and 1."""
    return _inside_unit(
        levels, "Coverage", "An interval with coverage 0 or 1 says nothing; use for example 0.9."
    )


def parse_quantiles(text: str) -> tuple[float, ...]:
    """`.01,.05,.5` as shares, or `1-99` as a range of whole per cents."""
    if "-" in text.strip().lstrip("-"):
        return check_quantiles(
            percent / 100
            for percent in _integers(
                text, "--quantiles", "Write per cents (1-99) or shares (.05,.5,.95)."
            )
        )
    return check_quantiles(
        _numbers(text, "--quantiles", "Write per cents (1-99) or shares (.05,.5,.95).")
    )


def check_quantiles(levels: Iterable[float]) -> tuple[float, ...]:
    """Ascending distinct quantile levels, each strictly between 0 and 1."""
    return _inside_unit(levels, "Quantiles", "Use for example 0.05, 0.5 and 0.95.")


def check_paths(paths: int) -> int:
    """Simulated futures a person, 2 to 10,000."""
    if not 2 <= paths <= MAX_PATHS:
        raise UsageError(
            f"The number of paths is between 2 and {MAX_PATHS:,}, not {paths:,}. 500 is a good start."
        )
    return paths


def check_seed(seed: int) -> int:
    """A seed from 0 to 2^63 - 1."""
    if not 0 <= seed < 2**63:
        raise UsageError("The seed is a whole number from 0 to 2^63 - 1.")
    return seed


def check_rate(rate: float) -> float:
    """A real discount rate, strictly between -50 % and 100 %, as a share."""
    if not -0.5 < rate < 1.0:  # also refuses NaN
        raise UsageError("The discount rate is a share a year, for example 0.02 for 2 %.")
    return rate


def check_ages(to_age: int, from_age: int | None = None) -> tuple[int, int | None]:
    """The last age of a lifetime, and the age its observed past starts at, if that counts."""
    if not MIN_AGE < to_age <= MAX_AGE:
        raise UsageError(
            f"A lifetime ends at an age from {MIN_AGE + 1} to {MAX_AGE}, not {to_age}."
        )
    if from_age is not None and not MIN_AGE <= from_age < to_age:
        raise UsageError(
            f"A lifetime starts at an age from {MIN_AGE} to below its end ({to_age}), not {from_age}."
        )
    return to_age, from_age


def check_tax(name: str) -> str:
    """The name of a tax rule."""
    if name not in POLICIES:
        raise UsageError(f"There is no tax rule {name!r}. Use one of {', '.join(POLICIES)}.")
    return name


def parse_prices(text: str | None) -> int | None:
    """`nominal` (or nothing) as None, else the year in whose prices the amounts are."""
    if text is None or text == "nominal":
        return None
    if len(text) != 4 or not text.isdecimal():
        raise UsageError(
            f"--prices is nominal (prices of each row's own year) or a year such as {PRICE_YEAR}, not {text!r}."
        )
    return int(text)


def parse_years(text: str) -> tuple[int, int]:
    """`1990-2022` as first and last year."""
    first, dash, last = text.partition("-")
    if not (
        dash
        and len(first) == len(last) == 4
        and first.isdecimal()
        and last.isdecimal()
        and int(first) <= int(last)
    ):
        raise UsageError(f"--years is a first and a last year such as 1990-2022, not {text!r}.")
    return int(first), int(last)


def parse_latent_years(text: str) -> tuple[int, ...]:
    """`2002,2012` as years; nothing as none."""
    return (
        tuple(_integers(text, "--latent-years", "Write years, such as 2002,2012.")) if text else ()
    )


def default_bundle() -> Path:
    """Where the shipped bundle is: `SAGA_BUNDLE`, else `bundles/small` here, else beside the code."""
    if chosen := os.environ.get("SAGA_BUNDLE"):
        return Path(chosen)
    shipped = Path("bundles") / "small"
    beside = Path(__file__).resolve().parent.parent / shipped
    return beside if beside.is_dir() and not shipped.is_dir() else shipped


def _inside_unit(levels: Iterable[float], what: str, example: str) -> tuple[float, ...]:
    values = sorted(set(levels))
    if not values or not all(math.isfinite(value) and 0.0 < value < 1.0 for value in values):
        raise UsageError(
            f"{what} must lie strictly between 0 and 1, and there must be at least one level. {example}"
        )
    return tuple(values)


def _integers(text: str, option: str, fix: str) -> list[int]:
    values: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            start, stop = int(first), int(last) if dash else int(first)
            if not 0 <= start <= stop < 10_000:
                raise ValueError(part)
            values.extend(range(start, stop + 1))
    except ValueError as error:
        raise UsageError(f"{option} cannot be read from {text!r}. {fix}") from error
    return values


def _numbers(text: str, option: str, fix: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option} cannot be read from {text!r}. {fix}") from error
