"""saga keys: bearer keys of the service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")],
    file: Annotated[Path | None, typer.Option(help="Append the key's hash to this file.")] = None,
    as_json: options.Json = False,
) -> None:
    """Make a bearer key: it is shown once, and only its hash is stored."""
    from api.security import new_key

    key, line = new_key(name)
    if file is not None:
        with os.fdopen(
            os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8"
        ) as handle:
            handle.write(line + "\n")
    hash_text = f"Its hash is in {file}." if file is not None else f"Line for the key file: {line}"
    console.result(
        f"Key of {name}, shown only now: {key}\n{hash_text}",
        {"name": name, "key": key, "line": line},
        as_json=as_json,
    )
