"""Macro series: observed history, a process for later years, scenarios."""
