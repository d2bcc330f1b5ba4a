"""Batches for training: masked records of persons and their targets as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from saga.training.masking import (
    Masking,
    hide_inputs,
    make_direct_targets,
    make_targets,
    thin_years,
)
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from saga.features.calendar import Calendar
from saga.features.sequences import Sequences, pad

# Tensors of a batch, of shape (n_person, n_token, ...) unless stated:
# - inputs, partly masked: state (of earnings: unknown, zero, positive), z, other, codes, age
#   (see `saga.features.sequences`)
# - targets of the direct forecast, of shape (n_person, n_token, n_question, ...): direct_horizon
#   (0 for none), direct_macro, direct_state, direct_z, direct_dead
# - target, the next year with known earnings, or the year of death if none follows; at most
#   MAX_GAP years later: gap (years until it, 0 for none), macro (of that year), next_state,
#   next_z, next_dead
# - origin (n_person,): index of the last token before the fast cell takes over
# - person_years (): person-years of the batch before any is dropped
Batch = dict[str, Tensor]
_BATCHES_PER_CHUNK = 40  # batches whose persons are sorted by length together, for less padding
_VALIDATION_EPOCH = 2**31 - 1  # epoch number in the random seed of validation batches
_VALIDATION_PERSONS = 256  # in a validation batch


def make_batch(
    sequences: Sequences,
    persons: NDArray[np.integer[Any]],
    calendar: Calendar,
    masking: Masking,
    rng: np.random.Generator,
) -> Batch:
    """Masked inputs, and targets from the years that thinning has left, none of them hidden.

    Shapes are as at `Batch`. `person_years` counts the person-years before any is dropped;
    `ForecastModule` divides the batch's loss by it.
    """
    end = int(sequences.year.max())
    tokens, dead_year = thin_years(
        pad(sequences, persons), sequences.dead_year[persons], end, masking, rng
    )
    targets = make_targets(tokens, dead_year, calendar)
    direct = make_direct_targets(tokens, dead_year, calendar, end, rng)
    visible, origin = hide_inputs(tokens, end, masking, rng)
    return as_tensors(
        {
            "state": visible.state.astype(np.int64),
            "z": visible.z,
            "other": visible.other,
            "codes": visible.codes,
            "age": visible.age,
            "gap": targets.gap,
            "macro": targets.macro,
            "next_state": targets.state.astype(np.int64),
            "next_z": targets.z,
            "next_dead": targets.dead,
            "direct_horizon": direct.gap,
            "direct_macro": direct.macro,
            "direct_state": direct.state.astype(np.int64),
            "direct_z": direct.z,
            "direct_dead": direct.dead,
            "origin": origin,
            "person_years": sequences.lengths[persons].sum(),
        }
    )


def as_tensors(arrays: dict[str, NDArray[Any]]) -> Batch:
    """The arrays as tensors."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


@dataclass
class Batches(Dataset[Batch]):
    """The batches of a panel in an epoch; each depends on (seed, epoch, index, number) alone.

    Therefore runs can be resumed. All batches have about the same number of person-years, and
    `batch_persons` persons on average. If they had the same number of persons, with a mean loss for
    each batch, person-years of short records would have more weight, and records of persons who
    die are short.
    """

    sequences: Sequences
    calendar: Calendar
    masking: Masking
    batch_persons: int
    seed: int
    epoch: int = 0
    number: int = 0  # of the panel

    def __len__(self) -> int:
        return max(1, len(self.sequences) // self.batch_persons)

    def plan(self) -> list[NDArray[np.int64]]:
        """The persons of each batch: shuffled, and grouped by similar length."""
        rng = np.random.default_rng([self.seed, 1, self.epoch, self.number])
        order = rng.permutation(len(self.sequences))
        length = self.sequences.lengths
        size = self.batch_persons
        plan: list[NDArray[np.int64]] = []
        for chunk in np.array_split(order, max(1, len(order) // (size * _BATCHES_PER_CHUNK))):
            chunk = chunk[np.argsort(length[chunk], kind="stable")]
            cumulated, parts = length[chunk].cumsum(), max(1, len(chunk) // size)
            cuts = np.searchsorted(cumulated, cumulated[-1] * np.arange(1, parts) / parts)
            plan += [batch for batch in np.split(chunk, cuts) if len(batch)]
        rng.shuffle(plan)
        return plan

    def __getitem__(self, index: int) -> Batch:
        if index == 0 or not hasattr(self, "_plan"):
            self._plan = self.plan()
        rng = np.random.default_rng([self.seed, 2, self.epoch, index, self.number])
        return make_batch(
            self.sequences, self._plan[index % len(self._plan)], self.calendar, self.masking, rng
        )


@dataclass
class RandomBatches(Dataset[Batch]):
    """Batches that each person joins with the same probability, `batch_persons` on average.

    Persons and masks are drawn from the operating system's randomness, so that nobody knows who
    was in a step. `counted` (n_person,) is 0 for the person who stands in if nobody was drawn.
    """

    sequences: Sequences
    calendar: Calendar
    masking: Masking
    batch_persons: int

    def __len__(self) -> int:
        return max(1, len(self.sequences) // self.batch_persons)

    def __getitem__(self, _index: int) -> Batch:
        rng, n = np.random.default_rng(), len(self.sequences)
        persons = np.flatnonzero(rng.random(n) < self.batch_persons / n)
        counted = torch.full((max(1, len(persons)),), float(len(persons) > 0))
        if len(persons) == 0:
            persons = np.zeros(1, np.int64)
        batch = make_batch(self.sequences, persons, self.calendar, self.masking, rng)
        return {**batch, "counted": counted}


class _MixedBatches(Dataset[Batch]):
    """The batches of several panels in random order; the persons of a batch live in one economy."""

    def __init__(self, parts: list[Batches], seed: int, epoch: int) -> None:
        self.parts = parts
        owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        self._owners = np.random.default_rng([seed, 3, epoch]).permutation(owners)

    def __len__(self) -> int:
        return len(self._owners)

    def __getitem__(self, index: int) -> Batch:
        owner = int(self._owners[index])
        return self.parts[owner][int((self._owners[:index] == owner).sum())]


class ResumableLoader(DataLoader[Batch]):
    """Yields an epoch's batches in order, and resumes within an epoch.

    `state_dict` counts the batches already yielded.
    """

    position = 0

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        self._batches, self._ahead = super().__iter__(), list[Batch | None]()
        return self._rest()

    def prepare(self) -> None:
        """Make the batch that follows, if it is not made yet and there is one."""
        if not self._ahead:
            self._ahead.append(next(self._batches, None))

    def _rest(self) -> Iterator[Batch]:
        start = self.position
        for number in count(1):
            self.prepare()
            batch = self._ahead.pop()
            if batch is None:
                break
            if number > start:
                self.position = number
                yield batch
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        """How many batches of the epoch were yielded; Lightning stores it in the checkpoint."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue after the batches that were yielded before."""
        self.position = state["position"]


class PanelData(pl.LightningDataModule):
    """Training and validation persons, already split by person (`saga.data.split`).

    Training persons of further panels (`also`) live in other economies, each with its calendar.
    Batches of a `private` training are `RandomBatches`.
    """

    def __init__(
        self,
        train: Sequences,
        validation: Sequences,
        calendar: Calendar,
        *,
        batch_persons: int,
        seed: int,
        masking: Masking | None = None,
        also: Sequence[tuple[Sequences, Calendar]] = (),
        private: bool = False,
    ) -> None:
        super().__init__()
        self.private = private
        self.also = also
        self.train, self.validation, self.calendar = train, validation, calendar
        self.batch_persons, self.seed = batch_persons, seed
        self.masking = masking or Masking()

    @property
    def n_train(self) -> int:
        """Training persons of all panels."""
        return len(self.train) + sum(len(records) for records, _ in self.also)

    @property
    def n_records(self) -> int:
        """Person-years of all training persons."""
        return len(self.train.year) + sum(len(records.year) for records, _ in self.also)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Reloaded each epoch, so that each epoch draws its own masks."""
        if self.private:
            return DataLoader(
                RandomBatches(self.train, self.calendar, self.masking, self.batch_persons),
                batch_size=None,
            )
        epoch = self.trainer.current_epoch if self.trainer else 0
        batches: Dataset[Batch] = self._batches(self.train, self.batch_persons, epoch)
        if self.also:
            panels = ((self.train, self.calendar), *self.also)
            parts = [
                replace(
                    self._batches(records, self.batch_persons, epoch),
                    calendar=calendar,
                    number=number,
                )
                for number, (records, calendar) in enumerate(panels)
            ]
            batches = _MixedBatches(parts, self.seed, epoch)
        return ResumableLoader(batches, batch_size=None, shuffle=False)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Always the same masks, so that validations can be compared."""
        size = min(_VALIDATION_PERSONS, len(self.validation))
        batches = self._batches(self.validation, size, _VALIDATION_EPOCH)
        return DataLoader(batches, batch_size=None, shuffle=False)

    def _batches(self, sequences: Sequences, size: int, epoch: int) -> Batches:
        return Batches(sequences, self.calendar, self.masking, size, self.seed, epoch)
