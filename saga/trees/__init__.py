"""Boosted trees, which a bundle may have beside its network."""
