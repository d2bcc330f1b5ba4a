"""Heads: the predictive distribution of earnings in a year, and the hazard of death before it."""
