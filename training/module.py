"""The Lightning module of the forecast network: loss, logging and optimiser.

The mathematics of the network and its losses is in `saga.model`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor

from saga.model import Saga
from training.data import Batch
from training.harness import half_cosine, schedule_rate
from training.optimizer import Muon
from training.train_config import TrainConfig

_FINAL_RATE = 0.02  # of the peak learning rate


class Losses(NamedTuple):
    """The losses of a batch.

    `means` are losses by the name of their log, averaged over tokens with a target; `nll` is the
    mean negative log-likelihood; `objective` is what training minimises.
    """

    means: dict[str, Tensor]
    nll: Tensor
    objective: Tensor


class ForecastModule(pl.LightningModule):
    """Maximum likelihood of the next observed year and of death, or the head's own criterion.

    The likelihood of earnings has a point mass at zero.
    """

    def __init__(self, network: Saga, config: TrainConfig) -> None:
        super().__init__()
        self.network, self.config = network, config

    def losses(self, batch: Batch) -> Losses:
        """Losses of a batch (`training.data.make_batch`).

        `means` holds the head's criterion ("nll", except for quantiles) for the backbone. With a
        light cell it also holds "light": the criterion of the cell on tokens after each origin.

        The objective sums the losses and divides by the batch's person-years. Batches hold equally
        many person-years, so every token has the same weight. A mean over tokens with a target
        would give more weight to tokens in batches with many deaths, which have fewer targets.
        """
        net = self.network
        tokens = net.tokens(
            batch["state"], batch["z"], batch["other"], batch["codes"], batch["age"]
        )
        hidden, _ = net.hidden(tokens, batch["age"])
        has_target = batch["gap"] > 0
        total, nll = self._sums(hidden, has_target, batch)
        count = has_target.sum().clamp(min=1)
        means, objective = {net.head.criterion: total / count}, total
        if net.light is not None:
            position = torch.arange(has_target.shape[1], device=has_target.device)
            after = has_target & (position > batch["origin"][:, None])
            rolled = net.fast_hidden(
                hidden, batch["origin"], batch["state"], batch["z"], batch["age"]
            )
            total, _ = self._sums(rolled, after, batch)
            means["light"] = total / after.sum().clamp(min=1)
            objective = objective + total
        return Losses(means, nll / count, objective / batch["person_years"])

    def _sums(self, hidden: Tensor, chosen: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sums of the head's loss and the negative log-likelihood over tokens `chosen` (n, t)."""
        head = self.network.head
        predictive = head(hidden[chosen], batch["gap"][chosen], batch["macro"][chosen])
        outcome = tuple(batch[f"next_{name}"][chosen] for name in ("state", "z", "dead"))
        earnings, death = head.loss(predictive, *outcome)
        loss = (earnings + death).sum()
        if head.criterion == "nll":
            return loss, loss
        with torch.no_grad():
            earnings, death = head.nll(predictive, *outcome)
        return loss, (earnings + death).sum()

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """One step's loss."""
        losses = self.losses(batch)
        for name, value in losses.means.items():
            self.log(f"train_{name}", value, prog_bar=True, batch_size=1)
        return losses.objective

    def validation_step(self, batch: Batch, _index: int) -> None:
        """Log the losses and `validation_nll`; their sum, `validation`, chooses the weights."""
        means, nll, _ = self.losses(batch)
        weight = int((batch["gap"] > 0).sum())
        for name, value in {**means, "nll": nll}.items():
            self.log(f"validation_{name}", value, prog_bar=True, batch_size=weight, sync_dist=True)
        total = torch.stack(list(means.values())).sum()
        self.log("validation", total, batch_size=weight, sync_dist=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the log score beside the weights, which another loss may have chosen."""
        checkpoint["validation_nll"] = float(self.trainer.callback_metrics["validation_nll"])

    def configure_optimizers(self) -> Any:
        """Muon with AdamW; linear warm-up, then a cosine nearly to zero over `max_steps`."""
        matrices = self.network.inner_matrices()
        inner = {id(p) for p in matrices}
        rest = [p for p in self.parameters() if id(p) not in inner]
        config = self.config
        warmup, total = config.warmup_steps, config.max_steps

        def rate(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            progress = (step - warmup) / max(1, total - warmup)
            return _FINAL_RATE + (1 - _FINAL_RATE) * half_cosine(progress)

        optimizer = Muon(matrices, rest, lr=config.learning_rate, weight_decay=config.weight_decay)
        return schedule_rate(optimizer, rate)
