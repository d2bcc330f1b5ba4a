"""A training of few steps of a network of few units."""

from __future__ import annotations

from saga.training.train_config import TrainConfig

from saga.model import ModelConfig

TOY = TrainConfig(
    name="toy",
    model=ModelConfig(width=8, layers=1, heads=1, bins=8, head_width=8),
    batch_persons=16,
    max_steps=12,
    warmup_steps=2,
    validate_every=6,
    precision="32-true",
)
