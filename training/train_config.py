"""Training configurations: YAML files, one of which may extend another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from saga.training.masking import Masking

from saga.errors import UsageError
from saga.features.transforms import HIDEABLE
from saga.model import ModelConfig
from saga.model.config import CheckedOptions, Count

# Distributions with further configurations: a package of each has a folder `configs`.
_GROUP = "saga.configs"
# Not strict: YAML reads 3e-4 as text.
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class TrainConfig(CheckedOptions):
    """Shape of the network and options of its fit; `batch_persons` is the mean batch size."""

    kind = "Training"

    name: str
    model: ModelConfig = field(default_factory=ModelConfig)
    masking: Masking = field(default_factory=Masking)
    batch_persons: Count = 128
    max_steps: Count = 10_000
    warmup_steps: Annotated[int, Field(strict=True, ge=0)] = 200
    learning_rate: NotNegative = 2e-3
    weight_decay: NotNegative = 0.01
    clip: NotNegative = 1.0
    validate_every: Count = 500  # steps
    validation_persons: Count = 4_000
    patience: Count = 10  # validations without improvement before stopping
    members: Count = 1  # networks that differ by seed; their forecasts are averaged
    precision: str = "auto"  # auto: depends on the machine, see training/fit.py
    # Boosted trees beside the network (`training.tree_member`), and their threads (0: all cores).
    trees: Annotated[bool, Field(strict=True)] = False
    tree_threads: Annotated[int, Field(strict=True, ge=0)] = 1
    # Inputs (names in HIDEABLE) that the network never receives, in training and in forecasts.
    without: tuple[str, ...] = ()
    # Whether earnings are relative to the panel's level by age and year, in units of its spread.
    scale_free: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if unknown := sorted(set(self.without) - set(HIDEABLE)):
            raise UsageError(
                f"Training option 'without' cannot hide {', '.join(unknown)}. "
                f"Choose from {', '.join(HIDEABLE)}."
            )
        if self.validate_every > self.max_steps:
            raise UsageError(
                "Training option 'validate_every' must not exceed 'max_steps': "
                "the weights with the best validation are kept."
            )
        return self

    def as_dict(self) -> dict[str, Any]:
        """All options as plain values, for config.json."""
        return {**super().as_dict(), "without": list(self.without)}


def load_config(source: str | Path, shape: ModelConfig | None = None) -> TrainConfig:
    """A built-in configuration by name, or one from a YAML file.

    `shape` is that of the bundle from which training starts. The configuration may change its
    dropout, but no other option of the network.

    Raises UsageError if the file cannot be used, or names another shape.
    """
    name = str(source) if str(source) in built_in_configs() else Path(source).stem
    # An option without a value in the file has its default.
    options = {key: value for key, value in _parsed(source).items() if value is not None}
    if shape is not None:
        model = options.get("model") or {}
        check_shape(model, shape, str(source))
        options["model"] = replace(shape, dropout=model.get("dropout", shape.dropout))
    try:
        return TrainConfig.from_dict({"name": name, **options})
    except UsageError as error:
        raise UsageError(f"Configuration '{source}': {error}") from None


def check_shape(model: Mapping[str, Any], shape: ModelConfig, name: str) -> None:
    """Raise UsageError if `model` of a configuration differs from the starting bundle's shape."""
    fixed = {key: value for key, value in shape.as_dict().items() if key != "dropout"}
    differing = [
        f"{key} is {fixed[key]}, not {value}"
        for key, value in model.items()
        if key in fixed and value != fixed[key]
    ]
    if differing:
        raise UsageError(
            f"Configuration '{name}' has another network than the bundle that training starts "
            f"from, where {'; '.join(differing)}. Leave these options of `model` out, or train "
            "without --from."
        )


def _parsed(source: str | Path, extended: tuple[str, ...] = ()) -> dict[str, Any]:
    """The options of a configuration, completed by those of the configuration that it extends.

    `extended` are the configurations that have led to this one.
    """
    try:
        parsed = yaml.safe_load(_text(source))
    except yaml.YAMLError as error:
        raise UsageError(
            f"Configuration '{source}' is not valid YAML. Correct the file."
        ) from error
    if not isinstance(parsed, dict):
        raise UsageError(f"Configuration '{source}' must be a YAML mapping.")
    base = parsed.pop("extends", None)
    if base is None:
        return parsed
    if not isinstance(base, str) or base in extended:
        raise UsageError(f"Configuration '{source}': 'extends' must name another configuration.")
    inherited = _parsed(base, (*extended, base))
    parts = {part: _merged(part, inherited, parsed) for part in ("model", "masking")}
    return {**inherited, **parsed, **parts}


def _merged(part: str, inherited: Mapping[str, Any], parsed: Mapping[str, Any]) -> dict[str, Any]:
    return {**(inherited.get(part) or {}), **(parsed.get(part) or {})}


def _text(source: str | Path) -> str:
    built_in = built_in_configs()
    if str(source) in built_in:
        return built_in[str(source)].read_text(encoding="utf-8")
    path = Path(source)
    if not path.is_file():
        raise UsageError(
            f"Configuration '{source}' is neither a file nor one of {', '.join(built_in)}. "
            "Those of comparisons (ablations/full, lstm, ...) come with "
            "pip install 'saga-forecast[evidence]'."
        )
    return path.read_text(encoding="utf-8")


def built_in_configs() -> dict[str, Path]:
    """Files of the configurations that are called by name, such as `small` or `ablations/lstm`."""
    packages = [entry.load() for entry in entry_points(group=_GROUP)]
    folders = [Path(folder) for package in packages for folder in package.__path__]
    return {
        file.relative_to(configs).with_suffix("").as_posix(): file
        for configs in (folder / "configs" for folder in (Path(__file__).parent, *folders))
        for file in sorted(configs.rglob("*.yaml"))
    }
