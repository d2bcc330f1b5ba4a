"""Simulated economies, from whose panels the shipped prior is trained."""
