"""Options of a command, from the fields of the dataclasses that it takes.

A command says `request: ForecastRequest`, and has an option for each field of it, or for those that
`Annotated[ForecastRequest, "horizons"]` names. Name, type, default, bounds and description come
from the field: an `Option` of `saga.requests`, or an option of Typer. `heading` of its class is the
heading of these options in help.
"""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ForwardRef, get_args, get_origin

import typer

from saga.entrants import Entrants, entrants_from
from saga.errors import UsageError
from saga.files.atomic import sole_output
from saga.requests import REQUESTS, Option, PensionSource, request_of
from saga.schema import PRICE_YEAR

INPUT = typer.Argument(
    metavar="INPUT",
    help="Person-years: a file or folder of .parquet .csv .arrow .dta .sas7bdat .sav; or - for a "
    "CSV, Parquet or Arrow file on standard input.",
)
Input = Annotated[Path, INPUT]
Panel = Annotated[
    Path,
    typer.Option("--panel", help="Person-years: a file, a folder or a generated register."),
]
Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Directory of a bundle.")]
OutBundle = Annotated[
    Path | None,
    typer.Option("--out", help="Bundle to write.", show_default="BUNDLE itself"),
]
TrainingStart = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Training starts from the weights of this bundle; none: from random weights.",
        show_default="bundles/prior for a real panel below 30,000 persons, if the configuration is "
        "auto",
    ),
]
Shares = Annotated[
    Sequence[int] | None,
    Option(
        "Per cent of training, validation, calibration and test persons; by default those of the "
        "bundle, or 70,10,10,10.",
    ),
]
Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Processes; the result does not depend on it.")
]
TestPersons = Annotated[
    int | None, typer.Option("--persons", min=1, help="Largest number of test persons.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


def read_whole_numbers(text: str) -> tuple[int, ...]:
    """`1-30`, `1,5,10` or `1-5,10` as numbers."""
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            start, stop = int(first), int(last) if dash else int(first)
            if not 0 <= start <= stop < 10_000:
                raise ValueError(part)
            numbers.extend(range(start, stop + 1))
    except ValueError:
        raise ValueError(f"{text!r} is no range (1-30) and no list (1,5,10).") from None
    return tuple(numbers)


def read_fractions(text: str) -> tuple[float, ...]:
    """`.01,.05,.5` as fractions, or `1-99` or `5,50,95` as whole percentages."""
    if "-" in text.strip().lstrip("-") or re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)+", text):
        return tuple(percent / 100 for percent in read_whole_numbers(text))
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{text!r} is no list of fractions (.05,.5) or percentages (5,50), and no range (1-99)."
        ) from None


def read_texts(text: str) -> tuple[str, ...]:
    """`sex,age` as texts; none of them is empty."""
    if ";" in text:
        raise UsageError(f"{text!r} has a semicolon. Separate with commas.")
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_prices(text: str) -> int | None:
    """`nominal` as None, else the year in whose prices the amounts are."""
    if text == "nominal":
        return None
    if len(text) != 4 or not text.isdecimal():
        raise ValueError(
            f"It is nominal (prices of each row's own year) or a year such as {PRICE_YEAR}, "
            f"not {text!r}."
        )
    return int(text)


def _read_pension_rule(text: str) -> PensionSource:
    from saga.pensions.pension_rules import read_pension_rule

    return read_pension_rule(text)


def _read_inflow(text: str) -> tuple[Entrants, ...]:
    from saga.data.files import read_small

    numbers = ("year", "age", "persons")
    return entrants_from(read_small(text, numbers).to_dicts()) if text else ()


_HEADING = "Forecast"  # of the options of requests
# How the text of an option is read, by the type of the field, and what its help says of that.
_KINDS: dict[Any, tuple[Callable[[str], object] | None, str]] = {
    **dict.fromkeys(
        (Sequence[int], Sequence[int] | None),
        (read_whole_numbers, "Allowed: {option.range}, as a range or a list."),
    ),
    Sequence[float]: (
        read_fractions,
        "Allowed: {option.range}, or percentages as a range (1-99) or a list (5,50,95).",
    ),
    Sequence[str]: (read_texts, "Several with commas."),
    Sequence[Entrants]: (_read_inflow, "A table, .parquet or .csv."),
    **dict.fromkeys((int, int | None, float), (None, "Allowed: {option.range}.")),
    str: (None, ""),
    **dict.fromkeys(
        (PensionSource, PensionSource | None), (_read_pension_rule, "A rule file is YAML.")
    ),
    ForwardRef("ScenarioSource"): (str, "The values are a CSV file."),
}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command for Typer: each argument that is a dataclass has become options.

    An argument of all requests (`request: Request`) has the options of every product; which are
    allowed follows from the argument `product`.
    """
    parameters: list[inspect.Parameter] = []
    objects: dict[str, Callable[[dict[str, Any]], object]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind, *marks = get_args(parameter.annotation) or [parameter.annotation]
        options = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        if get_origin(parameter.annotation) is UnionType and is_dataclass(kind):
            options, objects[parameter.name] = _of_products()
        elif marks and isinstance(marks[0], Option):
            options = [_parameter(parameter.name, parameter.annotation, parameter.default)]
        elif isinstance(kind, type) and is_dataclass(kind):
            default = kind() if parameter.default is inspect.Parameter.empty else parameter.default
            shown = marks or [entry.name for entry in fields(kind)]
            options, objects[parameter.name] = _of_fields(default, shown)
        parameters += options
    for parameter in parameters:
        kind, *marks = get_args(parameter.annotation) or [parameter.annotation]
        if kind is bool:
            marks[0].metavar = ""  # a flag takes no value

    @functools.wraps(command)
    def run(**values: Any) -> None:
        rejected = values.get("rejected")
        arguments = {name: make(values) for name, make in objects.items()}
        # Without `--out` a command that could have one changes its bundle.
        written = values.get("out") or (values.get("bundle") if "out" in values else None)
        if rejected and written and rejected.resolve() == Path(written).resolve():
            raise UsageError("--rejected and --out name one file. Name one for each.")
        with nullcontext() if written is None else sole_output(written):
            command(**values, **arguments)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _of_fields(
    default: Any, shown: Sequence[str]
) -> tuple[list[inspect.Parameter], Callable[[dict[str, Any]], object]]:
    """Options of the fields `shown`, and what makes the object from their values."""
    heading = getattr(default, "heading", _HEADING)
    options = {
        entry.name: _parameter(entry.name, entry.type, getattr(default, entry.name), heading)
        for entry in fields(default)
        if entry.name in shown
    }

    def make(values: dict[str, Any]) -> object:
        return replace(
            default, **{name: values.pop(option.name) for name, option in options.items()}
        )

    return list(options.values()), make


def _of_products() -> tuple[list[inspect.Parameter], Callable[[dict[str, Any]], object]]:
    """Options of all requests, and what makes the request of a product from those on the line."""
    owners: dict[str, list[tuple[Any, Any]]] = {}
    for request in REQUESTS.values():
        for entry in fields(request):
            owners.setdefault(entry.name, []).append((request, entry))
    options = []
    for members in owners.values():
        products = [request.product for request, _ in members]
        defaults = [
            _text(entry.default) for _, entry in members if entry.default not in (None, False)
        ]
        options.append(
            _parameter(
                members[0][1].name,
                members[0][1].type,
                None,
                _HEADING,
                products="" if len(products) == len(REQUESTS) else " and ".join(products),
                show_default=" or ".join(dict.fromkeys(defaults)),
            )
        )

    def make(values: dict[str, Any]) -> object:
        entered = {option.name: values.pop(option.name) for option in options}
        # A flag that is not on the line is False; 0 is a rate.
        chosen = {k: v for k, v in entered.items() if v is not None and v is not False}
        return request_of(REQUESTS[values["product"]], chosen)

    return options, make


def _parameter(
    name: str,
    annotation: Any,
    default: object,
    heading: str | None = None,
    *,
    products: str = "",
    show_default: str = "",
) -> inspect.Parameter:
    """The parameter of a field; `products` are those that have the option, if not all."""
    kind, option = get_args(annotation)
    if isinstance(option, Option):
        name, text = option.name or name, option.help
        if products:
            text = f"{products.capitalize()}: {text[0].lower()}{text[1:]}"
        read, note = _KINDS.get(kind, (None, ""))
        if "range" in note and option.least is None and option.above is None:
            note = ""
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            help=f"{text} {note.format(option=option)}".strip(),
            parser=read,
            callback=_checked(option),
            show_default=show_default or ("none" if default == () else True),
        )
        kind = str | None if read else kind
    option = copy(option)  # a subclass has another heading
    option.rich_help_panel = heading
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=_text(default) if isinstance(default, tuple) else default,
        annotation=Annotated[kind, option],
    )


def _checked(option: Option) -> Callable[[Any], Any]:
    """What refuses a number that an option does not allow, and names the option."""

    def check(value: Any) -> Any:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not option.allows(number):
                raise typer.BadParameter(f"{number} is not {option.range}. {option.hint}".strip())
        return value

    return check


def _text(value: object) -> str:
    """A default as a user writes it."""
    if not isinstance(value, tuple):
        return str(value)
    if not value:
        return ""
    if value == tuple(range(int(value[0]), int(value[-1]) + 1)):
        return f"{value[0]}-{value[-1]}"
    return ",".join(f"{number:g}" for number in value)
