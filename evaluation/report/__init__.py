"""Tables and pages of an evaluation."""
