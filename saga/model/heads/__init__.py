"""Heads: the full predictive distribution of earnings at the next observed year, and the hazard of death before it."""
