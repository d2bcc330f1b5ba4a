"""Authentication: which key a call has, what the key may do, and who holds it.

Without a key file the service accepts every call, so it then listens on loopback only.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from saga.api.key_file import (
    OPERATOR,
    BearerKey,
    Caller,
    Scope,
    find_key,
    parse_keys,
    read_key_text,
)
from saga.api.problems import ProblemError
from saga.api.refusals import refused
from starlette.datastructures import Headers
from structlog.contextvars import bind_contextvars
from structlog.typing import FilteringBoundLogger

from saga.errors import Problem, UsageError

_READ_AGAIN_SECONDS = 1.0
KEY = "saga.key"  # entry of a request's scope: the key that the call has, if it is known
_STATES = {"expired": "has expired", "revoked": "was revoked"}
GRACE_SECONDS = 60.0  # for which the last keys are accepted if the file is missing or damaged


class KeyStore:
    """The keys of a file, which is read again within a second of a change.

    While the file is missing or damaged, the service is not ready; after `GRACE_SECONDS` no key is
    accepted. Calls whose key ends meanwhile are ended. A holder may have `max_calls` at a time:
    streams and downloads can last, and each has a connection.
    """

    def __init__(self, path: Path, log: FilteringBoundLogger, max_calls: int) -> None:
        """Read the file. Raises UsageError if it is not valid."""
        self._path, self._log, self._max_calls = path, log, max_calls
        self._text = read_key_text(path)
        self._keys = parse_keys(self._text)
        self._next_reading = 0.0
        self._failed_since: float | None = None
        self._calls: WeakKeyDictionary[asyncio.Task[Any], BearerKey] = WeakKeyDictionary()

    def keys(self, grace: float = GRACE_SECONDS) -> tuple[BearerKey, ...]:
        """The present keys; for `grace` seconds after the file failed, those that were read last.

        Raises ProblemError 503 after that.
        """
        now = time.monotonic()
        if now >= self._next_reading:
            self._next_reading = now + _READ_AGAIN_SECONDS
            self._read_again(now)
        if self._failed_since is not None and now - self._failed_since >= grace:
            raise refused("keys")
        return self._keys

    def find(self, headers: Headers) -> BearerKey | None:
        """The key of a call as it was read last; None without one, or if it is not known."""
        secret = headers.get("authorization", "").partition(" ")[2].strip()
        return find_key(self.keys(grace=math.inf), secret)

    def accepts(self, key: BearerKey) -> bool:
        """Whether a key that was accepted before still is."""
        try:
            return key in self.keys() and key.status(datetime.now(UTC)) == "active"
        except ProblemError:
            return False

    def note_call(self, key: BearerKey) -> None:
        """End the present call when its key ends. Raises ProblemError 503 for one too many."""
        others = (other for task, other in self._calls.items() if not task.done())
        if sum(other.holder == key.holder for other in others) >= self._max_calls:
            raise refused("open-calls", {"limit": self._max_calls})
        if (task := asyncio.current_task()) is not None:
            self._calls[task] = key

    def has_ended(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether the key of a call is accepted no more."""
        key = None if task is None else self._calls.get(task)
        return key is not None and not self.accepts(key)

    async def watch(self) -> NoReturn:
        """End the calls whose keys have ended, until cancelled."""
        while True:
            await asyncio.sleep(_READ_AGAIN_SECONDS)
            for task in [task for task in self._calls if self.has_ended(task)]:
                task.cancel()

    def _read_again(self, now: float) -> None:
        try:
            text = read_key_text(self._path)
            if text != self._text:
                self._keys = parse_keys(text)
                self._text = text
                self._log.info("keys_read", keys=len(self._keys))
            self._failed_since = None
        except UsageError as error:
            if self._failed_since is None:  # one line, not one a second
                problems = [str(problem) for problem in error.problems]
                self._log.error("keys_not_read", wrong=error.args[0], problems=problems)
                self._failed_since = now


@lru_cache(maxsize=32)  # each call without keys asks
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_local(headers: Headers, origins: Sequence[str] = ()) -> None:
    """Raise a problem of status 403 unless a call without keys is of this machine's own.

    A page of the web can let its name point to 127.0.0.1 and then call a local service from the
    browser. Such calls have the page's name as `Host` or `Origin`. Pages of `origins` may call it,
    by a name of this machine.
    """
    host, origin = headers.get("host"), headers.get("origin")
    if host is not None and not is_loopback(_split(host)[1]):
        raise refused("host")
    if origin is None or origin in origins:
        return
    if _split(origin.partition("://")[2])[0] != _split(host or "")[0]:
        raise refused("origin")


@lru_cache(maxsize=32)
def _split(address: str) -> tuple[str, str]:
    """`HOST:PORT` in lower case, and the host alone; empty if it is no address."""
    try:
        parts = urlsplit(f"//{address}")
        return parts.netloc.lower(), parts.hostname or ""
    except ValueError:
        return "", ""


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


class _Identification(HTTPBearer):
    """Dependency of endpoints with data: the caller; status 401 without a valid key."""

    async def __call__(self, request: Request) -> Caller:  # type: ignore[override]
        store: KeyStore | None = request.app.state.key_store
        if store is None:
            caller = OPERATOR
        else:
            store.keys()  # raises, if the file has failed for long
            if await super().__call__(request) is None:
                raise refused("no-key")
            key: BearerKey | None = request.scope[KEY]
            status = "unknown" if key is None else key.status(datetime.now(UTC))
            if key is None or status != "active":
                raise refused("key", {"state": _STATES.get(status, "is not known")})
            store.note_call(key)
            caller = Caller(key.holder, key.name, key.scopes)
        name = {} if caller.key is None else {"key": caller.key}
        bind_contextvars(holder=caller.holder, **name)  # for the lines of the log
        request.state.caller = caller
        return caller


identify = _Identification(
    scheme_name="HTTPBearer",
    auto_error=False,
    description="A key made with `saga keys create NAME`; not needed on loopback without keys",
)


CurrentCaller = Annotated[Caller, Depends(identify)]


def require_scope(*scopes: Scope) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency: the caller; status 403 unless the key of the call has one of these scopes."""

    async def check(request: Request) -> Caller:
        return caller_of(request, *scopes)

    return check


# Dependency of routes that check the scope.
OutcomesCaller = Annotated[Caller, Depends(require_scope("outcomes"))]


def caller_of(request: Request, *scopes: Scope) -> Caller:
    """The caller, of one of these scopes, else a problem of status 403 is raised."""
    caller: Caller = request.state.caller  # `identify` is the first dependency of every route
    check_scope(caller, *scopes)
    return caller


def check_scope(caller: Caller, *scopes: Scope) -> None:
    """Raise a problem of status 403 unless the caller has one of these scopes."""
    if not set(scopes) & set(caller.scopes):
        raise refused("scope", {"needed": " or ".join(scopes)})
