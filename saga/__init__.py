"""SAGA: lifetime earnings as full distributions, from a person's irregular yearly record."""
