"""Training: configurations, data, Lightning module and fit of the forecast network."""
