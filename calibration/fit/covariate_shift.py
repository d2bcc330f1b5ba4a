"""Weights that make thresholds those of a population unlike the calibration persons.

Covariate shift (Tibshirani, Foygel Barber, Candes and Ramdas 2019): if the target population
differs in what is known at the origin, and outcomes given that do not differ, scores weighted by
w(x) = dP_target / dP_calibration are as good as scores of the target. What is known is a cell of
groups, so w is a ratio of shares: those of the target panel over those of the map fold. The
threshold fold, whose scores are weighted, takes no part in the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from calibration.fit.split_conformal import NEIGHBOURS
from saga.data.groups import GROUPINGS, Grouping, Labels, last_record_origins
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError
from saga.schema import MAX_AGE

Array = NDArray[np.float64]
CellNames = NDArray[np.object_]
BY = ("age", "sex", "education_level")
COHORT, DECADE = "cohort", 10  # born within the same ten years
FEWEST = 20  # persons of the map fold that a cell needs; smaller ones are joined
REST = "others"


@dataclass(frozen=True)
class Support:
    """The cells of groups that carry weights at one horizon.

    `weights`: cell -> w. `persons`: cell -> its persons in the map fold. `unsupported`: the share
    of the target persons in none of these cells, without a guarantee.
    """

    horizon: int
    weights: Mapping[str, float]
    persons: Mapping[str, int]
    unsupported: float


@dataclass(frozen=True, eq=False)
class Target:
    """The persons of a target panel.

    `labels`: a column (m,) for each grouping in `by`. `years_left`: years (m,) until age 64.
    """

    labels: Labels
    years_left: NDArray[np.int64]
    by: tuple[str, ...]
    panel_id: str

    @classmethod
    def of(cls, panel: Panel, grouping: Grouping, by: Sequence[str] = BY) -> Self:
        """The persons of `panel` below 64 in their last year on record.

        Raises:
            UsageError: If a grouping in `by` does not exist.
            InputError: If everybody is 64 or older.
        """
        unknown = [name for name in by if name not in (*GROUPINGS, COHORT)]
        if unknown or not by:
            fix = f"Use some of {', '.join((*GROUPINGS, COHORT))}"
            problem = Problem(
                "target-groups", "No such grouping", fix, unknown[0] if unknown else None
            )
            raise UsageError("The target cannot be described", [problem])
        origins = last_record_origins(panel)
        years_left = MAX_AGE - (origins.year - _birth_years(panel, origins))
        ahead = years_left > 0
        if not ahead.any():
            problem = Problem(
                "empty", "Everybody is 64 or older", "Give a panel of persons of working age"
            )
            raise InputError("The target panel has nobody to forecast", [problem])
        labels = labels_of(panel, grouping, origins, by)
        return cls(
            {name: values[ahead] for name, values in labels.items()},
            years_left[ahead],
            tuple(by),
            panel.meta.panel_id,
        )

    def weights(
        self, labels: Labels, outcomes: Array, in_map: NDArray[np.bool_]
    ) -> tuple[Array, list[Support]]:
        """Weights (n, H) of the calibration persons, and the cells behind them by horizon.

        At each horizon the target persons are those with so many years until age 64. A cell needs
        20 persons of the map fold, and 10 or none of the target. Smaller ones are joined with those
        that share all but the last label, and so on. Persons without outcome, and those in a cell
        that stays too small, have weight 0.

        Args:
            labels: Groups of the calibration persons, (n,) each.
            outcomes: Their outcomes (n, H), NaN if unknown.
            in_map: Whether they are in the map fold (n,).
        """
        weights, supports = np.zeros(outcomes.shape), list[Support]()
        for h in range(outcomes.shape[1]):
            has_outcome, ahead = ~np.isnan(outcomes[:, h]), self.years_left > h
            fold = in_map[has_outcome]
            if not fold.any() or not ahead.any():
                continue
            cells, target_cells = join_cells(
                [labels[name][has_outcome] for name in self.by],
                [self.labels[name][ahead] for name in self.by],
                fold,
            )
            persons, target_persons = _counts(cells[fold]), _counts(target_cells)
            supported = {
                cell: n
                for cell, n in persons.items()
                if n >= FEWEST and target_persons.get(cell, 0) >= NEIGHBOURS
            }
            ratio = {
                cell: (target_persons[cell] / len(target_cells)) / (n / int(fold.sum()))
                for cell, n in supported.items()
            }
            weights[has_outcome, h] = [ratio.get(cell, 0.0) for cell in cells]
            unsupported = 1 - sum(target_persons[cell] for cell in supported) / len(target_cells)
            supports.append(Support(h + 1, ratio, supported, unsupported))
        return weights, supports


def labels_of(
    panel: Panel, grouping: Grouping, origins: Origins, by: Sequence[str]
) -> dict[str, NDArray[np.str_]]:
    """The labels (n,) of each origin's person in the groupings `by`, the cohort among them."""
    labels = grouping.labels(panel, origins)
    decade = _birth_years(panel, origins) // DECADE * DECADE
    labels[COHORT] = np.char.add(
        np.char.add(decade.astype(str), "-"), (decade + DECADE - 1).astype(str)
    )
    return {name: labels[name] for name in by}


def join_cells(
    labels: Sequence[NDArray[np.str_]],
    target_labels: Sequence[NDArray[np.str_]],
    in_map: NDArray[np.bool_],
) -> tuple[CellNames, CellNames]:
    """The cell of each calibration person and of each target person, small cells joined.

    See `Target.weights` for the rule.
    """
    sides = [
        np.array(list(zip(*columns, strict=True)), dtype=object).reshape(-1, len(labels))
        for columns in (labels, target_labels)
    ]
    cells = [np.array(["/".join(row) for row in side], dtype=object) for side in sides]
    for n_labels in range(len(labels) - 1, -1, -1):
        persons, target_persons = _counts(cells[0][in_map]), _counts(cells[1])
        for side, names in zip(sides, cells, strict=True):
            small = np.array(
                [
                    persons.get(cell, 0) < FEWEST or 0 < target_persons.get(cell, 0) < NEIGHBOURS
                    for cell in names
                ],
                dtype=np.bool_,
            )
            names[small] = ["/".join((*row[:n_labels], REST)) for row in side[small]]
    return cells[0], cells[1]


def _counts(cells: CellNames) -> dict[str, int]:
    names, counts = np.unique(cells.astype(np.str_), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _birth_years(panel: Panel, origins: Origins) -> NDArray[np.int64]:
    births = panel.frame.group_by("person_id").agg(pl.col("birth_year").first())
    return (
        origins.frame()
        .join(births, on="person_id", how="left", maintain_order="left")["birth_year"]
        .to_numpy()
        .astype(np.int64)
    )
