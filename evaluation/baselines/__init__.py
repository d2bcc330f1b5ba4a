"""The rival forecasters that the model is compared with, by name."""

from collections.abc import Callable

from saga.evaluation.baselines.econometric.abb import QuantileProcess
from saga.evaluation.baselines.econometric.ar1 import AutoRegression
from saga.evaluation.baselines.gkos.gkos import Gkos, GkosPaper
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
