"""Holders of the parts of a ledger: whose persons, outcomes and state an entry belongs to."""

from __future__ import annotations

from dataclasses import dataclass

# The holder of what the commands and a service without keys enter. Its outcomes move the thresholds
# of every holder.
COMMON = "common"


@dataclass(frozen=True)
class Actor:
    """Who uses the ledger: the holder of a part of it, the name of the key and of the call."""

    holder: str = COMMON
    key: str | None = None
    call: str | None = None
