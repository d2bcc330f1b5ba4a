"""One horizon by boosted trees (Ke et al. 2017, LightGBM): a classifier for zero and a quantile model a level for positive earnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines.recent_years import YEARS
from evaluation.baselines.trees.atom_quantiles import LEVELS

if TYPE_CHECKING:
    from lightgbm import Booster

Array = NDArray[Any]
Floats = NDArray[np.float64]
TREES = 1000  # at most; early stopping ends sooner
PATIENCE = 20
RARE = 50  # zeros, or positive amounts, that a classifier needs; below, the share serves everybody
RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Examples:
    """Origins with what came true at one horizon: `features` (n, F), `log` (n,) of amounts relative to the origin year, -inf for zero."""

    features: NDArray[np.float32]
    log: Floats

    def __len__(self) -> int:
        return len(self.log)

    def take(self, rows: Any) -> Examples:
        """Some of the examples: an index, mask or slice."""
        return Examples(self.features[rows], self.log[rows])

    @property
    def positive(self) -> Examples:
        """Those with an amount."""
        return self.take(self.log > -np.inf)


@dataclass(frozen=True)
class Shape:
    """What all horizons share: feature `names`, which of them are `categorical`, and the `lowest` log amount that a mean should see."""

    names: Sequence[str]
    categorical: Sequence[str]
    lowest: float


@dataclass(frozen=True)
class Settings:
    """Of the trees: `leaves` a tree, learning `rate`, `threads` (0: OpenMP's; results are the same), `seed` of what LightGBM draws."""

    leaves: int
    rate: float
    threads: int
    seed: int

    def parameters(self, n: int) -> dict[str, Any]:
        """LightGBM's, for n examples."""
        return {
            "num_leaves": self.leaves,
            "learning_rate": self.rate,
            "min_data_in_leaf": int(np.clip(n // 500, 20, 100)),
            "num_threads": self.threads,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


class Linear:
    """Ridge regression of log amounts on the window's levels: the trees then model what is left, and need no staircase for a slope."""

    def __init__(self, examples: Examples, shape: Shape) -> None:
        place = {name: i for i, name in enumerate(shape.names)}
        self._level = [place[f"level_{lag}"] for lag in range(YEARS)]
        self._zero = [place[f"zero_{lag}"] for lag in range(YEARS // 2)]
        self._mean = [place["window_mean"], place["mean_level"]]
        inputs = self._inputs(examples.features)
        target = np.maximum(
            examples.log, shape.lowest
        )  # a few tiny amounts would pull a mean of logs
        penalty = RIDGE * len(inputs) * np.eye(inputs.shape[1])
        self._weights = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ target)

    def predict(self, features: NDArray[np.float32]) -> Floats:
        """(n,); each person's number does not depend on the others, to the last bit."""
        return np.asarray((self._inputs(features) * self._weights).sum(axis=1))

    def _inputs(self, features: NDArray[np.float32]) -> Floats:
        x = features.astype(np.float64)
        mean = np.nan_to_num(x[:, self._mean])
        levels = np.where(np.isnan(x[:, self._level]), mean[:, :1], x[:, self._level])
        age = x[:, :1] / 50
        return np.concatenate(
            [levels, np.nan_to_num(x[:, self._zero]), mean, age, age**2, age**3, np.ones_like(age)],
            axis=1,
        )


class HorizonTrees:
    """The models of one horizon; `predict` gives the probability of zero (n,) and log amounts at LEVELS (n, 9), which may still cross."""

    def __init__(
        self, training: Examples, held: Examples, shape: Shape, settings: Settings
    ) -> None:
        self._share, self._classifier = zero_classifier(training, held, shape, settings)
        self.linear, self._quantiles = quantile_models(training, held, shape, settings, LEVELS)

    def predict(self, features: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Probability of zero (n,) and log amounts relative to the origin year (n, 9)."""
        linear = self.linear.predict(features)
        inputs = _with(features, linear)
        zero = np.full(len(features), self._share)
        if self._classifier is not None:
            zero = np.asarray(self._classifier.predict(features, num_threads=1))
        return zero, np.stack(
            [
                linear + np.asarray(model.predict(inputs, num_threads=1))
                for model in self._quantiles
            ],
            axis=1,
        )


def zero_classifier(
    training: Examples, held: Examples, shape: Shape, settings: Settings
) -> tuple[float, Booster | None]:
    """The share of zeros, and a model of their probability where zeros and amounts are both common enough."""
    zero, held_zero = (examples.log == -np.inf for examples in (training, held))
    share = float(np.concatenate([zero, held_zero]).mean())
    if not RARE <= zero.sum() <= len(zero) - RARE:
        return share, None
    parameters = {"objective": "binary", **settings.parameters(len(training))}
    return share, _boost(
        (training.features, zero), (held.features, held_zero), shape.names, shape, [parameters]
    )[0]


def quantile_models(
    training: Examples, held: Examples, shape: Shape, settings: Settings, levels: Sequence[float]
) -> tuple[Linear, list[Booster]]:
    """The linear forecast of log amounts, and a model a level of what it leaves, among examples with an amount."""
    known, judged = training.positive, held.positive
    linear = Linear(known, shape)

    def data(examples: Examples) -> tuple[Array, Array]:
        forecast = linear.predict(examples.features)
        return _with(examples.features, forecast), examples.log - forecast

    parameters = [
        {"objective": "quantile", "alpha": level, **settings.parameters(len(known))}
        for level in levels
    ]
    return linear, _boost(data(known), data(judged), [*shape.names, "linear"], shape, parameters)


def held_out_loss(
    training: Examples,
    held: Examples,
    shape: Shape,
    settings: Settings,
    levels: Sequence[float] = (0.1, 0.5, 0.9),
) -> float:
    """Mean quantile loss on the held-out examples with these settings, over a few levels."""
    _, models = quantile_models(training, held, shape, settings, levels)
    return float(np.mean([model.best_score["held"]["quantile"] for model in models]))


def _with(features: NDArray[np.float32], linear: Floats) -> NDArray[np.float32]:
    return np.concatenate([features, linear[:, None].astype(np.float32)], axis=1)


def _boost(
    training: tuple[Array, Array],
    held: tuple[Array, Array],
    names: Sequence[str],
    shape: Shape,
    parameters: Sequence[dict[str, Any]],
) -> list[Booster]:
    """One model a set of parameters, all on the same binned data, each stopped where the held-out loss is least."""
    import lightgbm

    inputs, target = training
    data = lightgbm.Dataset(
        inputs,
        target.astype(np.float64),
        feature_name=list(names),
        categorical_feature=list(shape.categorical),
        params=parameters[0],
        free_raw_data=False,
    )
    judge = data.create_valid(held[0], held[1].astype(np.float64))
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    return [
        lightgbm.train(p, data, TREES, valid_sets=[judge], valid_names=["held"], callbacks=[stop])
        for p in parameters
    ]
