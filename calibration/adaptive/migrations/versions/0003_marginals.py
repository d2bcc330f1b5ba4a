"""Issued intervals store a distribution instead of nested sets; older ones are closed.

Before, an issued interval stored its nested sets, and an outcome had one score in them. Now it
stores a distribution, and an outcome has one score per coverage, computed from two stored
probabilities. Neither the old sets nor the bundles that issued them can be read any more.

- Settled intervals do not change: their log, outcomes, counts and state stay.
- Intervals without an outcome are closed: their sets are deleted, and a later outcome does not
  settle them. The column `closed` of `stream` has the reason.
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
