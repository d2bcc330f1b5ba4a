"""Tax reforms: another year's rules, changed parameters and uprating, from a YAML file or JSON."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

from saga.data.facts import TAX_SERIES
from saga.errors import Problem, UsageError
from saga.files.yaml_text import is_number, read_yaml
from saga.requests import TaxReform, TaxSource, Uprating

KEYS = ("base", "uprating", "real_wage_growth", "parameters")


def tax_source(text: str) -> TaxSource:
    """The tax that a text names: a rule, or a reform file (.yaml or .yml).

    Raises UsageError if the file cannot be read or is not valid.
    """
    if not text.endswith((".yaml", ".yml")):
        return text
    path = Path(text)
    title = f"The tax reform {path.name} cannot be read as YAML"
    try:
        written = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        fix = f"Give a file with the keys {', '.join(KEYS)}; see docs/method/tax.md."
        raise UsageError(f"{title}. {fix}") from None
    content = read_yaml(written, title, "tax-reform", "tax")
    return reform_from(content, path.stem, path.name)


def reform_from(content: object, name: str, place: str) -> TaxReform:
    """The reform of a mapping with `KEYS`; `place` names it in errors.

    Raises UsageError with a problem for each key that is unknown or has an impossible value.
    """
    if not isinstance(content, Mapping):
        raise UsageError(
            f"The tax reform {place} has no keys. Give at least `base: se-2026`, and the keys "
            f"{', '.join(KEYS)}."
        )
    problems = list(_faults(content, place))
    if problems:
        raise UsageError("The tax reform cannot be used.", problems)
    growth = content.get("real_wage_growth")
    parameters = content.get("parameters") or {}
    return TaxReform(
        name,
        base=str(content["base"]),
        uprating=content.get("uprating", "prices"),
        real_wage_growth=None if growth is None else float(growth),
        parameters=tuple((str(key), float(value)) for key, value in sorted(parameters.items())),
    )


def _faults(content: Mapping[object, object], place: str) -> Iterator[Problem]:
    """What is wrong with the content of a reform file."""

    def fault(key: object, why: str, fix: str) -> Problem:
        return Problem("tax-reform", f"{place}, {key}: {why}", fix, column="tax")

    for key in content:
        if key not in KEYS:
            yield fault(key, "there is no such key", f"Use {', '.join(KEYS)}.")
    if "base" not in content:
        yield fault("base", "the key is missing", "Give the rule to start from, such as se-2026.")
    if content.get("uprating", "prices") not in get_args(Uprating):
        yield fault("uprating", "unknown", f"Use one of {', '.join(get_args(Uprating))}.")
    growth = content.get("real_wage_growth")
    if growth is not None and not (is_number(growth) and -0.1 <= growth <= 0.1):
        yield fault("real_wage_growth", "not possible", "Give a fraction from -0.1 to 0.1.")
    parameters = content.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        yield fault("parameters", "not a mapping", "Give `name: value` lines below the key.")
        return
    for name, value in parameters.items():
        series = TAX_SERIES.get(str(name))
        if series is None:
            near = difflib.get_close_matches(str(name), TAX_SERIES, n=1)
            fix = f"Is it {near[0]}?" if near else "`saga facts show` lists the parameters."
            yield fault(name, "there is no such parameter", fix)
        elif not (is_number(value) and series.lowest <= value <= series.highest):
            fix = f"Give a value in {series.unit} from {series.lowest:g} to {series.highest:g}."
            yield fault(name, "the value is not possible", fix)
