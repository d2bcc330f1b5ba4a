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


class ForecastModule(pl.LightningModule):
    """Maximum likelihood of the next observed year (log score with a point mass at zero) and of death."""

    def __init__(self, network: Saga, config: TrainConfig) -> None:
        super().__init__()
        self.network, self.config = network, config

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean negative log-likelihood of earnings and of death, over the tokens that are asked."""
        b = batch
        p = self.network(b["state"], b["z"], b["other"], b["codes"], b["age"], b["macro"], b["gap"], b["next_macro"])
        earnings, death = self.network.head.nll(p, b["next_state"], b["next_z"], b["next_dead"])
        asked = (b["gap"] > 0).sum().clamp(min=1)
        return earnings.sum() / asked, death.sum() / asked

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """One step's loss."""
        earnings, death = self.losses(batch)
        self.log("train_nll", earnings, prog_bar=True, batch_size=1)
        return earnings + death

    def validation_step(self, batch: Batch, _index: int) -> None:
        """Logs `validation_nll`, on which training stops and the best weights are chosen."""
        earnings, death = self.losses(batch)
        weight = int((batch["gap"] > 0).sum())
        self.log("validation_nll", earnings + death, prog_bar=True, batch_size=weight)
        self.log("validation_death", death, batch_size=weight)

    def configure_optimizers(self) -> Any:
        """AdamW, weight decay on matrices only; linear warm-up, then cosine to zero over `max_steps`."""
        decay = [p for p in self.parameters() if p.ndim >= 2]
        rest = [p for p in self.parameters() if p.ndim < 2]
        groups = [{"params": decay, "weight_decay": self.config.weight_decay}, {"params": rest, "weight_decay": 0.0}]
        optimiser = torch.optim.AdamW(groups, lr=self.config.learning_rate, betas=(0.9, 0.98), fused=True)
        warm, total = self.config.warmup_steps, self.config.max_steps

        def rate(step: int) -> float:
            if step < warm:
                return (step + 1) / warm
            return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, total - warm))))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
