"""Profiles for GKOS: processes that match the zeros and mean earnings of every age and group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from saga.evaluation.baselines.gkos.gkos_moments import AGES
from saga.evaluation.baselines.gkos.gkos_records import smoothed_ratio
from saga.evaluation.baselines.gkos.gkos_smm import (
    PUBLISHED,
    CareerDraws,
    ProfiledProcess,
    intercepts_for,
    process_of,
)
from saga.evaluation.textbook.gkos_process import GkosProcess

from saga.arrays import Array, Floats


@dataclass(frozen=True, eq=False)
class Profiles:
    """Share of zeros and mean log earnings of each age (A of them, 20..64) in each of E groups.

    Args:
        zeros: (E, A), share of zeros.
        level: (E, A), mean log of earnings of at least `minimum`.
        minimum: Lowest earnings that count as work.
    """

    zeros: Floats
    level: Floats
    minimum: float

    @classmethod
    def of(cls, earnings: Floats, group: Array, minimum: float) -> Profiles:
        """From records (n, A) and the group (n,) of each person; see `smoothed_ratio`."""
        zeros, level = [], []
        for e in range(group.max() + 1):
            y = earnings[group == e]
            works = y >= minimum
            zeros.append(smoothed_ratio((y == 0).sum(axis=0), np.isfinite(y).sum(axis=0)))
            level.append(
                smoothed_ratio(
                    np.where(works, np.log(np.maximum(y, minimum)), 0.0).sum(axis=0),
                    works.sum(axis=0),
                )
            )
        return cls(np.array(zeros), np.array(level), minimum)

    def processes(
        self, values: dict[str, float], draws: CareerDraws, slices: list[slice]
    ) -> list[tuple[ProfiledProcess, Floats]]:
        """A process per group that matches the zeros, with mean logs of zero, and careers (n, A).

        Args:
            values: Parameters of the shocks and of non-employment; others are as published.
            draws: Random numbers of the careers.
            slices: The careers of each group among `draws`.
        """
        base = process_of(PUBLISHED | values, 1.0)
        z = np.sort(draws.persistent(base), axis=1)
        points = z[:, ((np.arange(64) + 0.5) / 64 * z.shape[1]).astype(np.int64)]
        _, _, c, d = base.nonemployment
        slope = (c + d * base.time(AGES))[:, None] * points
        share = shock_probability(self.zeros, base)
        processes = []
        for intercepts, members in zip(intercepts_for(share, slope), slices, strict=True):
            process = ProfiledProcess.of(base, np.zeros(len(AGES)), intercepts)
            processes.append((process, draws.careers(process, members)))
        return processes

    def shift(self, group: int, earnings: Floats) -> tuple[Floats, Floats]:
        """Records (n, A) shifted to the group's mean log earnings, and the shifts of logs (A,)."""
        logs = np.where(earnings > 0, np.log(np.where(earnings > 0, earnings, 1.0)), -np.inf)
        level, works = self.level[group], np.isfinite(logs)
        for _ in range(4):
            level = self.level[group] - smoothed_ratio(
                np.where(works, logs, 0.0).sum(axis=0), works.sum(axis=0)
            )
            works = logs + level >= np.log(self.minimum)
        return earnings * np.exp(level), level


def shock_probability(zeros: Floats | float, process: GkosProcess) -> Floats:
    """Probability of a shock of non-employment that gives a share `zeros` of full years.

    A shock lasts the full year with probability exp(-lambda).
    """
    return np.asarray(np.clip(zeros * np.exp(process.rate), 1e-9, 0.99))
