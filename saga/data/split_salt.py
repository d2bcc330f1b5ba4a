"""The secret salt of a person split: a file beside the bundle, which never leaves the agency.

Without it nobody can compute from an id whether the person was in the training part. A bundle has
the salt's digest only, which tells the right salt from a wrong one and, as a salt has 256 random
bits, nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from saga.data.panel import Panel
from saga.errors import UsageError
from saga.files.bundle_folder import check_replaceable

SALT = "salt"  # in split.json: the digest
_HINT = "Give it with --split-salt FILE, or put it at"


def salt_beside(bundle: Path) -> Path:
    """The file of a bundle's salt: beside its folder, so that a copy of the folder lacks it."""
    return Path(f"{bundle.absolute()}.salt")


def salted_beside(panel: Panel, bundle: Path) -> Panel:
    """The panel with the salt of the bundle that will be trained on it, created if it is missing.

    A panel that has a salt keeps it; simulated persons need none. Only the owner can read the file.
    Raises errors as `check_replaceable` does.
    """
    check_replaceable(bundle)
    if panel.meta.simulated or panel.meta.salt:
        return panel
    file = salt_beside(bundle)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Processes of several devices begin together: the first complete file is the salt of all.
    with tempfile.NamedTemporaryFile("w", dir=file.parent) as stream:  # mode 600
        stream.write(secrets.token_hex(32) + "\n")
        stream.flush()
        with suppress(FileExistsError):
            os.link(stream.name, file)
    return with_salt(panel, file)


def with_salt(panel: Panel, file: Path) -> Panel:
    """The panel with the salt in a file. Raises UsageError if there is none."""
    text = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise UsageError(f"{file} has no salt of a split: `saga train` writes 64 hex digits.")
    return _salted(panel, text)


def described_salt(panel: Panel) -> dict[str, str]:
    """What split.json says of the panel's salt."""
    return {SALT: _digest(panel.meta.salt)} if panel.meta.salt else {}


def salted_like(panel: Panel, split: Mapping[str, Any], bundle: Path) -> Panel:
    """The panel with the salt of the split of a bundle that was trained on it.

    A panel of another name was not split by the bundle, and keeps its salt.

    Raises:
        UsageError: If the salt is neither given nor beside the bundle, or is another one.
    """
    if panel.meta.panel_id != split.get("panel_id"):
        return panel
    if SALT not in split:
        return _salted(panel, "")
    file = salt_beside(bundle)
    if not panel.meta.salt:
        if not file.is_file():
            raise UsageError(
                f"{bundle} was trained on this panel, and the secret salt that tells who was not "
                f"used is missing. {_HINT} {file}."
            )
        panel = with_salt(panel, file)
    if _digest(panel.meta.salt) != split[SALT]:
        raise UsageError(
            f"The salt is not that of {bundle}: persons that it was trained on would count as "
            f"unseen. {_HINT} {file}."
        )
    return panel


def _salted(panel: Panel, salt: str) -> Panel:
    return replace(panel, meta=replace(panel.meta, salt=salt))


def _digest(salt: str) -> str:
    return hashlib.sha256(f"saga split salt {salt}".encode()).hexdigest()
