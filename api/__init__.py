"""The REST service: forecasts and lifetimes over HTTP, by the same `Forecaster` as the command line."""
