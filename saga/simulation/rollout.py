"""Monte-Carlo paths: the record is encoded once, then every path is carried from year to year (`saga.simulation.steppers`).

The numbers of a person are a function of the weights, that person's record, the seed and the number of paths alone, bitwise the same
whatever the batch, the order, the engine or the worker (on one machine and precision). Randomness is keyed by (seed, person, year).
Persons are computed together only where this machine's matrix products give a row the same bits whatever the other rows are, which
is tried out first (`rows_stand_alone`). Records are padded to one length for all, so that no shape depends on the company; and paths to
whole vectors, since what is left over at the end of an array is computed by other instructions, with other last bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from saga.features.calendar import Calendar, macro_features
from saga.features.sequences import (
    LASTING_CATEGORIES,
    POSITIVE,
    STATIC_CATEGORIES,
    ZERO,
    Sequences,
    last_known,
    pad,
)
from saga.keyed_random import uniforms
from saga.macro.history import log_wage_index
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario
from saga.model import Saga
from saga.requests import Precision
from saga.schema import MAX_AGE, MIN_AGE
from saga.simulation.matmul import Affine, at_precision, product
from saga.simulation.steppers import Records, walks

MAX_STEPS = MAX_AGE - MIN_AGE
GROUP_ROWS = 4_096  # paths carried together: of 500 each, eight persons
VECTOR = 32  # numbers that elementwise loops take at once: two registers of 512 bits
_LARGEST_KEPT = 31 * 2**20  # bytes; below the 32 MiB from which on glibc never keeps any


@dataclass(frozen=True, eq=False)
class Futures:
    """The macro futures that all persons with one origin year share: path k is the same world for everybody.

    `macro` (n_step, n_carried, 4) are each year's covariates, `wage` (n_step, n_carried) the log wage index; the paths first,
    then the last one again (`Rollout.carried`).
    """

    macro: Tensor
    wage: Tensor


class Rollout:
    """Draws paths from a network. One instance serves one (seed, number of paths, scenario)."""

    def __init__(
        self,
        network: Saga,
        calendar: Calendar,
        process: MacroProcess | None,
        *,
        n_paths: int,
        seed: int,
        scenario: Scenario | None = None,
        rhythm: int = 1,
        light: bool = False,
        precision: Precision = "float32",
    ) -> None:
        """`light`: carry paths by the recurrent cell instead of the backbone (`saga.simulation.steppers`).

        `precision`: of the products that carry and read paths (`saga.simulation.matmul`).
        `rhythm`: years a step, as far apart as the records that the network learnt from: 1, but for a panel of every second year.
        """
        self.network, self.calendar, self.process = network, calendar, process
        self.n_paths, self.seed, self.scenario, self.rhythm = n_paths, seed, scenario, rhythm
        self.carried = whole_vectors(n_paths)
        # What another process needs to draw the same numbers.
        self.settings: dict[str, Any] = {
            "network": network,
            "calendar": calendar,
            "process": process,
            "n_paths": n_paths,
        }
        self.settings |= {
            "seed": seed,
            "scenario": scenario,
            "rhythm": rhythm,
            "light": light,
            "precision": precision,
        }
        with torch.inference_mode():
            self.walks = walks(network, light=light, precision=precision)
            self.head = at_precision(network.head, precision)
        self.macro_futures = lru_cache(maxsize=64)(self._futures)
        # Once such a block is given back, glibc keeps the memory of smaller ones, which every year would else ask the system for.
        torch.empty(_LARGEST_KEPT, dtype=torch.uint8)

    def _futures(self, origin: int) -> Futures:
        shape = (self.n_paths, MAX_STEPS)
        if self.process is None:
            features, wage = np.zeros((*shape, 4)), np.zeros(shape)
        else:
            values = self.process.draw(
                self.seed, self.n_paths, origin, origin + MAX_STEPS, self.scenario
            )
            features = macro_features(values, self.process.unemployment(origin, self.scenario))
            wage = self.calendar.wage_index(np.array([origin]))[0] + log_wage_index(values[..., 1])
        return Futures(
            torch.from_numpy(
                features[self.carried].transpose(1, 0, 2).astype(np.float32, order="C")
            ),
            torch.from_numpy(wage[self.carried].T.astype(np.float32, order="C")),
        )

    @property
    def group_size(self) -> int:
        """Persons that are best drawn together: more amortise what a year costs whatever its size, fewer stay in the processor's cache."""
        rows = len(self.carried)
        return (
            max(1, GROUP_ROWS // rows)
            if rows_stand_alone((self.network, self.head, *self.walks.maps), rows)
            else 1
        )

    def simulate_person(self, sequences: Sequences, index: int, steps: int) -> NDArray[np.float32]:
        """One person's paths, shape (steps, paths); see `people`."""
        return self.simulate(sequences, np.array([index]), np.array([steps]))[0]

    @torch.inference_mode()
    def simulate(
        self, sequences: Sequences, persons: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> list[NDArray[np.float32]]:
        """Earnings of the years after each person's last record, in real money, shapes (steps of the person, paths), in order.

        Zero from death on. A last record may be at most 64 - steps years of age.
        """
        order = np.argsort(
            -steps, kind="stable"
        )  # who has most years comes first, so that those on their way are always the first n
        chosen, asked = persons[order], steps[order]
        net, head, m = self.network, self.head, len(self.carried)
        history = pad(sequences, chosen, MAX_STEPS + 1)
        lengths = sequences.lengths[chosen]
        everybody, last = np.arange(len(chosen)), lengths - 1
        origin, age = history.year[everybody, last], torch.from_numpy(history.age[everybody, last])
        futures = [self.macro_futures(int(year)) for year in origin]
        worlds = (
            futures if len(set(origin.tolist())) > 1 else futures[:1]
        )  # told once where all live in the same
        arrays = (
            history.state.astype(np.int64),
            history.z,
            history.other,
            history.codes,
            history.age,
        )
        token = net.tokens(*(torch.from_numpy(array) for array in arrays))
        codes = [history.codes[i, :n] for i, n in enumerate(lengths)]
        records = Records(
            token,
            torch.from_numpy(history.age),
            lengths.tolist(),
            lambda: [self._unsimulated(own) for own in codes],
        )
        walk = self.walks.walk(records, m, -(-int(asked[0]) // self.rhythm), self.rhythm)
        x = walk.hidden.expand(
            -1, m, -1
        )  # all paths, though they are alike: products of few rows may be summed otherwise
        alive = torch.ones(len(chosen), m, dtype=torch.bool)
        out = [torch.empty(int(own), self.n_paths) for own in asked]
        names = sequences.person_id[chosen].tolist()
        for start in range(0, int(asked[0]), self.rhythm):
            end, n = start + self.rhythm, int((asked > start).sum())
            keys = zip(names[:n], (origin[:n] + end).tolist(), strict=True)
            drawn = [uniforms(self.n_paths, "path", self.seed, *key)[self.carried] for key in keys]
            u = torch.from_numpy(np.stack(drawn).astype(np.float32))
            # Years between two steps are asked of the same state with the same uniform: a path keeps its rank within a step.
            for year in range(start, min(end, int(asked[0]))):
                macro, wage = (
                    torch.stack(parts)
                    for parts in zip(
                        *((own.macro[year], own.wage[year]) for own in worlds[:n]), strict=True
                    )
                )
                predictive = head(x[:n], torch.tensor([year - start + 1]), macro)
                dead, positive, z = head.sample(predictive, u)
                positive = positive & alive[:n]
                earnings = torch.where(positive, torch.exp(z + wage), 0.0)
                for i in range(int((asked > year).sum())):
                    out[i][year] = earnings[i, : self.n_paths]
            alive = alive[:n] & ~dead
            going = int((asked > end).sum())
            if going:
                state = torch.where(positive, POSITIVE, ZERO)
                x = walk.step(state[:going], (z * positive)[:going], age[:going] + end)
        return [out[place].numpy() for place in np.argsort(order)]

    def _unsimulated(self, codes: NDArray[np.int64]) -> Tensor:
        """The part of a future token that no rollout simulates: masked, but for what never changes, or lasts, in the record's codes
        (n_token, 10)."""
        tokens = self.network.tokens
        other = torch.full((1, tokens.other.in_features // 2), float("nan"))
        fixed = np.where(
            LASTING_CATEGORIES, last_known(codes)[-1], np.where(STATIC_CATEGORIES, codes[-1], 0)
        )
        return tokens.embed_other(other) + tokens.embed_codes(torch.from_numpy(fixed[None]))


def whole_vectors(paths: int) -> NDArray[np.int64]:
    """Paths as they are carried: filled to whole vectors by the last one once more, or often."""
    return np.minimum(np.arange(-(-paths // VECTOR) * VECTOR), paths - 1)


def rows_stand_alone(modules: Iterable[torch.nn.Module], paths: int) -> bool:
    """Whether products with matrices of the modules' shapes give each person's rows the same bits alone and among others."""
    layers = [layer for module in modules for layer in module.modules()]
    maps = {
        (*layer.weight.shape, layer.bias is not None, layer.weight.dtype, isinstance(layer, Affine))
        for layer in layers
        if isinstance(layer, torch.nn.Linear | Affine)
    }
    lstm = [layer for layer in layers if isinstance(layer, torch.nn.LSTM)]
    maps |= {
        (4 * layer.hidden_size, layer.input_size, True, torch.float32, False) for layer in lstm
    }
    persons = max(
        2, GROUP_ROWS // paths
    )  # as many as a group has: large products may run by other kernels
    return all(
        _stands_alone(persons, rows, *one)
        for rows in (paths, MAX_STEPS + 1)
        for one in sorted(maps, key=str)
    )


@lru_cache(maxsize=1024)
def _stands_alone(
    persons: int, rows: int, out: int, size: int, shifted: bool, dtype: torch.dtype, affine: bool
) -> bool:
    draw = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(shape, generator=draw).to(dtype)
        for shape in ((persons, rows, size), (out, size), (out,))
    )
    multiply = product if affine else F.linear
    with torch.inference_mode():
        shared = multiply(x, weight, bias if shifted else None)
        return all(
            torch.equal(shared[i], multiply(x[i], weight, bias if shifted else None))
            for i in range(persons)
        )
