"""Monte-Carlo paths from the network."""
