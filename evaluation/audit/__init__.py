"""Attacks on a bundle: whether it tells who was trained on, and what.

The unit is a person: all years of a record together, and families together in every interval.
"""
