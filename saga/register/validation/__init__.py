"""Comparison of the register with its targets: statistics, targets, verdicts, report."""
