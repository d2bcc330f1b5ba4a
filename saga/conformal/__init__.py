"""The conformal layer, applied: recalibrated paths and prediction intervals. Uses numpy only."""
