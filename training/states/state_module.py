"""The Lightning module of the state network; the forecast network does not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from saga.training.data import Batch
from saga.training.harness import half_cosine, schedule_rate
from saga.training.states.state_data import StateRecords, make_state_batch
from torch import Tensor
from torch.nn.functional import cross_entropy

from saga.model import Saga
from saga.states.codes import COLUMNS
from saga.states.state_network import WIDTH, StateInputs, StateNetwork

_WARMUP_STEPS = 100


@dataclass(frozen=True)
class StateFitOptions:
    """How the state network is fitted by AdamW (Loshchilov and Hutter 2019)."""

    width: int = WIDTH
    steps: int = 4_000
    batch_persons: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 0.01


@dataclass(frozen=True)
class RecordReader:
    """Summarises records with the forecast network, which is not trained.

    It is a plain object, so that the forecast network is not part of the module, its checkpoints
    and its optimiser.
    """

    network: Saga

    @torch.no_grad()
    def read(self, batch: Batch) -> StateInputs:
        """The inputs of the state network for the target years of a batch."""
        net, age = self.network, batch["token_age"]
        record = (batch[f"token_{name}"] for name in ("state", "z", "other", "codes"))
        hidden, _ = net.hidden(net.tokens(*record, age), age)
        earnings = {
            name: net.tokens.encode_earnings(batch[f"{name}_state"], batch[f"{name}_z"])
            for name in ("before", "now", "after")
        }
        rest = {name: batch[name] for name in StateInputs._fields if name in batch}
        rest["origin"] = hidden[batch["person"], batch["origin"]]
        return StateInputs(**earnings, **rest)


class StateModule(lightning.LightningModule):
    """Maximum likelihood of exits and of the seven state columns."""

    def __init__(
        self, state_network: StateNetwork, network: Saga, options: StateFitOptions
    ) -> None:
        super().__init__()
        self.state_network, self.options = state_network, options
        self.reader = RecordReader(network)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Mean negative log-likelihood per year: of emigration, death and each column."""
        inputs = self.reader.read(batch)
        leave, die, features = self.state_network.exits(inputs)
        count = max(1, len(leave))

        def mean_loss(logits: Tensor, outcome: Tensor) -> Tensor:
            return cross_entropy(logits, outcome, ignore_index=-1, reduction="sum") / count

        # A death is possible only if all later earnings of the path are zero.
        deaths = torch.where(inputs.zero_to_end, batch["dies"], -1)
        losses = {"leaving": mean_loss(leave, batch["emigrates"]), "dying": mean_loss(die, deaths)}

        def observe(column: int, logits: Tensor) -> Tensor:
            outcome = batch["next_codes"][:, column]
            losses[COLUMNS[column]] = mean_loss(logits, outcome)
            return outcome.clamp(min=0)

        self.state_network.columns(features, inputs.codes, observe)
        return losses

    @torch.no_grad()
    def mean_losses(self, records: StateRecords, until: int) -> dict[str, float]:
        """Mean losses per year over all persons, each year seen from one random origin."""
        self.eval()
        sums, n_years = dict[str, float](), 0
        rng, n_persons = np.random.default_rng(0), len(records.sequences)
        for start in range(0, n_persons, self.options.batch_persons):
            persons = np.arange(start, min(start + self.options.batch_persons, n_persons))
            batch = make_state_batch(records, persons, until, rng)
            count = len(batch["person"])
            for name, value in self.losses(batch).items():
                sums[name] = sums.get(name, 0.0) + float(value) * count
            n_years += count
        return {name: round(value / n_years, 6) for name, value in sums.items()}

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """The sum of a batch's losses, which is logged."""
        total = torch.stack(list(self.losses(batch).values())).sum()
        self.log("nll", total, prog_bar=True, batch_size=1)
        return total

    def configure_optimizers(self) -> Any:
        """AdamW; the learning rate rises over 100 steps and falls as a half cosine to zero."""
        options = self.options
        optimizer = torch.optim.AdamW(
            self.state_network.parameters(),
            lr=options.learning_rate,
            weight_decay=options.weight_decay,
        )

        def rate(step: int) -> float:
            return min(1.0, (step + 1) / _WARMUP_STEPS) * half_cosine(step / options.steps)

        return schedule_rate(optimizer, rate)
