"""Bearer keys for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saga.api.key_file import add_key, new_key


def make_keys(file: Path, *names: str, **options: Any) -> dict[str, dict[str, str]]:
    """Adds a key of each name to a file; the headers of the calls that send it, by name."""
    headers = {}
    for name in names:
        secret, key = new_key(name, **options)
        add_key(file, key)
        headers[name] = {"Authorization": f"Bearer {secret}"}
    return headers
