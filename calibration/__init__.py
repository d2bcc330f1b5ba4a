"""The conformal layer: fitted on outcomes, moved by later outcomes, and diagnosed."""
