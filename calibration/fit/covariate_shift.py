"""Weights for thresholds of a target population that differs from the calibration persons.

Covariate shift (Tibshirani, Foygel Barber, Candes and Ramdas 2019): suppose that the target
population differs in x, which is known at the origin, but not in the outcomes given x. Scores with
weights w(x) = dP_target / dP_calibration are then as good as scores of the target population. x is
a stratum: a combination of groups. So w is a ratio of shares, those in the target panel over those
in the map fold. The threshold fold, whose scores are weighted, does not influence the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.groups import Grouping, Labels, groupings, last_record_origins
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError
from saga.schema import MAX_AGE
from saga.small_groups import MIN_PERSONS

Strata = NDArray[np.object_]  # (n,) the name of each person's stratum
DEFAULT_GROUPINGS = ("age", "sex", "education_level")
COHORT, DECADE = "cohort", 10  # born within the same ten years
MIN_STRATUM_PERSONS = 20  # of the map fold; smaller strata are joined
REST = "others"


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
    def of(cls, panel: Panel, grouping: Grouping, by: Sequence[str] = DEFAULT_GROUPINGS) -> Self:
        """The persons of `panel` who are below 64 in their last year on record.

        Raises:
            UsageError: If a grouping in `by` does not exist.
            InputError: If everybody is 64 or older.
        """
        known = (*groupings(panel), COHORT)
        unknown = [name for name in by if name not in known]
        if unknown or not by:
            fix = f"Use some of {', '.join(known)}"
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
        self, labels: Labels, outcomes: Floats, in_map: NDArray[np.bool_]
    ) -> tuple[Floats, dict[int, tuple[int, float]]]:
        """Weights (n, H) of the calibration persons, and what they rest on by horizon.

        That is the number of strata with weights, and the share of the target persons who are in
        none of them; these have no guarantee.

        At each horizon the target persons are those with at least so many years until age 64. A
        stratum needs 20 persons of the map fold, and 10 or none of the target. Smaller ones are
        joined with those that share all but the last label, then all but the last two, and so on.
        Persons without outcome, and those in a stratum that remains too small, have weight 0.

        Args:
            labels: Groups of the calibration persons, (n,) each.
            outcomes: Their outcomes (n, H), NaN if unknown.
            in_map: Whether they are in the map fold (n,).
        """
        weights, support = np.zeros(outcomes.shape), dict[int, tuple[int, float]]()
        for h in range(outcomes.shape[1]):
            has_outcome, ahead = ~np.isnan(outcomes[:, h]), self.years_left > h
            fold = in_map[has_outcome]
            if not fold.any() or not ahead.any():
                continue
            strata, target_strata = join_strata(
                [labels[name][has_outcome] for name in self.by],
                [self.labels[name][ahead] for name in self.by],
                fold,
            )
            persons, target_persons = _counts(strata[fold]), _counts(target_strata)
            supported = {
                stratum: n
                for stratum, n in persons.items()
                if n >= MIN_STRATUM_PERSONS and target_persons.get(stratum, 0) >= MIN_PERSONS
            }
            ratio = {
                stratum: (target_persons[stratum] / len(target_strata)) / (n / int(fold.sum()))
                for stratum, n in supported.items()
            }
            weights[has_outcome, h] = [ratio.get(stratum, 0.0) for stratum in strata]
            n_supported = sum(target_persons[stratum] for stratum in supported)
            support[h + 1] = len(ratio), 1 - n_supported / len(target_strata)
        return weights, support


def labels_of(
    panel: Panel, grouping: Grouping, origins: Origins, by: Sequence[str]
) -> dict[str, NDArray[np.str_]]:
    """The labels (n,) of each origin's person in the groupings `by`, which may be the cohort."""
    labels = grouping.labels(panel, origins)
    decade = _birth_years(panel, origins) // DECADE * DECADE
    labels[COHORT] = np.char.add(
        np.char.add(decade.astype(str), "-"), (decade + DECADE - 1).astype(str)
    )
    return {name: labels[name] for name in by}


def join_strata(
    labels: Sequence[NDArray[np.str_]],
    target_labels: Sequence[NDArray[np.str_]],
    in_map: NDArray[np.bool_],
) -> tuple[Strata, Strata]:
    """The stratum of each calibration person and of each target person, small strata joined.

    See `Target.weights` for the rule.
    """
    sides = [
        np.array(list(zip(*columns, strict=True)), dtype=object).reshape(-1, len(labels))
        for columns in (labels, target_labels)
    ]
    strata = [np.array(["/".join(row) for row in side], dtype=object) for side in sides]
    for n_labels in range(len(labels) - 1, -1, -1):
        persons, target_persons = _counts(strata[0][in_map]), _counts(strata[1])
        for side, names in zip(sides, strata, strict=True):
            small = np.array(
                [
                    persons.get(name, 0) < MIN_STRATUM_PERSONS
                    or 0 < target_persons.get(name, 0) < MIN_PERSONS
                    for name in names
                ],
                dtype=np.bool_,
            )
            names[small] = ["/".join((*row[:n_labels], REST)) for row in side[small]]
    return strata[0], strata[1]


def _counts(strata: Strata) -> dict[str, int]:
    names, counts = np.unique(strata.astype(np.str_), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _birth_years(panel: Panel, origins: Origins) -> NDArray[np.int64]:
    births = panel.frame.group_by("person_id").agg(pl.col("birth_year").first())
    return (
        origins.frame()
        .join(births, on="person_id", how="left", maintain_order="left")["birth_year"]
        .to_numpy()
        .astype(np.int64)
    )
