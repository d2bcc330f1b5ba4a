"""Trees of one horizon: what their leaves rest on."""

from __future__ import annotations

import re

import numpy as np
import pytest

from saga.trees.horizon_trees import Examples, HorizonTrees, Settings
from saga.trees.recent_years import Window
from tests.saga.trees.test_tree_member import panel_of


@pytest.mark.thorough
def test_no_leaf_rests_on_fewer_than_twenty_origins_however_rare_zeros_are() -> None:
    """LightGBM estimates the examples of a classifier's leaf, so its own limit is not enough."""
    rng, window = np.random.default_rng(4), Window(panel_of(50, 1))
    n, names = 4_000, window.names
    features = rng.normal(size=(n, len(names))).astype(np.float32)
    features[:, [names.index(name) for name in window.categorical]] = 0
    rank = features[:, 0] + features[:, 1]
    is_zero = rng.random(n) < 1 / (1 + np.exp(4 - 3 * rank))  # from .01 % to 99 %
    log = np.where(is_zero, -np.inf, 12 + 0.3 * rank + rng.normal(0, 0.2, n))
    examples = Examples(features, log, np.arange(n))
    training, stop = examples.take(slice(3_000)), examples.take(slice(3_000, None))

    trees = HorizonTrees.fit(training, stop, window, Settings(31, 0.1, threads=1, seed=0))

    for name, text in trees.as_texts().items():
        for counts in re.findall(r"^leaf_count=(.*)$", text, re.MULTILINE):
            assert min(map(int, counts.split())) >= 20, name
