"""Training configurations: YAML files with unknown keys refused. A file may name another that it `extends`, and say what differs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from saga.errors import UsageError
from saga.features.transforms import HIDEABLE
from saga.model import ModelConfig
from training.masking import Masking

_FOLDER = files("training") / "configs"
BUILT_IN = ("tiny", "small", "base", "lstm", "feedforward")
ABLATIONS = tuple(
    sorted(
        f"ablations/{file.name[:-5]}"
        for file in (_FOLDER / "ablations").iterdir()
        if file.name.endswith(".yaml")
    )
)


@dataclass(frozen=True)
class TrainConfig:
    """Shape of the network and how it is fitted; one step sees `batch_persons` persons on average. Impossible values raise UsageError."""

    name: str
    model: ModelConfig = field(default_factory=ModelConfig)
    masking: Masking = field(default_factory=Masking)
    batch_persons: int = 128
    max_steps: int = 10_000
    warmup_steps: int = 200
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    validate_every: int = 500
    validation_persons: int = 4_000
    patience: int = 10  # validations without improvement before stopping
    precision: str = "auto"  # auto: by the machine, see training/fit.py
    without: tuple[
        str, ...
    ] = ()  # what the network never sees, in training and in forecasts (`saga.features.transforms.HIDEABLE`)

    def __post_init__(self) -> None:
        for name in (
            "batch_persons",
            "max_steps",
            "validate_every",
            "validation_persons",
            "patience",
        ):
            if getattr(self, name) < 1:
                raise UsageError(f"Training option '{name}' must be at least 1.")
        for name in ("warmup_steps", "learning_rate", "weight_decay", "clip"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"Training option '{name}' must be finite and not negative.")
        if unknown := sorted(set(self.without) - set(HIDEABLE)):
            raise UsageError(
                f"Training option 'without' cannot hide {', '.join(unknown)}. Choose from {', '.join(HIDEABLE)}."
            )
        if self.validate_every > self.max_steps:
            raise UsageError(
                "Training option 'validate_every' must not exceed 'max_steps': the weights with the best validation are kept."
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for config.json."""
        return {**asdict(self), "without": list(self.without)}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any], name: str) -> TrainConfig:
        """Build from a parsed YAML file; UsageError for an unknown option or a value out of its type or range."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(d) - known)
        if unknown:
            raise UsageError(
                f"Unknown training option(s) in {name}: {', '.join(unknown)}. Known: {', '.join(sorted(known))}."
            )
        parts: dict[str, Any] = {
            "model": ModelConfig.from_dict(d.get("model") or {}),
            "masking": _masking(d.get("masking") or {}),
        }
        without = d.get("without") or []
        if not isinstance(without, list) or not all(isinstance(each, str) for each in without):
            raise UsageError("Training option 'without' must be a list of names.")
        parts |= {"without": tuple(without)}
        values: dict[str, Any] = {"name": name, **d, **parts}
        for option in fields(cls):
            if option.name in d and option.name not in parts:
                values[option.name] = _typed(option, d[option.name])
        return cls(**values)


def _masking(d: Mapping[str, Any]) -> Masking:
    """How often what is hidden; what `d` does not name is as ever. UsageError for an unknown option or a value outside [0, 1]."""
    known = [f.name for f in fields(Masking)]
    if unknown := sorted(set(d) - set(known)):
        raise UsageError(
            f"Unknown masking option(s): {', '.join(unknown)}. Known: {', '.join(known)}."
        )
    for name, value in d.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f"Masking option '{name}' must be a number in [0, 1].")
    return Masking(**d)


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
    return TrainConfig.from_dict(
        _parsed(source), str(source) if _is_built_in(source) else Path(source).stem
    )


def _parsed(source: str | Path, extended: tuple[str, ...] = ()) -> dict[str, Any]:
    """The options of a configuration, those of what it extends filled in, `model` and `masking` option by option."""
    try:
        parsed = yaml.safe_load(_text(source))
    except yaml.YAMLError as error:
        raise UsageError(f"Configuration '{source}' is not valid YAML. Mend the file.") from error
    if not isinstance(parsed, dict):
        raise UsageError(f"Configuration '{source}' must be a YAML mapping.")
    begin = parsed.pop("extends", None)
    if begin is None:
        return parsed
    if not isinstance(begin, str) or begin in extended:
        raise UsageError(f"Configuration '{source}': 'extends' must name another configuration.")
    found = _parsed(begin, (*extended, begin))
    return {
        **found,
        **parsed,
        **{
            part: {**(found.get(part) or {}), **(parsed.get(part) or {})}
            for part in ("model", "masking")
        },
    }


def _text(source: str | Path) -> str:
    if _is_built_in(source):
        return (_FOLDER / f"{source}.yaml").read_text(encoding="utf-8")
    path = Path(source)
    if not path.is_file():
        raise UsageError(
            f"Configuration '{source}' is neither a file nor one of {', '.join((*BUILT_IN, *ABLATIONS))}."
        )
    return path.read_text(encoding="utf-8")


def _is_built_in(source: str | Path) -> bool:
    return str(source) in (*BUILT_IN, *ABLATIONS)
