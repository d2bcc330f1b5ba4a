"""Yearly outcomes move the thresholds: adaptive state, ledger, issued intervals, deliveries."""
