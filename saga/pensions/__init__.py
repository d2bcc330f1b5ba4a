"""Pensions: from earnings to rights, by rules that are data."""
