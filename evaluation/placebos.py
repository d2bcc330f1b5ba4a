"""Placebos: forecasts of the same bundle, without further training, from reduced records.

Each placebo must have worse scores than the bundle; otherwise the model does not use the
information that the placebo hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.contestants import BLOCK, Blocks, BundleContestant
from evaluation.scoring.comparison import VARIANT
from evaluation.scoring.sample_sets import sets_from_samples
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each, uniform_rows
from saga.paths import Paths
from saga.requests import COVERAGE, Draws

PLACEBOS_VERSION = 1  # raise it when a placebo's numbers may change (see `evaluation.cache`)
WINDOW = 5  # calendar years
FEWEST_OF_KIND = 10  # persons
# Columns that are not permuted.
IDENTITY = ("person_id", "year", "birth_year", "entry_year", "exit_year", "exit_reason")
PLACEBOS = {
    "permuted": "history permuted over the years",
    "window-5": "last 5 years only",
    "static": "sex, education and age only",
}


@dataclass(frozen=True)
class YearsPlacebo:
    """The bundle with changed years in the record.

    With `kind` "permuted" the record's years are in a random order; with "window-5" only its last
    five years remain.
    """

    forecaster: Forecaster
    kind: str

    @property
    def name(self) -> str:
        """The placebo's row among the variants."""
        return VARIANT + self.kind

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Blocks:
        """Blocks of the bundle on the changed records."""
        is_permuted = self.kind == "permuted"
        changed = permute_years(past, seed) if is_permuted else last_years(past, origins)
        return BundleContestant(self.forecaster).blocks(
            changed, origins, to_horizon=to_horizon, n_paths=n_paths, seed=seed
        )


@dataclass(frozen=True)
class StaticPlacebo:
    """The bundle's forecast given static features alone.

    Path k of a person is path k of a donor of the same kind; the donor is drawn for each k. By the
    law of total probability this averages over the histories of such persons. A kind is age at the
    origin, sex and education level, or age alone if fewer than ten persons are of that kind.
    Horizons other than `horizons` are NaN.
    """

    forecaster: Forecaster
    horizons: Sequence[int]
    name: str = f"{VARIANT}static"

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Blocks:
        """Blocks of 256 persons, after the paths of all persons at `horizons` are simulated."""
        columns = np.asarray(self.horizons) - 1
        blocks = self.forecaster.blocks(past, Draws(n_paths, seed), to_horizon=to_horizon)
        simulated = Paths.joined(
            [
                replace(block, earnings=np.ascontiguousarray(block.earnings[:, columns]))
                for block in blocks
            ]
        )
        donors = draw_donors(number_kinds(past, origins), origins.person_id, n_paths, seed)
        for start in range(0, len(simulated), BLOCK):
            block = simulated.take(slice(start, start + BLOCK))
            mixed = np.full((len(block), to_horizon, n_paths), np.nan, dtype=np.float32)
            mixed[:, columns] = np.take_along_axis(
                simulated.earnings, donors[start : start + BLOCK, None, :], axis=0
            )
            yield replace(block, earnings=mixed), sets_from_samples(mixed, COVERAGE)


def number_kinds(past: Panel, origins: Origins) -> NDArray[np.int64]:
    """The number of each person's kind (n,), in the order of `origins`."""
    features = past.frame.group_by("person_id").agg(
        pl.col("birth_year").first(),
        *(
            pl.col(name).drop_nulls().last().fill_null("unknown")
            for name in ("sex", "education_level")
        ),
    )
    persons = origins.frame().join(features, on="person_id", how="left", maintain_order="left")
    age = (pl.col("origin") - pl.col("birth_year")).cast(pl.String)
    labelled = persons.with_columns(
        age=age, kind=pl.concat_str(age, "sex", "education_level", separator="|")
    )
    kind = pl.when(pl.len().over("kind") >= FEWEST_OF_KIND).then("kind").otherwise("age")
    if not len(labelled):
        return np.empty(0, dtype=np.int64)
    return labelled.select(kind.rank("dense").cast(pl.Int64))["kind"].to_numpy()


def draw_donors(
    kind: NDArray[np.int64], person_id: NDArray[np.str_], n_paths: int, seed: int
) -> NDArray[np.int64]:
    """Rows (n, n_paths) of persons of the same kind, keyed by person and path."""
    order = np.argsort(kind, kind="stable")
    first = np.searchsorted(kind[order], kind)
    count = np.searchsorted(kind[order], kind, side="right") - first
    uniform = uniform_rows(n_paths, person_id.tolist(), "static-placebo", seed)
    return np.asarray(order[first[:, None] + (uniform * count[:, None]).astype(np.int64)])


def permute_years(panel: Panel, seed: int) -> Panel:
    """Each person's rows in a reproducible random order over the same years, without IDENTITY."""
    frame = panel.frame
    person_years = frame.select("person_id", pl.col("year").cast(pl.Int64)).iter_rows()
    position = pl.Series("position", uniform_each(list(person_years), "permuted", seed))
    shuffled = (
        frame.with_columns(position)
        .sort("person_id", "position")
        .select(pl.exclude(*IDENTITY, "position"))
    )
    return panel.with_frame(
        pl.concat([frame.select(IDENTITY), shuffled], how="horizontal").select(frame.columns)
    )


def last_years(panel: Panel, origins: Origins) -> Panel:
    """The last five calendar years of each record, and its last row with earnings if earlier."""
    rows = panel.frame.join(origins.frame(), on="person_id", maintain_order="left")
    last = pl.col("year").filter(pl.col("earnings").is_not_null()).max().over("person_id")
    recent = rows.filter((pl.col("year") > pl.col("origin") - WINDOW) | (pl.col("year") == last))
    return panel.with_frame(recent.select(panel.frame.columns))
