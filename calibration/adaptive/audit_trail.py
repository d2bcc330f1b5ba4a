"""The audit trail of the ledger: which calls changed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from saga.calibration.adaptive.holder_streams import holder_id
from saga.calibration.adaptive.ledger_tables import AuditRow, Holder
from saga.calibration.adaptive.tenancy import Actor
from sqlalchemy import Connection, insert, select


@dataclass(frozen=True)
class AuditEntry:
    """A transaction that changed the ledger: when, by which key and call, what, how much."""

    at: str
    key: str | None
    call: str | None
    action: str
    details: Mapping[str, int | str]


def read_audit(connection: Connection, holder: str) -> list[AuditEntry]:
    """The transactions of a holder that changed the ledger, in their order."""
    query = select(AuditRow.__table__).join(Holder).where(Holder.name == holder)
    rows = connection.execute(query.order_by(AuditRow.id)).all()
    return [AuditEntry(row.at, row.key_name, row.call, row.action, row.details) for row in rows]


def add_to_audit(
    connection: Connection, actor: Actor, action: str, details: Mapping[str, int | str]
) -> int:
    """Add a transaction to the audit trail; its id."""
    values = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "holder_id": holder_id(connection, actor.holder),
        "key_name": actor.key,
        "call": actor.call,
        "action": action,
        "details": dict(details),
    }
    row = insert(AuditRow).values(values).returning(AuditRow.id)
    return connection.execute(row).scalar_one()
