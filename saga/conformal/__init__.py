"""Conformal prediction: recalibrated paths and prediction intervals. Uses numpy, not torch."""
