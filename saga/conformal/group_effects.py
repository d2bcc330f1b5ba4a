"""Effects of the groups of persons, which may overlap, on the thresholds of a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from saga.data.groups import Labels, pair_groupings

Array = NDArray[np.float64]
Label = TypeVar("Label", str, tuple[str, ...])
# Which groups n persons belong to: the names of all groups, such as "sex=female"; and one array
# (n,) per grouping, the position of each person's group among the names.
Members = tuple[list[str], list[NDArray[np.int64]]]


def is_shifted(cell: str) -> bool:
    """Whether the threshold of a cell is shifted for groups of persons.

    The thresholds of profiles are not: records of a profile lack the columns that define groups.
    """
    return not cell.startswith("profile=")


def sum_effects(effects: Mapping[str, Array], members: Members, shape: tuple[int, ...]) -> Array:
    """Sums of the effects of the persons' groups, (n, *shape), or (1, *shape) without groups."""
    names, by_grouping = members
    total = np.zeros((1, *shape))
    if effects and names:
        without = np.zeros(shape)
        effect = np.array([effects.get(name, without) for name in names])
        for index in by_grouping:  # in this order, so that rounding does not depend on the batch
            total = total + effect[index]
    return total


def members_of(groups: Labels, rows: NDArray[np.int64]) -> Members:
    """The groups of `rows` in all groupings and pairs of them, and each row's group by grouping."""
    labels_by_grouping = pair_groupings({name: labels[rows] for name, labels in groups.items()})
    names, by_grouping = list[str](), list[NDArray[np.int64]]()
    for name, labels in labels_by_grouping.items():
        distinct, index = number_labels(labels.tolist())
        by_grouping.append(index + len(names))
        names += [f"{name}={label}" for label in distinct]
    return names, by_grouping


def number_labels(labels: Sequence[Label]) -> tuple[list[Label], NDArray[np.int64]]:
    """The distinct labels in order, and the index among them of each label."""
    distinct = sorted(set(labels))
    if len(distinct) == 1:
        return distinct, np.zeros(len(labels), dtype=np.int64)
    number = {label: i for i, label in enumerate(distinct)}
    return distinct, np.array([number[label] for label in labels], dtype=np.int64)
