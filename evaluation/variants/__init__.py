"""Backbones and heads that only the ablation study uses."""
