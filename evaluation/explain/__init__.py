"""Why one person's forecast is what it is."""
