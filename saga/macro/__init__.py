"""The economy: observed series, a process for the years after them, scenarios."""
