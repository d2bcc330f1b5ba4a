"""A thin LightningModule: loss from the network's head, logging, optimiser. All mathematics is in saga.model."""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from saga.model import Saga
from training.data import Batch
from training.optimizer import Muon
from training.train_config import TrainConfig


class ForecastModule(pl.LightningModule):
    """Maximum likelihood of the next observed year (log score with a point mass at zero) and of death, or what the head has instead."""

    def __init__(self, network: Saga, config: TrainConfig) -> None:
        super().__init__()
        self.network, self.config = network, config

    def losses(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Mean losses, earnings and death, over the tokens that are asked, by name of the log; the mean negative log-likelihood; and what
        training minimises: the losses' sums over the batch's person-years.

        The head's criterion ("nll", but for quantiles) by the backbone; with a light cell also "light": by the cell, over the tokens
        behind each person's origin. Batches hold equally many person-years (`training.data.Batches`), so every token that is asked counts
        alike, in whatever company. A mean over the tokens asked would not do: where many records end by death, few tokens are asked, and
        each would count more.
        """
        b, net = batch, self.network
        hidden, _ = net.hidden(
            net.tokens(b["state"], b["z"], b["other"], b["codes"], b["age"]), b["age"]
        )
        asked = b["gap"] > 0
        total, nll = self._judged(hidden, asked, b)
        means, objective = {net.head.criterion: total / asked.sum().clamp(min=1)}, total
        if net.light is not None:
            after = asked & (
                torch.arange(asked.shape[1], device=asked.device) > b["origin"][:, None]
            )
            carried = net.fast_hidden(hidden, b["origin"], b["state"], b["z"], b["age"])
            total, _ = self._judged(carried, after, b)
            means["light"] = total / after.sum().clamp(min=1)
            objective = objective + total
        return means, nll / asked.sum().clamp(min=1), objective / b["whole"]

    def _judged(self, hidden: Tensor, asked: Tensor, b: Batch) -> tuple[Tensor, Tensor]:
        """Sums over the tokens `asked` (n, t) of the head's loss and of the negative log-likelihood."""
        head = self.network.head
        law = head(hidden[asked], b["gap"][asked], b["macro"][asked])
        outcome = (b["next_state"][asked], b["next_z"][asked], b["next_dead"][asked])
        earnings, death = head.loss(law, *outcome)
        loss = (earnings + death).sum()
        if head.criterion == "nll":
            return loss, loss
        with torch.no_grad():
            earnings, death = head.nll(law, *outcome)
        return loss, (earnings + death).sum()

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """One step's loss."""
        means, _, objective = self.losses(batch)
        for name, value in means.items():
            self.log(f"train_{name}", value, prog_bar=True, batch_size=1)
        return objective

    def validation_step(self, batch: Batch, _index: int) -> None:
        """Logs the losses and `validation_nll`; the losses' sum, `validation`, chooses the best weights."""
        means, nll, _ = self.losses(batch)
        weight = int((batch["gap"] > 0).sum())
        for name, value in {**means, "nll": nll}.items():
            self.log(f"validation_{name}", value, prog_bar=True, batch_size=weight, sync_dist=True)
        self.log(
            "validation", torch.stack(list(means.values())).sum(), batch_size=weight, sync_dist=True
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the log score beside the weights: they may be chosen by another loss."""
        checkpoint["validation_nll"] = float(self.trainer.callback_metrics["validation_nll"])

    def configure_optimizers(self) -> Any:
        """Muon with AdamW; linear warm-up, then cosine nearly to zero over `max_steps`."""
        matrices = self.network.inner_matrices()
        inner = {id(p) for p in matrices}
        rest = [p for p in self.parameters() if id(p) not in inner]
        optimiser = Muon(
            matrices, rest, lr=self.config.learning_rate, weight_decay=self.config.weight_decay
        )
        warm, total = self.config.warmup_steps, self.config.max_steps

        def rate(step: int) -> float:
            if step < warm:
                return (step + 1) / warm
            return 0.02 + 0.98 * 0.5 * (
                1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, total - warm)))
            )

        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
