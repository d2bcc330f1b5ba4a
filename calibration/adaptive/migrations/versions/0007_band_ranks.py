"""Bands store the ranks of their years, so that they can be scored under later moves.

Only columns are added. Bands of earlier versions have none and count by their published score, so
the state stays the same.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("span", sa.Column("cells", sa.Text))
    op.add_column("span", sa.Column("levels", sa.LargeBinary))
    op.add_column("span_event", sa.Column("ranks", sa.LargeBinary))


def downgrade() -> None:
    """Remove them. Raises ValueError if a band has been settled with ranks."""
    settled = sa.text("SELECT COUNT(*) FROM span_event WHERE ranks IS NOT NULL")
    if op.get_bind().scalar(settled):
        raise ValueError("an earlier version would compute another state")
    op.drop_column("span_event", "ranks")
    op.drop_column("span", "levels")
    op.drop_column("span", "cells")
