"""Records poorer than a register's: what is hidden of the past that a forecaster is shown. Who is asked and what came true stay the same.

Columns are hidden from training records too: a baseline is fitted on what is left. Years are hidden relative to an origin, and every
year of a training record serves as outcome and as origin at once, so records with years taken out would lose outcomes (of every second
year, all at odd horizons). Baselines that read little but the last known year (carry, groupq) can as well be fitted on whole records;
boosted trees, which read ten years, are fitted on whole outcomes but on a poorer past at each origin (`TreesOnPasts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.baselines.recent_years import Window
from evaluation.baselines.trees.gbt import BoostedTrees
from evaluation.protocol import Baseline
from evaluation.scoring.evaluation_settings import Setting
from saga.data.groups import only_columns
from saga.data.origins import MIN_HISTORY, Origins
from saga.data.panel import Panel

CHUNK = 20_000  # origins whose pasts are copied at once
Columns = Callable[[Panel], Panel]
Years = Callable[[Panel, Origins], Panel]


def everything(panel: Panel) -> Panel:
    """The panel with all its columns."""
    return panel


def without(panel: Panel, columns: tuple[str, ...]) -> Panel:
    """The panel with these columns unknown."""
    return panel.with_frame(
        panel.frame.with_columns(
            pl.lit(None, dtype=panel.frame.schema[name]).alias(name) for name in columns
        )
    )


def last_three(past: Panel, origins: Origins) -> Panel:
    """Each person's rows from the third last year with known earnings on: the least that an origin may have."""
    start = (
        pl.col("year")
        .filter(pl.col("earnings").is_not_null())
        .sort()
        .tail(MIN_HISTORY)
        .min()
        .over("person_id")
    )
    return _rows(past, past.frame.filter(pl.col("year") >= start))


def every_second(past: Panel, origins: Origins) -> Panel:
    """Each person's last year with known earnings, every second calendar year before it, and the row of the origin's year.

    A biennial record of two-year steps loses nothing.
    """
    rows = past.frame.join(origins.frame(), on="person_id", how="left", maintain_order="left")
    last = pl.col("year").filter(pl.col("earnings").is_not_null()).max().over("person_id")
    return _rows(
        past, rows.filter(((last - pl.col("year")) % 2 == 0) | (pl.col("year") == pl.col("origin")))
    )


def _rows(past: Panel, rows: pl.DataFrame) -> Panel:
    """These rows; when the person could first be observed is unknown, as the years before them are."""
    return past.with_frame(
        rows.select(past.frame.columns).with_columns(
            pl.lit(None, dtype=pl.Int32).alias("entry_year")
        )
    )


@dataclass(frozen=True)
class Reduction:
    """A poorer record: `columns` hides columns, `years` (None: nothing) whole years of pasts. `label` is its row in a table."""

    name: str
    label: str
    columns: Columns = everything
    years: Years | None = None

    def setting(self, setting: Setting) -> Setting:
        """The same question with poorer pasts: persons, origins and outcomes are those of the whole record."""
        past = self.columns(setting.past)
        return replace(setting, past=self.years(past, setting.origins) if self.years else past)

    def training(self, panel: Panel) -> Panel:
        """The records that a baseline is fitted on: poorer columns, all years."""
        return self.columns(panel)

    def baseline(self, unfitted: Baseline) -> Baseline:
        """The form of a baseline that learns from pasts with years hidden, where it has one."""
        return (
            TreesOnPasts(self.years) if self.years and type(unfitted) is BoostedTrees else unfitted
        )


WHOLE = Reduction("all", "all columns")
REDUCTIONS = (
    WHOLE,
    Reduction(
        "no-occupation-industry",
        "no occupation and industry",
        partial(without, columns=("occupation", "industry")),
    ),
    Reduction("survey", "survey-like columns", partial(only_columns, profile="survey")),
    Reduction("earnings", "earnings, age and sex", partial(only_columns, profile="earnings")),
    Reduction("last-3", "last 3 years", years=last_three),
    Reduction("every-second", "every second year", years=every_second),
)


class TreesOnPasts(BoostedTrees):
    """Boosted trees whose every training origin sees as poor a past as the origins they are asked from; no outcome is lost.

    `settings` as for `BoostedTrees`.
    """

    def __init__(self, years: Years, **settings: Any) -> None:
        super().__init__(**settings)
        self._years = years

    def key(self) -> str:
        """Which years are hidden: `evaluation.protocol.Keyed`."""
        return getattr(self._years, "__qualname__", repr(self._years))

    def _examples(self, panel: Panel, held: set[str], seed: int) -> Any:
        self.window = PastWindow(panel, self._years)
        return super()._examples(panel, held, seed)


class PastWindow(Window):
    """Features of what `years` leaves of the past of each origin."""

    def __init__(self, panel: Panel, years: Years) -> None:
        super().__init__(panel)
        self._years = years

    def features(self, history: Panel, origins: Origins) -> NDArray[np.float32]:
        """(n, F), one row an origin; a person may have several. Raises InputError for a person without a row at or before the origin."""
        parts = []
        for start in range(0, len(origins), CHUNK):
            pasts, asked = separate(history, origins.take(slice(start, start + CHUNK)))
            parts.append(super().features(self._years(pasts, asked), asked))
        return np.concatenate(parts) if parts else super().features(history, origins)


def separate(history: Panel, origins: Origins) -> tuple[Panel, Origins]:
    """A record of its own for each origin, the person's rows up to it, so that years can be hidden relative to each.

    Persons are renamed to `person@year`; records stand in the order of `origins`.
    """
    asked = origins.frame().with_columns(pl.format("{}@{}", "person_id", "origin").alias("record"))
    rows = asked.join(history.frame, on="person_id", maintain_order="left_right").filter(
        pl.col("year") <= pl.col("origin")
    )
    renamed = Origins(np.array(asked["record"].to_list(), dtype=np.str_), origins.year)
    return history.with_frame(
        rows.with_columns(person_id=pl.col("record")).select(history.frame.columns)
    ), renamed
