"""Yearly outcomes move the thresholds: adaptive state, ledger, deliveries."""
