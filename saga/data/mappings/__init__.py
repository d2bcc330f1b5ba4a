"""Shipped mappings of other registers."""
