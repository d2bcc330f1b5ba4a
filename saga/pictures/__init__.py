"""Pictures of forecasts: one person's record and published sets, as a chart, a file or a page."""
