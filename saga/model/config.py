"""The shape of the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from saga.errors import UsageError

BACKBONES = ("decoder", "lstm", "feedforward")
HEADS = ("binned", "mixture", "quantiles")
_CHOICES = {"backbone": BACKBONES, "head": HEADS}


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the network; unknown keys and impossible shapes are refused. Parameters are counted by `Saga.parameters_count`."""

    width: int = 96  # d_model
    layers: int = 3
    heads: int = (
        4  # query heads; all share one key-value head (multi-query), which makes rollouts cheap
    )
    mlp_ratio: int = 4
    bins: int = 120  # cells between the lowest and highest knot of the earnings head
    head_width: int = 192  # hidden units of the head's residual MLP
    light: int = (
        0  # state of the light rollout's recurrent cell; 0: none, and only the exact rollout
    )
    dropout: float = 0.0
    backbone: str = (
        "decoder"  # what mixes the years: attention, an LSTM, or a map of the last ten records
    )
    head: str = (
        "binned"  # the law of earnings: bins and tails, a mixture of normals, or seven quantiles
    )

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _CHOICES:
                if value not in _CHOICES[field.name]:
                    raise UsageError(
                        f"Model option '{field.name}' must be one of {', '.join(_CHOICES[field.name])}."
                    )
            elif field.name != "dropout":
                least = 0 if field.name == "light" else 1
                if not isinstance(value, int) or value < least:
                    raise UsageError(
                        f"Model option '{field.name}' must be an integer of at least {least}."
                    )
        if not 0 <= self.dropout < 1:
            raise UsageError("Model option 'dropout' must lie in [0, 1).")
        if self.backbone == "decoder" and (
            self.width % self.heads or (self.width // self.heads) % 2
        ):
            raise UsageError(f"width {self.width} must be an even multiple of heads {self.heads}.")
        if self.backbone != "decoder" and self.light:
            raise UsageError(
                f"Only a decoder has a light rollout. Set light: 0 with backbone: {self.backbone}."
            )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for config.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> ModelConfig:
        """Build from plain values; an unknown key is an error, never dropped."""
        unknown = sorted(set(d) - {f.name for f in fields(cls)})
        if unknown:
            raise UsageError(
                f"Unknown model option(s): {', '.join(unknown)}. Known: {', '.join(f.name for f in fields(cls))}."
            )
        return cls(**d)
