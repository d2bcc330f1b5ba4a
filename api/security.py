"""Bearer keys: stored as hashes in a file, compared in constant time.

A key has 256 random bits and cannot be guessed, so one round of SHA-256 is enough. Without a key
file the service accepts every call, so it then listens on loopback only.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.problems import ProblemError
from saga.errors import Problem, UsageError

_LINE = re.compile(r"^(?P<name>[A-Za-z0-9._-]{1,64})\s+sha256:(?P<digest>[0-9a-f]{64})$")
_NAME = re.compile(r"^[A-Za-z0-9._-]{1,64}$")


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def new_key(name: str) -> tuple[str, str]:
    """Make a key: the key itself, which is stored nowhere, and its line for the key file.

    Raises UsageError unless the name is 1 to 64 letters, digits, dots, dashes or underscores.
    """
    if not _NAME.match(name):
        fix = "Use 1 to 64 letters, digits, dots, dashes or underscores"
        raise UsageError(
            "The name of the key cannot be written to the key file",
            [Problem("key-name", "Name not allowed", fix)],
        )
    key = f"saga_{secrets.token_urlsafe(32)}"
    return key, f"{name} sha256:{_digest(key)}"


@dataclass(frozen=True)
class Keyring:
    """The accepted keys: `digests` maps the name of a holder to the SHA-256 of the key."""

    digests: Mapping[str, str]

    def holder(self, key: str) -> str | None:
        """The holder of this key, or None.

        Every entry is compared, so the time does not reveal which one matched.
        """
        digest = _digest(key)
        holder = None
        for name, stored_digest in self.digests.items():
            if hmac.compare_digest(digest, stored_digest):
                holder = name
        return holder


def read_keys(path: Path | None) -> Keyring | None:
    """The keys of a file, or None without a file. Blank lines and # lines are skipped.

    Raises UsageError if the file cannot be read, has no key or a malformed line. The error names
    the line and never repeats its text.
    """
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "The key file cannot be read",
            [Problem("key-file", type(error).__name__, "Give a readable UTF-8 file")],
        ) from None
    digests: dict[str, str] = {}
    problems: list[Problem] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.match(text)
        if match is None:
            message = f"Line {number} is not `NAME sha256:HEX`"
            problems.append(Problem("key-line", message, "Make one with `saga keys new NAME`"))
        elif match["name"] in digests:
            message = f"Line {number} repeats a name"
            problems.append(Problem("key-twice", message, "Give each key its own name"))
        else:
            digests[match["name"]] = match["digest"]
    if not digests and not problems:
        fix = "Make one with `saga keys new NAME`"
        problems.append(Problem("key-none", "The file has no key", fix))
    if problems:
        raise UsageError("The key file is not valid", problems)
    return Keyring(digests)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, keys: Path | None) -> None:
    """Raise UsageError if other machines can reach the address and there are no keys."""
    if keys is None and not is_loopback(host):
        fix = (
            "Make a key with `saga keys new NAME`, write its line to a file and pass it with"
            " --keys, or listen on 127.0.0.1"
        )
        raise UsageError(
            "Without keys the service listens on this machine only",
            [Problem("keys-required", "The address can be reached from other machines", fix)],
        )


_bearer = HTTPBearer(
    auto_error=False,
    description="A key made with `saga keys new NAME`; not needed on loopback without keys",
)


def require_key(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """Dependency of endpoints with data: status 401 unless the call has a valid key.

    A service without keys accepts every call.
    """
    keyring: Keyring | None = request.app.state.keyring
    if keyring is None:
        return
    if credentials is None:
        raise _unauthorised(
            'Bearer realm="saga"',
            "The call has no key",
            "Send the header `Authorization: Bearer KEY`",
        )
    if keyring.holder(credentials.credentials) is None:
        raise _unauthorised(
            'Bearer realm="saga", error="invalid_token"',
            "The key is not known",
            "Ask the operator for a key",
        )


def _unauthorised(challenge: str, message: str, fix: str) -> ProblemError:
    return ProblemError(
        401,
        "unauthorised",
        "A key is needed",
        [Problem("key", message, fix)],
        headers={"WWW-Authenticate": challenge},
    )
