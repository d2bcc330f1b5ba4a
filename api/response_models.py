"""Models of the JSON responses, for the schema at `/docs`.

Routes build JSON directly from the rows of a table: with thousands of horizons, instances of these
models would take longer than the forecast. The tests validate the responses against these models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from saga.api.jobs.job_folders import State
from saga.calibration.adaptive.ledger import RecordCounts
from saga.calibration.adaptive.outcome_entries import CorrectionReport, SettlementReport

from saga.errors import Problem
from saga.forecast_warnings import ForecastWarning
from saga.requests import CalibrationMethod, JobProduct

Money = Annotated[
    float | None, Field(description="Real, in prices of the price year; null if not available")
]

# An answer has all entries, also those whose values are the defaults of a report.
_ALL_PRESENT = ConfigDict(json_schema_serialization_defaults_required=True)


class JobLinks(BaseModel):
    """Addresses of a job; those of a result are there once it has succeeded."""

    self: str
    events: str
    result: str | None
    files: list[str] = Field(description="The files that `saga score` writes")


class JobResponse(BaseModel):
    """A job and where it stands.

    `totals` of a job that succeeded are those of `saga score`; `problem` of a failed one is a
    problem document. Times are in UTC.
    """

    id: str
    state: State
    product: JobProduct
    created: str
    started: str | None
    finished: str | None
    expires: str | None = Field(description="When the job and its result are deleted")
    persons: int | None = Field(description="Number of persons; null until they are counted")
    persons_done: int
    totals: dict[str, Any] | None
    problem: dict[str, Any] | None
    links: JobLinks


class AdaptiveVersion(BaseModel):
    """Version of the adaptive state.

    `version` counts the deliveries that changed it; `through` is the last year with an outcome;
    `last_known` says that the ledger cannot be read, so that there may be a later state.
    """

    version: int
    through: int | None
    digest: str | None
    last_known: bool = False


@dataclass(frozen=True, kw_only=True)
class OutcomesResponse(SettlementReport):
    """How the outcomes were used.

    `settled_intervals` are the issued intervals, and `settled_spans` the path bands and present
    values, that the `new` outcomes settled.
    `conflicting` outcomes contradict a known outcome and change nothing; `problems` lists the first
    50 of them. For `unmatched` outcomes no interval was recorded, and they are not stored.
    """

    adaptive: AdaptiveVersion
    __pydantic_config__ = _ALL_PRESENT


@dataclass(frozen=True, kw_only=True)
class CorrectionsResponse(CorrectionReport):
    """How the corrections were used.

    `corrected` outcomes have the amount that was sent, whether or not it differs from the earlier
    one. `withdrawn` ones are unknown again. For `unmatched` ones no outcome was known. `rejudged`
    intervals were judged by the new amount; `reopened` ones wait for an outcome again.
    """

    adaptive: AdaptiveVersion
    __pydantic_config__ = _ALL_PRESENT


class SplitCell(BaseModel):
    """Threshold of the split layer: the sets contain the outcomes up to this conformity score.

    Null if there are too few persons.
    """

    horizon: int
    group: str
    coverage: float
    threshold: float | None
    persons: int


class AdaptiveCell(BaseModel):
    """Offset that outcomes add to a threshold.

    `persons` intervals were settled; `missed` of them did not contain the outcome. Cells with fewer
    than 10 persons are left out.
    """

    horizon: int
    group: str
    coverage: float
    offset: float
    persons: int
    missed: int
    through: int
    experts: dict[str, float]


class AdaptiveTable(AdaptiveVersion):
    """The adaptive state, and how many issued intervals are settled or wait for their outcome.

    The numbers are null while the ledger cannot be read.
    """

    settled: int | None
    waiting: int | None
    cells: list[AdaptiveCell]


class CalibrationTables(BaseModel):
    """The current thresholds: of the split layer and, with a ledger, of the adaptive layer."""

    bundle: str
    calibration: str | None
    cells: list[SplitCell]
    adaptive: AdaptiveTable | None


class LifetimeInterval(BaseModel):
    """An interval of a present value, or of a year's earnings given that they are positive."""

    coverage: float
    lower: Money
    upper: Money
    guarantee: Literal["assumption", "extrapolated", "none"]
    reason: str


class Interval(LifetimeInterval):
    """A published set: `[lower, upper]`, with zero if `includes_zero`; null if there is none."""

    includes_zero: bool | None


class Limits(BaseModel):
    """One-sided limits of a year: each holds alone with the coverage; null if there are none."""

    coverage: float
    at_least: Money
    at_most: Money
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
        description="With `bands` = K: path bands, which contain the outcomes of all years 1 to K; "
        "null in later years",
    )
    limits: list[Limits] | None = Field(None, description="With `limits`: one-sided limits")
    positive_intervals: list[LifetimeInterval] | None = Field(
        None, description="With `limits`: intervals given positive earnings"
    )


class PersonForecast(BaseModel):
    """The forecast of a person, in the order of the request; no horizons beyond age 64."""

    person_id: str
    origin_year: int
    horizons: list[Horizon]


class Provenance(BaseModel):
    """What made the numbers: the same entries give the same numbers."""

    bundle: str = Field(description="Digest of the bundle")
    calibration: str | None = Field(description="Digest of the calibration")
    calibration_method: CalibrationMethod | None
    code_version: str
    seed: int
    paths: int
    rollout: str
    scenario: str = Field(description="Name of the scenario, `baseline` without one")
    scenario_digest: str | None = None
    currency: str
    price_year: int
    trained_on: str
    facts: dict[str, str] = Field(description="Digest and source of the dated facts")
    tax_rule: dict[str, Any] | None = Field(None, description="Law and prices of the tax")
    rows_excluded: dict[str, int] | None = Field(
        None, description="Rows of the request that were not used, by rule"
    )
    adaptive: AdaptiveVersion | None = Field(None, description="State of the ledger")
    recorded: RecordCounts | None = None
    vintages: str | None = Field(
        None, description="Number of vintages behind the model's own error of groups"
    )
    inflow: dict[str, float] | None = Field(None, description="Entrants by the year they join")


class _ComputedResponse(BaseModel):
    """What every answer with results says of them."""

    provenance: Provenance
    warnings: list[ForecastWarning]
    left_out: list[Problem]


class ForecastResponse(_ComputedResponse):
    """Forecasts and their provenance."""

    forecasts: list[PersonForecast]


class Histogram(BaseModel):
    """Shares of the paths between consecutive `edges` (one more edge than shares)."""

    edges: list[float]
    shares: list[float]


class PresentValue(BaseModel):
    """A present value over the paths; `mc_error` is the Monte-Carlo error of the mean.

    All amounts are null if earnings of the past are unknown (see `unknown_years`).
    """

    mean: Money
    mc_error: float | None
    quantiles: dict[str, Money]
    intervals: list[LifetimeInterval]
    histogram: Histogram | None


class Tax(BaseModel):
    """Present value of the tax, and of the earnings after tax: means and distributions."""

    rule: str
    tax_mean: Money
    net_mean: Money
    tax_histogram: Histogram | None
    net_histogram: Histogram | None


class PersonLifetime(BaseModel):
    """A person's lifetime, in the order of the request.

    `unknown_years` are the years since `from_age` without known earnings, null without `from_age`.
    """

    person_id: str
    origin_year: int
    to_age: int
    from_age: int | None
    unknown_years: int | None
    rate: float
    present_value: PresentValue
    tax: Tax | None


class Statistic(BaseModel):
    """`value` across persons, averaged over futures, and its spread `sd` over futures.

    `pooled` is the statistic of all persons and all futures together.
    """

    value: float | None
    sd: float | None
    mc_error: float | None
    pooled: float | None
    pooled_mc_error: float | None


class Population(BaseModel):
    """Present values across the persons of the call that are known; null if none is."""

    persons: int
    mean: Statistic
    p10: Statistic
    p50: Statistic
    p90: Statistic
    p99: Statistic
    gini: Statistic
    top_1_share: Statistic


class LifetimeResponse(_ComputedResponse):
    """Lifetimes and their provenance."""

    lifetimes: list[PersonLifetime]
    population: Population


class GroupStatistic(BaseModel):
    """A statistic of a group in a year, or of its lifetimes (`year` is null).

    `group` has a level of each group of `by`, "total", or a pair such as male/female. The parts of
    the spread are standard deviations; `sd_model` is null if the bundle has no vintages, which the
    provenance counts. With a `reference` there are its value and the effect: the difference
    from it, with its range. Everything is null if it is suppressed, or if nobody is in the group.
    """

    year: int | None
    group: dict[str, str]
    statistic: str
    value: float | None
    lower_90: float | None
    upper_90: float | None
    sd_persons: float | None
    sd_paths: float | None
    sd_economy: float | None
    sd_model: float | None
    mc_error: float | None
    reference: float | None = None
    effect: float | None = None
    effect_lower_90: float | None = None
    effect_upper_90: float | None = None
    suppressed: bool


class EventChance(BaseModel):
    """The chance of an event, and its error because paths are few."""

    event: str
    chance: float | None
    mc_error: float | None
    suppressed: bool


class PopulationResponse(_ComputedResponse):
    """Groups with bands, chances of events, and their provenance."""

    groups: list[GroupStatistic]
    events: list[EventChance]


class ModelCard(BaseModel):
    """The bundle of the service; `coverage` lists its calibrated coverages, if any.

    `trained_on` is "simulated people" or "records".
    """

    bundle: str
    calibration: str | None
    method: CalibrationMethod | None
    code_version: str
    seed: int | None
    command: str
    parameters: int
    currency: str
    price_year: int
    trained_on: str
    coverage: list[float]
    config: dict[str, Any]
    metrics: dict[str, Any]
    card: str


class Variables(BaseModel):
    """The column table: the columns that a panel may have."""

    columns: list[dict[str, Any]]
    ages: list[int]
    max_context: int
    price_year: int
    extra: list[dict[str, Any]] | None = None
