"""The person split: who trains the model, who calibrates it and who judges it.

A person's part follows from a hash of the register's name and the person's id, so that it never changes when
persons or years are added, and no person is on two sides, whatever the years.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.keyed_random import uniform_each

Part = Literal["train", "validation", "calibration", "test"]
SHARES: dict[Part, float] = {"train": 0.7, "validation": 0.1, "calibration": 0.1, "test": 0.1}


def assign_parts(panel_id: str, person_ids: Iterable[str]) -> NDArray[np.str_]:
    """The part of each person, shape (n,): "train" (70 %), "validation", "calibration" or "test" (10 % each)."""
    upper = np.round(np.cumsum(list(SHARES.values())), 12)
    position = uniform_each(map(str, person_ids), "split", panel_id)
    return np.array(list(SHARES))[np.searchsorted(upper, position, side="right")]


def persons_of(panel: Panel, part: Part) -> list[str]:
    """The panel's persons of one part, sorted."""
    persons = panel.persons()
    return [
        person
        for person, own in zip(persons, assign_parts(panel.meta.panel_id, persons), strict=True)
        if own == part
    ]


def unseen_persons(panel: Panel, trained_on: str | None) -> Panel:
    """The persons whom a bundle has not seen: everybody, or the test persons where it was trained on this panel (`trained_on`: its id)."""
    return panel.only(persons_of(panel, "test")) if panel.meta.panel_id == trained_on else panel
