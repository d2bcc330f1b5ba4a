"""Options shared by commands, in the order of `--help`, and their text as values.

`saga.requests` checks the values.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saga import requests
from saga.errors import UsageError
from saga.schema import PRICE_YEAR

if TYPE_CHECKING:
    from saga.data.split import Part

HORIZONS_TEXT = f"1-{requests.MAX_HORIZON}"
COVERAGE_TEXT, LIFETIME_COVERAGE_TEXT, QUANTILES_TEXT = (
    ",".join(f"{fraction:g}" for fraction in fractions)
    for fractions in (requests.COVERAGE, requests.LIFETIME_COVERAGE, requests.QUANTILES)
)

INPUT = typer.Argument(
    metavar="INPUT",
    help="Person-years: a file or folder of .parquet .csv .arrow .dta .sas7bdat .sav; or - for a "
    "CSV, Parquet or Arrow file on standard input.",
)
Input = Annotated[Path, INPUT]
Panel = Annotated[
    Path, typer.Option("--panel", help="Person-years: a file, a folder or a generated register.")
]
BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Directory of a bundle.")]
Bundle = Annotated[
    Path | None,
    typer.Option("--bundle", help="Directory of a bundle.", show_default="bundles/small"),
]
OutBundle = Annotated[
    Path | None, typer.Option("--out", help="Bundle to write.", show_default="BUNDLE itself")
]
OutTable = Annotated[
    Path,
    typer.Option(
        "--out", help="Table to write: .parquet .csv .dta .xlsx; or - for CSV on standard output."
    ),
]
Mapping = Annotated[
    str | None,
    typer.Option(
        "--mapping",
        help="Names and codes of the source: a YAML file or a shipped name (lisa, nlsy79).",
    ),
]
Prices = Annotated[
    str | None,
    typer.Option(
        "--prices",
        help="'nominal', or the year in whose prices all amounts are.",
        show_default="nominal",
    ),
]
Facts = Annotated[
    Path | None,
    typer.Option(
        "--facts",
        help="Your own prices, macro series and tax parameters: a folder of .csv files, or one.",
        show_default="shipped",
    ),
]
Origin = Annotated[
    int | None,
    typer.Option(
        "--origin",
        min=1900,
        max=2200,
        help="For backtests: records and exits after this year are not read.",
        show_default="the last year of each person",
    ),
]
OnError = Annotated[
    requests.OnError,
    typer.Option("--on-error", help="Stop at rows that break a rule, or drop and count them."),
]
Rejected = Annotated[
    Path | None,
    typer.Option("--rejected", help="File for the rows that break a rule (.parquet or .csv)."),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Training starts from the weights of this bundle; none: from random weights.",
        show_default="bundles/prior if it is there, the panel is not generated and has fewer than "
        "30,000 persons, and the configuration is auto",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same numbers.")]
Paths = Annotated[int, typer.Option("--paths", help="Simulated futures per person.")]
UnusedPaths = Annotated[
    int,
    typer.Option("--paths", help="No effect: a forecast needs no simulated futures.", hidden=True),
]
UnusedSeed = Annotated[
    int,
    typer.Option("--seed", help="No effect: a forecast needs no random numbers.", hidden=True),
]
Scenario = Annotated[
    str | None,
    typer.Option(
        "--scenario", help="Macro futures: baseline, recession-1990s, high-growth or a CSV file."
    ),
]
Rollout = Annotated[
    requests.RolloutName | None,
    typer.Option(
        "--rollout",
        help="exact: simulate with the decoder; light: with the small recurrent cell, faster.",
        show_default="as calibrated",
    ),
]
UnusedRollout = Annotated[
    requests.RolloutName | None,
    typer.Option(
        "--rollout",
        help="No effect: a forecast needs no simulated futures.",
        show_default="as calibrated",
        hidden=True,
    ),
]
Precision = Annotated[
    requests.Precision | None,
    typer.Option(
        "--precision",
        help="Arithmetic of paths; bfloat16 is faster if the processor has units for it.",
        show_default="float32",
    ),
]
Coverage = Annotated[
    str,
    typer.Option("--coverage", help="Coverage of the intervals, each strictly between 0 and 1."),
]
Quantiles = Annotated[
    str, typer.Option("--quantiles", help="Quantiles: fractions (.05,.5) or percentages (1-99).")
]
Horizons = Annotated[
    str, typer.Option("--horizons", help="Years ahead: a range (1-30) or a list (1,5,10).")
]
Rate = Annotated[float, typer.Option("--rate", help="Real discount rate a year, as a fraction.")]
ToAge = Annotated[int, typer.Option("--to-age", help="Last age that counts.")]
FromAge = Annotated[
    int | None,
    typer.Option("--from-age", help="Add the observed past from this age, and discount to it."),
]
Tax = Annotated[
    str,
    typer.Option(
        "--tax", help="Tax rule: none, paper, that of a year (se-2026), or a reform file (.yaml)."
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="SAGA_DATABASE",
        help="Ledger whose thresholds are used: sqlite:///FILE or postgresql://...",
        show_default="none",
    ),
]
Holder = Annotated[
    str,
    typer.Option(
        "--holder",
        envvar="SAGA_HOLDER",
        help="The holder whose part of the ledger is used; `common` moves all persons' thresholds.",
    ),
]
LedgerDatabase = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="SAGA_DATABASE",
        help="Ledger: sqlite:///FILE or postgresql://...",
        show_default="BUNDLE.ledger.sqlite",
    ),
]
DatabaseKey = Annotated[
    Path | None,
    typer.Option(
        "--database-key",
        envvar="SAGA_DATABASE_KEY",
        help="File of the ledger's secret key.",
        show_default="FILE.key, created if missing",
    ),
]
Record = Annotated[
    bool,
    typer.Option(
        "--record",
        help="Record intervals of every fitted coverage in the ledger, to compare them with later "
        "outcomes.",
    ),
]
SinceOrigin = Annotated[
    int | None,
    typer.Option(
        "--since",
        help="Delivery: first origin year to forecast from.",
        show_default="the next",
    ),
]
DeliveryPersons = Annotated[
    int,
    typer.Option("--persons", min=1, help="Delivery: calibration persons to forecast each year."),
]
Spans = Annotated[
    str,
    typer.Option(
        "--spans",
        help="Delivery: record path bands and present values over so many years.",
    ),
]
ScoredPersons = Annotated[
    str | None,
    typer.Option(
        "--panel",
        help="The persons that were scored (a path or a URL), for groups that paths do not have.",
    ),
]
PersonWeights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="Table person_id, weight (.parquet or .csv, a path or a URL).",
        show_default="all 1",
    ),
]
Split = Annotated[
    Literal["person"],
    typer.Option(
        "--split", help="How persons are divided into training, validation, calibration and test."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="Threads. Commands that simulate futures of many persons use processes instead.",
        show_default="all cores",
    ),
]
Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Processes; the result does not depend on it.")
]
TestPersons = Annotated[
    int | None, typer.Option("--persons", min=1, help="Largest number of test persons.")
]
Unrounded = Annotated[
    bool,
    typer.Option("--unrounded", help="Amounts with all digits, not rounded to whole units."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


_QUANTILES_FIX = "Write percentages (1-99) or fractions (.05,.5,.95)."


def parse_horizons(text: str) -> tuple[int, ...]:
    """`1-30`, `1,5,10` or `1-5,10` as years ahead."""
    return tuple(_integers(text, "--horizons", "Write a range (1-30) or a list (1,5,10)."))


def parse_spans(text: str) -> tuple[int, ...]:
    """`2,5` as numbers of years."""
    return tuple(_integers(text, "--spans", "Write a list of years (2,5)."))


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


def parse_split_shares(text: str) -> dict[Part, float]:
    """`60,10,20,10` as the shares of the parts of the split."""
    from saga.data.split import parse_shares

    return parse_shares(_integers(text, "--shares", "Write per cent, such as 60,10,20,10."))


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
