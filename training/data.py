"""Batches for training: the person split, the masking that makes the model robust, one dictionary of tensors a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from saga.features.calendar import Calendar
from saga.features.sequences import Sequences, pad
from training.masking import Masking, hide_inputs, make_targets, thin_years

Batch = dict[str, Tensor]
_BUCKETS = 40  # batches that are sorted by length together, so that a batch pads little


def make_batch(
    sequences: Sequences,
    persons: NDArray[np.integer[Any]],
    calendar: Calendar,
    masking: Masking,
    rng: np.random.Generator,
) -> Batch:
    """Persons -> inputs (masked) and targets (not masked), tensors of shape (n_person, n_token, ...).

    `whole` counts the person-years before any is dropped: what a batch's loss is divided by (`ForecastModule`).
    """
    end = int(sequences.year.max())
    tokens, dead_year = thin_years(
        pad(sequences, persons), sequences.dead_year[persons], end, masking, rng
    )
    asked = make_targets(tokens, dead_year, calendar)
    seen, origin = hide_inputs(tokens, end, masking, rng)
    arrays = {
        "state": seen.state.astype(np.int64),
        "z": seen.z,
        "other": seen.other,
        "codes": seen.codes,
        "age": seen.age,
        "gap": asked.gap,
        "macro": asked.macro,
        "next_state": asked.state.astype(np.int64),
        "next_z": asked.z,
        "next_dead": asked.dead,
        "origin": origin,
        "whole": sequences.lengths[persons].sum(),
    }
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


@dataclass
class Batches(Dataset[Batch]):
    """An epoch of batches, each a function of (seed, epoch, index) alone, so that a resumed run sees what the first would have seen.

    Batches hold equally many person-years, and `batch_persons` persons on average. Were they equally many persons of similar length
    instead, with a mean loss each, a person-year would count the more the shorter its record; and records are short because people die.
    """

    sequences: Sequences
    persons: NDArray[np.int64]
    calendar: Calendar
    masking: Masking
    batch_persons: int
    seed: int
    epoch: int = 0

    def __len__(self) -> int:
        return max(1, len(self.persons) // self.batch_persons)

    def plan(self) -> list[NDArray[np.int64]]:
        """This epoch's persons, shuffled, grouped by similar length into batches of equally many person-years."""
        rng = np.random.default_rng([self.seed, 1, self.epoch])
        order = rng.permutation(self.persons)
        length = self.sequences.lengths
        size = self.batch_persons
        plan: list[NDArray[np.int64]] = []
        for chunk in np.array_split(order, max(1, len(order) // (size * _BUCKETS))):
            chunk = chunk[np.argsort(length[chunk], kind="stable")]
            passed, parts = length[chunk].cumsum(), max(1, len(chunk) // size)
            cuts = np.searchsorted(passed, passed[-1] * np.arange(1, parts) / parts)
            plan += [batch for batch in np.split(chunk, cuts) if len(batch)]
        rng.shuffle(plan)
        return plan

    def __getitem__(self, index: int) -> Batch:
        if index == 0 or not hasattr(self, "_plan"):
            self._plan = self.plan()
        rng = np.random.default_rng([self.seed, 2, self.epoch, index])
        return make_batch(
            self.sequences, self._plan[index % len(self._plan)], self.calendar, self.masking, rng
        )


class ResumableLoader(DataLoader[Batch]):
    """Gives an epoch's batches in order; `state_dict` counts those given, so that a checkpoint within an epoch goes on with the next."""

    given = 0

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        return self._rest(super().__iter__())

    def _rest(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        before = self.given
        for number, batch in enumerate(batches):
            if number >= before:
                self.given = number + 1
                yield batch
        self.given = 0

    def state_dict(self) -> dict[str, int]:
        """How many batches of the epoch were given; stored in the checkpoint by Lightning."""
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on behind the batches that were given."""
        self.given = state["given"]


class PanelData(pl.LightningDataModule):
    """Training and validation persons of one encoded panel; the split was made by person before (saga.data.split)."""

    def __init__(
        self,
        train: Sequences,
        validation: Sequences,
        calendar: Calendar,
        *,
        batch_persons: int,
        seed: int,
        masking: Masking | None = None,
    ) -> None:
        super().__init__()
        self.train, self.validation, self.calendar = train, validation, calendar
        self.batch_persons, self.seed = batch_persons, seed
        self.masking = masking or Masking()

    def train_dataloader(self) -> DataLoader[Batch]:
        """Reloaded each epoch, so that each epoch draws its own masks."""
        epoch = self.trainer.current_epoch if self.trainer else 0
        persons = np.arange(len(self.train))
        batches = Batches(
            self.train, persons, self.calendar, self.masking, self.batch_persons, self.seed, epoch
        )
        return ResumableLoader(batches, batch_size=None, shuffle=False)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Always the same masks, so that validations can be compared."""
        persons = np.arange(len(self.validation))
        batches = Batches(
            self.validation,
            persons,
            self.calendar,
            self.masking,
            min(256, len(persons)),
            self.seed,
            epoch=2**31 - 1,
        )
        return DataLoader(batches, batch_size=None, shuffle=False)
