"""`--config auto`: network, regularisation, members and trees by the size of the panel.

docs/method/fine-tuning.md has the rule and the measurements.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from saga.training.masking import Masking
from saga.training.train_config import TrainConfig, load_config

from saga.bundle import shipped_bundle
from saga.errors import UsageError
from saga.model import ModelConfig

AUTO, NO_SOURCE = "auto", "none"
_FEW, _MANY, _VERY_MANY = 1_000, 20_000, 100_000  # training persons
# A panel of so many persons does not start from the prior: random weights were better with 30,000
# persons of a register, the prior with 7,000 of a survey (docs/method/fine-tuning.md).
_WITHOUT_PRIOR = 30_000
# Surveys miss years, and years are missed for reasons: most records are thinned in training.
_SURVEY = Masking(drop_years=0.6, origin=0.7)


def choose_start(
    config: str | None, source: str | None, *, simulated: bool, n_persons: int
) -> tuple[str, Path | None]:
    """The configuration, and the bundle whose weights training starts from (None: random ones).

    Args:
        config: The configuration that the user names, None if none.
        source: The bundle that the user names, "none", or None if neither.
        simulated: Whether the panel is a generated register, which has its own configurations.
        n_persons: Number of persons in the panel; with many, the prior is not used by default.
    """
    start = None if source in (None, NO_SOURCE) else Path(str(source))
    if start is not None and not start.is_dir():
        raise UsageError(
            f"There is no bundle at {start}. Name another one with --from, or give --from none to "
            "start from random weights."
        )
    has_few = n_persons < _WITHOUT_PRIOR
    if source is None and config in (None, AUTO) and not simulated and has_few:
        prior = shipped_bundle("prior")
        start = prior if prior.is_dir() else None
    if config is None:
        config = "small" if simulated and start is None else AUTO
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
            model=replace(shape, dropout=0.2 if few else 0.1 if n_persons < _MANY else 0.0),
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
