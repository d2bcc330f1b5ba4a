"""Thresholds for a population that differs from the calibration persons: weights, and how many persons they leave.

Covariate shift (Tibshirani, Foygel Barber, Candes and Ramdas 2019): where the target population differs in what is known at the origin,
and in nothing else given that, scores weighted by w(x) = dP_target / dP_calibration are as good as scores of the target. What is known is
a cell of groups, so w is a ratio of shares: those of the target panel over those of half A. Half B, whose scores are weighted, takes no
part in the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from calibration.fit.split_conformal import NEIGHBOURS
from saga.conformal.calibrator import ALL, SCHEMA
from saga.data.groups import GROUPINGS, Grouping, Labels, last_record_origins
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError
from saga.schema import MAX_AGE

Array = NDArray[np.float64]
Cells = NDArray[np.object_]
BY = ("age", "sex", "education_level")
COHORT, DECADE = "cohort", 10  # born within the same ten years
FEWEST = 20  # persons of half A that a cell needs; smaller ones are joined
REST = "others"


@dataclass(frozen=True, eq=False)
class Target:
    """The persons of a target panel: their labels, a column (m,) for each name of `by`, and the years (m,) they have until age 64."""

    labels: Labels
    left: NDArray[np.int64]
    by: tuple[str, ...]
    panel_id: str

    @classmethod
    def of(cls, panel: Panel, grouping: Grouping, by: Sequence[str] = BY) -> Self:
        """Everybody of `panel` who is below 64 in the last year on record: whom forecasts will be asked for. Raises UsageError for a
        grouping that does not exist, InputError where nobody is left."""
        unknown = [name for name in by if name not in (*GROUPINGS, COHORT)]
        if unknown or not by:
            fix = f"Use some of {', '.join((*GROUPINGS, COHORT))}"
            name = unknown[0] if unknown else None
            raise UsageError(
                "The target cannot be described",
                [Problem("target-groups", "No such grouping", fix, name)],
            )
        origins = last_record_origins(panel)
        left = MAX_AGE - (origins.year - _born(panel, origins))
        ahead = left > 0
        if not ahead.any():
            fix = "Give a panel of persons of working age"
            raise InputError(
                "The target panel has nobody to forecast",
                [Problem("empty", "Everybody is 64 or older", fix)],
            )
        labels = cells_of(panel, grouping, origins, by)
        return cls(
            {name: values[ahead] for name, values in labels.items()},
            left[ahead],
            tuple(by),
            panel.meta.panel_id,
        )

    def weights(
        self, labels: Labels, outcomes: Array, in_a: NDArray[np.bool_]
    ) -> tuple[Array, pl.DataFrame]:
        """Weights (n, H) of calibration persons with these `labels`, half A or not and `outcomes` (n, H), and rows of the calibration
        table that say what they are: kind "weight" by horizon and cell, `n` persons of half A; kind "unsupported", the share of the target
        persons whom no cell holds, `n` all target persons at that horizon.

        At each horizon the target is whoever has so many years until age 64. A cell needs 20 persons of half A, and 10 or none of the
        target; smaller ones are joined with those that share all but the last label, and so on. Persons without outcome, and those in a
        cell that stays too small, have weight 0.
        """
        weights, rows = np.zeros(outcomes.shape), list[tuple[Any, ...]]()
        for h in range(outcomes.shape[1]):
            known, here = ~np.isnan(outcomes[:, h]), self.left > h
            a = in_a[known]
            if not a.any() or not here.any():
                continue
            own, theirs = (
                [side[name][mask] for name in self.by]
                for side, mask in ((labels, known), (self.labels, here))
            )
            cells, their_cells = joined(own, theirs, a)
            mine, wanted = _counts(cells[a]), _counts(their_cells)
            held = {
                cell: n
                for cell, n in mine.items()
                if n >= FEWEST and wanted.get(cell, 0) >= NEIGHBOURS
            }
            ratio = {
                cell: (wanted[cell] / len(their_cells)) / (n / int(a.sum()))
                for cell, n in held.items()
            }
            weights[known, h] = [ratio.get(cell, 0.0) for cell in cells]
            lost = 1 - sum(wanted[cell] for cell in held) / len(their_cells)
            rows += [
                ("weight", h + 1, cell, None, None, ratio[cell], n, "A")
                for cell, n in sorted(held.items())
            ]
            rows.append(("unsupported", h + 1, ALL, None, None, lost, len(their_cells), None))
        return weights, pl.DataFrame(rows, schema=SCHEMA, orient="row")


def cells_of(
    panel: Panel, grouping: Grouping, origins: Origins, by: Sequence[str]
) -> dict[str, NDArray[np.str_]]:
    """The labels of each origin's person (n,) in the groupings `by`, the cohort among them."""
    found = grouping.labels(panel, origins)
    decade = _born(panel, origins) // DECADE * DECADE
    found[COHORT] = np.char.add(
        np.char.add(decade.astype(str), "-"), (decade + DECADE - 1).astype(str)
    )
    return {name: found[name] for name in by}


def joined(
    own: Sequence[NDArray[np.str_]], theirs: Sequence[NDArray[np.str_]], in_a: NDArray[np.bool_]
) -> tuple[Cells, Cells]:
    """The cell of each calibration person and of each target person, as text; small ones joined (see `Target.weights`)."""
    sides = [
        np.array(list(zip(*columns, strict=True)), dtype=object).reshape(-1, len(own))
        for columns in (own, theirs)
    ]
    cells = [np.array(["/".join(row) for row in side], dtype=object) for side in sides]
    for kept in range(len(own) - 1, -1, -1):
        mine, wanted = _counts(cells[0][in_a]), _counts(cells[1])
        for side, named in zip(sides, cells, strict=True):
            few = np.array(
                [
                    mine.get(cell, 0) < FEWEST or 0 < wanted.get(cell, 0) < NEIGHBOURS
                    for cell in named
                ],
                dtype=np.bool_,
            )
            named[few] = ["/".join((*row[:kept], REST)) for row in side[few]]
    return cells[0], cells[1]


def _counts(cells: Cells) -> dict[str, int]:
    names, counts = np.unique(cells.astype(np.str_), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _born(panel: Panel, origins: Origins) -> NDArray[np.int64]:
    born = panel.frame.group_by("person_id").agg(pl.col("birth_year").first())
    return (
        origins.frame()
        .join(born, on="person_id", how="left", maintain_order="left")["birth_year"]
        .to_numpy()
        .astype(np.int64)
    )
