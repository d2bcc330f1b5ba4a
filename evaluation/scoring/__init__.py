"""Settings, scores and comparisons of the contest."""
