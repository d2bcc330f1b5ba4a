"""Tables of spans: path bands and present values, which are intervals over several years.

The migration only adds tables and columns. The rows of an earlier ledger stay as they are.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables of spans, the encrypted amounts, and what versions of a state include."""
    op.create_table(
        "span",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("stream.id"), nullable=False),
        sa.Column("person", sa.LargeBinary, nullable=False),
        sa.Column("origin_year", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("years", sa.Integer, nullable=False),
        sa.Column("base", sa.LargeBinary, nullable=False),
        sa.Column("issued", sa.LargeBinary, nullable=False),
        sa.Column("family", sa.LargeBinary),
        sa.Column("sealed", sa.LargeBinary),
        sa.UniqueConstraint("person", "origin_year", "kind", "years", "stream_id"),
    )
    op.create_table(
        "span_event",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("span_id", _NUMBER, sa.ForeignKey("span.id"), nullable=False, index=True),
        sa.Column("probability", sa.Double, nullable=False),
        sa.Column("p_zero", sa.Double, nullable=False),
        sa.Column("sign", sa.Integer, nullable=False),
        sa.Column("audit_id", _NUMBER, sa.ForeignKey("audit.id")),
    )
    op.create_table(
        "band_scale",
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("stream.id"), primary_key=True),
        sa.Column("horizon", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("knots", sa.LargeBinary, nullable=False),
        sa.Column("values", sa.LargeBinary, nullable=False),
    )
    op.add_column("outcome", sa.Column("sealed", sa.LargeBinary))
    op.add_column(
        "state_version", sa.Column("last_span", _NUMBER, nullable=False, server_default="0")
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE TRIGGER span_event_final BEFORE UPDATE OR DELETE ON span_event "
            "FOR EACH ROW EXECUTE FUNCTION event_final()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER span_event_{change} BEFORE {change} ON span_event "
            "BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
        )


def downgrade() -> None:
    """Remove them. Raises ValueError if a span has been settled."""
    if op.get_bind().scalar(sa.text("SELECT COUNT(*) FROM span_event")):
        raise ValueError("an earlier version cannot have bands and present values")
    op.drop_column("state_version", "last_span")
    op.drop_column("outcome", "sealed")
    for table in ("band_scale", "span_event", "span"):
        op.drop_table(table)
