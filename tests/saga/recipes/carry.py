"""A small product for the batch engine: the last known earnings with keyed noise.

It is a module of its own, because worker processes import it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from saga.batch.products import ProductComputation, Recipe
from saga.data.panel import Panel
from saga.errors import BundleError
from saga.forecast_results import Result
from saga.forecast_warnings import ForecastWarning
from saga.keyed_random import uniform_each


@dataclass(frozen=True)
class Carry(Recipe):
    """Two rows per person, without a bundle.

    `seconds` is the time that a partition takes; `fault` is a person that the product loses, or
    "open" for an error when it is opened, or "die" for a process that ends in its work.
    """

    bundle: str | Path = ""
    seed: int = 0
    seconds: float = 0.0
    fault: str = ""

    def describe(self) -> dict[str, Any]:
        return {"product": "carry", "seed": self.seed}

    def largest_partition(self) -> int:
        return 1000

    def open(self) -> CarryComputation:
        if self.fault == "open":
            raise BundleError("there is no bundle")
        return CarryComputation(self)


class CarryComputation(ProductComputation):
    def __init__(self, recipe: Carry) -> None:
        self.carried = recipe

    def ineligible(self, panel: Panel) -> dict[str, str]:
        last = panel.frame.group_by("person_id").agg(pl.col("earnings").is_not_null().any())
        return dict.fromkeys(last.filter(~pl.col("earnings"))["person_id"], "no-earnings")

    @property
    def concurrent(self) -> bool:
        return True

    def compute(self, panel: Panel) -> Result:
        time.sleep(self.carried.seconds)
        if self.carried.fault == "die":
            os._exit(1)
        last = panel.frame.group_by("person_id", maintain_order=True).agg(
            pl.col("earnings").drop_nulls().last()
        )
        last = last.filter(pl.col("person_id") != self.carried.fault)
        noise = pl.Series("noise", uniform_each(last["person_id"], "carry", self.carried.seed))
        table = last.with_columns(noise, horizon=pl.lit([1, 2])).explode("horizon")
        rows = table.select(
            "person_id",
            "horizon",
            mean=pl.col("earnings") * (1 + pl.col("noise")) / pl.col("horizon"),
        )
        warning = ForecastWarning("unit", "The amounts are small.", count=len(panel.persons()))
        return Result(rows, (warning,), panel, {"seed": self.carried.seed})
