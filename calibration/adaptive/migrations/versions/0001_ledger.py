"""The tables of the ledger, as `saga.calibration.adaptive.ledger_tables` describes them."""

from __future__ import annotations

from alembic import op
from saga.calibration.adaptive.ledger_tables import TABLES

revision = "0001"
down_revision = None

_APPEND_ONLY = ("settlement", "audit")


def upgrade() -> None:
    """Create the tables, and forbid any change of the logs.

    A revision does not change once it is released: whoever adds the second one writes the tables of
    this one out here first.
    """
    TABLES.create_all(op.get_bind())
    for table in _APPEND_ONLY:
        _forbid_changes(table)


def _forbid_changes(table: str) -> None:
    """Make the database refuse changes of a table."""
    final = "the log is append-only"
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"CREATE OR REPLACE FUNCTION {table}_final() RETURNS trigger AS $$ "
            f"BEGIN RAISE EXCEPTION '{final}'; END $$ LANGUAGE plpgsql"
        )
        op.execute(
            f"CREATE TRIGGER {table}_final BEFORE UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {table}_final()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_{change} BEFORE {change} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{final}'); END"
        )
