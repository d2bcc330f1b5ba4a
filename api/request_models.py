"""Models of request bodies and options: types and shape only; `read_panel` checks the panel.

The models of a person and of a year are created from the column table, so that each column is
defined once. Options become the typed requests of `saga.requests`, whose limits also apply here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
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
from pydantic_core import PydanticCustomError
from saga.api.example import example_persons
from saga.calibration.adaptive.outcome_entries import MAX_AMOUNT, CorrectionReason

from saga import requests
from saga.errors import Problem, UsageError
from saga.requests import Draws, ForecastRequest, LifetimeRequest, PathsRequest
from saga.schema import COLUMNS, MAX_CONTEXT_YEARS, Column
from saga.tax.tax_reform import reform_from

MAX_OUTCOMES = 100_000  # of one call
MAX_CORRECTIONS = 5_000  # of one call
# A record may have years before age 16 and after age 64; they are dropped when it is read.
MAX_YEARS = MAX_CONTEXT_YEARS + 50
_STRICT = ConfigDict(extra="forbid")
_TAX_NAMES = r"none|paper|se-20\d\d"  # patterns of JSON schemas have no named groups
_INT32 = 2**31 - 1


def _read_whole(value: object) -> object:
    """Read 2001.0 as 2001, because some clients have no integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _read_code(value: object) -> object:
    """Read an identifier or code that was sent as a whole number as text."""
    value = _read_whole(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _read_flag(value: object) -> object:
    """Read "true" and "false" as flags, because query parameters are text."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _description(request: type[Draws] | type[requests.Request], name: str) -> str:
    """What the typed request says of one of its fields, without its full stop."""
    return requests.options_of(request)[name][1].help.rstrip(".")


def _bounds(request: type[Draws] | type[requests.Request], name: str) -> Any:
    """The bounds of the numbers of a field of the typed request."""
    option = requests.options_of(request)[name][1]
    return Field(ge=option.least, le=option.most, gt=option.above, lt=option.below)


# It is the last entry of a whole number's type: before the bounds, the schema would lose them.
_WHOLE = BeforeValidator(_read_whole)
Real = Annotated[float, Strict()]
Year = Annotated[int, Strict(), Field(ge=1900, le=2200), _WHOLE]
Code = Annotated[
    str,
    Strict(),
    Field(min_length=1, max_length=64),
    BeforeValidator(_read_code),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 64}, {"type": "integer"}]}
    ),
]
_MAX_OWN = 64  # own columns of a panel
_OwnName = Annotated[str, Strict(), Field(min_length=1, max_length=64)]
Horizon = Annotated[int, Strict(), _bounds(ForecastRequest, "horizons"), _WHOLE]
Flag = Annotated[bool, BeforeValidator(_read_flag), Strict()]
Fractions = list[Annotated[Real, _bounds(ForecastRequest, "quantiles")]]
ToAge = Annotated[int, Strict(), _bounds(LifetimeRequest, "to_age"), _WHOLE]


def _check_coverage(value: float) -> float:
    if value not in requests.COVERAGE:
        allowed = ", ".join(f"{coverage:g}" for coverage in requests.COVERAGE)
        raise PydanticCustomError("coverage", "not calibrated", {"expected": allowed})
    return value


# The coverages for which `saga calibrate` fits intervals.
Coverages = list[
    Annotated[
        Real,
        AfterValidator(_check_coverage),
        WithJsonSchema({"anyOf": [{"type": "number", "const": c} for c in requests.COVERAGE]}),
    ]
]


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
        kind = Annotated[int, Strict(), Field(ge=-_INT32, le=_INT32), _WHOLE] | None
    else:
        kind = Code | None
    return kind, Field(default=None, description=_describe(column))


if TYPE_CHECKING:

    class Person(BaseModel):
        """Stands for the model that is created from the column table."""

else:
    HistoryRow = create_model(
        "HistoryRow",
        __config__=_STRICT,
        __doc__="One observed year: any column of the panel. Years may be skipped; earnings of 0 "
        "are none, null is unknown.",
        **{c.name: _field(c) for c in COLUMNS},
        extra=(
            dict[_OwnName, Real | Code | None] | None,
            Field(
                default=None,
                max_length=_MAX_OWN,
                description="Columns that only the bundle's panel has, named as in `extra` of GET "
                "/v1/variables but without the prefix `extra_`",
            ),
        ),
    )
    Person = create_model(
        "Person",
        __config__=_STRICT,
        __doc__="One person: `person_id`, the columns that do not change, and the history, one row "
        "per year. The last year is the origin.",
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


# The names are listed because a file name must not be accepted over HTTP, unlike on the command
# line.
Scenario = Annotated[
    Annotated[Literal["baseline", "recession-1990s", "high-growth"], Tag("<word>")]
    | Annotated[list[ScenarioYear], Tag("<rows>"), Field(max_length=100)],
    Discriminator(lambda value: "<word>" if isinstance(value, str) else "<rows>"),
]
# With this rule the error for a year in quotes is "must be a number".
Prices = Annotated[
    Annotated[Literal["nominal"], Tag("<word>")] | Annotated[Year, Tag("<year>")],
    Discriminator(
        lambda value: "<word>" if isinstance(value, str) and not value.isdecimal() else "<year>"
    ),
]
_PRICES: Any = Field(
    None,
    description="Prices of the amounts in the request: `nominal` (the default for a bundle in "
    "SEK), or the year in whose prices all amounts are",
)


class TaxReformBody(BaseModel):
    """Changed tax rules, with the keys of a reform file; docs/method/tax.md explains them."""

    model_config = ConfigDict(title="TaxReform", extra="forbid")
    base: Annotated[
        str, Field(pattern=r"^se-20\d\d$", description="Rules to start from, such as se-2026")
    ]
    uprating: requests.Uprating = Field(
        "prices", description="What amounts follow after that year; prices: constant in real terms"
    )
    real_wage_growth: (
        Annotated[
            Real, Field(ge=-0.1, le=0.1, description="Assumed growth of real wages, a fraction")
        ]
        | None
    ) = None
    parameters: dict[str, Real] = Field({}, description="Changed parameters of the rules")

    def to_reform(self) -> requests.TaxReform:
        """The typed reform. Raises UsageError for a parameter that is unknown or not possible."""
        return reform_from(self.model_dump(), "reform", "tax")


# The names of rules; a file name must not be accepted over HTTP, unlike on the command line.
Tax = Annotated[
    Annotated[str, Field(pattern=f"^({_TAX_NAMES})$"), Tag("<word>")]
    | Annotated[TaxReformBody, Tag("<reform>")],
    Discriminator(lambda value: "<word>" if isinstance(value, str) else "<reform>"),
]


class DrawOptions(BaseModel):
    """Options that forecasts and lifetimes share."""

    model_config = _STRICT
    paths: Annotated[int, Strict(), _bounds(Draws, "n_paths"), _WHOLE] = Field(
        Draws.n_paths, description=_description(Draws, "n_paths")
    )
    seed: Annotated[int, Strict(), _bounds(Draws, "seed"), _WHOLE] = Field(
        Draws.seed, description=_description(Draws, "seed")
    )
    scenario: Scenario | None = Field(
        None, description="Macro values: a name, or rows; years without a row are simulated"
    )
    prices: Prices | None = _PRICES
    origin: Year | None = Field(
        None, description="For backtests: records and exits after this year are not read"
    )
    unrounded: Flag = Field(False, description=_description(ForecastRequest, "unrounded"))

    def draws(self) -> Draws:
        """Options of the simulation, in the form that the forecaster needs."""
        scenario = self.scenario
        rows = [row.model_dump() for row in scenario] if isinstance(scenario, list) else scenario
        return Draws(self.paths, self.seed, rows)


class ForecastOptions(DrawOptions):
    """Options of `POST /v1/forecasts`; query parameters if the body is Parquet or Arrow."""

    horizons: list[Horizon] = Field(
        list(requests.HORIZONS),
        min_length=1,
        max_length=requests.MAX_HORIZON,
        description=_description(ForecastRequest, "horizons"),
    )
    coverage: Coverages = Field(
        list(requests.COVERAGE),
        min_length=1,
        max_length=20,
        description=_description(ForecastRequest, "coverage"),
    )
    quantiles: Fractions = Field(
        list(requests.QUANTILES),
        min_length=1,
        max_length=99,
        description=_description(ForecastRequest, "quantiles"),
    )
    bands: Horizon | None = Field(None, description=_description(ForecastRequest, "bands"))
    record: Flag = Field(
        False, description="Enter the intervals in the ledger, to be compared with outcomes later"
    )

    def to_request(self) -> ForecastRequest:
        """The typed request, in the form that the forecaster needs."""
        return ForecastRequest(
            self.horizons,
            self.coverage,
            self.quantiles,
            bands=self.bands,
            unrounded=self.unrounded,
        )


class LifetimeOptions(DrawOptions):
    """Options of `POST /v1/lifetimes`; query parameters if the body is Parquet or Arrow."""

    rate: Annotated[Real, _bounds(LifetimeRequest, "rate")] = Field(
        LifetimeRequest.rate, description=_description(LifetimeRequest, "rate")
    )
    to_age: ToAge = Field(
        LifetimeRequest.to_age, description=_description(LifetimeRequest, "to_age")
    )
    from_age: Annotated[int, Strict(), _bounds(LifetimeRequest, "from_age"), _WHOLE] | None = Field(
        None, description=_description(LifetimeRequest, "from_age")
    )
    record: Flag = Field(
        False,
        description="Enter the present values in the ledger, to be compared with outcomes later; "
        "for the calibrated rate, without from_age",
    )
    tax: Tax = Field(
        "none",
        description=_description(LifetimeRequest, "tax"),
    )
    coverage: Coverages = Field(
        list(requests.LIFETIME_COVERAGE),
        min_length=1,
        max_length=20,
        description=_description(LifetimeRequest, "coverage"),
    )

    def to_request(self) -> LifetimeRequest:
        """The typed request. Raises UsageError if the ages contradict each other."""
        return LifetimeRequest(
            rate=self.rate,
            to_age=self.to_age,
            from_age=self.from_age,
            tax=self.tax if isinstance(self.tax, str) else self.tax.to_reform(),
            coverage=self.coverage,
            unrounded=self.unrounded,
        )


class PathsOptions(DrawOptions):
    """Options of a job with the product `paths`."""

    to_age: ToAge = Field(PathsRequest.to_age, description=_description(PathsRequest, "to_age"))
    circumstances: Flag = Field(False, description=_description(PathsRequest, "states"))

    def to_request(self) -> PathsRequest:
        """The typed request."""
        return PathsRequest(self.to_age, states=self.circumstances, unrounded=self.unrounded)


_PRODUCTS: dict[requests.Product, type[ForecastOptions | LifetimeOptions | PathsOptions]] = {
    "forecasts": ForecastOptions,
    "lifetimes": LifetimeOptions,
    "paths": PathsOptions,
}


class JobOptions(ForecastOptions, LifetimeOptions, PathsOptions):
    """Options of `POST /v1/jobs`: those of the product, and how to treat broken rows.

    They are query parameters if the body is a table.
    """

    product: requests.Product = Field("forecasts", description="What to compute")
    on_error: requests.OnError = Field(
        "fail", description="Whether rows that break a rule end the job, or are dropped and counted"
    )

    def to_request(self) -> requests.Request:  # type: ignore[override]
        """The typed request. Raises UsageError for an option of another product."""
        product = _PRODUCTS[self.product]
        stated = self.model_fields_set & JobOptions.model_fields.keys() - {"product", "on_error"}
        if foreign := sorted(stated - product.model_fields.keys()):
            problems = [
                Problem("product", f"Not an option of {self.product}", "Leave it out", name)
                for name in foreign
            ]
            raise UsageError("Some options belong to another product", problems)
        return product.model_construct(
            **{name: getattr(self, name) for name in stated}
        ).to_request()


# Validation stops at the first wrong person, so that a request with millions of wrong values does
# not produce as many errors.
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


class JobBody(JobOptions):
    """Persons with their histories, and what to compute."""

    model_config = ConfigDict(
        title="JobRequest",
        extra="forbid",
        json_schema_extra={"example": {"persons": example_persons(), "product": "forecasts"}},
    )
    persons: Persons


class JobFileBody(JobOptions):
    """A file with persons in the folder of the holder, and what to compute."""

    model_config = ConfigDict(
        title="JobFileRequest",
        extra="forbid",
        json_schema_extra={"example": {"file": "2026/panel.parquet", "product": "forecasts"}},
    )
    file: Annotated[str, Strict(), Field(min_length=1, max_length=255)]


class RealisedYear(BaseModel):
    """A person's realised earnings in a year for which a forecast was recorded."""

    model_config = _STRICT
    person_id: Code
    year: Year
    earnings: Annotated[
        Real,
        Field(
            ge=0,
            le=MAX_AMOUNT,
            allow_inf_nan=False,
            description="0 if there were none, also after death; leave out persons who live abroad",
        ),
    ]


class OutcomesOptions(BaseModel):
    """Options of `POST /v1/outcomes`; query parameters if the body is Parquet or Arrow."""

    model_config = _STRICT
    prices: Prices | None = _PRICES


class OutcomesBody(OutcomesOptions):
    """Realised earnings of persons and years, in any order; sending them again is harmless."""

    model_config = ConfigDict(
        title="OutcomesRequest",
        extra="forbid",
        json_schema_extra={
            "example": {"outcomes": [{"person_id": "A1", "year": 2023, "earnings": 341_000.0}]}
        },
    )
    outcomes: Annotated[
        list[RealisedYear], FailFast(), Field(min_length=1, max_length=MAX_OUTCOMES)
    ]


class CorrectedYear(BaseModel):
    """A person's corrected earnings in a year whose outcome was sent before."""

    model_config = _STRICT
    person_id: Code
    year: Year
    earnings: Annotated[
        Real | None,
        Field(ge=0, le=MAX_AMOUNT, allow_inf_nan=False, description="null withdraws the outcome"),
    ]


class CorrectionsBody(OutcomesOptions):
    """Corrections of outcomes, each person and year once."""

    model_config = ConfigDict(title="CorrectionsRequest", extra="forbid")
    reason: CorrectionReason = Field(description="Why; the audit trail of the ledger has it")
    corrections: Annotated[
        list[CorrectedYear], FailFast(), Field(min_length=1, max_length=MAX_CORRECTIONS)
    ]
