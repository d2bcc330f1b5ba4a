"""Training of the state network."""
