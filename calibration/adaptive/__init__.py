"""Thresholds that follow yearly outcomes: adaptive state, ledger, deliveries."""
