"""Who makes a call: the holder of its key, which the log, the queue and the ledger name."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from saga.api.key_file import SCOPES, Scope
from saga.calibration.adaptive.tenancy import COMMON


@dataclass(frozen=True)
class Caller:
    """Who makes a call: the holder and the name of the key, and the key's scopes."""

    holder: str
    key: str | None
    scopes: tuple[Scope, ...]


# Without a key file every caller is the operator.
OPERATOR = Caller(COMMON, None, SCOPES)
current_caller: ContextVar[Caller | None] = ContextVar("current_caller", default=None)
