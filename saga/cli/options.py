"""Text of the command line -> values. `saga.requests` checks the values themselves."""

from __future__ import annotations

from saga.errors import UsageError
from saga.schema import PRICE_YEAR

_QUANTILES_FIX = "Write percentages (1-99) or fractions (.05,.5,.95)."


def parse_horizons(text: str) -> tuple[int, ...]:
    """`1-30`, `1,5,10` or `1-5,10` as years ahead."""
    return tuple(_integers(text, "--horizons", "Write a range (1-30) or a list (1,5,10)."))


def parse_coverage(text: str) -> tuple[float, ...]:
    """`.5,.8,.9` as fractions."""
    return _numbers(text, "--coverage", "Write fractions between 0 and 1, such as .5,.9.")


def parse_quantiles(text: str) -> tuple[float, ...]:
    """`.01,.05,.5` as fractions, or `1-99` as a range of whole percentages."""
    if "-" in text.strip().lstrip("-"):
        return tuple(percent / 100 for percent in _integers(text, "--quantiles", _QUANTILES_FIX))
    return _numbers(text, "--quantiles", _QUANTILES_FIX)


def parse_prices(text: str | None) -> int | None:
    """`nominal` (or nothing) as None, else the year in whose prices the amounts are."""
    if text is None or text == "nominal":
        return None
    if len(text) != 4 or not text.isdecimal():
        raise UsageError(
            "--prices is nominal (prices of each row's own year) or a year such as "
            f"{PRICE_YEAR}, not {text!r}."
        )
    return int(text)


def parse_years(text: str) -> tuple[int, int]:
    """`1990-2022` as first and last year."""
    first, dash, last = text.partition("-")
    is_year = [len(year) == 4 and year.isdecimal() for year in (first, last)]
    if not (dash and all(is_year) and int(first) <= int(last)):
        raise UsageError(f"--years is a first and a last year such as 1990-2022, not {text!r}.")
    return int(first), int(last)


def parse_latent_years(text: str) -> tuple[int, ...]:
    """`2002,2012` as years; empty text as none."""
    if not text:
        return ()
    return tuple(_integers(text, "--latent-years", "Write years, such as 2002,2012."))


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


def _numbers(text: str, option: str, fix: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{option} cannot be read from {text!r}. {fix}") from error
