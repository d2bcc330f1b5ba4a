"""Streams know the last origin year that deliveries have finished: before, it was taken for that of the last promise, whoever made it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; a ledger of before keeps what it went by."""
    op.add_column("stream", sa.Column("promised_until", sa.Integer))
    op.execute(
        "UPDATE stream SET promised_until = (SELECT MAX(origin_year) FROM promise WHERE promise.stream_id = stream.id)"
    )


def downgrade() -> None:
    """Remove the column."""
    op.drop_column("stream", "promised_until")
