"""The losses of a batch, which add up over persons."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Losses(NamedTuple):
    """The losses of a batch, or of some of its persons.

    Attributes:
        sums: Losses summed over tokens with a target, by their name in the log.
        counts: Numbers of these tokens.
        nll: Negative log-likelihood summed over tokens with a target.
        n_targets: Number of tokens with a target.
        objective: The loss that training minimises.
    """

    sums: dict[str, Tensor]
    counts: dict[str, Tensor]
    nll: Tensor
    n_targets: Tensor
    objective: Tensor

    @property
    def means(self) -> dict[str, Tensor]:
        """Losses averaged over tokens with a target."""
        return {name: self.sums[name] / n.clamp(min=1) for name, n in self.counts.items()}

    def __add__(self, other: Losses) -> Losses:  # type: ignore[override]
        """The losses of both groups of persons."""
        return Losses(
            {name: value + other.sums[name] for name, value in self.sums.items()},
            {name: value + other.counts[name] for name, value in self.counts.items()},
            self.nll + other.nll,
            self.n_targets + other.n_targets,
            self.objective + other.objective,
        )
