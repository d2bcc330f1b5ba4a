"""Training configurations: YAML files with unknown keys refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from saga.errors import UsageError
from saga.model import ModelConfig

BUILT_IN = ("tiny", "small", "base")


@dataclass(frozen=True)
class TrainConfig:
    """Shape of the network and how it is fitted; one optimiser step sees `batch_persons` persons. Impossible values raise UsageError."""

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

    def __post_init__(self) -> None:
        for name in ("batch_persons", "max_steps", "validate_every", "validation_persons", "patience"):
            if getattr(self, name) < 1:
                raise UsageError(f"Training option '{name}' must be at least 1.")
        for name in ("warmup_steps", "learning_rate", "weight_decay", "clip"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"Training option '{name}' must be finite and not negative.")
        if self.validate_every > self.max_steps:
            raise UsageError("Training option 'validate_every' must not exceed 'max_steps': the weights with the best validation are kept.")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for config.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any], name: str) -> TrainConfig:
        """Build from a parsed YAML file; UsageError for an unknown option or a value out of its type or range."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(d) - known)
        if unknown:
            raise UsageError(f"Unknown training option(s) in {name}: {', '.join(unknown)}. Known: {', '.join(sorted(known))}.")
        values: dict[str, Any] = {"name": name, **d, "model": ModelConfig.from_dict(d.get("model") or {})}
        for option in fields(cls):
            if option.name in d and option.name != "model":
                values[option.name] = _typed(option, d[option.name])
        return cls(**values)


def _typed(option: Field[Any], value: Any) -> Any:
    """The value, of the type of its option; 3e-4, which YAML reads as text, is a number here."""
    try:
        typed = float(value) if option.type == "float" else value
    except (TypeError, ValueError):
        typed = None
    if type(typed).__name__ != option.type:
        raise UsageError(f"Training option '{option.name}' must be of type {option.type}.")
    return typed


def load_config(source: str | Path) -> TrainConfig:
    """A built-in configuration by name, or one from a YAML file. Raises UsageError where it cannot be used."""
    if str(source) in BUILT_IN:
        text = (files("training") / "configs" / f"{source}.yaml").read_text(encoding="utf-8")
        name = str(source)
    else:
        path = Path(source)
        if not path.is_file():
            raise UsageError(f"Configuration '{source}' is neither a file nor one of {', '.join(BUILT_IN)}.")
        text, name = path.read_text(encoding="utf-8"), path.stem
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"Configuration '{source}' is not valid YAML. Mend the file.") from error
    if not isinstance(parsed, dict):
        raise UsageError(f"Configuration '{source}' must be a YAML mapping.")
    return TrainConfig.from_dict(parsed, name)
