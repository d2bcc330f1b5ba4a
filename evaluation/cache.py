"""Results that are kept by content: a file's name says what it was computed from, so an interrupted contest goes on where it was.

A kept file holds a row a person: it stays where the panel may be.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from saga.files.atomic import commit, digest_json
from saga.files.tables import KEY


def keep(
    path: Path,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    about: Callable[[], Mapping[str, Any]],
) -> Path:
    """Writes `tables` one after the other to `path` unless it is there; whole or not at all. `about()` is asked last and kept with them."""

    def write(part: Path) -> None:
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table.cast(schema))
            writer.add_key_value_metadata({KEY: json.dumps(about(), sort_keys=True)})

    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        commit(path, write)
    return path


def file_name(name: str, what: str, parts: Mapping[str, Any]) -> str:
    """The name of what `parts` determine: readable in front, their digest behind."""
    return f"{name.replace(':', '-').replace('/', '-')}-{what}-{digest_json(parts)[:20]}.parquet"


@cache
def code_digest(module: str, packages: Sequence[str]) -> str:
    """sha256 of the source of a module and of all it imports, directly or not, from `packages`."""
    sources: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        spec = importlib.util.find_spec(name) if name not in sources else None
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        sources[name] = Path(spec.origin).read_bytes()
        for node in ast.walk(ast.parse(sources[name])):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names if _inside(alias.name, packages)]
            elif (
                isinstance(node, ast.ImportFrom) and node.module and _inside(node.module, packages)
            ):
                waiting += [
                    node.module,
                    *(
                        f"{node.module}.{alias.name}"
                        for alias in node.names
                        if _is_module(node.module, alias.name)
                    ),
                ]
    return hashlib.sha256(
        b"".join(name.encode() + source for name, source in sorted(sources.items()))
    ).hexdigest()


def _inside(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _is_module(package: str, name: str) -> bool:
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    return any((Path(place) / f"{name}.py").is_file() for place in places)
