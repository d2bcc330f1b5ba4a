"""The conformal layer: fitting, adaptive updates with later outcomes, diagnostics."""
