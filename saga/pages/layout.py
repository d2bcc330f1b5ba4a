"""HTML pages: one file each, without external resources, with the layout `page.html`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, UndefinedError

from saga.errors import UsageError
from saga.files.atomic import commit
from saga.files.tables import check_path, check_replaceable, check_writable
from saga.pages.format import FILTERS

MARK = "written by SAGA"  # in every file of `write_page`, so that no other is replaced


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
    try:
        return environment.get_template(template).render(values)
    except UndefinedError as error:
        raise LookupError(f"{template}: {error.message}") from error


def check_page(out: Path, what: str, suffixes: tuple[str, ...]) -> Path:
    """The path of a page, checked before the work on it starts.

    Raises UsageError for another suffix, a directory, a file that SAGA did not write, and a folder
    that is not writable or far from any that exists.
    """
    if out.suffix.lower() not in suffixes:
        raise UsageError(f"The {what} {out} must end in {' or '.join(suffixes)}.")
    if out.is_dir():
        example = out / f"{what}{suffixes[0]}"
        raise UsageError(f"The {what} {out} is a directory. Name a file in it, such as {example}.")
    check_replaceable(out, lambda file: MARK.encode() in file.read_bytes())
    check_path(out)
    check_writable(out)
    return out


def write_page(out: Path, content: str | bytes) -> Path:
    """Write a page, a picture or a brief to `out`, whole or not at all, and return the path."""
    content = content.encode() if isinstance(content, str) else content
    mark = MARK.encode()
    match out.suffix.lower():
        case ".png":  # a chunk of text before the last one, which has 12 bytes
            text = b"tEXtSoftware\0" + mark
            text = (len(text) - 4).to_bytes(4) + text + zlib.crc32(text).to_bytes(4)
            content = content[:-12] + text + content[-12:]
        case ".docx":  # the comment of a zip file, whose length is in the last 2 bytes
            content = content[:-2] + len(mark).to_bytes(2, "little") + mark
        case ".pdf":
            content += b"\n%" + mark
        case ".html" | ".svg" | ".md":
            content += b"<!-- " + mark + b" -->\n"
    commit(out, lambda part: part.write_bytes(content))
    return out
