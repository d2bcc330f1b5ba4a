"""Boosted trees for one horizon (Ke et al. 2017): a zero classifier and quantile models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Array, Floats
from saga.errors import BundleError
from saga.requests import QUANTILES
from saga.small_groups import pooled_values
from saga.trees.recent_years import YEARS, Window
from saga.trees.tree_texts import END, LARGEST, checked_tree_text

if TYPE_CHECKING:
    from lightgbm import Booster

TREES = 1000  # largest number of trees of a model
PATIENCE = 20  # trees without a lower held-out loss after which a model stops
RARE = 50  # with fewer zeros or fewer amounts their share is used instead of a classifier
_SIMPLE, _CLASSIFIER = "simple", "zero"  # names of texts beside the quantiles
_JUDGED_QUANTILES = (0.1, 0.5, 0.9)  # by whose loss settings are chosen
N_INPUTS = YEARS + YEARS // 2 + 6  # of the regression
RIDGE = 1e-3  # penalty per example of the linear regression


@dataclass(frozen=True, eq=False)
class Examples:
    """Origins with outcomes at one horizon.

    Args:
        features: (n, F), see `Window`.
        log: (n,), log of the amount divided by the origin year's median, -inf for zero.
        person: (n,), number of the person.
    """

    features: NDArray[np.float32]
    log: Floats
    person: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.log)

    def take(self, rows: Any) -> Examples:
        """The examples in `rows`: an index, mask or slice."""
        return Examples(self.features[rows], self.log[rows], self.person[rows])

    def pooled(self, exact: Sequence[int]) -> Examples:
        """The same with features, but the columns `exact`, as means of ten persons or more.

        So no threshold of a tree lies between the values of single persons.
        """
        columns = [
            column if j in exact else pooled_values(column, self.person)
            for j, column in enumerate(self.features.T)
        ]
        return replace(self, features=np.stack(columns, axis=1))

    @property
    def positive(self) -> Examples:
        """The examples with a positive amount."""
        return self.take(self.log > -np.inf)


@dataclass(frozen=True)
class Settings:
    """Settings of LightGBM.

    Args:
        leaves: leaves per tree.
        rate: learning rate.
        share: share of the features that a tree may use, drawn for each tree.
        threads: number of threads; 0: OpenMP's default. Results do not depend on it.
        seed: seed of LightGBM.
    """

    leaves: int
    rate: float
    threads: int
    seed: int
    share: float = 1.0

    def parameters(self, n: int) -> dict[str, Any]:
        """LightGBM's parameters for n examples."""
        return {
            "num_leaves": self.leaves,
            "learning_rate": self.rate,
            **({} if self.share == 1 else {"feature_fraction": self.share}),
            "min_data_in_leaf": int(np.clip(n // 500, 20, 100)),
            "num_threads": self.threads,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


class Linear:
    """Ridge regression of log amounts on the window's past amounts.

    The trees model its residual, because they can approximate a linear trend by steps only.
    """

    def __init__(self, names: Sequence[str], weights: Floats) -> None:
        column = {name: i for i, name in enumerate(names)}
        self.weights = weights
        self._age = column["age"]
        self._level = [column[f"level_{lag}"] for lag in range(YEARS)]
        self._zero = [column[f"zero_{lag}"] for lag in range(YEARS // 2)]
        self._mean = [column["window_mean"], column["mean_level"]]

    @classmethod
    def fit(cls, examples: Examples, window: Window) -> Self:
        """Learn from the examples."""
        linear = cls(window.names, np.zeros(0))
        inputs = linear._inputs(examples.features)
        # The very negative logs of a few tiny amounts would dominate the regression.
        target = np.maximum(examples.log, window.lowest)
        penalty = RIDGE * len(inputs) * np.eye(inputs.shape[1])
        solved = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ target)
        linear.weights = np.asarray(solved, dtype=np.float64)
        return linear

    def predict(self, features: NDArray[np.float32]) -> Floats:
        """Predictions (n,); the prediction for a person does not depend on the other persons."""
        return np.asarray((self._inputs(features) * self.weights).sum(axis=1))

    def _inputs(self, features: NDArray[np.float32]) -> Floats:
        x = features.astype(np.float64)
        mean = np.nan_to_num(x[:, self._mean])
        levels = np.where(np.isnan(x[:, self._level]), mean[:, :1], x[:, self._level])
        age = x[:, [self._age]] / 50
        return np.concatenate(
            [levels, np.nan_to_num(x[:, self._zero]), mean, age, age**2, age**3, np.ones_like(age)],
            axis=1,
        )


@dataclass(frozen=True, eq=False)
class HorizonTrees:
    """The models of one horizon.

    Args:
        share: share of zeros, used if there is no classifier.
        classifier: of zeros, or None.
        linear: forecast of log amounts, whose residuals the quantile models forecast.
        quantiles: a model for each of QUANTILES.
    """

    share: float
    classifier: Booster | None
    linear: Linear
    quantiles: Sequence[Booster]

    @classmethod
    def fit(
        cls, training: Examples, stop: Examples | HorizonTrees, window: Window, settings: Settings
    ) -> Self:
        """Learn from `training`; held-out examples decide when each model stops.

        Instead of held-out examples, `stop` may be models of an earlier fit: then there are as many
        trees, and a classifier of zeros, as these have.
        """
        zeros, classifier = training.log == -np.inf, None
        if isinstance(stop, HorizonTrees):
            share, needs_classifier = zeros.mean(), stop.classifier is not None
        else:
            share = np.concatenate([zeros, stop.log == -np.inf]).mean()
            needs_classifier = RARE <= zeros.sum() <= len(zeros) - RARE
        if needs_classifier:
            classifier = _boost_classifier(training, window, settings, stop)
        linear = Linear.fit(training.positive, window)
        models = _boost_quantiles(training, linear, window, settings, QUANTILES, stop)
        return cls(float(share), classifier, linear, models)

    def as_texts(self) -> dict[str, str]:
        """The models as texts by name: JSON, or LightGBM's format up to the end of the trees."""
        texts = {_SIMPLE: json.dumps({"share": self.share, "linear": self.linear.weights.tolist()})}
        if self.classifier is not None:
            texts[_CLASSIFIER] = _text_without_ranges(self.classifier)
        quantiles = zip(QUANTILES, self.quantiles, strict=True)
        return texts | {
            f"{quantile:g}": _text_without_ranges(model) for quantile, model in quantiles
        }

    @classmethod
    def from_texts(cls, texts: Mapping[str, str], names: Sequence[str]) -> Self:
        """The models of `as_texts` for features of these names; ImportError without LightGBM.

        Raises BundleError for other texts.
        """
        from lightgbm import Booster

        try:
            simple, classifier = json.loads(texts[_SIMPLE]), texts.get(_CLASSIFIER)
            linear = Linear(names, np.array(simple["linear"], dtype=np.float64))
            quantiles = [texts[f"{quantile:g}"] for quantile in QUANTILES]
            share = float(simple["share"])
            is_linear = linear.weights.shape == (N_INPUTS,)
            if not (is_linear and (np.abs(linear.weights) <= LARGEST).all() and 0 <= share <= 1):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise BundleError(
                "trees.parquet of the bundle lacks a valid model. Restore the bundle."
            ) from None

        def booster(text: str, features: Sequence[str]) -> Booster:
            return Booster(model_str=checked_tree_text(text, features))

        return cls(
            share,
            None if classifier is None else booster(classifier, names),
            linear,
            [booster(text, [*names, "linear"]) for text in quantiles],
        )

    def predict(self, features: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Probability of zero (n,), and log amounts (n, 9) at QUANTILES, which may cross.

        Amounts are relative to the origin year's median.
        """
        linear = self.linear.predict(features)
        inputs = _append(features, linear)
        zero = np.full(len(features), self.share)
        if self.classifier is not None:
            zero = np.asarray(self.classifier.predict(features, num_threads=1))
        return zero, np.stack(
            [linear + np.asarray(model.predict(inputs, num_threads=1)) for model in self.quantiles],
            axis=1,
        )


def _text_without_ranges(model: Booster) -> str:
    """The trees of the model as text, without LightGBM's settings, one of which is the seed.

    The smallest and the largest value of a feature, which are left out, are one person's each.
    """
    trees = model.model_to_string().partition(END)[0] + END
    hide = partial(re.sub, r"\[[^\]]*\]", "[0:1]")
    return re.sub("^feature_infos=.*", lambda line: hide(line[0]), trees, flags=re.MULTILINE)


# Examples whose least loss stops each model, or models with as many trees.
Stop = Examples | HorizonTrees


def _boost_classifier(
    training: Examples, window: Window, settings: Settings, stop: Stop
) -> Booster:
    """A model of the probability of zero."""
    parameters = {"objective": "binary", **settings.parameters(len(training))}
    # LightGBM only estimates how many examples a leaf of a classifier has. It knows the sum of
    # their p (1 - p), each of which is a quarter at most.
    parameters["min_sum_hessian_in_leaf"] = parameters["min_data_in_leaf"] / 4

    def data(examples: Examples) -> tuple[Array, Array]:
        return examples.features, examples.log == -np.inf

    earlier = [stop.classifier] if isinstance(stop, HorizonTrees) else stop
    (model,) = _boost(data, training, window.names, window, [parameters], earlier)
    return model


def _boost_quantiles(
    training: Examples,
    linear: Linear,
    window: Window,
    settings: Settings,
    quantiles: Sequence[float],
    stop: Stop,
) -> list[Booster]:
    """A model per quantile of the residual of `linear`, of the positive amounts."""
    common = settings.parameters(len(training.positive))
    parameters = [{"objective": "quantile", "alpha": q, **common} for q in quantiles]

    def data(examples: Examples) -> tuple[Array, Array]:
        positive = examples.positive
        forecast = linear.predict(positive.features)
        inputs = forecast if examples is not training else pooled_values(forecast, positive.person)
        return _append(positive.features, inputs), positive.log - forecast

    earlier = stop.quantiles if isinstance(stop, HorizonTrees) else stop
    return _boost(data, training, [*window.names, "linear"], window, parameters, earlier)


def held_out_loss(
    training: Examples, held_out: Examples, window: Window, settings: Settings
) -> float:
    """Mean quantile loss on the held-out examples with these settings."""
    linear = Linear.fit(training.positive, window)
    models = _boost_quantiles(training, linear, window, settings, _JUDGED_QUANTILES, held_out)
    return float(np.mean([model.best_score["held"]["quantile"] for model in models]))


def _append(features: NDArray[np.float32], linear: Floats) -> NDArray[np.float32]:
    return np.concatenate([features, linear[:, None].astype(np.float32)], axis=1)


def _boost(
    data: Callable[[Examples], tuple[Array, Array]],
    training: Examples,
    names: Sequence[str],
    window: Window,
    parameters: Sequence[dict[str, Any]],
    stop: Examples | Sequence[Booster | None],
) -> list[Booster]:
    """A model for each set of parameters; `data` gives the inputs and targets of examples."""
    import lightgbm

    inputs, target = data(training)
    dataset = lightgbm.Dataset(
        inputs,
        target.astype(np.float64),
        feature_name=list(names),
        categorical_feature=list(window.categorical),
        params=parameters[0],
        free_raw_data=False,
    )
    if not isinstance(stop, Examples):
        sizes = [model.best_iteration for model in stop if model is not None]
        pairs = zip(parameters, sizes, strict=True)
        return [lightgbm.train(p, dataset, size) for p, size in pairs]
    inputs, target = data(stop)
    validation = dataset.create_valid(inputs, target.astype(np.float64))
    early = lightgbm.early_stopping(PATIENCE, verbose=False)
    return [
        lightgbm.train(
            p, dataset, TREES, valid_sets=[validation], valid_names=["held"], callbacks=[early]
        )
        for p in parameters
    ]
