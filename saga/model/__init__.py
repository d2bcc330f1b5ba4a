"""The decoder-only transformer over person-year tokens."""

from saga.model.config import ModelConfig
from saga.model.network import Saga

__all__ = ["ModelConfig", "Saga"]
