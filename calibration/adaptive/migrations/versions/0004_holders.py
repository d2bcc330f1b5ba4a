"""Holders, corrections and an audit trail.

Streams belong to a holder; those of earlier versions belong to the common one. The log may take a
settlement back (`sign` -1) and names the call that wrote an entry. Settled intervals keep their
distribution encrypted, so that a corrected outcome can judge them. `state_version` says after which
entry of the log each version of a state was reached.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAMES = {"uq": "uq_%(table_name)s_%(column_0_name)s"}  # SQLite keeps no name of a constraint


def upgrade() -> None:
    """Add tables and columns, and give all streams to the common holder."""
    holder = op.create_table(
        "holder",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
    )
    op.bulk_insert(holder, [{"name": "common"}])  # id 1
    op.create_table(
        "audit",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("holder_id", sa.Integer, sa.ForeignKey("holder.id"), nullable=False),
        sa.Column("key_name", sa.String(64)),
        sa.Column("call", sa.String(64)),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
    )
    op.create_table(
        "conflict",
        sa.Column("person", sa.LargeBinary, primary_key=True),
        sa.Column("year", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seal", sa.LargeBinary, primary_key=True),
    )
    with op.batch_alter_table("stream", naming_convention=_NAMES) as stream:
        owner = sa.ForeignKey("holder.id", name="fk_stream_holder_id")
        column = sa.Column("holder_id", sa.Integer, owner, nullable=False, server_default="1")
        stream.add_column(column)
        stream.drop_constraint(_unique("stream", "bundle"), type_="unique")
        stream.create_unique_constraint("uq_stream_holder_id", ["holder_id", "bundle"])
    op.add_column("promise", sa.Column("sealed", sa.LargeBinary))
    with op.batch_alter_table("event", naming_convention=_NAMES) as event:
        event.drop_constraint(_unique("event", "promise_id"), type_="unique")
        event.add_column(sa.Column("sign", sa.Integer, nullable=False, server_default="1"))
        call = sa.ForeignKey("audit.id", name="fk_event_audit_id")
        event.add_column(sa.Column("audit_id", _NUMBER, call))
    op.create_index("ix_event_promise_id", "event", ["promise_id"])
    if _is_postgresql():
        op.execute(
            "CREATE TRIGGER audit_final BEFORE UPDATE OR DELETE ON audit "
            "FOR EACH ROW EXECUTE FUNCTION event_final()"
        )
    else:  # the changed table has lost its triggers
        for table in ("event", "audit"):
            _forbid_changes(table)
    op.create_table(
        "state_version",
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("stream.id"), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("last_event", _NUMBER, nullable=False),
    )
    op.execute(
        "INSERT INTO state_version SELECT promise.stream_id, event.version, MAX(event.id) "
        "FROM event JOIN promise ON promise.id = event.promise_id "
        "GROUP BY promise.stream_id, event.version"
    )


def downgrade() -> None:
    """Remove them. Raises ValueError unless all is of the common holder and uncorrected."""
    for query in (
        "SELECT COUNT(*) FROM stream WHERE holder_id <> 1",
        "SELECT COUNT(*) FROM event WHERE sign <> 1",
    ):
        if op.get_bind().scalar(sa.text(query)):
            raise ValueError("an earlier version cannot have holders or corrections")
    op.drop_table("state_version")
    op.drop_index("ix_event_promise_id", "event")
    with op.batch_alter_table("event", naming_convention=_NAMES) as event:
        event.drop_constraint("fk_event_audit_id", type_="foreignkey")
        event.drop_column("audit_id")
        event.drop_column("sign")
        event.create_unique_constraint(_unique("event", "promise_id"), ["promise_id"])
    if not _is_postgresql():
        _forbid_changes("event")
    op.drop_column("promise", "sealed")
    with op.batch_alter_table("stream", naming_convention=_NAMES) as stream:
        stream.drop_constraint("uq_stream_holder_id", type_="unique")
        stream.drop_constraint("fk_stream_holder_id", type_="foreignkey")
        stream.drop_column("holder_id")
        stream.create_unique_constraint(_unique("stream", "bundle"), ["bundle"])
    for table in ("conflict", "audit", "holder"):
        op.drop_table(table)


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _unique(table: str, column: str) -> str:
    return f"{table}_{column}_key" if _is_postgresql() else f"uq_{table}_{column}"


def _forbid_changes(table: str) -> None:
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_{change} BEFORE {change} ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
        )
