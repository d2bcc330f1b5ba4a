"""How far a bundle can be trusted: tables, verdicts, report."""
