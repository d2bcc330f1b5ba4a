"""The rival forecasters that the model is compared with, by name."""

from collections.abc import Callable

from evaluation.baselines.econometric.abb import QuantileProcess
from evaluation.baselines.econometric.ar1 import AutoRegression
from evaluation.baselines.gkos.gkos import Gkos, GkosPaper
from evaluation.baselines.naive.carry import CarryForward
from evaluation.baselines.naive.groupq import GroupQuantiles
from evaluation.baselines.networks.deepar import DeepAR
from evaluation.baselines.networks.trained_networks import LSTM, FeedForward
from evaluation.baselines.trees.gbt import BoostedTrees
from evaluation.protocol import Baseline

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
    "gkos-paper": GkosPaper,
}

__all__ = [
    "BASELINES",
    "LSTM",
    "AutoRegression",
    "BoostedTrees",
    "CarryForward",
    "DeepAR",
    "FeedForward",
    "Gkos",
    "GkosPaper",
    "GroupQuantiles",
    "QuantileProcess",
]
