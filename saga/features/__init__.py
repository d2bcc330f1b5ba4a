"""From panel values to the network's numbers."""
