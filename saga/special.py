"""Special functions, as in scipy.special, whose import would take a tenth of a short forecast."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from saga.arrays import Floats


def ndtri(p: ArrayLike) -> Floats:
    """Quantile of the standard normal distribution at probabilities (...,); infinite at 0 and 1."""
    quantiles: Floats = torch.special.ndtri(torch.as_tensor(np.asarray(p, np.float64))).numpy()
    return quantiles


def expit(x: NDArray[Any]) -> Floats:
    """Inverse of `logit`: probability (...,) with log odds `x`."""
    with np.errstate(over="ignore"):  # exp(-x) is infinite for very low odds
        return np.asarray(1 / (1 + np.exp(-x)), dtype=np.float64)


def logit(p: NDArray[Any]) -> Floats:
    """Log odds (...,) of probabilities; infinite at 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p), dtype=np.float64)
