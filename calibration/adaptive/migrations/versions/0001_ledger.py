"""The tables of the ledger, as `saga.calibration.adaptive.ledger_tables` describes them."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# SQLite increments INTEGER keys only.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_APPEND_ONLY = ("settlement", "audit")


def upgrade() -> None:
    """Create the tables, and forbid any change of the logs."""
    op.create_table("ledger", _id(sa.Integer), _blob("key_check"))
    holder = op.create_table(
        "holder", _id(sa.Integer), sa.Column("name", sa.String(64), nullable=False, unique=True)
    )
    op.bulk_insert(holder, [{"name": "common"}])  # id 1
    op.create_table(
        "stream",
        _id(sa.Integer),
        _reference("holder_id", "holder.id", sa.Integer),
        sa.Column("bundle", sa.String(64), nullable=False),
        _count("version"),
        sa.Column("delivered_until", sa.Integer),
        sa.UniqueConstraint("holder_id", "bundle"),
    )
    op.create_table(
        "issued_interval",
        _id(_NUMBER),
        _reference("stream_id", "stream.id", sa.Integer),
        _blob("person"),
        _count("origin_year"),
        sa.Column("family", sa.String(16), nullable=False),
        _count("horizon"),
        sa.Column("group", sa.String(64), nullable=False),
        _blob("base"),
        _blob("issued"),
        sa.Column("distribution", sa.LargeBinary),
        sa.Column("sealed", sa.LargeBinary),
        sa.Column("cells", sa.Text),
        sa.Column("levels", sa.LargeBinary),
        sa.UniqueConstraint("person", "origin_year", "family", "horizon", "stream_id"),
    )
    op.create_table(
        "outcome",
        *_person_and_year(),
        _blob("amount_hash"),
        sa.Column("sealed_amount", sa.LargeBinary),
    )
    op.create_table(
        "conflict",
        *_person_and_year(),
        sa.Column("amount_hash", sa.LargeBinary, primary_key=True),
    )
    op.create_table(
        "audit",
        _id(_NUMBER),
        sa.Column("at", sa.String(32), nullable=False),
        _reference("holder_id", "holder.id", sa.Integer),
        sa.Column("key_name", sa.String(64)),
        sa.Column("call", sa.String(64)),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
    )
    op.create_table(
        "settlement",
        _id(_NUMBER),
        _reference("interval_id", "issued_interval.id", _NUMBER, index=True),
        _blob("ranks"),
        _count("sign"),
        _reference("audit_id", "audit.id", _NUMBER),
    )
    op.create_table(
        "state_version",
        _key("stream_id", sa.ForeignKey("stream.id")),
        _key("version"),
        sa.Column("last_settlement", _NUMBER, nullable=False),
    )
    op.create_table(
        "band_scale",
        _key("stream_id", sa.ForeignKey("stream.id")),
        _key("horizon"),
        _blob("knots"),
        _blob("values"),
    )
    op.create_table(
        "excess_counts",
        *_cell_key(),
        _key("year"),
        _blob("counts"),
        _blob("missed"),
    )
    op.create_table(
        "state",
        *_cell_key(),
        sa.Column("coverage", sa.Double, primary_key=True),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("offset", "integral", "weight")),
        _count("persons"),
        _count("missed"),
        sa.Column("last_year", sa.Integer),
        sa.Column("experts", sa.JSON, nullable=False),
    )
    for table in _APPEND_ONLY:
        _forbid_changes(table)


def _id(kind: sa.types.TypeEngine[int] | type[sa.Integer]) -> sa.Column[int]:
    return sa.Column("id", kind, primary_key=True)


def _reference(
    name: str,
    target: str,
    kind: sa.types.TypeEngine[int] | type[sa.Integer],
    *,
    index: bool = False,
) -> sa.Column[int]:
    return sa.Column(name, kind, sa.ForeignKey(target), nullable=False, index=index)


def _key(name: str, *constraints: sa.ForeignKey) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, *constraints, primary_key=True, autoincrement=False)


def _cell_key() -> Sequence[sa.Column[int] | sa.Column[str]]:
    group = sa.Column("group", sa.String(64), primary_key=True)
    return _key("stream_id", sa.ForeignKey("stream.id")), group, _key("horizon")


def _person_and_year() -> Sequence[sa.Column[bytes] | sa.Column[int]]:
    return sa.Column("person", sa.LargeBinary, primary_key=True), _key("year")


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _blob(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=False)


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
