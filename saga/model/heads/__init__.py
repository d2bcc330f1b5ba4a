"""Heads: the full predictive distribution of earnings at the next observed year, and the hazard of death before it."""

from __future__ import annotations

from typing import Any

from saga.model.config import ModelConfig
from saga.model.heads.base import MIN_TAIL, Head, Predictive
from saga.model.heads.binned import Binned, Bins
from saga.model.heads.mixture import Mixture, Normals
from saga.model.heads.quantiles import Quantiles, SevenQuantiles
from saga.transforms import Transforms

__all__ = ["MIN_TAIL", "Binned", "Bins", "Head", "Mixture", "Normals", "Predictive", "Quantiles", "SevenQuantiles", "head"]


def head(config: ModelConfig, transforms: Transforms) -> Head[Any]:
    """The head that `config` names."""
    kinds: dict[str, type[Head[Any]]] = {"binned": Binned, "mixture": Mixture, "quantiles": Quantiles}
    return kinds[config.head](config, transforms)
