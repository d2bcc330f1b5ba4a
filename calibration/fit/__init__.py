"""Fits a calibration to simulated paths and outcomes."""
