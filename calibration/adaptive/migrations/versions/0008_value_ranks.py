"""Present values store their ranks before the moves, as bands do since 0007.

No column changes. Present values of earlier versions have no ranks and count by their published
score, so the state stays the same. An earlier program would not use the ranks, and so compute
another state: it must not open the ledger.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Nothing to change."""


def downgrade() -> None:
    """Raises ValueError if a present value has been settled with ranks."""
    settled = sa.text(
        "SELECT COUNT(*) FROM span_event JOIN span ON span.id = span_event.span_id "
        "WHERE span_event.ranks IS NOT NULL AND span.kind = 'present_value'"
    )
    if op.get_bind().scalar(settled):
        raise ValueError("an earlier version would compute another state")
