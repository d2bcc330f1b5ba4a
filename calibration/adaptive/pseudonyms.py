"""The key that turns person ids into pseudonyms: in a separate file, not the database.

It also encrypts forecast distributions and amounts.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from saga.calibration.adaptive.database import damaged_error
from saga.calibration.adaptive.ledger_tables import COMMON

from saga.errors import Problem, UsageError
from saga.files.atomic import check_regular, new_secret
from saga.keyed_random import Part, encode

_KEY_BYTES = 32
_NONCE_BYTES = 12


@dataclass(frozen=True)
class PseudonymKey:
    """A secret key of at least 32 bytes; `repr` does not show it."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) < _KEY_BYTES:
            fix = "Remove the file to have one made, or fill it from a source of random bytes"
            raise UsageError(
                "The ledger's key is too short",
                [Problem("ledger-key", f"A key has {_KEY_BYTES} bytes or more", fix)],
            )

    @classmethod
    def read(cls, path: Path, *, create: bool) -> PseudonymKey:
        """The key in a file; raises UsageError if it cannot be read.

        With `create` a missing file is made, readable by its owner only.
        """
        try:
            if create and not path.exists():
                new_secret(path, secrets.token_bytes(_KEY_BYTES))
            check_regular(path)
            return cls(path.read_bytes())
        except OSError as error:
            fix = (
                "Give a readable file of 32 random bytes or more. Without the same key no outcome"
                " can be matched"
            )
            raise UsageError(
                "The ledger's key cannot be read",
                [Problem("ledger-key", error.strerror or "", fix)],
            ) from None

    def keyed_hash(self, *parts: Part) -> bytes:
        """16 bytes that identify `parts`; without the key they reveal nothing about them."""
        return hmac.new(self.key, encode(*parts), hashlib.sha256).digest()[:16]

    def pseudonym(self, holder: str, person_id: str) -> bytes:
        """What stands for a person in the part of a holder; another one in each part."""
        return self.keyed_hash("person", *(() if holder == COMMON else (holder,)), person_id)

    def seal(self, content: bytes, owner: bytes) -> bytes:
        """`content` encrypted (AES-256-GCM); only the key and the same `owner` open it."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, owner)

    def unseal(self, sealed: bytes, owner: bytes) -> bytes:
        """What `seal` encrypted. Raises LedgerError if it was changed."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], owner)
        except InvalidTag:
            raise damaged_error() from None

    @cached_property
    def _cipher(self) -> AESGCM:
        return AESGCM(hmac.new(self.key, encode("seal"), hashlib.sha256).digest())
