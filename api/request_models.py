"""Models of request bodies and options: types and shape only; `read_panel` checks the panel.

The models of a person and of a year are created from the column table, so that each column is
defined once. Options become the typed requests of `saga.requests`, whose limits also apply here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

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
from saga.calibration.adaptive.outcome_entries import CorrectionReason

from saga import requests
from saga.pensions.pension_rules import MAX_CHARACTERS
from saga.requests import (
    JOB_REQUESTS,
    Draws,
    ForecastRequest,
    LifetimeRequest,
    Option,
    PopulationRequest,
    Request,
)
from saga.schema import COLUMNS, MAX_AMOUNT, MAX_CONTEXT_YEARS, Column

MAX_OUTCOMES = 100_000  # of one call
MAX_CORRECTIONS = 5_000  # of one call
# A record may have years before age 16 and after age 64; they are dropped when it is read.
MAX_YEARS = MAX_CONTEXT_YEARS + 50
_STRICT = ConfigDict(extra="forbid")
_TAX_NAMES = r"none|paper|se-20\d\d"  # patterns of JSON schemas have no named groups
_INT32 = 2**31 - 1


def _read_whole(value: object) -> object:
    """Read 2001.0 as 2001, because some clients have no integers; a larger one may be another."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _read_code(value: object) -> object:
    """Read an identifier or code that was sent as a whole number as text."""
    value = _read_whole(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _read_flag(value: object) -> object:
    """Read "true" and "false" as flags, because query parameters are text."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


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
Flag = Annotated[bool, BeforeValidator(_read_flag), Strict()]


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
    """Macro values of one future year, as fractions (0.07 is 7 %), ratios of groups, or both."""

    # Further members are ratios of two groups, such as female/male.
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Annotated[str, Field(pattern="/")], Real] = Field(init=False)
    year: Year
    unemployment: Real | None = None
    real_wage_growth: Real | None = None
    inflation: Real | None = None


# The names are listed because a file name must not be accepted over HTTP, unlike on the command
# line.
Scenario = Annotated[
    Annotated[Literal["baseline", "recession-1990s", "high-growth"], Tag("<scenario>")]
    | Annotated[list[ScenarioYear], Tag("<rows>"), Field(max_length=100)],
    Discriminator(lambda value: "<scenario>" if isinstance(value, str) else "<rows>"),
]
# With this rule the error for a year in quotes is "must be a number".
Prices = Annotated[
    Annotated[Literal["nominal"], Tag("<prices>")] | Annotated[Year, Tag("<year>")],
    Discriminator(
        lambda value: "<prices>" if isinstance(value, str) and not value.isdecimal() else "<year>"
    ),
]


class EntrantsRow(BaseModel):
    """Persons of an age who join in a year; without `sex` they are of both sexes."""

    model_config = ConfigDict(title="Entrants", extra="forbid")
    year: Year
    age: Annotated[int, Strict(), _WHOLE]
    persons: Real
    sex: Code | None = None


# A text is that of a query: 2030:19:1000:female.
EntrantsInput = Annotated[
    Annotated[str, Strict(), Field(max_length=64), Tag("<word>")]
    | Annotated[EntrantsRow, Tag("<row>")],
    Discriminator(lambda value: "<word>" if isinstance(value, str) else "<row>"),
]


# What JSON and a query have where the type of a request's field says too little.
_SPECIAL: dict[str, Any] = {
    "scenario": Scenario | None,
    "reference": Scenario | None,
    "tax": Annotated[str, Field(pattern=f"^({_TAX_NAMES})$")],
    "coverage": Coverages,
    "inflow": list[EntrantsInput],
}
_MAX_VALUES, _MAX_INFLOW = 99, 1_000  # of a list
# The text of a rule file, or a name; a file name must not be accepted over HTTP.
_PENSION_RULE: Any = Annotated[str, Strict(), Field(max_length=MAX_CHARACTERS)]
_Source = type[Draws] | type[Request] | type[PopulationRequest]


class AmountOptions(BaseModel):
    """What HTTP asks of amounts; all options of `POST /v1/outcomes`."""

    model_config = _STRICT
    prices: Prices | None = Field(
        None,
        description="Prices of the amounts in the request: `nominal` (the default for a bundle in "
        "SEK), or the year in whose prices all amounts are",
    )


class CallOptions(AmountOptions):
    """What HTTP asks besides the typed request: how the persons are read."""

    origin: Year | None = Field(
        None, description="For backtests: records and exits after this year are not read"
    )

    @property
    def own_column(self) -> str | None:
        """The own column that is no part of the panel; None: there is none."""
        return None

    @property
    def records(self) -> bool:
        """Whether what is issued is entered in the ledger."""
        return False

    @property
    @abstractmethod
    def request(self) -> Request | PopulationRequest:
        """The typed request, in the form that the forecaster needs."""

    def sent(self, *sources: _Source) -> dict[str, Any]:
        """The options of typed requests that were sent, in the form that these have."""
        names = {name for source in sources for name in requests.user_names(source)}
        return {name: _plain(getattr(self, name)) for name in names & self.model_fields_set}

    def draws(self) -> Draws:
        """Options of the simulation, in the form that the forecaster needs."""
        return requests.request_from(Draws, self.sent(Draws))


class RecordingOptions(CallOptions):
    """Also what is recorded."""

    record: Flag = Field(
        False,
        description="Enter what is issued in the ledger, to be compared with outcomes later; "
        "present values for the calibrated rate, without from_age",
    )

    @property
    def records(self) -> bool:
        """Whether what is issued is entered in the ledger."""
        return self.record


OptionsT = TypeVar("OptionsT", bound=CallOptions)


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [row.model_dump() if isinstance(row, BaseModel) else row for row in value]
    return value


def _with_fields_of(
    *sources: _Source,
) -> Callable[[type[OptionsT]], type[OptionsT]]:
    """Adds the fields of typed requests to a model, by the names that users know."""
    fields = {
        option.name or name: _option_field(field.type, field.default, option, name)
        for source in reversed(sources)  # of two fields with one name the first counts
        for name, (field, option) in requests.options_of(source).items()
    }

    def add(model: type[OptionsT]) -> type[OptionsT]:
        created: type[OptionsT] = create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, **fields
        )
        return created

    return add


def _option_field(annotation: object, default: object, option: Option, name: str) -> Any:
    """Type, default, bounds and description of an option."""
    bounds = Field(ge=option.least, le=option.most, gt=option.above, lt=option.below)
    whole: Any = Annotated[int, Strict(), bounds, _WHOLE]
    real: Any = Annotated[Real, bounds]
    kinds: dict[object, Any] = {
        bool: Flag,
        int: whole,
        int | None: whole | None,
        float: real,
        Sequence[int]: GenericAlias(list, (whole,)),
        Sequence[float]: GenericAlias(list, (real,)),
        Sequence[str]: GenericAlias(list, (Annotated[str, Strict(), Field(max_length=200)],)),
        requests.UnknownYears: requests.UnknownYears,
        requests.PensionSource: _PENSION_RULE,
        requests.PensionSource | None: _PENSION_RULE | None,
    }
    least = {"min_length": 1} if default else {}
    most = _MAX_INFLOW if name == "inflow" else _MAX_VALUES
    length: dict[str, Any] = {**least, "max_length": most} if isinstance(default, tuple) else {}
    if isinstance(default, tuple | str):  # as in JSON
        default = str(default) if isinstance(default, str) else list(default)
    return (
        _SPECIAL.get(name) or kinds[get_args(annotation)[0]],
        Field(
            default,
            description=option.help.rstrip("."),
            **length,
        ),
    )


@_with_fields_of(Draws, ForecastRequest)
class ForecastOptions(RecordingOptions):
    """Options of `POST /v1/forecasts`; query parameters if the body is a table."""

    @cached_property
    def request(self) -> ForecastRequest:
        """The typed request, in the form that the forecaster needs."""
        return requests.request_from(ForecastRequest, self.sent(ForecastRequest))


@_with_fields_of(Draws, LifetimeRequest)
class LifetimeOptions(RecordingOptions):
    """Options of `POST /v1/lifetimes`; query parameters if the body is a table."""

    @cached_property
    def request(self) -> LifetimeRequest:
        """The typed request. Raises UsageError if the ages contradict each other."""
        return requests.request_from(LifetimeRequest, self.sent(LifetimeRequest))


@_with_fields_of(Draws, PopulationRequest)
class PopulationOptions(CallOptions):
    """Options of `POST /v1/populations`; query parameters if the body is a table."""

    weights: _OwnName | None = Field(
        None,
        description="Own column of the rows, named as in `extra`: how many persons of a population "
        "each one stands for",
    )

    @property
    def own_column(self) -> str | None:
        """The column of weights."""
        return self.weights

    @cached_property
    def request(self) -> PopulationRequest:
        """The typed request. Raises UsageError for an event or pair that is none."""
        return requests.request_from(PopulationRequest, self.sent(PopulationRequest))


@_with_fields_of(Draws, *JOB_REQUESTS.values())
class JobOptions(RecordingOptions):
    """Options of `POST /v1/jobs`: those of the product, and how to treat broken rows.

    They are query parameters if the body is a table.
    """

    product: requests.JobProduct = Field("forecasts", description="What to compute")
    on_error: requests.OnError = Field(
        "fail", description="Whether rows that break a rule end the job, or are dropped and counted"
    )

    @cached_property
    def request(self) -> Request | PopulationRequest:
        """The typed request. Raises UsageError for an option of another product."""
        sent = self.sent(*JOB_REQUESTS.values())
        if self.product in ("paths", "pensions", "populations") and self.record:
            sent["record"] = True  # outcomes judge no single path and no right
        return requests.request_of(JOB_REQUESTS[self.product], sent)


def _body(
    options: type[OptionsT], component: str, about: str, example: dict[str, object]
) -> type[OptionsT]:
    """The model of a JSON body: the persons with their histories, and options."""
    # Validation stops at the first wrong person, so that a request with millions of wrong values
    # does not produce as many errors.
    persons: Any = Annotated[list[Person], FailFast(), Field(min_length=1)]
    extra = {"example": {"persons": example_persons(), **example}}
    body: type[OptionsT] = create_model(
        component,
        __base__=options,
        __doc__=about,
        __cls_kwargs__={"json_schema_extra": extra},
        persons=persons,
    )
    return body


ForecastBody = _body(
    ForecastOptions,
    "ForecastRequest",
    "Persons with their histories, and what to forecast.",
    {"horizons": [1, 5, 10]},
)
LifetimeBody = _body(
    LifetimeOptions,
    "LifetimeRequest",
    "Persons with their histories, and how to compute present values.",
    {"rate": 0.02, "to_age": 64},
)
PopulationBody = _body(
    PopulationOptions,
    "PopulationRequest",
    "Persons with their histories, and which tables of groups to compute.",
    {"by": ["sex"], "paths": 50},
)
JobBody = _body(
    JobOptions,
    "JobRequest",
    "Persons with their histories, and what to compute.",
    {"product": "forecasts"},
)


class JobFileRequest(JobOptions):
    """A file with persons in the folder of the holder, and what to compute."""

    model_config = ConfigDict(
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


class OutcomesRequest(AmountOptions):
    """Realised earnings of persons and years, in any order; sending them again is harmless."""

    model_config = ConfigDict(
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


class CorrectionsRequest(AmountOptions):
    """Corrections of outcomes, each person and year once."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "reason": "mistake",
                "corrections": [{"person_id": "A1", "year": 2023, "earnings": 314_000.0}],
            }
        },
    )
    reason: CorrectionReason = Field(description="Why; the audit trail of the ledger has it")
    corrections: Annotated[
        list[CorrectedYear], FailFast(), Field(min_length=1, max_length=MAX_CORRECTIONS)
    ]
