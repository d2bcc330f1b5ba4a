"""Bodies and options of requests: types and shape only; `read_panel` checks the panel.

The models of a person and of a year are made from the column table, so that each column is defined
once. Options become the typed requests of `saga.requests`, whose limits are also the limits here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    Strict,
    Tag,
    WithJsonSchema,
    create_model,
)

from api.example import example_persons
from saga import requests
from saga.requests import Draws, ForecastRequest, LifetimeRequest
from saga.schema import COLUMNS, MAX_AGE, MAX_CONTEXT, MIN_AGE, Column

MAX_OUTCOMES = 100_000  # of one call
# A register may hold years before age 16 and after age 64, which reading leaves out.
MAX_YEARS = MAX_CONTEXT + 50
_STRICT = ConfigDict(extra="forbid")
_INT32 = 2**31 - 1


def _whole(value: object) -> object:
    """2001.0 is a whole number: some clients have no integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _code(value: object) -> object:
    """An identifier or code that is sent as a whole number is its text."""
    value = _whole(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _flag(value: object) -> object:
    """Query parameters are text, so "true" and "false" are read as such."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


Whole = Annotated[int, BeforeValidator(_whole), Strict()]
Real = Annotated[float, Strict()]
Year = Annotated[Whole, Field(ge=1900, le=2200)]
Code = Annotated[
    str,
    Strict(),
    Field(min_length=1, max_length=64),
    BeforeValidator(_code),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 64}, {"type": "integer"}]}
    ),
]
Flag = Annotated[bool, BeforeValidator(_flag), Strict()]
Fractions = list[Annotated[Real, Field(gt=0, lt=1)]]


def _describe(column: Column) -> str:
    bounds = [f"from {column.minimum:g}"] if column.minimum is not None else []
    bounds += [f"to {column.maximum:g}"] if column.maximum is not None else []
    codes = [f"one of {', '.join(column.codes)}"] if column.codes else []
    pattern = [f"pattern {column.pattern}"] if column.pattern else []
    notes = "; ".join([column.unit, *codes, *pattern, " ".join(bounds)]).strip("; ")
    return f"{column.description} ({notes})" if notes else column.description


def _field(column: Column) -> tuple[Any, Any]:
    """JSON type and description of a column; `read_panel` says which columns may be missing."""
    if column.kind in ("money", "number"):
        kind: Any = Real | None
    elif column.dtype.is_integer():
        kind = Annotated[Whole, Field(ge=-_INT32, le=_INT32)] | None
    else:
        kind = Code | None
    return kind, Field(default=None, description=_describe(column))


if TYPE_CHECKING:

    class Person(BaseModel):
        """Made below from the column table."""

else:
    HistoryRow = create_model(
        "HistoryRow",
        __config__=_STRICT,
        __doc__="One observed year: any column of the panel. Years may be skipped; earnings of 0 "
        "are none, null is unknown.",
        **{c.name: _field(c) for c in COLUMNS},
    )
    Person = create_model(
        "Person",
        __config__=_STRICT,
        __doc__="One person: columns that do not change beside `person_id`, and the history year "
        "by year. The last year is the origin.",
        person_id=(Code, Field(description="Person; leading zeros are kept")),
        **{c.name: _field(c) for c in COLUMNS if c.static and c.name != "person_id"},
        history=(
            list[HistoryRow],
            Field(min_length=1, max_length=MAX_YEARS, description="Observed years"),
        ),
    )


class ScenarioYear(BaseModel):
    """Macro values of one future year, as fractions (0.07 is 7 %)."""

    model_config = _STRICT
    year: Year
    unemployment: Real
    real_wage_growth: Real
    inflation: Real


# The names are listed: on the command line a scenario may be a file, over HTTP it never is.
Scenario = Annotated[
    Annotated[Literal["baseline", "recession-1990s", "high-growth"], Tag("<word>")]
    | Annotated[list[ScenarioYear], Tag("<rows>"), Field(max_length=100)],
    Discriminator(lambda value: "<word>" if isinstance(value, str) else "<rows>"),
]
# For a year in quotes the error is "must be a number", not "not one of the allowed words".
Prices = Annotated[
    Annotated[Literal["nominal"], Tag("<word>")] | Annotated[Year, Tag("<year>")],
    Discriminator(
        lambda value: "<word>" if isinstance(value, str) and not value.isdecimal() else "<year>"
    ),
]
_PRICES: Any = Field(
    None,
    description="Money of the request: nominal (default for a bundle in SEK), or real, in prices "
    "of the bundle's price year",
)


class DrawOptions(BaseModel):
    """Options that forecasts and lifetimes share."""

    model_config = _STRICT
    paths: Annotated[
        Whole, Field(ge=2, le=requests.MAX_PATHS, description="Monte-Carlo paths per person")
    ] = requests.PATHS
    seed: Annotated[
        Whole, Field(ge=0, lt=2**63, description="The same seed gives the same numbers")
    ] = 0
    scenario: Scenario | None = Field(
        None, description="Macro values: a name, or rows (years that are not given are drawn)"
    )
    prices: Prices | None = _PRICES

    def draws(self) -> Draws:
        """How futures are drawn, as the forecaster takes it."""
        scenario = self.scenario
        rows = [row.model_dump() for row in scenario] if isinstance(scenario, list) else scenario
        return Draws(self.paths, self.seed, rows)


class ForecastOptions(DrawOptions):
    """Options of `POST /v1/forecasts`; query parameters beside a Parquet or Arrow body."""

    horizons: list[Annotated[Whole, Field(ge=1, le=requests.MAX_HORIZON)]] = Field(
        list(requests.HORIZONS),
        min_length=1,
        max_length=requests.MAX_HORIZON,
        description="Years after the origin",
    )
    coverage: Fractions = Field(
        list(requests.COVERAGE), min_length=1, max_length=20, description="Coverage of intervals"
    )
    quantiles: Fractions = Field(
        list(requests.QUANTILES), min_length=1, max_length=99, description="Quantiles to give"
    )
    bands: Annotated[Whole, Field(ge=1, le=requests.MAX_HORIZON)] | None = Field(
        None, description="K: also sets that hold the outcomes of the next K years together"
    )
    record: Flag = Field(
        False, description="Enter the intervals in the ledger, to be compared with outcomes later"
    )

    def to_request(self) -> ForecastRequest:
        """What to compute, as the forecaster takes it."""
        return ForecastRequest(self.horizons, self.coverage, self.quantiles, bands=self.bands)


class LifetimeOptions(DrawOptions):
    """Options of `POST /v1/lifetimes`; query parameters beside a Parquet or Arrow body."""

    rate: Annotated[Real, Field(gt=-0.5, lt=1, description="Real discount rate a year")] = (
        requests.RATE
    )
    to_age: Annotated[
        Whole, Field(gt=MIN_AGE, le=MAX_AGE, description="Last age whose earnings count")
    ] = MAX_AGE
    from_age: Annotated[Whole, Field(ge=MIN_AGE, lt=MAX_AGE)] | None = Field(
        None, description="Add the observed past from this age and discount to it"
    )
    tax: requests.TaxName = Field("none", description="Tax on each year's earnings")
    coverage: Fractions = Field(
        list(requests.LIFETIME_COVERAGE),
        min_length=1,
        max_length=20,
        description="Coverage of intervals",
    )

    def to_request(self) -> LifetimeRequest:
        """What to compute, as the forecaster takes it. Raises UsageError if the ages conflict."""
        return LifetimeRequest(
            rate=self.rate,
            to_age=self.to_age,
            from_age=self.from_age,
            tax=self.tax,
            coverage=self.coverage,
        )


# Validation stops at the first wrong person: millions of wrong values do not become as many errors.
Persons = Annotated[list[Person], FailFast(), Field(min_length=1)]


class ForecastBody(ForecastOptions):
    """Persons with their histories, and what to forecast."""

    model_config = ConfigDict(
        title="ForecastRequest",
        extra="forbid",
        json_schema_extra={"example": {"persons": example_persons(), "horizons": [1, 5, 10]}},
    )
    persons: Persons


class LifetimeBody(LifetimeOptions):
    """Persons with their histories, and how to compute present values."""

    model_config = ConfigDict(
        title="LifetimeRequest",
        extra="forbid",
        json_schema_extra={"example": {"persons": example_persons(), "rate": 0.02, "to_age": 64}},
    )
    persons: Persons


class RealisedYear(BaseModel):
    """A person's earnings in a year that a recorded forecast was about."""

    model_config = _STRICT
    person_id: Code
    year: Year
    earnings: Annotated[
        Real,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="0 is none, also after death; leave out persons who live abroad",
        ),
    ]


class OutcomesOptions(BaseModel):
    """Options of `POST /v1/outcomes`; query parameters beside a Parquet or Arrow body."""

    model_config = _STRICT
    prices: Prices | None = _PRICES


class OutcomesBody(OutcomesOptions):
    """Realised earnings of any persons and years, in any order, any number of times."""

    model_config = ConfigDict(title="OutcomesRequest", extra="forbid")
    outcomes: Annotated[
        list[RealisedYear], FailFast(), Field(min_length=1, max_length=MAX_OUTCOMES)
    ]
