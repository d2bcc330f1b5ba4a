"""The REST service: forecasts and lifetimes over HTTP, from the forecaster of the CLI."""
