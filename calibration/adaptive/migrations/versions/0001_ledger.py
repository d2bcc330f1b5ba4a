"""The ledger: bundles, issued intervals, outcomes, log of settlements, counts, state."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# SQLite increments INTEGER keys only.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables, and forbid any change of the log."""
    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key_check", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "stream",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("bundle", sa.String(64), nullable=False, unique=True),
        sa.Column("levels", sa.JSON, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_table(
        "promise",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("stream.id"), nullable=False),
        sa.Column("person", sa.LargeBinary, nullable=False),
        sa.Column("origin_year", sa.Integer, nullable=False),
        sa.Column("horizon", sa.Integer, nullable=False),
        sa.Column("group", sa.String(64), nullable=False),
        sa.Column("base", sa.LargeBinary, nullable=False),
        sa.Column("issued", sa.LargeBinary, nullable=False),
        sa.Column("family", sa.LargeBinary),
        sa.UniqueConstraint("person", "origin_year", "horizon", "stream_id"),
    )
    op.create_table(
        "outcome",
        sa.Column("person", sa.LargeBinary, primary_key=True),
        sa.Column("year", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seal", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "event",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("promise_id", _NUMBER, sa.ForeignKey("promise.id"), nullable=False, unique=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("score", sa.Double, nullable=False),
    )
    op.create_table(
        "tally",
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("stream.id"), primary_key=True),
        sa.Column("group", sa.String(64), primary_key=True),
        sa.Column("horizon", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("year", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("counts", sa.LargeBinary, nullable=False),
        sa.Column("missed", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "state",
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("stream.id"), primary_key=True),
        sa.Column("group", sa.String(64), primary_key=True),
        sa.Column("horizon", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("level", sa.Double, primary_key=True),
        sa.Column("offset", sa.Double, nullable=False),
        sa.Column("integral", sa.Double, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sa.Column("persons", sa.Integer, nullable=False),
        sa.Column("missed", sa.Integer, nullable=False),
        sa.Column("last_year", sa.Integer),
        sa.Column("experts", sa.JSON, nullable=False),
    )
    final = "the log is append-only"
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION event_final() RETURNS trigger AS $$ "
            f"BEGIN RAISE EXCEPTION '{final}'; END $$ LANGUAGE plpgsql"
        )
        op.execute(
            "CREATE TRIGGER event_final BEFORE UPDATE OR DELETE ON event "
            "FOR EACH ROW EXECUTE FUNCTION event_final()"
        )
    else:
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER event_{change} BEFORE {change} ON event "
                f"BEGIN SELECT RAISE(ABORT, '{final}'); END"
            )


def downgrade() -> None:
    """Remove everything."""
    for table in ("state", "tally", "event", "outcome", "promise", "stream", "ledger"):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION event_final()")
