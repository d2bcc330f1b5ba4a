"""Placebos: forecasts of the same bundle, without further training, from reduced records.

Each placebo must have worse scores than the bundle; otherwise the model does not use the
information that the placebo hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.contestants import BLOCK, BundleContestant
from saga.evaluation.scoring.comparison import VARIANT
from saga.evaluation.scoring.year_forecasts import YearForecasts

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each

PLACEBOS_VERSION = 2
WINDOW = 5  # calendar years
MIN_OF_KIND = 10  # persons
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

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """Forecasts of the bundle from the changed records."""
        is_permuted = self.kind == "permuted"
        changed = permute_years(past, seed) if is_permuted else last_years(past, origins)
        return BundleContestant(self.forecaster).forecasts(
            changed, origins, horizons=horizons, n_paths=n_paths, seed=seed
        )


@dataclass(frozen=True)
class StaticPlacebo:
    """The bundle's forecast given static features alone.

    The distribution of a person is the average over the persons of the same kind. By the law of
    total probability this averages over the histories of such persons. A kind is age at the origin,
    sex and education level, or age alone if fewer than ten persons are of that kind.
    """

    forecaster: Forecaster
    name: str = f"{VARIANT}static"

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """Blocks of 256 persons, after the distributions of all persons are computed."""
        del n_paths, seed
        blocks = self.forecaster.marginals(past)
        marginals = Marginals.joined([block.at_horizons(horizons) for block in blocks])
        mixed = average_by_kind(marginals, number_kinds(past, origins))
        for start in range(0, len(mixed), BLOCK):
            block = mixed.take(slice(start, start + BLOCK))
            yield YearForecasts.of_marginals(block)


def average_by_kind(marginals: Marginals, kind: NDArray[np.int64]) -> Marginals:
    """Marginals (n, H) whose distributions are the averages over persons of the same kind (n,)."""
    grid, cdf, p_zero = (
        values.copy() for values in (marginals.grid, marginals.cdf, marginals.p_zero)
    )
    for label in np.unique(kind).tolist():
        members = marginals.take(kind == label)
        pooled = members.grid.transpose(1, 0, 2).reshape(members.n_horizons, -1)
        points = np.quantile(pooled, np.linspace(0, 1, members.grid.shape[-1]), axis=1).T
        amounts = np.broadcast_to(np.exp(points), members.cdf.shape)
        average = members.probability(amounts).mean(axis=0)
        average[..., -1] = np.where(np.isnan(average[..., -1]), np.nan, 1.0)
        grid[kind == label], cdf[kind == label] = points, average
        p_zero[kind == label] = members.p_zero.mean(axis=0)
    return replace(marginals, grid=grid, cdf=cdf, p_zero=p_zero)


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
    kind = pl.when(pl.len().over("kind") >= MIN_OF_KIND).then("kind").otherwise("age")
    if not len(labelled):
        return np.empty(0, dtype=np.int64)
    return labelled.select(kind.rank("dense").cast(pl.Int64))["kind"].to_numpy()


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


def last_years(panel: Panel, origins: Origins, window: int = WINDOW) -> Panel:
    """The last `window` years of each record, and its last row with earnings if earlier."""
    rows = panel.frame.join(origins.frame(), on="person_id", maintain_order="left")
    last = pl.col("year").filter(pl.col("earnings").is_not_null()).max().over("person_id")
    recent = rows.filter((pl.col("year") > pl.col("origin") - window) | (pl.col("year") == last))
    return panel.with_frame(recent.select(panel.frame.columns))
