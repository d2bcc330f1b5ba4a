"""Tables, charts and pages of an evaluation."""
