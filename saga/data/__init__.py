"""From a file to a checked panel, and who in it can be forecast from when."""
