"""The whole network: tokens -> backbone -> head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from saga.errors import UsageError
from saga.features.transforms import AGE, CALENDAR, MISSINGNESS, Transforms
from saga.model.backbones import Cache, Decoder, backbone
from saga.model.config import ModelConfig
from saga.model.decoder import Block
from saga.model.fast_cell import Light
from saga.model.heads.binned import Binned
from saga.model.heads.head import Head, Predictive
from saga.model.tokens import Tokens
from saga.model.variants.mixture_head import Mixture
from saga.model.variants.quantile_head import Quantiles


class Saga(nn.Module):
    """Decoder-only transformer over person-year tokens (the paper's architecture, with the changes named in docs/method/model.md), or
    another backbone in the decoder's place (`ModelConfig.backbone`)."""

    def __init__(self, config: ModelConfig, transforms: Transforms) -> None:
        super().__init__()
        self.config = config
        knots = torch.tensor(transforms.knots, dtype=torch.float32)
        self.tokens = Tokens(
            config.width, transforms.vocabulary, knots, transforms.centre, transforms.scale
        )
        self.tokens.missingness = MISSINGNESS not in transforms.without
        self.blocks = backbone(config, transforms.span)
        self.norm = nn.LayerNorm(config.width)
        # The long skip carries the query, the last known record, past the depth to the head.
        self.skip = nn.Linear(config.width, config.width, bias=False)
        self.head = build_head(config, transforms)
        self.light = Light(config, self.tokens.earnings_size) if config.light else None
        self.apply(_initialise)
        for (
            layer
        ) in self.blocks.ends():  # residual branches shrink with depth (Radford et al. 2019)
            layer.weight.data.mul_((2 * config.layers) ** -0.5)
        readers = {
            CALENDAR: [self.head.macro.weight],
            AGE: [part.age.weight for part in (self.tokens, self.light) if part is not None],
        }
        for weight in (weight for name in transforms.without for weight in readers.get(name, [])):
            weight.requires_grad_(
                False
            ).zero_()  # for good: whoever multiplies by it, here or in a rollout, learns nothing

    @property
    def decoder(self) -> Decoder:
        """The backbone, where it is the decoder. UsageError for a network of another one, which has no attention."""
        if not isinstance(self.blocks, Decoder):
            raise UsageError(
                f"This model has no attention: its backbone is {self.config.backbone}."
            )
        return self.blocks

    @property
    def stack(self) -> list[Block]:
        """The decoder's blocks, first to last. UsageError as for `decoder`."""
        return self.decoder.stack

    @property
    def parameters_count(self) -> int:
        """Trainable parameters, counted."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def inner_matrices(self) -> list[Tensor]:
        """Weights of the linear maps between hidden states: not those of inputs, outputs and embeddings."""
        inner: list[Tensor] = [layer.weight for layer in (self.skip, self.head.up, self.head.down)]
        inner += self.blocks.matrices()
        if (light := self.light) is not None:
            inner += [
                layer.weight
                for layer in (light.first, light.bias, light.skip, light.up, light.down, light.out)
            ]
        return inner

    def hidden(self, token: Tensor, age: Tensor) -> tuple[Tensor, Cache]:
        """Tokens (n, t, d) and ages (n, t) -> hidden states (n, t, d) and the backbone's cache (the decoder's: keys and values)."""
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
        """Predictive distribution after every token, for the year `gap` years on with macro covariates `macro`."""
        hidden, _ = self.hidden(self.tokens(state, z, other, codes, age), age)
        predictive: Predictive = self.head(hidden, gap, macro)
        return predictive

    def fast_hidden(
        self, hidden: Tensor, origin: Tensor, state: Tensor, z: Tensor, age: Tensor
    ) -> Tensor:
        """What the head reads after every token where the light cell carries on from the token `origin` (n,), (n, t, d).

        `hidden` (n, t, d) of the decoder. It stands unchanged up to the origin; of later years the cell sees earnings and age.
        """
        if self.light is None:
            raise UsageError("This model has no light rollout: it was trained with `light: 0`.")
        n, t = state.shape
        start = self.light.begin(hidden[torch.arange(n), origin][:, None])
        since = age.diff(dim=1, prepend=age[:, :1])
        gates = self.light.gates(self.tokens.encode_earnings(state, z), age, since) + start.gates
        after = torch.arange(t, device=age.device) > origin[:, None]
        carried, states = start.state[:, 0], []
        for later, told in zip(after.unbind(1), gates.unbind(1), strict=True):
            carried = torch.where(later[:, None], self.light.step(carried, told), carried)
            states.append(carried)
        return torch.where(
            after[..., None], self.light.hidden(torch.stack(states, 1), start), hidden
        )


def _initialise(module: nn.Module) -> None:
    """Unit-variance fan-in initialisation; the output layers start near zero, so that training starts from the marginal distribution."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.3)
    elif isinstance(module, Head):
        for layer in (module.macro, *module.outputs()):
            nn.init.normal_(layer.weight, std=0.02)


def build_head(config: ModelConfig, transforms: Transforms) -> Head[Any]:
    """The head that `config` names."""
    kinds: dict[str, type[Head[Any]]] = {
        "binned": Binned,
        "mixture": Mixture,
        "quantiles": Quantiles,
    }
    return kinds[config.head](config, transforms)
