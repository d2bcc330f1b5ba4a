"""Intervals are judged by distributions; those of the former nested sets are closed.

Until now an issued interval stored its nested sets, and an outcome had one score in them. From now
on it stores a distribution, and an outcome has a score for each coverage, computed from two stored
probabilities. The old sets cannot be read any more, and the bundles that issued them cannot either.
So what was settled stays as it is: log, outcomes, counts and state. Intervals without an outcome
are closed: their sets are deleted, and an outcome of their year does not settle them. The streams
say why.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

REASON = (
    "Its intervals were issued by an earlier version, with prediction sets of another kind. "
    "Settled ones stay; those without an outcome were closed."
)


def upgrade() -> None:
    """Add the columns, and close all intervals of the former sets."""
    op.add_column("stream", sa.Column("closed", sa.String(200)))
    op.execute("ALTER TABLE event RENAME COLUMN score TO probability")
    op.add_column("event", sa.Column("p_zero", sa.Double))
    op.execute(sa.text("UPDATE stream SET closed = :reason").bindparams(reason=REASON))
    op.execute("UPDATE promise SET family = NULL")


def downgrade() -> None:
    """Remove the columns; intervals without an outcome lose what would settle them."""
    op.execute("UPDATE promise SET family = NULL")
    op.drop_column("event", "p_zero")
    op.execute("ALTER TABLE event RENAME COLUMN probability TO score")
    op.drop_column("stream", "closed")
