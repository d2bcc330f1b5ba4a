"""Authentication: which key a call has, what the key may do, and who holds it.

Without a key file the service accepts every call, so it then listens on loopback only.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from saga.api.key_file import (
    OPERATOR,
    BearerKey,
    Caller,
    Keyring,
    Scope,
    current_caller,
    parse_keys,
    read_key_text,
)
from saga.api.problems import ProblemError
from structlog.typing import FilteringBoundLogger

from saga.errors import Problem, UsageError

_READ_AGAIN_SECONDS = 1.0


class KeyStore:
    """The keys of a file, which is read again within a second of a change."""

    def __init__(self, path: Path, log: FilteringBoundLogger) -> None:
        """Read the file. Raises UsageError if it is not valid."""
        self._path, self._log = path, log
        self._text = read_key_text(path)
        self._keyring = parse_keys(self._text)
        self._next_reading = 0.0
        self._failed = False

    def keyring(self) -> Keyring:
        """The present keys; if the file has become invalid, those that were read last."""
        now = time.monotonic()
        if now >= self._next_reading:
            self._next_reading = now + _READ_AGAIN_SECONDS
            self._read_again()
        return self._keyring

    def _read_again(self) -> None:
        try:
            text = read_key_text(self._path)
            if text != self._text:
                self._keyring = parse_keys(text)
                self._text = text
                self._log.info("keys_read", keys=len(self._keyring.keys))
            self._failed = False
        except UsageError as error:
            if not self._failed:  # one line, not one a second
                problems = [str(problem) for problem in error.problems]
                self._log.error("keys_not_read", wrong=error.args[0], problems=problems)
            self._failed = True


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
            "Make a key with `saga keys create NAME --file FILE` and pass the file with --keys, or"
            " listen on 127.0.0.1"
        )
        raise UsageError(
            "Without keys the service listens on this machine only",
            [Problem("keys-required", "The address can be reached from other machines", fix)],
        )


_bearer = HTTPBearer(
    auto_error=False,
    description="A key made with `saga keys create NAME`; not needed on loopback without keys",
)


async def identify(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Caller:
    """Dependency of endpoints with data: the caller; status 401 without a valid key."""
    store: KeyStore | None = request.app.state.key_store
    if store is None:
        caller = OPERATOR
    else:
        key = _active_key(store.keyring(), credentials)
        caller = Caller(key.holder, key.name, key.scopes)
    current_caller.set(caller)
    return caller


CurrentCaller = Annotated[Caller, Depends(identify)]


def require_scope(*scopes: Scope) -> Callable[[Caller], Awaitable[Caller]]:
    """A dependency: the caller; status 403 unless the key of the call has one of these scopes."""

    async def check(caller: CurrentCaller) -> Caller:
        check_scope(caller, *scopes)
        return caller

    return check


# Dependencies of routes. Each identifies the caller and checks a scope, so a route needs one only.
ForecastCaller = Annotated[Caller, Depends(require_scope("forecast"))]
OutcomesCaller = Annotated[Caller, Depends(require_scope("outcomes"))]


def check_scope(caller: Caller, *scopes: Scope) -> None:
    """Raise a problem of status 403 unless the caller has one of these scopes."""
    if not set(scopes) & set(caller.scopes):
        needed = " or ".join(scopes)
        fix = f"Use a key with the scope {needed}; the operator makes one with `saga keys create`"
        raise ProblemError(
            403,
            "scope",
            "This key may not do this",
            [Problem("scope", f"The key lacks the scope {needed}", fix)],
        )


def _active_key(keyring: Keyring, credentials: HTTPAuthorizationCredentials | None) -> BearerKey:
    if credentials is None:
        raise _unauthorised(
            'Bearer realm="saga"',
            "The call has no key",
            "Send the header `Authorization: Bearer KEY`",
        )
    invalid = 'Bearer realm="saga", error="invalid_token"'
    key = keyring.find(credentials.credentials)
    status = "unknown" if key is None else key.status(datetime.now(UTC))
    if key is None or status != "active":
        reasons = {"expired": "The key has expired", "revoked": "The key was revoked"}
        message = reasons.get(status, "The key is not known")
        raise _unauthorised(invalid, message, "Ask the operator for a key")
    return key


def _unauthorised(challenge: str, message: str, fix: str) -> ProblemError:
    return ProblemError(
        401,
        "unauthorised",
        "A key is needed",
        [Problem("key", message, fix)],
        headers={"WWW-Authenticate": challenge},
    )
