"""The register beside its targets: statistics, targets, verdicts, report."""
