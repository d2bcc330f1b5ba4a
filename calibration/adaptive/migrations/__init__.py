"""Migrations of the ledger's database (Alembic)."""
