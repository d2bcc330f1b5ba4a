"""Yearly deliveries: settle, adapt, diagnose, test for drift, recommend."""
