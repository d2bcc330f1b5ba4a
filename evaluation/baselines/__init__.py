"""The rival forecasters that the model is compared with, by name.

To add one, write a file with a class of the form `saga.evaluation.protocol.Baseline`, and register
it by its `name` in BASELINES and in MEANINGS, whose words are those of the page. `saga evaluate
--baselines NAME` then uses it, and `tests/evaluation/baselines/test_baselines.py` tests it with the
others (a short fit: `QUICK`). Describe it in `docs/method/baselines.md`.

Parts for all of them: `person_states.known_states` (known earnings of each person and year),
`origin_states.states_at` (the last ones before each origin), `realised_earnings` of
`saga.data.origins` (outcomes to learn from), `saga.keyed_random.uniform_rows` with
`origin_states.identities` (random numbers of each person), `origin_states.paths_of` (the result). A
forecast by outcomes of similar persons that needs the last known earnings alone is a subclass of
`naive.donor_base.DonorBaseline`, with its `base` and `groups`.
"""

from collections.abc import Callable

from saga.evaluation.baselines.econometric.abb import QuantileProcess
from saga.evaluation.baselines.econometric.ar1 import AutoRegression
from saga.evaluation.baselines.gkos.gkos import Gkos
from saga.evaluation.baselines.naive.carry import CarryForward
from saga.evaluation.baselines.naive.groupq import GroupQuantiles
from saga.evaluation.baselines.networks.deepar import DeepAR
from saga.evaluation.baselines.networks.trained_networks import LSTM, FeedForward
from saga.evaluation.baselines.trees.gbt import BoostedTrees
from saga.evaluation.protocol import Baseline

BASELINES: dict[str, Callable[[], Baseline]] = {
    "carry": CarryForward,
    "groupq": GroupQuantiles,
    "ar1": AutoRegression,
    "abb": QuantileProcess,
    "gbt": BoostedTrees,
    "deepar": DeepAR,
    "lstm": LSTM,
    "ff": FeedForward,
    "gkos": Gkos,
}
MEANINGS = {
    "carry": "last earnings, with the changes that are usual",
    "groupq": "quantiles of people of the same age and past earnings",
    "ar1": "autoregression",
    "abb": "the process of Arellano, Blundell and Bonhomme",
    "gkos": "the process of Guvenen, Karahan, Ozkan and Song",
    "gbt": "boosted trees",
    "ff": "a feed-forward network",
    "lstm": "a recurrent network",
    "deepar": "a recurrent network of another library",
}

__all__ = [
    "BASELINES",
    "LSTM",
    "MEANINGS",
    "AutoRegression",
    "BoostedTrees",
    "CarryForward",
    "DeepAR",
    "FeedForward",
    "Gkos",
    "GroupQuantiles",
    "QuantileProcess",
]
