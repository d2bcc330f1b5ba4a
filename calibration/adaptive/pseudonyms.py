"""The secret that turns person ids into pseudonyms: kept in a file of its own, never in the database."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from saga.errors import Problem, UsageError
from saga.keyed_random import Part, encode

_BYTES = 32


@dataclass(frozen=True)
class PseudonymKey:
    """A key of at least 32 bytes; not printed."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) < _BYTES:
            fix = "Leave the file away to have one made, or fill it from a source of random bytes"
            raise UsageError(
                "The ledger's key is too short",
                [Problem("ledger-key", f"A key has {_BYTES} bytes or more", fix)],
            )

    @classmethod
    def read(cls, path: Path, *, create: bool) -> PseudonymKey:
        """The key in a file; with `create` a missing one is made, readable by its owner only. Raises UsageError."""
        try:
            if create and not path.exists():
                made = path.with_name(f"{path.name}.{os.getpid()}")
                with os.fdopen(
                    os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
                ) as handle:
                    handle.write(secrets.token_bytes(_BYTES))
                try:
                    os.link(made, path)  # whole or not at all, and never over another's
                except FileExistsError:
                    pass
                finally:
                    made.unlink()
            return cls(path.read_bytes())
        except OSError as error:
            fix = "Give a readable file of 32 random bytes or more: without the same key no outcome can be matched"
            raise UsageError(
                "The ledger's key cannot be read",
                [Problem("ledger-key", type(error).__name__, fix)],
            ) from None

    def keyed_hash(self, *words: Part) -> bytes:
        """16 bytes that name `words` and, without the key, tell nothing about them."""
        return hmac.new(self.key, encode(*words), hashlib.sha256).digest()[:16]
