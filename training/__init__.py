"""Fitting the network to a panel."""
