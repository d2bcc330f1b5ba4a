"""The state follows upper limits and moves the marginals; it followed thresholds of sets before.

Tables and columns stay. Streams of the former kind are converted from their log.
"""

from __future__ import annotations

from alembic import op
from saga.calibration.adaptive.stream_conversion import convert_streams

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Convert the open streams."""
    convert_streams(op.get_bind())


def downgrade() -> None:
    """Nothing: tables are the same, and an earlier version starts new streams."""
