"""The forecast network: token embedding, backbone and head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from saga.errors import UsageError
from saga.features.calendar import PATH_FEATURES
from saga.features.sequences import N_OTHER, Tokens
from saga.features.transforms import AGE, CALENDAR, MISSINGNESS, Transforms
from saga.model.config import ModelConfig
from saga.model.decoder import Cache, Decoder, build_backbone, load_variant
from saga.model.fast_cell import FastCell
from saga.model.heads.binned import BinnedHead
from saga.model.heads.head import YEARLY, Head, HeadInputs, Predictive
from saga.model.tokens import TokenEmbedding
from saga.requests import MAX_HORIZON
from saga.schema import MIN_AGE, N_AGES

_DIRECT_WIDTH_RATIO = 2  # hidden units of the direct head per hidden unit of the yearly one


class Saga(nn.Module):
    """The forecast network, by default a decoder-only transformer over person-year tokens.

    The architecture is the paper's, with the changes listed in docs/method/model.md.
    `ModelConfig.backbone` selects the backbone.
    """

    def __init__(self, config: ModelConfig, transforms: Transforms) -> None:
        super().__init__()
        self.config = config
        knots = torch.tensor(transforms.knots, dtype=torch.float32)
        self.tokens = TokenEmbedding(
            config.width,
            transforms.vocabulary,
            knots,
            transforms.centre,
            transforms.scale,
            len(transforms.numbers) - N_OTHER,
        )
        self.tokens.missingness = MISSINGNESS not in transforms.without
        self.blocks = build_backbone(config, transforms.span)
        self.norm = nn.LayerNorm(config.width)
        # A direct connection from the embedding of a token to the head, past the backbone.
        self.skip = nn.Linear(config.width, config.width, bias=False)
        self.head = build_head(config, transforms)
        # Thirty horizons need more units than the next few years.
        wider = replace(config, head_width=_DIRECT_WIDTH_RATIO * config.head_width)
        direct = build_head(wider, transforms, HeadInputs(MAX_HORIZON, PATH_FEATURES))
        self.direct = DirectForecast(config.width, direct)
        self.light = FastCell(config, self.tokens.earnings_size) if config.light else None
        self.apply(_initialise)
        for layer in self.blocks.residual_outputs():  # scaled by depth (Radford et al. 2019)
            layer.weight.data.mul_((2 * config.layers) ** -0.5)
        inputs = {
            CALENDAR: [head.macro.weight for head in (self.head, self.direct.head)],
            AGE: [
                part.age.weight
                for part in (self.tokens, self.direct, self.light)
                if part is not None
            ],
        }
        for weight in (weight for name in transforms.without for weight in inputs.get(name, [])):
            weight.requires_grad_(False).zero_()  # an input that is not used has no effect

    @property
    def decoder(self) -> Decoder:
        """The backbone if it is the decoder; raises UsageError for another backbone."""
        if not isinstance(self.blocks, Decoder):
            raise UsageError(
                f"This model has no attention: its backbone is {self.config.backbone}."
            )
        return self.blocks

    @property
    def parameters_count(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def inner_matrices(self) -> list[Tensor]:
        """Weights of the maps between hidden states, without inputs, outputs and embeddings."""
        inner: list[Tensor] = [self.skip.weight]
        for head in (self.head, self.direct.head):
            inner += [head.up.weight, head.down.weight]
        inner += self.blocks.inner_matrices()
        if (cell := self.light) is not None:
            layers = (cell.first, cell.bias, cell.skip, cell.up, cell.down, cell.out)
            inner += [layer.weight for layer in layers]
        return inner

    def embed(self, records: Tokens) -> Tensor:
        """Embedding (n, t, d) of a padded batch of records."""
        columns = (
            torch.from_numpy(records.state).long(),
            torch.from_numpy(records.z),
            torch.from_numpy(records.other),
            torch.from_numpy(records.codes),
            torch.from_numpy(records.age),
        )
        embedding: Tensor = self.tokens(*columns)
        return embedding

    def hidden(self, token: Tensor, age: Tensor) -> tuple[Tensor, Cache]:
        """Hidden states (n, t, d) of tokens (n, t, d) at ages (n, t), and the backbone's cache."""
        x, cache = self.blocks(token, age)
        return self.norm(x) + self.skip(token), cache

    def forward(
        self,
        state: Tensor,
        z: Tensor,
        other: Tensor,
        codes: Tensor,
        age: Tensor,
        gap: Tensor,
        macro: Tensor,
    ) -> Predictive:
        """Predictive distributions after every token, for the year `gap` years later.

        Args:
            state: Earnings states (n, t).
            z: Relative log earnings (n, t).
            other: Standardised values (n, t, 14 or more), NaN if missing.
            codes: Code numbers (n, t, 10 or more).
            age: Ages (n, t).
            gap: Years from each token to its target year (n, t).
            macro: Macro covariates of the target year (n, t, 4).
        """
        hidden, _ = self.hidden(self.tokens(state, z, other, codes, age), age)
        predictive: Predictive = self.head(hidden, gap, macro)
        return predictive

    def fast_cell(self) -> FastCell:
        """The cell of the light rollout. Raises UsageError if the network has none."""
        if self.light is None:
            raise UsageError(
                "This bundle has no light rollout. Use --rollout exact, or train with a "
                "configuration that has `light`."
            )
        return self.light

    def fast_hidden(
        self, hidden: Tensor, origin: Tensor, state: Tensor, z: Tensor, age: Tensor
    ) -> Tensor:
        """Hidden states (n, t, d) if the fast cell continues after token `origin` (n,).

        Up to the origin they are those of the decoder, `hidden` (n, t, d). Of later years the cell
        receives only earnings and age.
        """
        cell = self.fast_cell()
        n, t = state.shape
        summary = cell.summarise(hidden[torch.arange(n), origin][:, None])
        gap = age.diff(dim=1, prepend=age[:, :1])
        earnings = self.tokens.encode_earnings(state, z)
        inputs = cell.year_input(earnings, age, gap) + summary.bias
        after = torch.arange(t, device=age.device) > origin[:, None]
        states = cell.states(summary.state[:, 0], inputs, after)
        fast = cell.hidden(states, summary)
        return torch.where(after[..., None], fast, hidden)


class DirectForecast(nn.Module):
    """A head of its own for horizons 1..30, which also receives the age in the target year.

    A rollout simulates the years between, and its random draws make every marginal noisy. The
    direct forecast draws nothing but macro futures: a marginal is the average over them. Paths are
    then mapped to these marginals (`saga.conformal.recalibration`).
    """

    def __init__(self, width: int, head: Head[Any]) -> None:
        super().__init__()
        self.age = nn.Embedding(N_AGES, width)
        self.head = head

    def forward(self, hidden: Tensor, horizon: Tensor, age: Tensor, macro: Tensor) -> Predictive:
        """Distributions of the target years; leading shapes broadcast.

        Args:
            hidden: Hidden states at the origins (..., d).
            horizon: Years from the origin to the target year (...,), 1 to 30.
            age: Ages in the target year (...,).
            macro: Covariates (..., 7), see `saga.features.calendar.path_features`.
        """
        at_age = self.age((age - MIN_AGE).clamp(0, N_AGES - 1))
        predictive: Predictive = self.head(hidden + at_age, horizon, macro)
        return predictive


def _initialise(module: nn.Module) -> None:
    """Initialise layers to preserve variance, and outputs near zero.

    Training therefore starts near the marginal distribution.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.3)
    elif isinstance(module, Head):
        for layer in (module.macro, *module.outputs()):
            nn.init.normal_(layer.weight, std=0.02)


def build_head(
    config: ModelConfig, transforms: Transforms, inputs: HeadInputs = YEARLY
) -> Head[Any]:
    """A head of the kind that `config` names."""
    kind = BinnedHead if config.head == "binned" else load_variant(config.head)
    head: Head[Any] = kind(config, transforms, inputs)
    return head
