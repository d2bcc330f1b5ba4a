"""The revisions of the ledger's tables in order, each in a file."""
