"""The service: the forecaster over HTTP."""
