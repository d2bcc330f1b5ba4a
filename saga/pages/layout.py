"""HTML pages: one file each, without external resources, with the layout `page.html`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from saga.errors import UsageError
from saga.files.tables import check_path, check_writable
from saga.pages.format import FILTERS


def render_page(template: str, values: Mapping[str, Any], package: str = "saga.pages") -> str:
    """The page of a template of `package`, which extends `page.html`.

    Text is escaped; a missing value is an error. The filters are `saga.pages.format.FILTERS`.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("saga.pages", ".")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= FILTERS
    return environment.get_template(template).render(values)


def check_page(out: Path, what: str, suffixes: tuple[str, ...]) -> Path:
    """The path of a page, checked before the work on it starts.

    Raises UsageError for another suffix, a directory, and a folder that is not writable or far
    from any that exists.
    """
    if out.suffix.lower() not in suffixes:
        raise UsageError(f"The {what} {out} must end in {' or '.join(suffixes)}.")
    if out.is_dir():
        example = out / f"{what}{suffixes[0]}"
        raise UsageError(f"The {what} {out} is a directory. Name a file in it, such as {example}.")
    check_path(out)
    check_writable(out)
    return out
