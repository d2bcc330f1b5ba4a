"""How paths are carried from year to year: exactly, by the decoder with its cache, or lightly, by the recurrent cell.

A walk is a group of persons with m paths each. Each year it is told what every path earned, and answers with what the head reads next.
Persons leave the group from its end when their years are over. Linear maps that always follow one another are multiplied out once a
network, so that a year costs few passes over memory; the arithmetic is that of `saga.model` up to rounding. Every matrix product has the
paths of one person, or of several, as its rows, so a person's numbers are the same in any group (`saga.rollout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from saga.errors import UsageError
from saga.model import Saga
from saga.model.decoder import Block, rotate, rotation
from saga.model.light import Origin
from saga.schema import MAX_AGE, MIN_AGE

Cache = Sequence[tuple[Tensor, Tensor]]


class Walk(Protocol):
    """Some persons' paths on their way."""

    def step(self, state: Tensor, z: Tensor, macro: Tensor, age: Tensor) -> Tensor:
        """The year at `age` (n,): earnings state and relative log earnings (n, m), macro covariates (n, m, 4) -> (n, m, d) for the head.

        `n` may be smaller than in the year before: the first n persons go on.
        """
        ...


class Exact:
    """The decoder. Every path attends to the record, which all of a person's paths share, and to its own years."""

    def __init__(self, network: Saga) -> None:
        self.network, tokens = network, network.tokens
        # A token enters the first block and, by the long skip, the head: both at once.
        self.both = torch.cat([torch.eye(network.config.width), network.skip.weight]).T.contiguous()
        self.year = torch.cat([tokens.earnings.weight, tokens.macro.weight], 1).T @ self.both
        self.age = (tokens.age.weight + tokens.macro.bias) @ self.both
        self.projections = [_at_ages(block) for block in network.stack]

    def walk(self, cache: Cache, lengths: Sequence[int], constant: Sequence[Tensor], paths: int, steps: int) -> Walk:
        """From each layer's keys and values of the records (n, t, size), of which `lengths` are not padding, and what is known of every
        later token of each person (1, d)."""
        return _ExactWalk(self, cache, lengths, constant, paths, steps)


class _ExactWalk:
    def __init__(self, exact: Exact, cache: Cache, lengths: Sequence[int], constant: Sequence[Tensor], paths: int, steps: int) -> None:
        self.exact = exact
        self.constant = torch.cat([own @ exact.both for own in constant])  # one by one: few rows may be summed otherwise than one row
        self.records = [[(k[:n].T.contiguous(), v[:n]) for k, v, n in zip(keys, values, lengths, strict=True)] for keys, values in cache]
        # Years first: strides, and with them every rounding, do not depend on how many years are asked for.
        shape = (len(cache), max(1, steps - 1), len(lengths), paths, exact.network.config.head_size)
        self.keys, self.values = torch.empty(shape), torch.empty(shape)
        self.walked = 0

    def step(self, state: Tensor, z: Tensor, macro: Tensor, age: Tensor) -> Tensor:
        net, t, at = self.exact.network, self.walked, age - MIN_AGE
        (n, m), heads, size = z.shape, net.config.heads, net.config.head_size
        year = torch.cat([net.tokens.describe_earnings(state, z), macro], -1)
        token = (year.flatten(0, 1) @ self.exact.year).view(n, m, -1) + (self.exact.age[at] + self.constant[:n])[:, None]
        x, skip = token.chunk(2, -1)
        layers = zip(net.stack, self.exact.projections, self.keys[:, :, :n], self.values[:, :, :n], self.records, strict=True)
        for block, (weight, bias), keys, values, records in layers:
            projected = torch.baddbmm(bias[at], block.norm_attention(x), weight[at])
            q, keys[t], values[t] = torch.split(projected, [heads * size, size, size], -1)
            q = q.reshape(n, m * heads, size)
            own_keys, own_values = keys[: t + 1].flatten(1, 2), values[: t + 1].flatten(1, 2)
            own = torch.bmm(q.view(n * m, heads, size), own_keys.permute(1, 2, 0)).view(n, m, heads, t + 1)
            own_values = own_values.transpose(0, 1).view(n, m, t + 1, size)
            attended = torch.empty(n, m, heads, size)
            for i in range(n):
                past_keys, past_values = records[i]
                past = (q[i] @ past_keys).view(m, heads, -1)
                past, late = torch.split(torch.cat([past, own[i]], -1).softmax(-1), [past.shape[-1], t + 1], -1)
                shared = (past.reshape(m * heads, -1) @ past_values).view(m, heads, size)
                torch.baddbmm(shared, late, own_values[i], out=attended[i])
            x = block.finish(x, attended.flatten(2))
        self.walked += 1
        hidden: Tensor = net.norm(x) + skip
        return hidden


def _at_ages(block: Block) -> tuple[Tensor, Tensor]:
    """Maps to scaled queries, key and value at each age 16-64: weights (49, d, out), biases (49, 1, out); rotation multiplied out."""
    size, out = block.size, block.qkv.out_features
    cos, sin = rotation(torch.arange(MIN_AGE, MAX_AGE + 1), size)
    maps = torch.cat([block.qkv.weight, block.qkv.bias[:, None]], 1)
    turned, value = torch.split(maps, [out - size, size])
    turned = rotate(turned.view(-1, size, maps.shape[1]).transpose(1, 2), cos[:, None, None], sin[:, None, None]).transpose(2, 3)
    turned[:, :-1] *= size**-0.5
    at_ages = torch.cat([turned.flatten(1, 2), value.expand(len(cos), -1, -1)], 1)
    return at_ages[..., :-1].transpose(1, 2).contiguous(), at_ages[:, None, :, -1].contiguous()


class Light:
    """The recurrent cell: what the record says is summed up once, at the origin."""

    def __init__(self, network: Saga) -> None:
        """UsageError for a network that was trained without the cell."""
        if network.light is None:
            raise UsageError("This bundle has no light rollout. Use --rollout exact, or train with a configuration that has `light`.")
        cell = self.cell = network.light
        self.tokens = network.tokens
        # The year and the state enter the cell's hidden layer by one product.
        self.inner = torch.cat([cell.earnings.weight, cell.macro.weight, cell.up.weight], 1).T.contiguous()
        self.decay = torch.sigmoid(cell.decay)

    def walk(self, hidden: Tensor, paths: int, rhythm: int) -> Walk:
        """From the decoder's states at the origins (n, d); `rhythm`: years between records."""
        return _LightWalk(self, hidden, paths, rhythm)


class _LightWalk:
    def __init__(self, light: Light, hidden: Tensor, paths: int, rhythm: int) -> None:
        begun = [light.cell.begin(own) for own in hidden[:, None, None]]  # one by one: few rows may be summed otherwise than one row
        self.light, self.origin = light, Origin(*(torch.cat(parts) for parts in zip(*begun, strict=True)))
        self.gates = self.origin.gates + light.cell.gap.weight[rhythm] + light.cell.up.bias
        self.state = self.origin.state.expand(-1, paths, -1)

    def step(self, state: Tensor, z: Tensor, macro: Tensor, age: Tensor) -> Tensor:
        light, cell, n = self.light, self.light.cell, len(z)
        year = torch.cat([light.tokens.describe_earnings(state, z), macro, self.state[:n]], -1)
        told = self.gates[:n] + cell.age.weight[age - MIN_AGE, None]
        inner = torch.baddbmm(told, year, light.inner.expand(n, -1, -1)).relu_()
        fresh = cell.down(inner.mul_(inner))
        self.state = cell.norm(fresh.addcmul_(self.state[:n], light.decay))
        read: Tensor = cell.out(self.state)
        return read.add_(self.origin.hidden[:n])
