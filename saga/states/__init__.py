"""States along a path: work, place, family and exits, simulated given earnings."""
