"""How the ledger's database comes to its present form (Alembic)."""
