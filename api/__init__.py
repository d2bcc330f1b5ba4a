"""The REST service: forecasts and lifetimes over HTTP, from the same forecaster as the CLI."""
