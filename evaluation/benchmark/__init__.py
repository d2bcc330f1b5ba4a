"""A benchmark that others can enter: rounds, entries in a plain format, and a scorer."""
