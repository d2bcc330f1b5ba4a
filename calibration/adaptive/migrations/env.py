"""Alembic entry point: runs the revisions on a connection of the `database` module."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
