"""Training configurations: YAML files with unknown keys refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from saga.errors import UsageError
from saga.model import ModelConfig

BUILT_IN = ("tiny", "small", "base")


@dataclass(frozen=True)
class TrainConfig:
    """Shape of the network and how it is fitted; one optimiser step sees `batch_persons` persons."""

    name: str
    model: ModelConfig = field(default_factory=ModelConfig)
    batch_persons: int = 128
    max_steps: int = 10_000
    warmup_steps: int = 200
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    validate_every: int = 500
    validation_persons: int = 4_000
    patience: int = 10  # validations without improvement before stopping
    precision: str = "auto"  # auto: bf16-mixed on a GPU, 32-true on CPU

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for config.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any], name: str) -> TrainConfig:
        """Build from a parsed YAML file."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(d) - known)
        if unknown:
            raise UsageError(f"Unknown training option(s) in {name}: {', '.join(unknown)}. Known: {', '.join(sorted(known))}.")
        values = {**d, "model": ModelConfig.from_dict(d.get("model", {}))}
        for key in ("learning_rate", "weight_decay", "clip"):
            if key in values:
                values[key] = float(values[key])
        return cls(**{"name": name, **values})


def load_config(source: str | Path) -> TrainConfig:
    """A built-in configuration by name, or one from a YAML file."""
    if str(source) in BUILT_IN:
        text = (files("training") / "configs" / f"{source}.yaml").read_text(encoding="utf-8")
        name = str(source)
    else:
        path = Path(source)
        if not path.is_file():
            raise UsageError(f"Configuration '{source}' is neither a file nor one of {', '.join(BUILT_IN)}.")
        text, name = path.read_text(encoding="utf-8"), path.stem
    parsed = yaml.safe_load(text)
    if not isinstance(parsed, dict):
        raise UsageError(f"Configuration '{source}' must be a YAML mapping.")
    return TrainConfig.from_dict(parsed, name)
