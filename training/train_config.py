"""Training configurations: YAML files, one of which may extend another, and `--config auto`.

`auto` chooses network, regularisation, members and trees by the size of the panel;
docs/method/fine-tuning.md has the rule and the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from saga.training.masking import Masking

from saga.bundle import shipped_bundle
from saga.errors import UsageError
from saga.features.transforms import HIDEABLE
from saga.files.yaml_text import read_yaml
from saga.model import ModelConfig
from saga.model.config import CheckedOptions, Count

# Distributions with further configurations: a package of each has a folder `configs`.
_GROUP = "saga.configs"
_PARTS = ("model", "masking")  # tables of options
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
AUTO, NO_SOURCE = "auto", "none"
_FEW, _MANY, _VERY_MANY = 1_000, 20_000, 100_000  # training persons
# A panel of so many persons does not start from the prior: random weights were better with 30,000
# persons of a register, the prior with 7,000 of a survey (docs/method/fine-tuning.md).
_WITHOUT_PRIOR = 30_000
# Surveys miss years, and years are missed for reasons: most records are thinned in training.
_SURVEY = Masking(drop_years=0.6, origin=0.7)


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
    clip: NotNegative = 1.0  # largest norm of a step's gradient; with privacy, of each person's
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
    # Epsilon of the promise to training persons (`training.privacy`).
    privacy: Annotated[float, Field(ge=0.1, le=20)] | None = None

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
        chosen_by_persons = self.validate_every < self.max_steps
        if self.privacy is not None and (
            chosen_by_persons or self.trees or self.members > 1 or self.model.dropout > 0
        ):
            raise UsageError(
                "Training option 'privacy' needs `trees: false`, `members: 1`, no dropout and "
                "`validate_every` equal to `max_steps`. --privacy sets them."
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
    options = _parsed(source)
    if shape is not None:
        model = options.get("model", {})
        check_shape(model, shape, str(source))
        options["model"] = replace(shape, dropout=model.get("dropout", shape.dropout))
    try:
        return TrainConfig(**{"name": name, **options})
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
    title = f"Configuration '{source}' cannot be used"
    parsed = read_yaml(_text(source), title, "configuration")
    if not isinstance(parsed, dict):
        raise UsageError(f"Configuration '{source}' must be a YAML mapping.")
    for part in _PARTS:
        if not isinstance(parsed.get(part, {}), dict):
            raise UsageError(
                f"Configuration '{source}': '{part}' is no table. Write its options below it."
            )
    base = parsed.pop("extends", None)
    if base is None:
        return parsed
    if not isinstance(base, str) or base in extended:
        raise UsageError(f"Configuration '{source}': 'extends' must name another configuration.")
    inherited = _parsed(base, (*extended, base))
    parts = {part: {**inherited.get(part, {}), **parsed.get(part, {})} for part in _PARTS}
    return {**inherited, **parsed, **parts}


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


def choose_start(
    config: str | None,
    source: str | None,
    *,
    simulated: bool,
    n_persons: int,
    private: bool = False,
) -> tuple[str, Path | None]:
    """The configuration, and the bundle whose weights training starts from (None: random ones).

    Args:
        config: The configuration that the user names, None if none.
        source: The bundle that the user names, "none", or None if neither.
        simulated: Whether the panel is a generated register, which has its own configurations.
        n_persons: Number of persons in the panel; with many, the prior is not used by default.
        private: Whether training has noise; then the prior is the default for every panel.
    """
    start = None if source in (None, NO_SOURCE) else Path(str(source))
    if start is not None and not start.is_dir():
        raise UsageError(
            f"There is no bundle at {start}. Name another one with --from, or give --from none to "
            "start from random weights."
        )
    from_prior = private or (not simulated and n_persons < _WITHOUT_PRIOR)
    if source is None and config in (None, AUTO) and from_prior:
        prior = shipped_bundle("prior")
        start = prior if prior.is_dir() else None
    if config is None:
        config = "small" if simulated and start is None and not private else AUTO
    return config, start


def choose_config(n_persons: int, shape: ModelConfig | None = None) -> TrainConfig:
    """The configuration for a panel with `n_persons` training persons.

    `shape` is that of the bundle that training starts from, if there is one.
    """
    few = n_persons < _FEW
    if shape is not None:
        # Small steps: the weights are near their final values already. One network: those that
        # start from the same weights end nearly alike.
        return TrainConfig(
            name=AUTO,
            model=replace(shape, dropout=0.2 if n_persons < _MANY else 0.0),
            masking=_SURVEY,
            max_steps=400 if few else 4_000,
            warmup_steps=100,
            learning_rate=5e-4 if few else 1e-3,
            weight_decay=0.1,
            validate_every=25 if few else 200,
            patience=6,
            scale_free=True,
            trees=True,
        )
    if n_persons >= _VERY_MANY:
        return replace(load_config("small"), name=AUTO, scale_free=True, trees=True)
    many = n_persons >= _MANY
    model = (
        ModelConfig(width=96, layers=2, heads=4, mlp_ratio=2, bins=96, head_width=96, dropout=0.05)
        if many
        else ModelConfig(
            width=64,
            layers=2,
            heads=4,
            mlp_ratio=2,
            bins=80,
            head_width=128,
            dropout=0.3 if few else 0.2,
        )
    )
    return TrainConfig(
        name=AUTO,
        model=model,
        masking=_SURVEY,
        max_steps=6_000 if many else 600 if few else 2_000,
        warmup_steps=200 if many else 100,
        learning_rate=3e-3 if many else 1.5e-3,
        weight_decay=0.03 if many else 0.1,
        validate_every=300 if many else 50 if few else 100,
        patience=10,
        members=1 if many else 3,
        scale_free=True,
        trees=True,
    )
