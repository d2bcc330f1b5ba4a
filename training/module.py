"""The Lightning module of the forecast network: loss, logging and optimiser.

The network and its losses are defined in `saga.model`.
"""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from saga.training.data import Batch
from saga.training.harness import half_cosine, schedule_rate
from saga.training.masking import DIRECT_QUESTIONS
from saga.training.optimizer import Muon
from saga.training.person_parts import Losses, PersonParts
from saga.training.train_config import TrainConfig
from torch import Tensor

from saga.model import Saga

_FINAL_SHARE = 0.02  # final learning rate as a share of the peak


class ForecastModule(pl.LightningModule):
    """Training by maximum likelihood, or by the head's own criterion.

    The likelihood is that of the next observed year's earnings, with an atom at zero, and of death.
    """

    def __init__(
        self, network: Saga, config: TrainConfig, parts: PersonParts | None = None
    ) -> None:
        """`parts` computes the losses of a training batch; by default PyTorch's threads do."""
        super().__init__()
        self.network, self.config, self.parts = network, config, parts

    def select(self, values: Tensor, selected: Tensor) -> Tensor:
        """The values (k, ...) of the selected tokens; `selected` has the leading axes of both."""
        return values[selected]

    def losses(self, batch: Batch) -> Losses:
        """Losses of a batch (`saga.training.data.make_batch`).

        `sums` contains the backbone's loss under the name of the head's criterion: "pinball" for
        the quantile head, else "nll"; `sums["direct"]` is the loss of the direct forecast, and
        `sums["light"]` that of the fast cell, if there is one, on tokens after each person's
        origin.

        The objective is the sum of all losses divided by the batch's person-years; the direct loss
        is the mean over a token's questions. All batches have about equally many person-years, so
        every token has the same weight. A mean over tokens with a target would give more weight to
        batches with many deaths, which have fewer targets.
        """
        net = self.network
        tokens = net.tokens(
            batch["state"], batch["z"], batch["other"], batch["codes"], batch["age"]
        )
        hidden, _ = net.hidden(tokens, batch["age"])
        has_target = batch["gap"] > 0
        total, nll = self._summed_losses(hidden, has_target, batch)
        n_targets = has_target.sum()
        sums, counts = {net.head.criterion: total}, {net.head.criterion: n_targets}
        objective = total
        sums["direct"], counts["direct"] = self._summed_direct_losses(hidden, batch)
        objective = objective + sums["direct"] / DIRECT_QUESTIONS
        if net.light is not None:
            position = torch.arange(has_target.shape[1], device=has_target.device)
            after = has_target & (position > batch["origin"][:, None])
            light_hidden = net.fast_hidden(
                hidden, batch["origin"], batch["state"], batch["z"], batch["age"]
            )
            sums["light"], _ = self._summed_losses(light_hidden, after, batch)
            counts["light"] = after.sum()
            objective = objective + sums["light"]
        return Losses(sums, counts, nll, n_targets, objective / batch["person_years"])

    def _summed_losses(
        self, hidden: Tensor, selected: Tensor, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Sums of the head's loss and of the negative log-likelihood over the selected tokens."""
        head, select = self.network.head, self.select
        inputs = (select(values, selected) for values in (hidden, batch["gap"], batch["macro"]))
        predictive = head(*inputs)
        outcome = tuple(select(batch[f"next_{name}"], selected) for name in ("state", "z", "dead"))
        earnings, death = head.loss(predictive, *outcome)
        loss = (earnings + death).sum()
        if head.criterion == "nll":
            return loss, loss
        with torch.no_grad():
            earnings, death = head.nll(predictive, *outcome)
        return loss, (earnings + death).sum()

    def _summed_direct_losses(self, hidden: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum of the direct forecast's losses, and the number of its targets."""
        horizon, direct, select = batch["direct_horizon"], self.network.direct, self.select
        selected = horizon > 0
        predictive = direct(
            select(hidden[..., None, :].expand(*horizon.shape, -1), selected),
            select(horizon, selected),
            select(batch["age"][..., None] + horizon, selected),
            select(batch["direct_macro"], selected),
        )
        outcome = tuple(
            select(batch[f"direct_{name}"], selected) for name in ("state", "z", "dead")
        )
        earnings, death = direct.head.loss(predictive, *outcome)
        return (earnings + death).sum(), selected.sum()

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """The objective of a batch; the losses of some are logged, because it takes time."""
        trainer: Any = self.trainer
        if self.parts is None:
            losses = self.losses(batch)
        else:
            weights = [weight for weight in self.parameters() if weight.requires_grad]
            context = trainer.precision_plugin.train_step_context
            losses = self.parts.losses(
                self.losses,
                batch,
                weights,
                self.global_step,
                context,
                trainer.train_dataloader.prepare,
            )
        if (self.global_step + 1) % trainer.log_every_n_steps == 0:
            for name, value in losses.means.items():
                self.log(f"train_{name}", value.detach(), prog_bar=True, batch_size=1)
        return losses.objective

    def validation_step(self, batch: Batch, _index: int) -> None:
        """Log the losses and their sum, `validation`.

        The weights with the smallest `validation` are kept, and training stops when it no longer
        falls.
        """
        losses = self.losses(batch)
        means, weight = losses.means, int(losses.n_targets)
        for name, value in {**means, "nll": losses.nll / losses.n_targets.clamp(min=1)}.items():
            self.log(f"validation_{name}", value, prog_bar=True, batch_size=weight, sync_dist=True)
        total = torch.stack(list(means.values())).sum()
        self.log("validation", total, batch_size=weight, sync_dist=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the log score, because the weights may be selected by another loss."""
        checkpoint["validation_nll"] = float(self.trainer.callback_metrics["validation_nll"])

    def configure_optimizers(self) -> Any:
        """The optimiser and its schedule.

        The learning rate rises linearly during warm-up and then falls as a half cosine to 2 % of
        its peak at `max_steps`.
        """
        warmup, total = self.config.warmup_steps, self.config.max_steps

        def rate(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            progress = (step - warmup) / max(1, total - warmup)
            return _FINAL_SHARE + (1 - _FINAL_SHARE) * half_cosine(progress)

        return schedule_rate(self.make_optimizer(), rate)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Muon for the inner matrices, AdamW for all other parameters."""
        matrices = self.network.inner_matrices()
        inner = {id(p) for p in matrices}
        return Muon(
            matrices,
            [p for p in self.parameters() if id(p) not in inner],
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
            each=map if self.parts is None else self.parts.each,
        )
