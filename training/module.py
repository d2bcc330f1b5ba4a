"""A thin LightningModule: loss from the network's head, logging, optimiser. All mathematics is in saga.model."""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from saga.model import Saga
from training.config import TrainConfig
from training.data import Batch
from training.muon import Muon


class ForecastModule(pl.LightningModule):
    """Maximum likelihood of the next observed year (log score with a point mass at zero) and of death."""

    def __init__(self, network: Saga, config: TrainConfig) -> None:
        super().__init__()
        self.network, self.config = network, config

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Mean negative log-likelihood, earnings and death, over the tokens that are asked, by name of the log.

        "nll": by the decoder; with a light cell also "light": by the cell, over the tokens behind each person's origin.
        """
        b, net = batch, self.network
        hidden, _ = net.hidden(net.tokens(b["state"], b["z"], b["other"], b["codes"], b["age"], b["macro"]), b["age"])
        asked = b["gap"] > 0
        out = {"nll": self._nll(hidden, asked, b)}
        if net.light is not None:
            after = torch.arange(asked.shape[1], device=asked.device) > b["origin"][:, None]
            carried = net.lightly(hidden, b["origin"], b["state"], b["z"], b["age"], b["macro"])
            out["light"] = self._nll(carried, asked & after, b)
        return out

    def _nll(self, hidden: Tensor, asked: Tensor, b: Batch) -> Tensor:
        head = self.network.head
        p = head(hidden[asked], b["gap"][asked], b["next_macro"][asked])
        earnings, death = head.nll(p, b["next_state"][asked], b["next_z"][asked], b["next_dead"][asked])
        mean: Tensor = (earnings + death).sum() / asked.sum().clamp(min=1)
        return mean

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """One step's loss."""
        losses = self.losses(batch)
        for name, value in losses.items():
            self.log(f"train_{name}", value, prog_bar=True, batch_size=1)
        return torch.stack(list(losses.values())).sum()

    def validation_step(self, batch: Batch, _index: int) -> None:
        """Logs `validation_nll` and, with a light cell, `validation_light`; their sum `validation` chooses the best weights."""
        losses = self.losses(batch)
        weight = int((batch["gap"] > 0).sum())
        for name, value in losses.items():
            self.log(f"validation_{name}", value, prog_bar=True, batch_size=weight)
        self.log("validation", torch.stack(list(losses.values())).sum(), batch_size=weight)

    def configure_optimizers(self) -> Any:
        """Muon with AdamW; linear warm-up, then cosine nearly to zero over `max_steps`."""
        matrices = self.network.inner_matrices()
        inner = {id(p) for p in matrices}
        rest = [p for p in self.parameters() if id(p) not in inner]
        optimiser = Muon(matrices, rest, lr=self.config.learning_rate, weight_decay=self.config.weight_decay)
        warm, total = self.config.warmup_steps, self.config.max_steps

        def rate(step: int) -> float:
            if step < warm:
                return (step + 1) / warm
            return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, total - warm))))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
