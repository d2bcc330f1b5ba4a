"""Alembic's entry point: runs the steps on the connection that `calibration.adaptive.database` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from calibration.adaptive.ledger_tables import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
