"""Training with a promise: no single person changes the weights much (differential privacy).

DP-SGD (Abadi et al. 2016): a step draws each training person with the same probability, clips the
gradient of each person's whole record, and adds normal noise to their sum. Opacus computes how much
noise keeps the promise. All randomness comes from the operating system and is recorded nowhere:
whoever knew the noise could subtract it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
import torch
from saga.training.data import Batch
from saga.training.harness import RunOptions
from saga.training.module import ForecastModule
from saga.training.person_parts import KnownGradient
from saga.training.train_config import AUTO, TrainConfig
from saga.training.transfer import Source
from torch import Tensor
from torch.func import functional_call, grad, vmap

from saga.data.panel import Panel
from saga.errors import UsageError
from saga.model import Saga

_ACCOUNTANT = "prv"  # Gopi, Lee and Wutschitz 2021; Opacus returns its upper bound
_MOMENTUM = 0.9
# The noise of all steps is a random walk of each weight; beyond this length forecasts became worse.
_MAX_WALK = 0.017
_MAX_RATE = 0.01
_PERSONS_AT_ONCE = 64  # whose gradients are in memory


@dataclass(frozen=True)
class PrivacyPlan:
    """What a private training does, and what it promises.

    Attributes:
        epsilon: Bound on the change of any log probability of the weights by one person.
        delta: Probability with which the bound may fail.
        rate: Probability that a step uses a person.
        steps: Steps of training.
        noise: Standard deviation of the noise in units of `clip`.
        clip: Largest norm of a person's gradient.
    """

    epsilon: float
    delta: float
    rate: float
    steps: int
    noise: float
    clip: float

    @classmethod
    def of(cls, settings: TrainConfig, n_persons: int) -> Self:
        """The plan for so many training persons, with the least noise that keeps the promise.

        `delta` is a tenth of one over their number, rounded to one digit.
        """
        epsilon, steps = settings.privacy or math.inf, settings.max_steps
        delta, rate = float(f"{0.1 / n_persons:.0e}"), min(1.0, settings.batch_persons / n_persons)
        noise = _least_noise(epsilon, delta, rate, steps)
        return cls(epsilon, delta, rate, steps, noise, settings.clip)

    def after(self, steps: int) -> Self:
        """The plan with the steps taken, and the epsilon that these have spent, rounded up."""
        from opacus.accountants import create_accountant

        accountant = create_accountant(_ACCOUNTANT)
        accountant.history = [(self.noise, self.rate, steps)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spent = accountant.get_epsilon(delta=self.delta)
        return replace(self, steps=steps, epsilon=math.ceil(1_000 * spent) / 1_000)

    def as_dict(self) -> dict[str, Any]:
        """The promise, for config.json."""
        return {**asdict(self), "unit": "person", "covers": "weights only"}

    def paragraph(self) -> str:
        """Section of the model card: what is promised and what is not."""
        return f"""
## Privacy: weights only

The weights are differentially private with epsilon {self.epsilon:g} and delta {self.delta:g}, for a
person with all years, not for a family: {self.steps:,} steps, each with every training person with
probability {self.rate:.4g}, clip norm {self.clip:g}, noise {self.noise:.4g} times as large
(accountant: Opacus, {_ACCOUNTANT}). Training did not stop early.
Outside the promise, because computed from persons without noise: scalers, codes and bins
(`transforms.json`), group series (`macro.json`), the span of the records, thresholds, diagnostics
and scores. The number of training persons counts as public. Another bundle of the same persons adds
its own epsilon.
"""


@cache
def _least_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least noise, in units of the clip norm, for which the steps spend `epsilon` at most."""
    from opacus.accountants.utils import get_noise_multiplier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a bound could be tighter
        noise = get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=rate,
            steps=steps,
            accountant=_ACCOUNTANT,
            epsilon_tolerance=0.01 * min(1.0, epsilon),
        )
    return float(noise)


def private_settings(settings: TrainConfig, epsilon: float, n_persons: int) -> TrainConfig:
    """The configuration with a promise to so many training persons.

    There is one network, without trees, dropout and early stopping. "auto" gets steps, batches and
    a learning rate that suit the noise; other configurations keep theirs, and `clip` is the largest
    norm of a person's gradient.
    """
    _require_opacus()
    if settings.name == AUTO:
        steps = 150 if n_persons < 20_000 else 300
        settings = replace(
            settings,
            batch_persons=min(512, n_persons),
            max_steps=steps,
            validate_every=steps,
            warmup_steps=10,
            weight_decay=0.0,
            clip=10.0,
        )
    private = replace(
        settings,
        privacy=epsilon,
        model=replace(settings.model, dropout=0.0),
        validate_every=settings.max_steps,
        members=1,
        trees=False,
        precision="32-true",
    )
    if settings.name != AUTO:
        return private
    noise = PrivacyPlan.of(private, n_persons).noise * private.clip / private.batch_persons
    walk = noise * math.sqrt(private.max_steps) / (1 - _MOMENTUM)
    return replace(private, learning_rate=min(_MAX_RATE, _MAX_WALK / walk))


def check_promise(
    settings: TrainConfig, panel: Panel, run: RunOptions, source: Source | None
) -> None:
    """Raise UsageError if a run cannot keep the promise of its configuration, if it has one."""
    if settings.privacy is None:
        return
    _require_opacus()
    if run.resume:
        raise UsageError(
            "A private training is not resumed: steps after the checkpoint would be taken twice. "
            "Leave --resume out to start again."
        )
    if run.devices > 1 or run.also:
        raise UsageError(
            "A private training has one device and one panel. Leave --devices and --also out."
        )
    if source is not None and source.panel_id == panel.meta.panel_id:
        raise UsageError(
            f"The bundle of --from was trained on a panel of the same name, {source.panel_id}. Its "
            "weights would tell of the persons that --privacy protects. Start from bundles/prior; "
            "if the panel is another one, give its mapping another name."
        )


def _require_opacus() -> None:
    if find_spec("opacus") is None:
        raise UsageError("--privacy needs Opacus. Run: pip install 'saga-forecast[privacy]'")


class PrivateModule(ForecastModule):
    """Training steps by DP-SGD; the optimiser receives the noisy mean gradient."""

    def __init__(self, network: Saga, config: TrainConfig, plan: PrivacyPlan) -> None:
        super().__init__(network, config)
        self.plan = plan

    def select(self, values: Tensor, selected: Tensor) -> Tensor:
        """The values where selected, else 0, which has no loss: shapes must not depend on data."""
        mask = selected.reshape(selected.shape + (1,) * (values.ndim - selected.ndim))
        return torch.where(mask, values, torch.zeros_like(values))

    def forward(self, batch: Batch) -> Tensor:
        """The objective of a batch."""
        return self.losses(batch).objective

    def clipped_sum(self, batch: Batch) -> dict[str, Tensor]:
        """The sum of the persons' gradients by name of the weight, each of norm `clip` at most.

        A gradient that is not finite counts as 0, and so does a person who is not `counted`.
        """
        weights = {
            k: weight.detach() for k, weight in self.named_parameters() if weight.requires_grad
        }
        total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        by_person = vmap(grad(self._person_objective), in_dims=(None, 0))
        persons = {name: values for name, values in batch.items() if name != "person_years"}
        for start in range(0, len(batch["age"]), _PERSONS_AT_ONCE):
            part = {k: values[start : start + _PERSONS_AT_ONCE] for k, values in persons.items()}
            gradients = by_person(weights, part)
            squares = [gradient.flatten(1).square().sum(1) for gradient in gradients.values()]
            norm = torch.stack(squares).sum(0).sqrt()
            factor = (self.plan.clip / norm).clamp(max=1.0) * part["counted"]
            factor = torch.where(norm.isfinite(), factor, 0.0)
            for name, gradient in gradients.items():
                total[name] += torch.tensordot(factor, gradient.nan_to_num(0.0, 0.0, 0.0), 1)
        return total

    def private_gradients(self, batch: Batch) -> dict[str, Tensor]:
        """The noisy mean gradient over the expected number of persons, by name of the weight."""
        deviation = self.plan.noise * self.plan.clip
        # 128 bits of the operating system; torch's generator on a CPU has a seed of 32 bits.
        rng = np.random.default_rng()
        return {
            name: (total + torch.from_numpy(rng.normal(0.0, deviation, total.shape)).to(total))
            / self.config.batch_persons
            for name, total in self.clipped_sum(batch).items()
        }

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """A loss with the private gradient; the loss of persons is neither shown nor logged."""
        gradients = self.private_gradients(batch)
        weights = [self.get_parameter(name) for name in gradients]
        objective: Tensor = KnownGradient.apply(  # type: ignore[no-untyped-call]
            torch.zeros((), device=self.device), list(gradients.values()), *weights
        )
        return objective

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Momentum: the steps of Muon and AdamW are as large where there is nothing but noise."""
        weights = [weight for weight in self.parameters() if weight.requires_grad]
        rate, decay = self.config.learning_rate, self.config.weight_decay
        return torch.optim.SGD(weights, lr=rate, momentum=_MOMENTUM, weight_decay=decay)

    def _person_objective(self, weights: dict[str, Tensor], person: Batch) -> Tensor:
        alone = {name: values[None] for name, values in person.items()}
        objective: Tensor = functional_call(
            self, weights, ({**alone, "person_years": torch.ones(())},)
        )
        return objective
