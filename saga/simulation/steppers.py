"""How paths are carried from year to year: exactly, by the decoder with its cache (or by another backbone with its state), or lightly, by
the recurrent cell.

A walk is a group of persons with m paths each. Each year it is told what every path earned, and answers with what the head reads next.
Persons leave the group from its end when their years are over. Linear maps that always follow one another are multiplied out once a
network, so that a year costs few passes over memory; the arithmetic is that of `saga.model` up to rounding. Every matrix product has the
paths of one person, or of several, as its rows, so a person's numbers are the same in any group (`saga.simulation.rollout`).

Records are encoded in the network's own type, float32; attention and residual streams are of that type too. At another precision are the
products of paths, and what lies between the two products of a hidden layer. Backbones other than the decoder stay in float32; the head
that reads them does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from saga.errors import UsageError
from saga.model import Saga
from saga.model.backbones import Cache, Decoder
from saga.model.decoder import Block, rotate, rotation
from saga.model.fast_cell import Origin
from saga.requests import Precision
from saga.schema import MAX_AGE, MIN_AGE
from saga.simulation.matmul import Affine, at_precision


class Records(NamedTuple):
    """Records of n persons: tokens (n, t, d) at ages (n, t), of which `lengths` are not padding. `later()` is what is known of every
    later token of each person (1, d), for walks that make tokens."""

    token: Tensor
    age: Tensor
    lengths: Sequence[int]
    later: Callable[[], Sequence[Tensor]]


class Walk(Protocol):
    """Some persons' paths on their way. `hidden` (n, 1, d) is what the head reads at the end of the records."""

    hidden: Tensor

    def step(self, state: Tensor, z: Tensor, age: Tensor) -> Tensor:
        """The year at `age` (n,): earnings state and relative log earnings (n, m) -> (n, m, d) for the head.

        `n` may be smaller than in the year before: the first n persons go on.
        """
        ...


class Walks(Protocol):
    """Walks of one network. `maps` are the modules, or maps, beside the network's own that multiply paths."""

    @property
    def maps(self) -> Sequence[nn.Module]: ...

    def walk(self, records: Records, paths: int, steps: int, rhythm: int) -> Walk:
        """A walk of `steps` steps, `rhythm` years each, from the ends of the records."""
        ...


def walks(network: Saga, *, light: bool, precision: Precision = "float32") -> Walks:
    """How paths of the network are carried: lightly, or as its backbone does. UsageError where it has no light rollout."""
    if light:
        return Light(network, precision)
    return Exact(network, precision) if isinstance(network.blocks, Decoder) else Carried(network)


class Exact:
    """The decoder. Every path attends to the record, which all of a person's paths share, and to its own years."""

    def __init__(self, network: Saga, precision: Precision) -> None:
        self.network, self.span, tokens = network, network.decoder.span, network.tokens
        # A token enters the first block and, by the long skip, the head: both at once.
        self.both = torch.cat([torch.eye(network.config.width), network.skip.weight]).T.contiguous()
        self.year = Affine((tokens.earnings.weight.T @ self.both).T, None, precision)
        self.age = tokens.age.weight @ self.both
        self.stack = [at_precision(block, precision) for block in network.stack]
        self.projections = [_at_ages(block, precision) for block in network.stack]
        self.maps: list[nn.Module] = [
            self.year,
            *self.stack,
            *(at_ages[0] for at_ages in self.projections),
        ]

    def walk(self, records: Records, paths: int, steps: int, rhythm: int) -> Walk:
        """See `Walks`."""
        hidden, cache = self.network.hidden(records.token, records.age)
        return _ExactWalk(self, _at_the_ends(hidden, records), cache, records, paths, steps, rhythm)


def _at_the_ends(hidden: Tensor, records: Records) -> Tensor:
    return torch.stack([own[n - 1 : n] for own, n in zip(hidden, records.lengths, strict=True)])


class _ExactWalk:
    def __init__(
        self,
        exact: Exact,
        hidden: Tensor,
        cache: Cache,
        records: Records,
        paths: int,
        steps: int,
        rhythm: int,
    ) -> None:
        self.exact, self.hidden, self.rhythm, lengths = exact, hidden, rhythm, records.lengths
        self.ages = [own[:n].tolist() for own, n in zip(records.age, lengths, strict=True)]
        # One by one: few rows may be summed otherwise than one row.
        self.constant = torch.cat([own @ exact.both for own in records.later()])
        self.records = [
            [(k[:n].T.contiguous(), v[:n]) for k, v, n in zip(keys, values, lengths, strict=True)]
            for keys, values in cache
        ]
        # A person's years first: strides, and with them every rounding, do not depend on how many years are asked for.
        shape = (len(cache), len(lengths), max(1, steps - 1), paths, exact.network.config.head_size)
        self.keys, self.values = hidden.new_empty(shape), hidden.new_empty(shape)
        self.walked = 0

    def step(self, state: Tensor, z: Tensor, age: Tensor) -> Tensor:
        exact, net, at = self.exact, self.exact.network, (age - MIN_AGE).tolist()
        n = len(z)
        year = exact.year(net.tokens.encode_earnings(state, z)).to(self.constant)
        x, skip = year.add_((exact.age[at] + self.constant[:n])[:, None]).chunk(2, -1)
        # The first of a record's years, and of the path's own, that attention still reaches.
        first = [
            bisect_left(own, now - exact.span)
            for own, now in zip(self.ages, age.tolist(), strict=False)
        ]
        since = max(0, self.walked - exact.span // self.rhythm)
        for layer, (block, projections) in enumerate(
            zip(exact.stack, exact.projections, strict=True)
        ):
            normed, attended = block.norm_attention(x), torch.empty_like(x)
            for i in range(n):
                self._attend(
                    layer, i, projections[at[i]](normed[i]).to(x), first[i], since, out=attended[i]
                )
            x = block.finish(x, attended)
        self.walked += 1
        hidden: Tensor = net.norm(x) + skip
        return hidden

    def _attend(
        self, layer: int, i: int, projected: Tensor, first: int, since: int, *, out: Tensor
    ) -> None:
        """One person's paths look at the record from token `first` on, and at their own years from `since` on: (m, d) into `out`."""
        m, t, heads, size = (
            len(projected),
            self.walked,
            self.exact.network.config.heads,
            self.exact.network.config.head_size,
        )
        keys, values, (past_keys, past_values) = (
            self.keys[layer, i],
            self.values[layer, i],
            self.records[layer][i],
        )
        q, keys[t], values[t] = torch.split(projected, [heads * size, size, size], -1)
        past_keys, past_values, own_keys, own_values = (
            past_keys[:, first:],
            past_values[first:],
            keys[since : t + 1],
            values[since : t + 1],
        )
        both = [len(past_values), len(own_values)]
        past = (q.reshape(m * heads, size) @ past_keys).view(m, heads, both[0])
        own = torch.bmm(q.view(m, heads, size), own_keys.permute(1, 2, 0))
        past, own = torch.split(torch.cat([past, own], -1).softmax(-1), both, -1)
        shared = (past.reshape(m * heads, both[0]) @ past_values).view(m, heads, size)
        torch.baddbmm(shared, own, own_values.transpose(0, 1), out=out.view(m, heads, size))


def _at_ages(block: Block, precision: Precision) -> list[Affine]:
    """Maps to scaled queries, key and value at each age 16-64; rotation multiplied out."""
    size, out = block.size, block.qkv.out_features
    cos, sin = rotation(torch.arange(MIN_AGE, MAX_AGE + 1), size)
    maps = torch.cat([block.qkv.weight, block.qkv.bias[:, None]], 1)
    turned, value = torch.split(maps, [out - size, size])
    turned = rotate(
        turned.view(-1, size, maps.shape[1]).transpose(1, 2), cos[:, None, None], sin[:, None, None]
    ).transpose(2, 3)
    turned[:, :-1] *= size**-0.5
    at_ages = torch.cat([turned.flatten(1, 2), value.expand(len(cos), -1, -1)], 1)
    return [Affine(both[:, :-1], both[:, -1], precision) for both in at_ages]


class Light:
    """The recurrent cell: what the record says is summed up once, at the origin."""

    def __init__(self, network: Saga, precision: Precision) -> None:
        """UsageError for a network that was trained without the cell."""
        if network.light is None:
            raise UsageError(
                "This bundle has no light rollout. Use --rollout exact, or train with a configuration that has `light`."
            )
        cell = self.cell = network.light
        self.network, self.tokens = network, network.tokens
        # The year and the state enter the cell's hidden layer by one product.
        self.inner = Affine(torch.cat([cell.earnings.weight, cell.up.weight], 1), None, precision)
        self.down, self.out = (
            Affine(layer.weight, layer.bias, precision) for layer in (cell.down, cell.out)
        )
        self.maps: list[nn.Module] = [self.inner, self.down, self.out]
        self.decay = torch.sigmoid(cell.decay)

    def walk(self, records: Records, paths: int, steps: int, rhythm: int) -> Walk:
        """See `Walks`."""
        hidden, _ = self.network.hidden(records.token, records.age)
        return _LightWalk(self, _at_the_ends(hidden, records), paths, rhythm)


class _LightWalk:
    def __init__(self, light: Light, hidden: Tensor, paths: int, rhythm: int) -> None:
        self.light, self.hidden = light, hidden
        begun = [
            light.cell.begin(own) for own in hidden[:, None]
        ]  # one by one: few rows may be summed otherwise than one row
        self.origin = Origin(*(torch.cat(parts) for parts in zip(*begun, strict=True)))
        self.gates = self.origin.gates + light.cell.gap.weight[rhythm] + light.cell.up.bias
        self.state = self.origin.state.expand(-1, paths, -1)

    def step(self, state: Tensor, z: Tensor, age: Tensor) -> Tensor:
        light, cell, n = self.light, self.light.cell, len(z)
        inner = light.inner(torch.cat([light.tokens.encode_earnings(state, z), self.state[:n]], -1))
        inner.add_(self.gates[:n] + cell.age.weight[age - MIN_AGE, None]).relu_()
        fresh = light.down(inner.mul_(inner)).to(self.state)
        self.state = cell.norm(fresh.addcmul_(self.state[:n], light.decay))
        read: Tensor = light.out(self.state).to(fresh)
        return read.add_(self.origin.hidden[:n])


class Carried:
    """A backbone that goes on from a state of fixed size: the LSTM, or the window of the last records."""

    def __init__(self, network: Saga) -> None:
        self.network, self.maps = network, list[nn.Module]()

    def walk(self, records: Records, paths: int, steps: int, rhythm: int) -> Walk:
        """See `Walks`."""
        return _CarriedWalk(self.network, records, paths)


class _CarriedWalk:
    def __init__(self, network: Saga, records: Records, paths: int) -> None:
        if isinstance(network.blocks, Decoder):
            raise UsageError(
                "A decoder has no state of fixed size. Carry its paths exactly, or lightly."
            )
        self.network, self.blocks = network, network.blocks
        # One by one, unpadded: the state is that after the last token, and its bits depend on nobody else's record.
        encoded = [
            network.hidden(token[None, :n], age[None, :n])
            for token, age, n in zip(records.token, records.age, records.lengths, strict=True)
        ]
        self.hidden = torch.cat([hidden[:, -1:] for hidden, _ in encoded])
        layers = zip(*(cache for _, cache in encoded), strict=True)
        joined = [[torch.cat(parts) for parts in zip(*layer, strict=True)] for layer in layers]
        self.state = [
            tuple(part[:, None].repeat(1, paths, 1) for part in layer) for layer in joined
        ]
        self.constant = torch.cat(list(records.later()))[:, None]

    def step(self, state: Tensor, z: Tensor, age: Tensor) -> Tensor:
        net, n = self.network, len(z)
        token = (
            net.tokens.embed_earnings(state, z)
            + net.tokens.embed_age(age[:, None])
            + self.constant[:n]
        )
        x, self.state = self.blocks.step(
            token, [tuple(part[:n] for part in layer) for layer in self.state]
        )
        hidden: Tensor = net.norm(x) + net.skip(token)
        return hidden
