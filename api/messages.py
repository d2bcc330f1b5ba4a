"""What a request and an answer look like. Types and shape only: the rules of a panel are `read_panel`'s, as for a file.

The models of a person and of a year are made from the column table, so that a column exists once.
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
from saga.conformal.quantile_intervals import Method
from saga.schema import COLUMNS, MAX_AGE, MAX_CONTEXT, MIN_AGE, Column

_STRICT = ConfigDict(extra="forbid")
_INT32 = 2**31 - 1
MAX_YEARS = (
    MAX_CONTEXT + 50
)  # a register may hold years before 16 and after 64, which reading sets aside


def _whole(value: object) -> object:
    """2001.0 is a whole number: some clients have no integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _code(value: object) -> object:
    """An identifier or code sent as a whole number is its text."""
    value = _whole(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Whole = Annotated[int, BeforeValidator(_whole), Strict()]
Real = Annotated[float, Strict()]
Code = Annotated[
    str,
    Strict(),
    Field(min_length=1, max_length=64),
    BeforeValidator(_code),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 64}, {"type": "integer"}]}
    ),
]
Flag = Annotated[
    bool,
    BeforeValidator(
        lambda value: (
            {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        )
    ),
    Strict(),
]
Money = Annotated[
    float | None,
    Field(description="Real, in prices of the price year; null where there is no answer"),
]


def _describe(column: Column) -> str:
    bounds = [f"from {column.minimum:g}"] if column.minimum is not None else []
    bounds += [f"to {column.maximum:g}"] if column.maximum is not None else []
    codes = [f"one of {', '.join(column.codes)}"] if column.codes else []
    pattern = [f"pattern {column.pattern}"] if column.pattern else []
    notes = "; ".join([column.unit, *codes, *pattern, " ".join(bounds)]).strip("; ")
    return f"{column.description} ({notes})" if notes else column.description


def _field(column: Column) -> tuple[Any, Any]:
    """Type and description of a column in JSON; anything may be null or left out here, `read_panel` says what may not."""
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
        __doc__="One observed year: any column of the panel. Years may be skipped; 0 is none, null is unknown.",
        **{c.name: _field(c) for c in COLUMNS},
    )
    Person = create_model(
        "Person",
        __config__=_STRICT,
        __doc__="One person: what does not change beside the name, and the history year by year. The last year is the origin.",
        person_id=(Code, Field(description="Person; leading zeros are kept")),
        **{c.name: _field(c) for c in COLUMNS if c.static and c.name != "person_id"},
        history=(
            list[HistoryRow],
            Field(min_length=1, max_length=MAX_YEARS, description="Observed years"),
        ),
    )


class ScenarioYear(BaseModel):
    """The economy of one future year, as fractions (0.07 is 7 %)."""

    model_config = _STRICT
    year: Annotated[Whole, Field(ge=1900, le=2200)]
    unemployment: Real
    real_wage_growth: Real
    inflation: Real


# The words are spelled out, not open text: a scenario on the command line may be a file, over HTTP never.
Scenario = Annotated[
    Annotated[Literal["baseline", "recession-1990s", "high-growth"], Tag("<word>")]
    | Annotated[list[ScenarioYear], Tag("<rows>"), Field(max_length=100)],
    Discriminator(lambda value: "<word>" if isinstance(value, str) else "<rows>"),
]
# A year in quotes is told that it must be a number, not that it is no word.
Prices = Annotated[
    Annotated[Literal["nominal"], Tag("<word>")]
    | Annotated[Whole, Field(ge=1900, le=2200), Tag("<year>")],
    Discriminator(
        lambda value: "<word>" if isinstance(value, str) and not value.isdecimal() else "<year>"
    ),
]

MAX_OUTCOMES = 100_000  # of one call
PRICES: Any = Field(
    None,
    description="Money of the request: nominal (default where the bundle is in SEK), or real, in prices of the bundle's price year",
)


class Options(BaseModel):
    """What both kinds of request share beside the persons."""

    model_config = _STRICT
    paths: Annotated[
        Whole, Field(ge=2, le=requests.MAX_PATHS, description="Monte-Carlo paths a person")
    ] = requests.PATHS
    seed: Annotated[Whole, Field(ge=0, lt=2**63, description="Same seed, same numbers")] = 0
    scenario: Scenario | None = Field(
        None, description="Path of the economy: a name, or rows (years not given are drawn)"
    )
    prices: Prices | None = PRICES

    def draws(self) -> requests.Draws:
        """How futures are drawn, as the forecaster takes it."""
        scenario = self.scenario
        rows = [row.model_dump() for row in scenario] if isinstance(scenario, list) else scenario
        return requests.Draws(self.paths, self.seed, rows)


Levels = list[Annotated[Real, Field(gt=0, lt=1)]]


class ForecastOptions(Options):
    """Options of `POST /v1/forecasts`; query parameters where the body is a Parquet or Arrow table."""

    horizons: list[Annotated[Whole, Field(ge=1, le=requests.MAX_HORIZON)]] = Field(
        list(requests.HORIZONS),
        min_length=1,
        max_length=requests.MAX_HORIZON,
        description="Years after the origin",
    )
    coverage: Levels = Field(
        list(requests.COVERAGE),
        min_length=1,
        max_length=20,
        description="Coverages of the intervals",
    )
    quantiles: Levels = Field(
        list(requests.QUANTILES), min_length=1, max_length=99, description="Levels of the quantiles"
    )
    bands: Annotated[Whole, Field(ge=1, le=requests.MAX_HORIZON)] | None = Field(
        None, description="K: also sets that hold the outcomes of the next K years together"
    )
    record: Flag = Field(
        False,
        description="Enter what is promised in the ledger, to be judged when outcomes come in",
    )

    def to_request(self) -> requests.ForecastRequest:
        """What to compute, checked, as the forecaster takes it."""
        return requests.ForecastRequest(
            self.horizons, self.coverage, self.quantiles, bands=self.bands
        )


class LifetimeOptions(Options):
    """Options of `POST /v1/lifetimes`."""

    rate: Annotated[Real, Field(gt=-0.5, lt=1, description="Real discount rate a year")] = (
        requests.RATE
    )
    to_age: Annotated[Whole, Field(gt=MIN_AGE, le=MAX_AGE, description="Last age that counts")] = (
        MAX_AGE
    )
    from_age: Annotated[Whole, Field(ge=MIN_AGE, lt=MAX_AGE)] | None = Field(
        None, description="Add the observed past from this age and discount to it"
    )
    tax: requests.TaxName = Field("none", description="Tax on each year's earnings")
    coverage: Levels = Field(
        list(requests.LIFETIME_COVERAGE),
        min_length=1,
        max_length=20,
        description="Coverages of the intervals",
    )

    def to_request(self) -> requests.LifetimeRequest:
        """What to compute, checked, as the forecaster takes it."""
        return requests.LifetimeRequest(
            rate=self.rate,
            to_age=self.to_age,
            from_age=self.from_age,
            tax=self.tax,
            coverage=self.coverage,
        )


# Up to the first person of a wrong shape: millions of wrong cells must not become millions of errors.
Persons = Annotated[list[Person], FailFast(), Field(min_length=1)]


class ForecastRequest(ForecastOptions):
    """Persons with their histories, and what to forecast."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"persons": example_persons(), "horizons": [1, 5, 10]}},
    )
    persons: Persons


class LifetimeRequest(LifetimeOptions):
    """Persons with their histories, and what a lifetime is."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"persons": example_persons(), "rate": 0.02, "to_age": 64}},
    )
    persons: Persons


class RealisedYear(BaseModel):
    """What a person earned in a year: a year that a recorded forecast was about."""

    model_config = _STRICT
    person_id: Code
    year: Annotated[Whole, Field(ge=1900, le=2200)]
    earnings: Annotated[
        Real,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="0 is none, also after death; leave out who lives abroad",
        ),
    ]


class OutcomesOptions(BaseModel):
    """Options of `POST /v1/outcomes`; query parameters where the body is a Parquet or Arrow table."""

    model_config = _STRICT
    prices: Prices | None = PRICES


class OutcomesRequest(OutcomesOptions):
    """Realised earnings of any persons and years, in any order, any number of times."""

    outcomes: Annotated[
        list[RealisedYear], FailFast(), Field(min_length=1, max_length=MAX_OUTCOMES)
    ]


class AdaptiveVersion(BaseModel):
    """Which adaptive state: `version` counts the deliveries that changed it, `through` is the last year with an outcome."""

    version: int
    through: int | None
    digest: str | None


class OutcomesResponse(BaseModel):
    """What became of the outcomes. `new` ones settled `promises` promises; `conflicting` ones contradict what is known, changed nothing
    and are named in `problems` (the first 50); `unmatched` ones nobody made a recorded forecast about, and nothing of them is kept."""

    new: int
    duplicate: int
    conflicting: int
    unmatched: int
    promises: int
    problems: list[dict[str, Any]]
    adaptive: AdaptiveVersion


class SplitCell(BaseModel):
    """Threshold of the split layer: sets grown from `paths` paths hold outcomes up to this score. Null: too few persons."""

    horizon: int
    group: str
    coverage: float
    paths: int
    threshold: float | None
    persons: int


class AdaptiveCell(BaseModel):
    """What outcomes add to the threshold, and what they were: `missed` of `persons` settled promises. Not those of fewer than 10."""

    horizon: int
    group: str
    coverage: float
    offset: float
    persons: int
    missed: int
    through: int
    experts: dict[str, float]


class AdaptiveTable(AdaptiveVersion):
    """The adaptive state, and how many promises are settled or still wait."""

    settled: int
    waiting: int
    cells: list[AdaptiveCell]


class CalibrationTables(BaseModel):
    """The thresholds in force: the split layer's, and the adaptive layer's where the service keeps a ledger."""

    bundle: str
    calibration: str | None
    cells: list[SplitCell]
    adaptive: AdaptiveTable | None


class Interval(BaseModel):
    """A published set: `[lower, upper]`, and `{0}` too where `includes_zero`; null where there is none."""

    coverage: float
    lower: Money
    upper: Money
    includes_zero: bool | None
    guarantee: Literal["assumption", "extrapolated", "none"]
    reason: str


class Horizon(BaseModel):
    """One future year of a person: `p_zero` is the probability of exactly zero earnings."""

    h: int
    year: int
    mean: Money
    p_zero: float | None
    quantiles: dict[str, Money]
    intervals: list[Interval]
    bands: list[Interval] | None = Field(
        None,
        description="Where `bands` = K was asked: sets that hold the outcomes of years 1 to K together; null in later years",
    )


class PersonForecast(BaseModel):
    """The forecast of a person, in the order of the request; no horizons beyond age 64."""

    person_id: str
    origin_year: int
    horizons: list[Horizon]


class ForecastResponse(BaseModel):
    """Forecasts and where they come from."""

    provenance: dict[str, Any]
    forecasts: list[PersonForecast]


class LifetimeInterval(BaseModel):
    """An interval of a present value."""

    coverage: float
    lower: Money
    upper: Money
    guarantee: Literal["assumption", "extrapolated", "none"]
    reason: str


class Histogram(BaseModel):
    """Shares of the paths between consecutive `edges` (one more edge than shares)."""

    edges: list[float]
    shares: list[float]


class PresentValue(BaseModel):
    """Distribution of a present value over the paths; `mc_error` is the Monte-Carlo error of the mean."""

    mean: Money
    mc_error: float | None
    quantiles: dict[str, Money]
    intervals: list[LifetimeInterval]
    histogram: Histogram


class Tax(BaseModel):
    """Mean present value of the tax, and of what is left."""

    rule: str
    tax_mean: Money
    net_mean: Money


class PersonLifetime(BaseModel):
    """A person's lifetime, in the order of the request."""

    person_id: str
    origin_year: int
    to_age: int
    from_age: int | None
    rate: float
    present_value: PresentValue
    tax: Tax | None


class Statistic(BaseModel):
    """`value` across persons, averaged over futures, and its spread `sd` over futures; `pooled` takes all lives of all futures together."""

    value: float | None
    sd: float | None
    mc_error: float | None
    pooled: float | None
    pooled_mc_error: float | None


class Population(BaseModel):
    """Present values across the persons of the call."""

    persons: int
    mean: Statistic
    p10: Statistic
    p50: Statistic
    p90: Statistic
    p99: Statistic
    gini: Statistic
    top_1_share: Statistic


class LifetimeResponse(BaseModel):
    """Lifetimes and where they come from."""

    provenance: dict[str, Any]
    lifetimes: list[PersonLifetime]
    population: Population


class ModelCard(BaseModel):
    """The bundle that forecasts; `coverage` lists the levels it is calibrated for, none where it is not."""

    bundle: str
    calibration: str | None
    method: Method | None
    code_version: str
    seed: int
    command: str
    parameters: int
    currency: str
    price_year: int
    coverage: list[float]
    config: dict[str, Any]
    metrics: dict[str, Any]
    card: str


class Variables(BaseModel):
    """The column table: what a panel may hold."""

    columns: list[dict[str, Any]]
    ages: list[int]
    max_context: int
    price_year: int
