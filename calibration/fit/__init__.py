"""Fits a calibration to forecast distributions, paths and outcomes."""
