"""The direct forecast: the distribution of a year up to thirty years ahead, in one evaluation.

A rollout simulates the years between, and its random draws make every marginal noisy. The direct
forecast draws nothing but macro futures: a marginal is the average over them. Paths are then mapped
to these marginals (`saga.conformal.recalibration`).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from saga.model.heads.head import Head, Predictive
from saga.schema import MIN_AGE, N_AGES


class DirectForecast(nn.Module):
    """A head of its own for horizons 1..30, which also receives the age in the target year."""

    def __init__(self, width: int, head: Head[Any]) -> None:
        super().__init__()
        self.age = nn.Embedding(N_AGES, width)
        self.head = head

    def forward(self, hidden: Tensor, horizon: Tensor, age: Tensor, macro: Tensor) -> Predictive:
        """Distributions of the target years; leading shapes broadcast.

        Args:
            hidden: Hidden states at the origins (..., d).
            horizon: Years from the origin to the target year (...,), 1 to 30.
            age: Ages in the target year (...,).
            macro: Covariates (..., 7), see `saga.features.calendar.path_features`.
        """
        at_age = self.age((age - MIN_AGE).clamp(0, N_AGES - 1))
        predictive: Predictive = self.head(hidden + at_age, horizon, macro)
        return predictive
