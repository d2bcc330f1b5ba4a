"""Fitting the conformal layer to paths and outcomes."""
