"""Judges a bundle on persons with known outcomes: tables, verdicts, report."""
