"""Baselines that borrow the futures of similar persons."""
