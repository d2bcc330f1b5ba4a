"""Forecasters that the model must beat, each given its best shot."""
