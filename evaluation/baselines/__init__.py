"""Forecasters that the model must beat, each given its best shot."""

from collections.abc import Callable

from evaluation.baselines.abb import QuantileProcess
from evaluation.baselines.ar1 import AutoRegression
from evaluation.baselines.carry import CarryForward
from evaluation.baselines.deepar import DeepAR
from evaluation.baselines.gbt import BoostedTrees
from evaluation.baselines.gkos import Gkos, GkosPaper
from evaluation.baselines.groupq import GroupQuantiles
from evaluation.baselines.networks import LSTM, FeedForward
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
