"""Steppers: advance simulated paths by one step, from a backbone's state.

A stepper simulates a group of persons with m paths each. In every step it receives the earnings of
each path and returns the next input of the head. There are two steppers: for the decoder with its
key-value cache, and for the fast cell with its recurrent state; a backbone of another distribution
brings its own. Persons without further years to simulate leave the group from its end.

Linear maps that always follow one another are multiplied once per network, so a step needs few
passes over memory; up to rounding the arithmetic is that of `saga.model`. The rows of every matrix
product are the paths of one or several persons, so a person's numbers are the same in any group
(`saga.simulation.rollout`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from saga.model import Saga
from saga.model.decoder import Block, Decoder, attend_with_cache, rotate, rotation
from saga.model.fast_cell import RecordSummary
from saga.schema import MAX_AGE, MIN_AGE
from saga.simulation.matmul import Affine, with_affine_layers


class Records(NamedTuple):
    """Records of n persons before simulation.

    Attributes:
        token: Embedded tokens (n, t, d).
        age: Their ages (n, t).
        lengths: Numbers of tokens that are not padding.
        constant: Returns, for each person, the part (1, d) of future tokens that does not change.
    """

    token: Tensor
    age: Tensor
    lengths: Sequence[int]
    constant: Callable[[], Sequence[Tensor]]


class Stepper(Protocol):
    """Simulated paths of n persons; `hidden` (n, 1, d) is the head's first input."""

    hidden: Tensor

    def step(self, state: Tensor, z: Tensor, age: Tensor) -> Tensor:
        """Hidden states (n, m, d) after a step that ends at `age` (n,).

        Earnings states and relative log earnings are (n, m). `n` may be smaller than in the step
        before: the first n persons continue.
        """
        ...


# Arguments: records, paths per person, steps, years per step.
StartStepper = Callable[[Records, int, int, int], Stepper]


def choose_stepper(network: Saga, *, light: bool) -> tuple[StartStepper, list[nn.Module]]:
    """A function that starts steppers, and the modules that multiply paths, without the head.

    `light` selects the fast cell. Raises UsageError if the network was trained without it.
    """
    if light:
        cell_maps = _CellMaps(network)
        return partial(CellStepper, cell_maps), cell_maps.modules
    if isinstance(network.blocks, Decoder):
        decoder_maps = _DecoderMaps(network)
        return partial(DecoderStepper, decoder_maps), decoder_maps.modules
    start: StartStepper = network.blocks.start_stepper(network)
    return start, []


class _DecoderMaps:
    """The decoder's linear maps for a rollout."""

    def __init__(self, network: Saga) -> None:
        self.network, self.span, tokens = network, network.decoder.span, network.tokens
        # A token is the input of the first block and of the skip to the head: one map for both.
        identity = torch.eye(network.config.width)
        self.token_map = torch.cat([identity, network.skip.weight]).T.contiguous()
        self.earnings = Affine((tokens.earnings.weight.T @ self.token_map).T, None)
        self.age = tokens.age.weight @ self.token_map
        self.stack = [with_affine_layers(block) for block in network.decoder.stack]
        self.projections = [_projections_by_age(block) for block in network.decoder.stack]
        first_projections = [by_age[0] for by_age in self.projections]
        self.modules: list[nn.Module] = [self.earnings, *self.stack, *first_projections]


class DecoderStepper:
    """The decoder: each path attends to the person's record and to its own simulated years."""

    def __init__(
        self, maps: _DecoderMaps, records: Records, n_paths: int, steps: int, rhythm: int
    ) -> None:
        self.maps, self.rhythm, lengths = maps, rhythm, records.lengths
        hidden, cache = maps.network.hidden(records.token, records.age)
        self.hidden = _at_origin(hidden, records)
        self.ages = [age[:n].tolist() for age, n in zip(records.age, lengths, strict=True)]
        # Person by person, because a product of several rows may round differently.
        self.constant = torch.cat([constant @ maps.token_map for constant in records.constant()])
        self.record_cache = [
            [(k[:n].T.contiguous(), v[:n]) for k, v, n in zip(keys, values, lengths, strict=True)]
            for keys, values in cache
        ]
        # `hidden` starts the first step, so keys are stored in all steps but one. The axis of steps
        # is before that of paths: strides, and so rounding, do not depend on the number of steps.
        size = maps.network.config.head_size
        shape = (len(cache), len(lengths), max(1, steps - 1), n_paths, size)
        self.keys, self.values = hidden.new_empty(shape), hidden.new_empty(shape)
        self.steps_done = 0

    def step(self, state: Tensor, z: Tensor, age: Tensor) -> Tensor:
        """See `Stepper.step`."""
        maps, net, age_index = self.maps, self.maps.network, (age - MIN_AGE).tolist()
        n = len(z)
        token = maps.earnings(net.tokens.encode_earnings(state, z))
        token = token.add_((maps.age[age_index] + self.constant[:n])[:, None])
        x, skip = token.chunk(2, -1)
        # Index of the first year within the span, in the record and in the path.
        first_in_record = [
            bisect_left(ages, current - maps.span)
            for ages, current in zip(self.ages, age.tolist(), strict=False)
        ]
        first_in_path = max(0, self.steps_done - maps.span // self.rhythm)
        for layer, (block, projections) in enumerate(
            zip(maps.stack, maps.projections, strict=True)
        ):
            normed, attended = block.norm_attention(x), torch.empty_like(x)
            for i in range(n):
                projected = projections[age_index[i]](normed[i])
                self._attend(layer, i, projected, first_in_record[i], first_in_path, attended[i])
            x = block.finish(x, attended)
        self.steps_done += 1
        hidden: Tensor = net.norm(x) + skip
        return hidden

    def _attend(
        self,
        layer: int,
        person: int,
        projected: Tensor,
        first_in_record: int,
        first_in_path: int,
        out: Tensor,
    ) -> None:
        """Store a year's keys and values, and write attention's output (m, d) into `out`."""
        config, t = self.maps.network.config, self.steps_done
        heads, size = config.heads, config.head_size
        keys, values = self.keys[layer, person], self.values[layer, person]
        record_keys, record_values = self.record_cache[layer][person]
        query, keys[t], values[t] = torch.split(projected, [heads * size, size, size], -1)
        attend_with_cache(
            query.reshape(-1, heads, size),
            (record_keys[:, first_in_record:], record_values[first_in_record:]),
            (keys[first_in_path : t + 1], values[first_in_path : t + 1]),
            out.view(-1, heads, size),
        )


def _projections_by_age(block: Block) -> list[Affine]:
    """Maps to scaled queries, key and value at each age 16-64, with the rotation."""
    size, out = block.size, block.qkv.out_features
    cos, sin = rotation(torch.arange(MIN_AGE, MAX_AGE + 1), size)
    weights = torch.cat([block.qkv.weight, block.qkv.bias[:, None]], 1)
    qk, value = torch.split(weights, [out - size, size])
    qk = qk.view(-1, size, weights.shape[1]).transpose(1, 2)
    rotated = rotate(qk, cos[:, None, None], sin[:, None, None]).transpose(2, 3)
    rotated[:, :-1] *= size**-0.5
    by_age = torch.cat([rotated.flatten(1, 2), value.expand(len(cos), -1, -1)], 1)
    return [Affine(matrix[:, :-1], matrix[:, -1]) for matrix in by_age]


class _CellMaps:
    """The fast cell's linear maps."""

    def __init__(self, network: Saga) -> None:
        cell = self.cell = network.fast_cell()
        self.network, self.tokens = network, network.tokens
        # Earnings and state enter the cell's hidden layer by one product.
        self.inner = Affine(torch.cat([cell.earnings.weight, cell.up.weight], 1), None)
        self.down, self.out = (Affine(layer.weight, layer.bias) for layer in (cell.down, cell.out))
        self.modules: list[nn.Module] = [self.inner, self.down, self.out]
        self.decay = torch.sigmoid(cell.decay)


class CellStepper:
    """The fast cell: the record is summarised once, at the origin."""

    def __init__(
        self, maps: _CellMaps, records: Records, n_paths: int, _steps: int, rhythm: int
    ) -> None:
        hidden, _ = maps.network.hidden(records.token, records.age)
        self.maps, self.hidden, cell = maps, _at_origin(hidden, records), maps.cell
        # Person by person, because a product of several rows may round differently.
        summaries = [cell.summarise(person) for person in self.hidden[:, None]]
        self.summary = RecordSummary(*(torch.cat(parts) for parts in zip(*summaries, strict=True)))
        self.bias = self.summary.bias + cell.gap.weight[rhythm] + cell.up.bias
        self.state = self.summary.state.expand(-1, n_paths, -1)

    def step(self, state: Tensor, z: Tensor, age: Tensor) -> Tensor:
        """See `Stepper.step`."""
        maps, cell, n = self.maps, self.maps.cell, len(z)
        earnings = maps.tokens.encode_earnings(state, z)
        inner = maps.inner(torch.cat([earnings, self.state[:n]], -1))
        inner.add_(self.bias[:n] + cell.age.weight[age - MIN_AGE, None]).relu_()
        update = maps.down(inner.mul_(inner))
        self.state = cell.norm(update.addcmul_(self.state[:n], maps.decay))
        hidden: Tensor = maps.out(self.state)
        return hidden.add_(self.summary.hidden[:n])


def _at_origin(hidden: Tensor, records: Records) -> Tensor:
    """Hidden states (n, 1, d) at the last tokens."""
    return torch.stack(
        [person[n - 1 : n] for person, n in zip(hidden, records.lengths, strict=True)]
    )
