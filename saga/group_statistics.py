"""The statistics of groups: names, meanings and units; tables, pages and events read them here.

To add one, add its entry, and its values in `PersonPaths.statistics` of
`saga.population.cell_statistics`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class GroupStatistic:
    """What a statistic says, and how it is limited, rounded and written.

    Args:
        meaning: What it is, as the heading of its table.
        unit: "amount", or "gap" if it may be negative, in money; "share" and "coefficient" are from
            0 to 1.
        like: The statistic whose model error it is taken to have; None: its own.
    """

    meaning: str
    unit: Literal["persons", "amount", "gap", "share", "coefficient", "ratio"] = "amount"
    like: str | None = None

    @property
    def is_money(self) -> bool:
        """Whether it is in money."""
        return self.unit in ("amount", "gap")

    @property
    def limits(self) -> tuple[float, float]:
        """The least and largest value."""
        return -math.inf if self.unit == "gap" else 0.0, 1.0 if self.is_fraction else math.inf

    @property
    def is_fraction(self) -> bool:
        """Whether it is from 0 to 1."""
        return self.unit in ("share", "coefficient")


GROUP_STATISTICS = {
    "persons": GroupStatistic("Number of persons", "persons"),
    "total": GroupStatistic("Sum of earnings", like="mean"),
    "mean": GroupStatistic("Mean earnings, zeros counted"),
    **{
        f"p{share}": GroupStatistic(f"{share} % of persons earn less than", like="mean")
        for share in (10, 25, 50, 75, 90)
    },
    "gini": GroupStatistic("Gini coefficient, zeros counted", "coefficient"),
    "zero_share": GroupStatistic("Share of persons without earnings", "share"),
    "poverty_share": GroupStatistic(
        "Share of persons with less than 60 % of the median of all", "share"
    ),
}
PENSIONABLE_STATISTICS = {  # of tables by base amounts
    "pensionable_total": GroupStatistic(
        "Sum of pensionable earnings (of the pension rule: without fee, up to the ceiling)",
        like="mean",
    ),
    "pensionable_mean": GroupStatistic("Mean pensionable earnings, zeros counted", like="mean"),
}
COMPARISONS = {
    "mean_ratio": GroupStatistic("Mean earnings of one group over those of another", "ratio"),
    "mean_gap": GroupStatistic(
        "Mean earnings of one group minus those of another", "gap", "mean_ratio"
    ),
    "p50_ratio": GroupStatistic(
        "Median earnings of one group over those of another", "ratio", "mean_ratio"
    ),
    "p50_gap": GroupStatistic(
        "Median earnings of one group minus those of another", "gap", "mean_ratio"
    ),
}
LIFETIME_STATISTICS = {
    "lifetime_mean": GroupStatistic("Mean present value of future earnings", like="mean"),
    **{
        f"lifetime_p{share}": GroupStatistic(
            f"{share} % of persons have a present value of less than", like="mean"
        )
        for share in (10, 50, 90)
    },
    "lifetime_gini": GroupStatistic("Gini coefficient of present values", "coefficient", "gini"),
    "lifetime_net_mean": GroupStatistic(
        "Mean present value of future earnings after tax", like="mean"
    ),
}
LIFETIME_COMPARISONS = {
    "lifetime_mean_ratio": GroupStatistic(
        "Mean present value of one group over that of another", "ratio", "mean_ratio"
    ),
    "lifetime_mean_gap": GroupStatistic(
        "Mean present value of one group minus that of another", "gap", "mean_ratio"
    ),
    "lifetime_p50_ratio": GroupStatistic(
        "Median present value of one group over that of another", "ratio", "mean_ratio"
    ),
    "lifetime_p50_gap": GroupStatistic(
        "Median present value of one group minus that of another", "gap", "mean_ratio"
    ),
}
OF_YEARS = GROUP_STATISTICS | PENSIONABLE_STATISTICS | COMPARISONS
OF_LIFETIMES = LIFETIME_STATISTICS | LIFETIME_COMPARISONS
ALL_STATISTICS = OF_YEARS | OF_LIFETIMES
