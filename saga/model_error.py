"""The model's own error of group statistics, from vintages: forecasts of models of earlier years.

A vintage is a model fitted on the years up to a cut-off and judged by what groups earned later.
The error of a statistic has parts that bands know: persons, their own futures, the economy. What
its mean square is beyond them is the model's: a bias counts like spread, because nobody knows the
next one. With q(h) the mean over vintages of error^2 - se^2 - sd_economy^2, each vintage the mean
over its groups weighted by persons, and n(h) the number of vintages h years or more apart,

    variance(h) = (n(h) q(h) + 4 b h) / (n(h) + 4), at least 0,

where b = sum n(h) q(h) / h / sum n(h): few vintages are drawn towards an error that grows by
independent steps. Vintages of different histories (drawn ones of a simulated register) do not
overlap. The deviation is multiplied by the ratio of the 95 % quantiles of Student's t and the
normal distribution, with min(n(h) + 4, largest n) degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl

from saga.group_statistics import ALL_STATISTICS
from saga.special import ndtri

MIN_VINTAGES = 3
_PRIOR = 4.0  # vintages that the common growth of the error counts as
EVERYBODY, GROUPS = "everybody", "groups"


def scale_of(statistic: str, value: float) -> float:
    """What errors of a statistic are divided by: the forecast for amounts and ratios, else 1."""
    known = ALL_STATISTICS[statistic]
    return 1.0 if known.is_fraction or known.unit == "gap" else abs(value) or 1.0


def separate(cutoffs: Sequence[int], horizon: int) -> int:
    """How many of these years, ascending, are `horizon` years or more apart."""
    count, last = 0, -np.inf
    for year in cutoffs:
        if year >= last + horizon:
            count, last = count + 1, year
    return count


@dataclass(frozen=True)
class ModelError:
    """Standard deviations of the model's own error.

    Attributes:
        cutoffs: The last years of the vintages.
        histories: How many histories they are of: 1, or several drawn ones of a register.
        separate: By horizon, how many of them do not overlap.
        deviations: Statistic -> "everybody" or "groups" -> horizon -> standard deviation, relative
            for amounts and ratios. Horizons are texts, as in JSON.
    """

    cutoffs: Sequence[int]
    separate: Mapping[str, int]
    deviations: Mapping[str, Mapping[str, Mapping[str, float]]]
    histories: int = 1

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> Self | None:
        """That in the provenance of paths; None: it is not known."""
        stored = provenance.get("vintages")
        return None if stored is None else cls(**stored)

    @classmethod
    def fit(cls, errors: pl.DataFrame) -> Self:
        """From rows of `saga.evaluation.group_errors` with the column `cutoff`.

        A column `history` numbers the histories, if there are several.
        """
        if "history" not in errors.columns:
            errors = errors.with_columns(history=pl.lit(0))
        beyond = pl.col("error") ** 2 - pl.col("se") ** 2 - pl.col("sd_economy") ** 2
        everybody = pl.col("grouping") == "total"
        known = errors.with_columns(
            beyond=beyond,
            of=pl.when(everybody).then(pl.lit(EVERYBODY)).otherwise(pl.lit(GROUPS)),
        ).filter(pl.col("beyond").is_finite())
        cell, n = ["statistic", "of", "horizon"], pl.col("persons")
        cells = (
            known.sort(*cell, "history", "cutoff", maintain_order=True)
            .group_by(*cell, "history", "cutoff", maintain_order=True)  # so sums keep their bits
            .agg(beyond=(n * pl.col("beyond")).sum() / n.sum())
            .group_by(*cell, "history", maintain_order=True)
            .agg(pl.col("beyond"), cutoffs=pl.col("cutoff").sort())
            .group_by(cell, maintain_order=True)
            .agg(q=pl.col("beyond").explode().mean(), cutoffs=pl.col("cutoffs"))
        )
        deviations: dict[str, dict[str, dict[str, float]]] = {}
        counts: dict[str, int] = {}
        for (name, of), rows in cells.group_by("statistic", "of", maintain_order=True):
            h, q = rows["horizon"].to_numpy(), rows["q"].to_numpy()
            n_apart = [
                sum(separate(years, at) for years in of_histories)
                for of_histories, at in zip(rows["cutoffs"], h, strict=True)
            ]
            counts |= dict(zip(map(str, h.tolist()), n_apart, strict=True))
            deviations.setdefault(str(name), {})[str(of)] = dict(
                zip(map(str, h.tolist()), _deviations(h, q, np.array(n_apart)), strict=True)
            )
        cutoffs = errors["cutoff"].unique().sort().to_list()
        return cls(cutoffs, counts, deviations, errors["history"].n_unique())

    def describe(self) -> str:
        """How many vintages there are, in words."""
        apart = ", ".join(f"{self.separate[h]} at {h}" for h in sorted(self.separate, key=int))
        years = "-".join(dict.fromkeys(str(self.cutoffs[at]) for at in (0, -1)))
        of = f" of {self.histories} drawn histories" if self.histories > 1 else ""
        number = f"{n} vintages" if (n := len(self.cutoffs)) > 1 else "1 vintage"
        return f"{number} ({years}){of}; without overlap, by years ahead: {apart}"

    def sd(
        self, statistic: str, of: str, amounts: Mapping[int, float], size: float
    ) -> float | None:
        """The deviation of a statistic of one year, or of a sum over years; None: unknown.

        The error grows by independent steps, so that of a sum is that of each step times the share
        of what comes after it. Between horizons of the vintages variances are interpolated, and
        beyond the last one they grow as from the origin to it. The gap of two groups moves as their
        ratio does while their sum stays.

        Args:
            statistic: Its name in tables.
            of: "everybody" or "groups".
            amounts: Years ahead, ascending -> what the year adds to the sum; of one year {h: 1.0}.
            size: The forecast, of a gap the mean of both groups (`PathStatistic.size`).
        """
        if statistic == "persons":
            return 0.0
        like = ALL_STATISTICS[statistic].like or statistic
        known = self.deviations.get(like, {}).get(of)
        if known is None:
            return None
        # Texts may have been sorted as texts since: 1, 10, 20, 5.
        judged = [(0, 0.0), *sorted((int(horizon), sd) for horizon, sd in known.items())]
        at, deviations = np.array(judged, dtype=float).T
        variance, years = deviations**2, np.array(list(amounts), dtype=float)
        steps = np.diff(np.interp(years, at, variance) * np.maximum(years / at[-1], 1), prepend=0.0)
        later = np.cumsum(list(amounts.values())[::-1])[::-1]  # from each year on
        share = later / (later[:1].sum() or 1.0)
        return float(np.sqrt(max((steps * share**2).sum(), 0.0))) * scale_of(like, size)


def _deviations(h: np.ndarray, q: np.ndarray, n: np.ndarray) -> list[float]:
    from scipy.special import stdtrit  # takes long to import, and only tables need it

    growth = (n * q / h).sum() / n.sum()
    variance = np.maximum((n * q + _PRIOR * growth * h) / (n + _PRIOR), 0.0)
    width = stdtrit(np.minimum(n + _PRIOR, n.max()), 0.95) / ndtri(0.95)
    return [float(value) for value in np.sqrt(variance) * width]
