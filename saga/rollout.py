"""Monte-Carlo paths: the history is encoded once, its keys and values are shared by all paths, each path keeps its own suffix.

The numbers of a person are a function of the weights, that person's record, the seed and the number of paths alone. Randomness is keyed
by (seed, person, year), and every matrix product has a shape that depends on nothing else, so results are bitwise equal whatever the
batch, the order, the engine or the worker (on one machine and precision).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saga.keyed import uniforms
from saga.macro import MacroProcess, Scenario, log_wage_index
from saga.model import Saga
from saga.model.decoder import rotation
from saga.schema import MAX_AGE, MIN_AGE
from saga.sequences import LASTING_CATEGORIES, POSITIVE, STATIC_CATEGORIES, ZERO, Sequences, last_known, pad
from saga.transforms import Calendar, macro_features

MAX_STEPS = MAX_AGE - MIN_AGE


@dataclass(frozen=True, eq=False)
class Futures:
    """The macro futures that all persons with one origin year share: path k is the same world for everybody.

    `token` and `asked` (n_step, n_path, d) are the embeddings of each year's macro covariates as input and as question; `wage` (n_step,
    n_path) is the log wage index.
    """

    token: Tensor
    asked: Tensor
    wage: Tensor


class Rollout:
    """Draws paths from a network. One instance serves one (seed, number of paths, scenario)."""

    def __init__(
        self,
        network: Saga,
        calendar: Calendar,
        process: MacroProcess | None,
        *,
        paths: int,
        seed: int,
        scenario: Scenario | None = None,
        rhythm: int = 1,
        lasting: bool = False,
    ) -> None:
        """`rhythm`: years a step, as far apart as the records that the network learnt from: 1, but for a panel of every second year.

        `lasting`: whether future records keep the education last known, as the network then learnt (`Transforms.lasting`).
        """
        self.network, self.calendar, self.process = network, calendar, process
        self.paths, self.seed, self.scenario, self.rhythm = paths, seed, scenario, rhythm
        self.lasting = lasting
        # What another process needs to draw the same numbers.
        self.settings: dict[str, Any] = {"network": network, "calendar": calendar, "process": process, "paths": paths}
        self.settings |= {"seed": seed, "scenario": scenario, "rhythm": rhythm, "lasting": lasting}
        self.cos, self.sin = rotation(torch.arange(MAX_AGE + 1), network.config.head_size)
        self.futures = lru_cache(maxsize=64)(self._futures)

    def _futures(self, origin: int) -> Futures:
        shape = (self.paths, MAX_STEPS)
        if self.process is None:
            features, wage = np.zeros((*shape, 4)), np.zeros(shape)
        else:
            values = self.process.draw(self.seed, self.paths, origin, origin + MAX_STEPS, self.scenario)
            features = macro_features(values)
            wage = self.calendar.wage_index(np.array([origin]))[0] + log_wage_index(values[..., 1])
        shared = torch.from_numpy(features.transpose(1, 0, 2).astype(np.float32))
        return Futures(
            self.network.tokens.macro(shared), self.network.head.macro(shared), torch.from_numpy(wage.T.astype(np.float32)).contiguous()
        )

    @torch.inference_mode()
    def person(self, sequences: Sequences, index: int, steps: int) -> NDArray[np.float32]:
        """Earnings of the `steps` years after the person's last record, shape (steps, paths), real money.

        Zero from death on. The last record may be at most 64 - steps years of age.
        """
        net, m = self.network, self.paths
        history = pad(sequences, np.array([index]))
        origin, age = int(history.year[0, -1]), int(history.age[0, -1])
        futures = self.futures(origin)
        token = net.tokens(
            torch.from_numpy(history.state.astype(np.int64)),
            torch.from_numpy(history.z),
            torch.from_numpy(history.other),
            torch.from_numpy(history.codes),
            torch.from_numpy(history.age),
            torch.from_numpy(history.macro),
        )
        hidden, prefix = net.hidden(token, torch.from_numpy(history.age))
        x = hidden[:, -1]
        constant = self._unsimulated(history.codes[0])
        size, layers = net.config.head_size, net.config.layers
        # Always the full length, so that strides, and with them every rounding, do not depend on the horizon asked for.
        keys = [torch.zeros(m, MAX_STEPS, size) for _ in range(layers)]
        values = [torch.zeros(m, MAX_STEPS, size) for _ in range(layers)]
        alive = torch.ones(m, dtype=torch.bool)
        out = torch.empty(steps, m)
        person = str(sequences.person_id[index])
        for step, start in enumerate(range(0, steps, self.rhythm)):
            end = start + self.rhythm
            u = torch.from_numpy(uniforms(m, "path", self.seed, person, origin + end).astype(np.float32))
            # Years between two steps are asked of the same state with the same uniform: a path keeps its rank within a step.
            for year in range(start, min(end, steps)):
                predictive = net.head.ask(x, torch.tensor([year - start + 1]), futures.asked[year])
                dead, positive, z = net.head.sample(predictive, u)
                positive = positive & alive
                out[year] = torch.where(positive, torch.exp(z + futures.wage[year]), torch.zeros(()))
            alive = alive & ~dead
            if end < steps:
                state = torch.where(positive, POSITIVE, ZERO)
                when = net.tokens.age(torch.tensor([age + end - MIN_AGE])) + futures.token[end - 1]
                token = net.tokens.embed_earnings(state, z * positive) + constant + when
                x = self._step(token, age + end, prefix, keys, values, step)
        return out.numpy()

    def _unsimulated(self, codes: NDArray[np.int64]) -> Tensor:
        """The part of a future token that no rollout simulates: masked, but for what never changes, or lasts, in the record's codes
        (n_token, 10)."""
        tokens = self.network.tokens
        other = torch.full((1, tokens.other.in_features // 2), float("nan"))
        fixed = np.where(STATIC_CATEGORIES, codes[-1], 0)
        if self.lasting:
            fixed = np.where(LASTING_CATEGORIES, last_known(codes)[-1], fixed)
        return tokens.embed_other(other) + tokens.embed_codes(torch.from_numpy(fixed[None]))

    def _step(
        self, token: Tensor, age: int, prefix: list[tuple[Tensor, Tensor]], keys: list[Tensor], values: list[Tensor], t: int
    ) -> Tensor:
        """One year of all paths through the decoder, (n_path, d) -> (n_path, d).

        Attention over the shared prefix is one matrix product for all paths and heads; over the path's own years a batched one; one softmax
        joins them.
        """
        net, m = self.network, self.paths
        heads, size = net.config.heads, net.config.head_size
        cos, sin = self.cos[age], self.sin[age]
        x = token
        for layer, block in enumerate(net.stack):
            q, k, v = block.project(x, cos, sin)
            keys[layer][:, t], values[layer][:, t] = k, v
            own_keys, own_values = keys[layer][:, : t + 1], values[layer][:, : t + 1]
            past_keys, past_values = prefix[layer][0][0], prefix[layer][1][0]
            n = len(past_keys)
            past = (q.reshape(m * heads, size) @ past_keys.T).view(m, heads, n)
            own = torch.bmm(q, own_keys.transpose(1, 2))
            weights = (torch.cat([past, own], -1) * size**-0.5).softmax(-1)
            attended = (weights[..., :n].reshape(m * heads, n) @ past_values).view(m, heads, size)
            attended = attended + torch.bmm(weights[..., n:], own_values)
            x = block.finish(x, attended.reshape(m, heads * size))
        hidden: Tensor = net.norm(x) + net.skip(token)
        return hidden
