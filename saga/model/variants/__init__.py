"""Backbones and heads that only the ablation needs."""
