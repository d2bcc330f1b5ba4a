"""The whole network: tokens -> decoder -> head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saga.errors import UsageError
from saga.model.config import ModelConfig
from saga.model.decoder import Block, causal_mask, rotation
from saga.model.heads import Head, Predictive
from saga.model.light import Light
from saga.model.tokens import Tokens
from saga.transforms import Transforms


class Saga(nn.Module):
    """Decoder-only transformer over person-year tokens (the paper's architecture, with the changes named in docs/method/model.md)."""

    def __init__(self, config: ModelConfig, transforms: Transforms) -> None:
        super().__init__()
        self.config = config
        knots = torch.tensor(transforms.knots, dtype=torch.float32)
        self.tokens = Tokens(config.width, transforms.vocabulary, knots, transforms.centre, transforms.scale)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        # The long skip carries the query, the last known record, past the depth to the head.
        self.skip = nn.Linear(config.width, config.width, bias=False)
        self.head = Head(config, knots, has_zeros=transforms.has_zeros, has_death=transforms.has_death)
        self.light = Light(config, self.tokens.earnings_size) if config.light else None
        self.apply(_initialise)
        for block in self.stack:  # residual branches shrink with depth (Radford et al. 2019)
            for layer in (block.out, block.down):
                layer.weight.data.mul_((2 * config.layers) ** -0.5)

    @property
    def stack(self) -> list[Block]:
        """The decoder blocks, first to last."""
        return [block for block in self.blocks if isinstance(block, Block)]

    @property
    def parameters_count(self) -> int:
        """Trainable parameters, counted."""
        return sum(p.numel() for p in self.parameters())

    def inner_matrices(self) -> list[Tensor]:
        """Weights of the linear maps between hidden states: not those of inputs, outputs and embeddings."""
        inner: list[nn.Linear] = [self.skip, self.head.up, self.head.down]
        inner += [layer for block in self.stack for layer in (block.qkv, block.out, block.up, block.down)]
        if self.light is not None:
            inner += [self.light.first, self.light.bias, self.light.skip, self.light.up, self.light.down, self.light.out]
        return [layer.weight for layer in inner]

    def hidden(self, token: Tensor, age: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Tokens (n, t, d) and ages (n, t) -> hidden states (n, t, d) and each layer's keys and values (n, t, size)."""
        cos, sin = (r.to(token) for r in rotation(age, self.config.head_size))
        mask = causal_mask(token.shape[1], token.device).to(token.dtype)
        x, cache = token, []
        for block in self.stack:
            x, k, v = block(x, cos, sin, mask)
            cache.append((k, v))
        return self.norm(x) + self.skip(token), cache

    def forward(
        self, state: Tensor, z: Tensor, other: Tensor, codes: Tensor, age: Tensor, macro: Tensor, gap: Tensor, next_macro: Tensor
    ) -> Predictive:
        """Predictive distribution after every token, for the year `gap` years on with macro covariates `next_macro`."""
        hidden, _ = self.hidden(self.tokens(state, z, other, codes, age, macro), age)
        predictive: Predictive = self.head(hidden, gap, next_macro)
        return predictive

    def lightly(self, hidden: Tensor, origin: Tensor, state: Tensor, z: Tensor, age: Tensor, macro: Tensor) -> Tensor:
        """What the head reads after every token where the light cell carries on from the token `origin` (n,), (n, t, d).

        `hidden` (n, t, d) of the decoder. It stands unchanged up to the origin; of later years the cell sees earnings, age and economy.
        """
        if self.light is None:
            raise UsageError("This model has no light rollout: it was trained with `light: 0`.")
        n, t = state.shape
        start = self.light.begin(hidden[torch.arange(n), origin][:, None])
        since = age.diff(dim=1, prepend=age[:, :1])
        gates = self.light.gates(self.tokens.describe_earnings(state, z), age, since, macro) + start.gates
        after = torch.arange(t, device=age.device) > origin[:, None]
        carried, states = start.state[:, 0], []
        for later, told in zip(after.unbind(1), gates.unbind(1), strict=True):
            carried = torch.where(later[:, None], self.light.step(carried, told), carried)
            states.append(carried)
        return torch.where(after[..., None], self.light.hidden(torch.stack(states, 1), start), hidden)


def _initialise(module: nn.Module) -> None:
    """Unit-variance fan-in initialisation; the output layers start near zero, so that training starts from the marginal distribution."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.3)
    elif isinstance(module, Head):
        for layer in (module.cells, module.shape):
            nn.init.normal_(layer.weight, std=0.02)
