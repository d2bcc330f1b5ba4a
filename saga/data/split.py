"""The person split: persons for training, validation, calibration and tests, or folds.

The part of a person is a hash of the register's name, a secret salt and the person's id. It does
not change when persons or years are added, and all years of a person are in one part. Where a panel
has families, the family takes the place of the person, so that no test person has a relative in
training.

The salt is a file beside the bundle, which never leaves the agency. Without it nobody can compute
from an id whether the person was in the training part. A bundle has the salt's digest only, which
tells the right salt from a wrong one and, as a salt has 256 random bits, nothing else.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.errors import UsageError
from saga.files.atomic import new_secret
from saga.files.bundle_folder import check_replaceable
from saga.keyed_random import uniform_each
from saga.schema import FAMILY

Part = Literal["train", "validation", "calibration", "test"]
Shares = Mapping[Part, float]
SPLIT_SHARES: dict[Part, float] = {"train": 0.7, "validation": 0.1, "calibration": 0.1, "test": 0.1}
SALT = "salt"  # in split.json: the digest
_KINDS = str.maketrans(string.digits + string.ascii_letters, "9" * 10 + "a" * 26 + "A" * 26)
_IDS = "ids"  # in split.json: `id_forms` of the panel, if there is a salt
_SHORTEST = "shortest_id"  # in split.json beside them
_HINT = "Give it with --split-salt FILE, or put it at"
FOLDS_SCHEME = "folds"  # in split.json: all persons except the test persons are in one of K folds


def assign_parts(
    split_key: str, units: Iterable[str], shares: Shares = SPLIT_SHARES
) -> NDArray[np.str_]:
    """The part (n,) of each unit (`units_of`) by `shares`; the key is `PanelMeta.split_key`."""
    upper = np.round(np.cumsum(list(shares.values())), 12)
    position = uniform_each(map(str, units), "split", split_key)
    return np.array(list(shares))[np.searchsorted(upper, position, side="right")]


def units_of(panel: Panel, persons: Sequence[str] | None = None) -> list[str]:
    """The unit of each of `persons` (default: all, sorted): the family, else the person's own id.

    Units are never divided between parts or folds.
    """
    ids = panel.persons() if persons is None else list(persons)
    if FAMILY.name not in panel.frame.columns:
        return ids
    known = panel.frame.select("person_id", FAMILY.name).drop_nulls().unique("person_id")
    family = dict(known.iter_rows())
    return [family.get(person, person) for person in ids]


def persons_of(panel: Panel, part: Part, shares: Shares = SPLIT_SHARES) -> list[str]:
    """The panel's persons of one part, sorted; families are not divided."""
    persons = panel.persons()
    parts = assign_parts(panel.meta.split_key, units_of(panel, persons), shares)
    return [person for person, assigned in zip(persons, parts, strict=True) if assigned == part]


def assign_folds(split_key: str, units: Iterable[str], n_folds: int) -> NDArray[np.int64]:
    """The fold of each unit (`units_of`), 0 to `n_folds` - 1, shape (n,).

    Test persons have a fold too; they are left out by their part.
    """
    position = uniform_each(map(str, units), "fold", split_key)
    return (position * n_folds).astype(np.int64)


def parse_shares(percent: Iterable[int]) -> dict[Part, float]:
    """Shares of the parts from whole per cent, in the order of `Part`.

    Raises UsageError unless there are four that sum to 100, with training and validation persons
    and at least 10 % test persons: those of the standard split, on whom every bundle is evaluated.
    """
    numbers = list(percent)
    if len(numbers) != 4 or sum(numbers) != 100 or min(numbers) < 0 or 0 in numbers[:2]:
        raise UsageError(
            f"--shares needs four whole per cent that sum to 100, not {numbers}: training, "
            "validation, calibration and test persons. For example 60,10,20,10."
        )
    if numbers[3] < round(100 * SPLIT_SHARES["test"]):
        raise UsageError(
            f"--shares needs at least 10 per cent test persons, not {numbers[3]}: forecasts are "
            "evaluated on them. For example 60,10,20,10."
        )
    return {part: number / 100 for part, number in zip(get_args(Part), numbers, strict=True)}


def percents_of(shares: Shares) -> list[int]:
    """The shares in whole per cent, in the order of `Part`."""
    return [round(100 * shares[part]) for part in get_args(Part)]


def shares_of(split: Mapping[str, Any]) -> dict[Part, float]:
    """The shares in a bundle's split.json; with folds, everybody but the test persons trains."""
    return {
        part: percent / 100 for part, percent in zip(get_args(Part), split["shares"], strict=True)
    }


def unseen_persons(panel: Panel, trained_on: str | None) -> Panel:
    """The persons that a bundle has not used: the test persons if it was trained on this panel.

    `trained_on` is the id of the panel on which it was trained. Of another panel, all persons.
    """
    return panel.only(persons_of(panel, "test")) if panel.meta.panel_id == trained_on else panel


def salt_beside(bundle: Path) -> Path:
    """The file of a bundle's salt: beside its folder, so that a copy of the folder lacks it."""
    return Path(f"{bundle.absolute()}.salt")


def salted_beside(panel: Panel, bundle: Path) -> Panel:
    """The panel with the salt of the bundle that will be trained on it, created if it is missing.

    A panel that has a salt keeps it; simulated persons need none. Only the owner can read the file.
    Raises errors as `check_replaceable` does.
    """
    check_replaceable(bundle)
    if panel.meta.simulated or panel.meta.salt:
        return panel
    file = salt_beside(bundle)
    file.parent.mkdir(parents=True, exist_ok=True)
    new_secret(file, f"{secrets.token_hex(32)}\n".encode())
    return with_salt(panel, file)


def with_salt(panel: Panel, file: Path) -> Panel:
    """The panel with the salt in a file. Raises UsageError if there is none."""
    text = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise UsageError(f"{file} has no salt of a split: `saga train` writes 64 hex digits.")
    return _salted(panel, text)


def described_salt(panel: Panel) -> dict[str, Any]:
    """What split.json says of the panel's salt, and of how its ids are written."""
    if not panel.meta.salt:
        return {}
    return {
        SALT: _digest(panel.meta.salt),
        _IDS: id_forms(panel),
        _SHORTEST: shortest_id(panel),
    }


def id_forms(panel: Panel) -> list[str]:
    """How ids of persons are written: the kinds of their signs, sorted, such as `9` for 1001.

    `.9` is for 1001.0, `Aa` for Anna; a first `0` says that ids begin with a zero.
    """
    signs = ((person.startswith("0"), set(person.translate(_KINDS))) for person in panel.persons())
    return sorted({"0" * has_zero + "".join(sorted(kinds)) for has_zero, kinds in signs})


def shortest_id(panel: Panel) -> int:
    """The least length of an id where some begin with a zero, so that lost zeros show; else 0."""
    persons = panel.persons()
    return min(map(len, persons)) if any(person.startswith("0") for person in persons) else 0


def salted_like(panel: Panel, split: Mapping[str, Any], bundle: Path) -> Panel:
    """The panel with the salt of the split of a bundle that was trained on it.

    A panel of another name was not split by the bundle, and keeps its salt.

    Raises:
        UsageError: If the salt is neither given nor beside the bundle, or is another one, or all
            ids are written otherwise than in training, or some have lost zeros, which would divide
            the persons otherwise.
    """
    if panel.meta.panel_id != split.get("panel_id"):
        return panel
    if SALT not in split:
        return _salted(panel, "")
    file = salt_beside(bundle)
    if not panel.meta.salt:
        if not file.is_file():
            raise UsageError(
                f"{bundle} was trained on this panel, and the secret salt that tells who was not "
                f"used is missing. {_HINT} {file}."
            )
        panel = with_salt(panel, file)
    if _digest(panel.meta.salt) != split[SALT]:
        raise UsageError(
            f"The salt is not that of {bundle}: persons that it was trained on would count as "
            f"unseen. {_HINT} {file}."
        )
    is_other = (known := split.get(_IDS)) and not set(id_forms(panel)) & set(known)
    if is_other or any(len(person) < split.get(_SHORTEST, 0) for person in panel.persons()):
        which = "No person_id is" if is_other else "Not every person_id is"
        raise UsageError(
            f"{which} written as those of the panel of {bundle} were (leading zeros, .0, capital "
            "letters, other signs), so persons that it was trained on would count as unseen. Write "
            "ids as for training, or give another panel a `name` in its mapping."
        )
    return panel


def _salted(panel: Panel, salt: str) -> Panel:
    return replace(panel, meta=replace(panel.meta, salt=salt))


def _digest(salt: str) -> str:
    return hashlib.sha256(f"saga split salt {salt}".encode()).hexdigest()
