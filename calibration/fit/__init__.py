"""Fits the conformal layer to simulated paths and outcomes."""
