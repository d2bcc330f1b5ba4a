"""Typed requests: the tables that a user can request, checked once when the object is made.

Every field says in its `Option` what a user reads about it and which values it may have. The
options of the command line, the models of the service and the checks of Python are made from this,
so name, type, default, bounds and description of an option are written once, here.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from functools import lru_cache
from numbers import Integral, Real
from typing import (
    TYPE_CHECKING,
    Annotated,
    ClassVar,
    Literal,
    TypeVar,
    get_args,
    get_origin,
)

from saga.entrants import Entrants, entrants_from
from saga.errors import Problem, UsageError
from saga.group_statistics import ALL_STATISTICS, COMPARISONS, LIFETIME_COMPARISONS, OF_LIFETIMES
from saga.schema import MAX_AGE, MIN_AGE

if TYPE_CHECKING:
    from saga.macro.scenarios import ScenarioSource

CalibrationMethod = Literal["sets", "cqr", "cv+"]
OnError = Literal["fail", "drop"]
Product = Literal["forecasts", "lifetimes", "paths", "pensions"]
JobProduct = Literal["forecasts", "lifetimes", "paths", "pensions", "populations"]
Progress = Callable[[int, int], None]  # called with the number that is done, and the number in all
RolloutName = Literal["exact", "light"]
UnknownYears = Literal["null", "interpolate", "zero"]

MAX_HORIZON = 30
MAX_PATHS = 10_000
HORIZONS = tuple(range(1, MAX_HORIZON + 1))
COVERAGE = (0.5, 0.8, 0.9, 0.95)
LIFETIME_COVERAGE = (0.9,)
QUANTILES = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
PATHS = 500
PENSION_AGES = (60, 61, 62, 63, 64)
RATE = 0.02
TAX_PATTERN = r"none|paper|se-(?P<year>20\d\d)"
_WITHOUT_YEAR = ("none", "paper")  # tax rules
_EVENT = re.compile(
    r"(?P<statistic>\w+) (?P<levels>.+?)(?: (?P<year>\d{4}))? (?P<sign>[<>]) "
    r"(?:in (?P<reference>\d{4})|(?P<amount>-?\d+(?:\.\d+)?(?:e\d+)?))"
)
_MAX_RATIO = 50  # of an event; a larger one is meant in per cent
# Separators of thousands or a decimal comma: commas separate events, too.
_MARKED = re.compile(r"^\s*\d+(\.\d*)?(e\d+)?\s*$|[<>]\s*-?\d{1,3}([ ,.'_\u00a0\u2019]\d{3})+\s*$")


class PensionSource(str):
    """The name of a shipped rule, or the text of a rule file, whose name errors tell."""

    file: str = ""


PENSION_RULE = PensionSource("se")
RequestT = TypeVar("RequestT", bound="Draws | Request | PopulationRequest")
ProductT = TypeVar("ProductT", bound="Request | PopulationRequest")


@dataclass(frozen=True, repr=False)
class Option:
    """What a user reads about a field of a request, and which numbers it may be.

    Args:
        help: What the field means, for help pages, the API's description and docs/cli.md.
        name: What users call it; None: as the field.
        least: Smallest allowed number.
        most: Largest allowed number.
        above: Bound that is not allowed itself.
        below: Bound that is not allowed itself.
        hint: What to use instead, for errors.
    """

    help: str
    name: str | None = None
    least: int | None = None
    most: int | None = None
    above: float | None = None
    below: float | None = None
    hint: str = ""

    def __repr__(self) -> str:
        return self.help  # in the signatures that `help` shows

    @property
    def range(self) -> str:
        """The allowed numbers in words."""
        if self.least is not None and self.most is not None:
            least, most = (f"{n:,}" if n >= 10_000 else f"{n}" for n in (self.least, self.most))
            return f"from {least} to {most}"
        return f"strictly between {self.above:g} and {self.below:g}"

    def allows(self, number: float) -> bool:
        """Whether a number is allowed; NaN never is."""
        return bool(
            (self.least is None or self.least <= number)
            and (self.most is None or number <= self.most)
            and (self.above is None or self.above < number)
            and (self.below is None or number < self.below)
        )


_OPTIONS_OF: dict[type, dict[str, tuple[Field[object], Option]]] = {}  # asked often in each call


def options_of(request: type[RequestT]) -> dict[str, tuple[Field[object], Option]]:
    """Field -> the field and its option, in the order of the request."""
    if request not in _OPTIONS_OF:
        options = {field.name: (field, get_args(field.type)[1]) for field in fields(request)}
        _OPTIONS_OF[request] = options
    return _OPTIONS_OF[request]


def user_names(request: type[RequestT]) -> dict[str, str]:
    """What users call a field -> the field."""
    return {option.name or name: name for name, (_, option) in options_of(request).items()}


Seed = Annotated[int, Option("The same seed gives the same numbers.", least=0, most=2**63 - 1)]
_Coverage = Annotated[
    Sequence[float],
    Option("Coverage of the intervals.", above=0, below=1, hint="Use for example 0.9."),
]
_Rate = Annotated[
    float,
    Option("Real discount rate a year, as a fraction.", above=-0.5, below=1, hint="0.02 is 2 %."),
]
_Quantiles = Annotated[
    Sequence[float],
    Option("Quantiles of the forecast.", above=0, below=1, hint="Use for example 0.05, 0.5, 0.95."),
]
_ToAge = Annotated[int, Option("Last age that counts.", least=MIN_AGE + 1, most=MAX_AGE)]
_Unrounded = Annotated[
    bool, Option("Amounts with all digits, instead of whole units of the currency.")
]


@dataclass(frozen=True)
class Draws:
    """How futures are drawn: the number of paths per person, the seed and the scenario.

    A `scenario` of None draws the macro series from the bundle's process.

    Raises:
        UsageError: If `n_paths` is not 2 to 10,000, or `seed` not 0 to 2^63 - 1.
    """

    heading: ClassVar[str] = "Random draws"  # of their options in help

    n_paths: Annotated[
        int,
        Option(
            "Simulated futures per person.",
            name="paths",
            least=2,
            most=MAX_PATHS,
            hint=f"{PATHS} is a good start.",
        ),
    ] = PATHS
    seed: Seed = 0
    scenario: Annotated[
        "ScenarioSource",
        Option("Macro futures: baseline, recession-1990s, high-growth, or values of years."),
    ] = None

    def __post_init__(self) -> None:
        _check(self)


class _PathRequest:
    """What requests have in common that need simulated paths of all years until `to_age`.

    Years beyond the training records are part of the result, as extrapolated ones.
    """

    needs_paths: ClassVar[bool] = True
    horizons: ClassVar[Sequence[int]] = range(1, MAX_AGE - MIN_AGE + 1)
    n_years: ClassVar[int] = MAX_AGE - MIN_AGE
    beyond_span: ClassVar[bool] = True


@dataclass(frozen=True)
class ForecastRequest:
    """A table of yearly earnings: one row per person and horizon.

    Args:
        horizons: Years after the origin, 1 to 30; stored ascending and distinct.
        coverage: Coverage of the intervals, each strictly between 0 and 1; stored ascending.
        quantiles: Quantiles, each strictly between 0 and 1; stored ascending.
        limits: Whether to add one-sided limits and intervals given positive earnings.
        bands: K, to add path bands over the first K years; None: no bands.
        beyond_span: Whether to add rows further ahead, or at other ages, than any record of the
            training persons, as "extrapolated" ones.
        unrounded: Whether amounts have all digits, instead of whole units of the currency.

    Raises:
        UsageError: If a value is not allowed.
    """

    product: ClassVar[Product] = "forecasts"
    needs_paths: ClassVar[bool] = False
    to_age: ClassVar[int] = MAX_AGE

    horizons: Annotated[
        Sequence[int],
        Option(
            "Years after the origin.",
            least=1,
            most=MAX_HORIZON,
            hint="Later years are part of a lifetime, not of a forecast.",
        ),
    ] = HORIZONS
    coverage: _Coverage = COVERAGE
    quantiles: _Quantiles = QUANTILES
    limits: Annotated[
        bool, Option("Also one-sided limits, and intervals given positive earnings.")
    ] = False
    bands: Annotated[
        int | None,
        Option("Also bands for all of the next K years together.", least=1, most=MAX_HORIZON),
    ] = None
    beyond_span: Annotated[
        bool,
        Option("Also years further ahead, or at other ages, than any training record shows."),
    ] = False
    unrounded: _Unrounded = False

    def __post_init__(self) -> None:
        _check(self)

    @property
    def n_years(self) -> int:
        """Number of years after the origin that are forecast."""
        return max(self.horizons[-1], self.bands or 1)


def law_year_of(name: str) -> int:
    """The year of the rule `se-2026`. UsageError if the name is not of this form."""
    match = re.fullmatch(TAX_PATTERN, name)
    if match is None or match["year"] is None:
        raise UsageError(
            f"There is no tax rule {name!r}. Use none, paper, or that of a year such as se-2026."
        )
    return int(match["year"])


@dataclass(frozen=True)
class LifetimeRequest(_PathRequest):
    """A table of present values: one row per person.

    Args:
        rate: Real discount rate a year, as a fraction above -0.5 and below 1.
        to_age: Last age that counts, 17 to 64.
        from_age: Age from which observed past earnings are added, or None for the future alone.
        tax: Name of the tax rule: none, paper, or that of a year, such as se-2026.
        coverage: Coverage of the intervals, each strictly between 0 and 1; stored ascending.
        quantiles: Quantiles, each strictly between 0 and 1; stored ascending.
        unrounded: Whether amounts have all digits, instead of whole units of the currency.
        unknown_years: What a past with years of unknown earnings makes of the sum: "null", an
            unknown sum; "interpolate", these years lie between the nearest known ones (before the
            first and after the last they equal it); "zero", they add nothing.

    Raises:
        UsageError: If a value is not allowed.
    """

    product: ClassVar[Product] = "lifetimes"

    rate: _Rate = RATE
    to_age: _ToAge = MAX_AGE
    from_age: Annotated[
        int | None,
        Option(
            "Add the observed past from this age, and discount to it.",
            least=MIN_AGE,
            most=MAX_AGE - 1,
            hint="A lifetime starts before it ends.",
        ),
    ] = None
    tax: Annotated[
        str, Option("Tax on each year's earnings: none, paper, or that of a year (se-2026).")
    ] = "none"
    coverage: _Coverage = LIFETIME_COVERAGE
    quantiles: _Quantiles = QUANTILES
    unrounded: _Unrounded = False
    unknown_years: Annotated[
        UnknownYears,
        Option("Null, or fill these years, if earnings since the first age are unknown."),
    ] = "null"

    def __post_init__(self) -> None:
        _check(self)
        if self.from_age is not None and self.from_age >= self.to_age:
            raise UsageError(
                f"A lifetime starts before its end at age {self.to_age}, not at {self.from_age}."
            )
        if self.from_age is None and self.unknown_years != "null":
            raise UsageError("unknown_years is about the past, which only from_age adds.")


@dataclass(frozen=True)
class PensionRequest(_PathRequest):
    """A table of pension rights: one row per person, age and measure.

    Args:
        rule: Pension rule: se, us, accrual, or the text of a rule file.
        reform: A second rule whose difference to the first is also computed, or None.
        ages: Ages at the end of which rights are counted, 17 to 64; stored ascending.
        first_age: First age whose earnings count.
        coverage: Coverage of the intervals, each strictly between 0 and 1; stored ascending.
        quantiles: Quantiles, each strictly between 0 and 1; stored ascending.
        unrounded: Whether amounts have all digits, instead of whole units of the currency.
        unknown_years: As in `LifetimeRequest`. Years before the first one of the rule are unknown;
            "zero" lets them add nothing, otherwise rights are unknown.

    Raises:
        UsageError: If a value is not allowed.
    """

    product: ClassVar[Product] = "pensions"

    rule: Annotated[
        PensionSource, Option("Pension rule: se, us, accrual, or the keys of a rule file.")
    ] = PENSION_RULE
    reform: Annotated[
        PensionSource | None, Option("Also the difference that this other rule makes.")
    ] = None
    ages: Annotated[
        Sequence[int],
        Option(
            "Ages at the end of which rights are counted.",
            least=MIN_AGE + 1,
            most=MAX_AGE,
            hint="Use for example 60-64.",
        ),
    ] = PENSION_AGES
    first_age: Annotated[
        int, Option("First age whose earnings count.", least=MIN_AGE, most=MAX_AGE - 1)
    ] = MIN_AGE
    coverage: _Coverage = LIFETIME_COVERAGE
    quantiles: _Quantiles = QUANTILES
    unrounded: _Unrounded = False
    unknown_years: Annotated[
        UnknownYears,
        Option("Null, or fill these years, if earnings since the first age are unknown."),
    ] = "null"

    def __post_init__(self) -> None:
        _check(self)
        if self.first_age >= self.ages[0]:
            raise UsageError(
                f"Rights at age {self.ages[0]} need earnings before it, not from age "
                f"{self.first_age}."
            )

    @property
    def to_age(self) -> int:
        """Last age that counts."""
        return self.ages[-1]


@dataclass(frozen=True)
class PathsRequest(_PathRequest):
    """The simulated paths themselves, up to `to_age`; with `states` also the state of each year.

    `unrounded` paths have all digits, instead of whole units of the currency. `wages` adds the
    column `wage_index`: real wages of the year on the path, those of the origin year being 1.

    Raises:
        UsageError: If `to_age` is not 17 to 64.
    """

    product: ClassVar[Product] = "paths"

    to_age: _ToAge = MAX_AGE
    states: Annotated[
        bool,
        Option(
            "Also state, industry, occupation, county and family of each year.",
            name="circumstances",
        ),
    ] = False
    unrounded: _Unrounded = False
    wages: Annotated[
        bool, Option("Also real wages of each year and path, for tables with --inflow.")
    ] = False

    def __post_init__(self) -> None:
        _check(self)


# Chances of a number of persons would tell it exactly; tables round it.
_OF_EVENTS = [name for name in ALL_STATISTICS if name != "persons"]


@dataclass(frozen=True)
class GroupEvent:
    """What may happen to a group: `mean female 2030 < in 2022`, `p50_ratio male/female 2040 < 1.1`.

    A statistic, the levels of the group (`female and long_tertiary`; `all`), a year (none for a
    lifetime), `<` or `>`, and an amount or the year with which it is compared.
    """

    text: str
    statistic: str
    levels: tuple[str, ...]
    year: int | None
    below: bool
    reference: int | None
    amount: float | None

    @classmethod
    def of(cls, text: str) -> "GroupEvent":
        """The event of a text. UsageError if it is none."""
        match = _EVENT.fullmatch(" ".join(text.split()))
        if match is None and _MARKED.search(text):
            raise UsageError(
                f"{text!r} is no event: numbers have a decimal point and no separators of "
                "thousands. Write 1.02, 40000000 or 4e7."
            )
        if match is None or match["statistic"] not in _OF_EVENTS:
            raise UsageError(
                f"{text!r} is no event. Write a statistic ({', '.join(_OF_EVENTS)}), a group, "
                "a year, < or >, and an amount or in YEAR: mean female 2030 < in 2022, or total "
                "all 2030 > 5e9."
            )
        lifetime = match["statistic"] in OF_LIFETIMES
        if lifetime != (match["year"] is None) or (lifetime and match["reference"]):
            raise UsageError(
                f"The event {text!r} needs a year after the group."
                if not lifetime
                else f"A lifetime has no year. Leave the years out of the event {text!r}."
            )
        amount = float(match["amount"]) if match["amount"] else None
        known = ALL_STATISTICS[match["statistic"]]
        if amount is not None and known.is_fraction and not 0 <= amount <= 1:
            raise UsageError(
                f"The event {text!r} is about a share, which is 0 to 1. Write 0.1 for 10 %."
            )
        if amount is not None and known.unit == "ratio" and not 0 < amount < _MAX_RATIO:
            raise UsageError(
                f"The event {text!r} is about a ratio, which is 0 to {_MAX_RATIO}. Write 1.02 for "
                "2 % more."
            )
        levels = () if match["levels"] == "all" else tuple(match["levels"].split(" and "))
        return cls(
            match[0],
            match["statistic"],
            levels,
            int(match["year"]) if match["year"] else None,
            match["sign"] == "<",
            int(match["reference"]) if match["reference"] else None,
            amount,
        )

    @property
    def is_comparison(self) -> bool:
        """Whether the statistic is about two groups."""
        return self.statistic in (*COMPARISONS, *LIFETIME_COMPARISONS)


@dataclass(frozen=True)
class PopulationRequest:
    """Tables of groups by year, with 90 % bands and the parts of their spread.

    Args:
        by: Groups: categories of the panel or of life courses, age, cohort, birth_year, and
            base_amounts and career_fifth of the paths (docs/how-to/policy-tables.md).
        compare: Pairs of levels of one group, such as male/female, or female/total: ratio and gap
            on every path.
        events: Events whose chance is asked, such as "total all 2030 > 5e6" (`GroupEvent`).
        until: Last year; None: the one up to which the most values can be published.
        rate: Real discount rate of lifetimes a year, as a fraction.
        to_age: Last age that counts.
        tax: Tax rule of net lifetimes.
        inflow: Who joins in which year (`saga.entrants.entrants_from`); in years from then on they
            are part of the statistics.
        reference: Scenario from which effects are the differences, such as "baseline"; None: no
            effects. The paths of both have the same random numbers. Not with an inflow.

    Raises:
        UsageError: If a value is not allowed.
        InputError: If a row of the inflow is not valid.
    """

    heading: ClassVar[str] = "Tables"
    product: ClassVar[JobProduct] = "populations"

    by: Annotated[
        Sequence[str],
        Option(
            "Groups: columns of the panel or of --circumstances, age, cohort, birth_year, "
            "base_amounts, career_fifth."
        ),
    ] = ()
    compare: Annotated[
        Sequence[str],
        Option("Pairs whose ratio and gap are computed, such as male/female or female/total."),
    ] = ()
    events: Annotated[
        Sequence[str],
        Option("Events whose chance is computed, such as mean female 2030 < in 2022."),
    ] = ()
    until: Annotated[
        int | None,
        Option(
            "Last year of the tables; none: up to which the most values can be published.",
            least=1900,
            most=2200,
        ),
    ] = None
    rate: _Rate = RATE
    to_age: _ToAge = MAX_AGE
    tax: Annotated[
        str, Option("Tax on each year's earnings: none, paper, or that of a year (se-2026).")
    ] = "none"
    inflow: Annotated[
        Sequence[Entrants],
        Option("Persons who join later: year, age, persons and, if known, sex."),
    ] = ()
    reference: Annotated[
        "ScenarioSource",
        Option("Scenario from which effects are the differences, such as baseline."),
    ] = None

    def __post_init__(self) -> None:
        _check(self)
        object.__setattr__(self, "inflow", entrants_from(self.inflow))
        examples = {"by": "sex", "compare": "male/female", "events": "mean female 2030 < in 2022"}
        for name, example in examples.items():
            texts = getattr(self, name)
            if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
                raise UsageError(f"{name} is a list of texts, such as ['{example}'].")
            if name == "events":
                _ = [GroupEvent.of(text) for text in texts]
            if twice := [text for text in texts if list(texts).count(text) > 1]:
                raise UsageError(f"{twice[0]} is named twice in {name}.")
            object.__setattr__(self, name, tuple(texts))
        if self.inflow and self.reference is not None:
            raise UsageError(
                "What a scenario changes is not known of persons who join later: their donors live "
                "through it at another time. Leave inflow or reference out."
            )
        for pair in self.pairs:
            if pair.count("/") != 1 or len({*pair.split("/")} - {""}) != 2:
                raise UsageError(f"{pair!r} is no pair of groups. Write it like male/female.")

    @property
    def of_paths(self) -> PathsRequest:
        """The paths from which the tables are made."""
        return PathsRequest(self.to_age, wages=bool(self.inflow))

    @property
    def group_events(self) -> tuple[GroupEvent, ...]:
        """The events."""
        return tuple(map(GroupEvent.of, self.events))

    @property
    def pairs(self) -> tuple[str, ...]:
        """The pairs of levels that are compared, also in events."""
        in_events = [
            level
            for event in self.group_events
            if event.is_comparison
            for level in event.levels
            if "/" in level
        ]
        return tuple(dict.fromkeys([*self.compare, *in_events]))


Request = ForecastRequest | LifetimeRequest | PathsRequest | PensionRequest


REQUESTS: dict[Product, type[Request]] = {
    kind.product: kind for kind in (ForecastRequest, LifetimeRequest, PathsRequest, PensionRequest)
}


JOB_REQUESTS: dict[JobProduct, type[Request | PopulationRequest]] = {
    kind.product: kind for kind in (*REQUESTS.values(), PopulationRequest)
}


def request_from(kind: type[RequestT], values: Mapping[str, object]) -> RequestT:
    """A request or draws from the `values` that are its own, by the names that users know.

    Raises:
        UsageError: If a value is not allowed.
    """
    names = user_names(kind)
    by_field = {names[name]: value for name, value in values.items() if name in names}
    return kind(**by_field)  # type: ignore[arg-type]


def request_of(kind: type[ProductT], values: Mapping[str, object]) -> ProductT:
    """The request for a product from the values that a user gave, by the names users know.

    Raises:
        UsageError: If a value is not allowed, or belongs to another product.
    """
    if foreign := sorted(values.keys() - user_names(kind).keys()):
        raise UsageError(
            f"The product {kind.product} has no option {foreign[0]}. Leave it out.",
            [
                Problem("product", f"Not an option of {kind.product}", "Leave it out", name)
                for name in foreign
            ],
        )
    return request_from(kind, values)


def middle_quantiles(coverage: float) -> tuple[float, float]:
    """The quantiles between which lies the middle of a distribution: 0.8 -> 0.1 and 0.9."""
    below = round((1 - coverage) / 2, 6)
    return below, round(1 - below, 6)


@lru_cache(maxsize=1_024)
def percent_label(fraction: float) -> str:
    """0.9 -> "90", 0.05 -> "05", 0.975 -> "97.5": a coverage or quantile in a column's name."""
    text = f"{100 * fraction:.6f}".rstrip("0").rstrip(".")
    return text if "." in text else text.zfill(2)


def _check(request: "Draws | Request | PopulationRequest") -> None:
    """Check the values of a frozen request; lists are stored ascending and distinct."""
    for name, (field, option) in options_of(type(request)).items():
        value = getattr(request, name)
        if value is field.default:  # which is allowed, ascending and distinct
            continue
        kind = get_args(field.type)[0]
        if kind in (Sequence[int], Sequence[float]):
            number = Integral if kind == Sequence[int] else Real
            object.__setattr__(request, name, _distinct(name, value, number, option))
        elif kind is bool:
            if not isinstance(value, bool):
                raise UsageError(f"{name} is True or False, not of type {type(value).__name__}.")
        elif kind in (int, float) or (kind == int | None and value is not None):
            _check_number(name, value, Real if kind is float else Integral, option)
        elif get_origin(kind) is Literal and value not in get_args(kind):
            words = ", ".join(get_args(kind))
            raise UsageError(f"{name} is one of {words}, not {value!r}.")
        elif kind is str and value not in _WITHOUT_YEAR:
            law_year_of(str(value))


def _check_number(name: str, value: float, kind: type, option: Option) -> None:
    whole = "whole " if kind is Integral else ""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UsageError(f"{name} is a {whole}number, not of type {type(value).__name__}.")
    if not option.allows(value):
        message = f"{name} is a {whole}number {option.range}, not {value}. {option.hint}"
        raise UsageError(message.strip())


def _distinct(name: str, values: object, kind: type, option: Option) -> tuple[float, ...]:
    """The values, ascending and distinct. UsageError unless they are allowed numbers, and some."""
    numbers = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else None
    whole, example = ("whole ", "(1, 5, 10)") if kind is Integral else ("", "(0.5, 0.9)")
    if numbers is None or not all(
        isinstance(value, kind) and not isinstance(value, bool) for value in numbers
    ):
        raise UsageError(f"{name} is a sequence of {whole}numbers, such as {example}.")
    if not numbers or not all(map(option.allows, numbers)):
        raise UsageError(
            f"{name} is at least one {whole}number, each {option.range}. {option.hint}"
        )
    return tuple(sorted({int(value) if kind is Integral else value for value in numbers}))
