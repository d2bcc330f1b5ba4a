"""Yearly outcomes move the thresholds: ledger, adaptive state, deliveries."""
