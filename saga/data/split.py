"""The person split: persons for training, validation, calibration and tests.

The part of a person is a hash of the register's name and the person's id. It does not change when
persons or years are added, and all years of a person are in one part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.keyed_random import uniform_each

Part = Literal["train", "validation", "calibration", "test"]
SPLIT_SHARES: dict[Part, float] = {"train": 0.7, "validation": 0.1, "calibration": 0.1, "test": 0.1}


def assign_parts(panel_id: str, person_ids: Iterable[str]) -> NDArray[np.str_]:
    """The part of each person by SPLIT_SHARES, shape (n,)."""
    upper = np.round(np.cumsum(list(SPLIT_SHARES.values())), 12)
    position = uniform_each(map(str, person_ids), "split", panel_id)
    return np.array(list(SPLIT_SHARES))[np.searchsorted(upper, position, side="right")]


def persons_of(panel: Panel, part: Part) -> list[str]:
    """The panel's persons of one part, sorted."""
    persons = panel.persons()
    parts = assign_parts(panel.meta.panel_id, persons)
    return [person for person, assigned in zip(persons, parts, strict=True) if assigned == part]


def unseen_persons(panel: Panel, trained_on: str | None) -> Panel:
    """The persons that a bundle trained on the panel with id `trained_on` has not used.

    These are the test persons if it is this panel, else all persons.
    """
    return panel.only(persons_of(panel, "test")) if panel.meta.panel_id == trained_on else panel
