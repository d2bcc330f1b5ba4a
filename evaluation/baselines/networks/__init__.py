"""Networks of other kinds."""
