"""Records with hidden columns or years. Persons, origins and outcomes stay the same.

Columns are hidden from training records too: a baseline is fitted on the columns that are left.
Years are hidden relative to an origin. Every year of a training record serves as outcome and as
origin at once, so hiding years of training records would lose outcomes (of every second year, all
at odd horizons). Baselines that read little but the last year with known earnings (carry, groupq)
are therefore fitted on whole records. Boosted trees, which read ten years, are fitted on whole
outcomes with a reduced past at each origin (`TreesOnReducedPasts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.baselines.trees.gbt import BoostedTrees
from saga.evaluation.protocol import Baseline
from saga.evaluation.scoring.evaluation_settings import Setting

from saga.data.groups import SURVEY_COLUMNS
from saga.data.origins import MIN_HISTORY, Origins
from saga.data.panel import Panel
from saga.schema import EXIT, REQUIRED
from saga.trees.recent_years import Window

_CHUNK = 20_000  # origins whose pasts are copied at once
HideColumns = Callable[[Panel], Panel]
HideYears = Callable[[Panel, Origins], Panel]


def hide_nothing(panel: Panel) -> Panel:
    """The panel with all its columns."""
    return panel


def hide_columns(panel: Panel, columns: tuple[str, ...]) -> Panel:
    """The panel with these columns unknown."""
    unknown = (pl.lit(None, dtype=panel.frame.schema[name]).alias(name) for name in columns)
    return panel.with_frame(panel.frame.with_columns(unknown))


def reduce_to_profile(panel: Panel, profile: str) -> Panel:
    """The panel with the columns of a `profile`; other columns become unknown."""
    visible = {*REQUIRED, "sex", *EXIT}
    if profile == "register":
        return panel
    if profile == "survey":
        visible |= {*SURVEY_COLUMNS, "birth_region"}
    hidden = [
        pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in panel.frame.schema.items()
        if name not in visible
    ]
    return panel.with_frame(panel.frame.with_columns(hidden))


def keep_last_three(past: Panel, _origins: Origins) -> Panel:
    """Rows from the third last year with known earnings on, the minimum that an origin needs."""
    known_years = pl.col("year").filter(pl.col("earnings").is_not_null())
    start = known_years.sort().tail(MIN_HISTORY).min().over("person_id")
    return _with_rows(past, past.frame.filter(pl.col("year") >= start))


def keep_every_second(past: Panel, origins: Origins) -> Panel:
    """The last year with known earnings, every second year before it, and the origin's year.

    A record that is biennial already loses nothing.
    """
    rows = past.frame.join(origins.frame(), on="person_id", how="left", maintain_order="left")
    last = pl.col("year").filter(pl.col("earnings").is_not_null()).max().over("person_id")
    even = (last - pl.col("year")) % 2 == 0
    return _with_rows(past, rows.filter(even | (pl.col("year") == pl.col("origin"))))


def _with_rows(past: Panel, rows: pl.DataFrame) -> Panel:
    """These rows; the entry year becomes unknown because earlier years are hidden."""
    unknown = pl.lit(None, dtype=pl.Int32).alias("entry_year")
    return past.with_frame(rows.select(past.frame.columns).with_columns(unknown))


@dataclass(frozen=True)
class Reduction:
    """What is hidden of a record: columns, and (unless `years` is None) years of the past."""

    name: str
    label: str
    columns: HideColumns = hide_nothing
    years: HideYears | None = None

    def setting(self, setting: Setting) -> Setting:
        """The same setting with reduced pasts."""
        past = self.columns(setting.past)
        return replace(setting, past=self.years(past, setting.origins) if self.years else past)

    def training(self, panel: Panel) -> Panel:
        """The records that a baseline is fitted on: reduced columns, all years."""
        return self.columns(panel)

    def baseline(self, unfitted: Baseline) -> Baseline:
        """The form of a baseline that is fitted on reduced pasts, if it has one."""
        if self.years and type(unfitted) is BoostedTrees:
            return TreesOnReducedPasts(self.years)
        return unfitted


WHOLE = Reduction("all", "all columns")
REDUCTIONS = (
    WHOLE,
    Reduction(
        "no-occupation-industry",
        "no occupation and industry",
        partial(hide_columns, columns=("occupation", "industry")),
    ),
    Reduction("survey", "survey-like columns", partial(reduce_to_profile, profile="survey")),
    Reduction("earnings", "earnings, age and sex", partial(reduce_to_profile, profile="earnings")),
    Reduction("last-3", "last 3 years", years=keep_last_three),
    Reduction("every-second", "every second year", years=keep_every_second),
)


class TreesOnReducedPasts(BoostedTrees):
    """Boosted trees whose training origins have the same reduced pasts as the judged ones.

    No outcome is lost. `settings` are those of `BoostedTrees`.
    """

    def __init__(self, years: HideYears, **settings: Any) -> None:
        super().__init__(**settings)
        self._years = years

    def settings_key(self) -> str:
        """Which years are hidden: `saga.evaluation.protocol.HasSettings`."""
        return getattr(self._years, "__qualname__", repr(self._years))

    def window_of(self, panel: Panel) -> Window:
        """The features of reduced pasts."""
        return ReducedWindow(panel, self._years)


class ReducedWindow(Window):
    """Features of the reduced past of each origin."""

    def __init__(self, panel: Panel, years: HideYears) -> None:
        super().__init__(panel)
        self._years = years

    def features(self, history: Panel, origins: Origins) -> NDArray[np.float32]:
        """Features (n_origin, n_feature); a person may have several origins.

        Raises InputError for a person without a row at or before the origin.
        """
        parts = []
        for start in range(0, len(origins), _CHUNK):
            chunk = origins.take(slice(start, start + _CHUNK))
            pasts, renamed = one_record_an_origin(history, chunk)
            parts.append(super().features(self._years(pasts, renamed), renamed))
        return np.concatenate(parts) if parts else super().features(history, origins)


def one_record_an_origin(history: Panel, origins: Origins) -> tuple[Panel, Origins]:
    """A separate record for each origin: the person's rows up to it.

    Persons are renamed to `person@year`; records are in the order of `origins`.
    """
    records = origins.frame().with_columns(
        pl.format("{}@{}", "person_id", "origin").alias("record")
    )
    rows = records.join(history.frame, on="person_id", maintain_order="left_right").filter(
        pl.col("year") <= pl.col("origin")
    )
    renamed = Origins(np.array(records["record"].to_list(), dtype=np.str_), origins.year)
    frame = rows.with_columns(person_id=pl.col("record")).select(history.frame.columns)
    return history.with_frame(frame), renamed
