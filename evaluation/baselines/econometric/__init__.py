"""Econometric baselines."""
