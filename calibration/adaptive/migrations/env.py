"""Alembic entry point: runs the revisions on a connection of the `database` module."""

from __future__ import annotations

from alembic import context
from saga.calibration.adaptive.ledger_tables import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
