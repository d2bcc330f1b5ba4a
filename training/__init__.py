"""Training: data module, thin Lightning module, fit."""
