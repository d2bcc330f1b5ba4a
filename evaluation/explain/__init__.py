"""Explanations of one person's forecast."""
