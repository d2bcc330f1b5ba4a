"""Streams store the last origin year that deliveries have finished.

Before, it was taken to be the origin year of the last issued interval.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column, with the value that was used before."""
    op.add_column("stream", sa.Column("promised_until", sa.Integer))
    op.execute(
        "UPDATE stream SET promised_until = "
        "(SELECT MAX(origin_year) FROM promise WHERE promise.stream_id = stream.id)"
    )


def downgrade() -> None:
    """Remove the column."""
    op.drop_column("stream", "promised_until")
