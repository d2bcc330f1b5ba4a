"""The contest: baselines, protocol and tables."""
