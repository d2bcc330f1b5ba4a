"""Placebos: the same bundle, shown less than it should see, without training. Each must lose, or the model does not use what was hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.contestants import BLOCK, Model
from evaluation.scoring.comparison import VARIANT
from evaluation.scoring.metrics import LEVELS
from evaluation.scoring.sample_sets import Sets, sample_sets
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each, uniform_rows
from saga.paths import Paths
from saga.requests import Draws

WINDOW = 5
FEWEST = 10
WHEN = ("person_id", "year", "birth_year", "entry_year", "exit_year", "exit_reason")
PLACEBOS = {
    "permuted": "history permuted over the years",
    "window-5": "last 5 years only",
    "static": "sex, education and age only",
}


@dataclass(frozen=True)
class Placebo:
    """A bundle that sees `kind` of a record: "permuted" (the record's years in a random order) or "window-5" (its last five years)."""

    forecaster: Forecaster
    kind: str

    @property
    def name(self) -> str:
        """The placebo's row among the variants."""
        return VARIANT + self.kind

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of the bundle on the records that are left."""
        shown = permuted(past, seed) if self.kind == "permuted" else recent(past, origins)
        return Model(self.forecaster).blocks(
            shown, origins, to_horizon=to_horizon, paths=paths, seed=seed
        )


@dataclass(frozen=True)
class Static:
    """The bundle's forecast given static features alone: path k of a person is path k of somebody of the same kind, drawn anew for each k.

    That averages over the histories that such people have, which is what the bundle would know without any: the law of total
    probability. Kinds are age at the origin, sex and education level; where fewer than ten are of a kind, the age alone. Only
    `horizons` are forecast; the others are NaN.
    """

    forecaster: Forecaster
    horizons: Sequence[int]
    name: str = f"{VARIANT}static"

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of 256 persons, after the paths of all have been drawn at `horizons`."""
        at = np.asarray(self.horizons) - 1
        drawn = Paths.joined(
            [
                replace(block, earnings=np.ascontiguousarray(block.earnings[:, at]))
                for block in self.forecaster.blocks(past, Draws(paths, seed), to_horizon=to_horizon)
            ]
        )
        donors = donors_of(kinds(past, origins), origins.person_id, paths, seed)
        for start in range(0, len(drawn), BLOCK):
            block = drawn.take(slice(start, start + BLOCK))
            mixed = np.full((len(block), to_horizon, paths), np.nan, dtype=np.float32)
            mixed[:, at] = np.take_along_axis(
                drawn.earnings, donors[start : start + BLOCK, None, :], axis=0
            )
            yield replace(block, earnings=mixed), sample_sets(mixed, LEVELS)


def kinds(past: Panel, origins: Origins) -> NDArray[np.int64]:
    """The number of each person's kind (n,), in the order of `origins`."""
    known = past.frame.group_by("person_id").agg(
        pl.col("birth_year").first(),
        *(
            pl.col(name).drop_nulls().last().fill_null("unknown")
            for name in ("sex", "education_level")
        ),
    )
    people = origins.frame().join(known, on="person_id", how="left", maintain_order="left")
    age = (pl.col("origin") - pl.col("birth_year")).cast(pl.String)
    fine = people.with_columns(
        age=age, kind=pl.concat_str(age, "sex", "education_level", separator="|")
    )
    kind = pl.when(pl.len().over("kind") >= FEWEST).then("kind").otherwise("age")
    return (
        fine.select(kind.rank("dense").cast(pl.Int64))["kind"].to_numpy()
        if len(fine)
        else np.empty(0, dtype=np.int64)
    )


def donors_of(
    kind: NDArray[np.int64], person_id: NDArray[np.str_], paths: int, seed: int
) -> NDArray[np.int64]:
    """Rows (n, paths) of persons of the same kind, keyed by person and path."""
    order = np.argsort(kind, kind="stable")
    first = np.searchsorted(kind[order], kind)
    count = np.searchsorted(kind[order], kind, side="right") - first
    place = uniform_rows(paths, person_id.tolist(), "static-placebo", seed)
    return np.asarray(order[first[:, None] + (place * count[:, None]).astype(np.int64)])


def permuted(panel: Panel, seed: int) -> Panel:
    """Every person's records in a keyed random order over the same years; who and when stay."""
    frame = panel.frame
    place = pl.Series(
        "place",
        uniform_each(
            list(frame.select("person_id", pl.col("year").cast(pl.Int64)).iter_rows()),
            "permuted",
            seed,
        ),
    )
    shuffled = (
        frame.with_columns(place).sort("person_id", "place").select(pl.exclude(*WHEN, "place"))
    )
    return panel.with_frame(
        pl.concat([frame.select(WHEN), shuffled], how="horizontal").select(frame.columns)
    )


def recent(panel: Panel, origins: Origins) -> Panel:
    """The last five calendar years of every record, and its last row with earnings where that is older."""
    rows = panel.frame.join(origins.frame(), on="person_id", maintain_order="left")
    last = pl.col("year").filter(pl.col("earnings").is_not_null()).max().over("person_id")
    kept = rows.filter((pl.col("year") > pl.col("origin") - WINDOW) | (pl.col("year") == last))
    return panel.with_frame(kept.select(panel.frame.columns))
