"""Monte-Carlo paths: encode the record once, then advance every path year by year.

A person's numbers depend only on the weights, the person's record, the macro process or scenario,
the seed, the number of paths and the member of an ensemble. On one machine they are bitwise the
same in any batch, order, engine or worker, for three reasons:

- Random numbers are keyed by (seed, person, year), see `saga.simulation.path_numbers`.
- Persons are computed together only if, on this machine, the bits of a row of a matrix product do
  not depend on the other rows (`persons_per_group` tests it).
- Shapes do not depend on the other persons: records are padded to one length for all, and paths are
  filled up to whole vectors, because the processor computes the remainder of an array with other
  instructions, which round differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from saga.features.calendar import MACRO_FEATURES, Calendar, macro_features
from saga.features.sequences import (
    POSITIVE,
    ZERO,
    Sequences,
    filled_forward,
    pad,
)
from saga.features.transforms import ContinuedInputs
from saga.macro.history import log_wage_index
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario
from saga.model import Saga
from saga.schema import MAX_AGE, MIN_AGE
from saga.simulation.matmul import Affine, product, with_affine_layers
from saga.simulation.path_numbers import path_orders, path_uniforms
from saga.simulation.pool import single_threaded
from saga.simulation.steppers import Records, choose_stepper

MAX_STEPS = MAX_AGE - MIN_AGE
GROUP_ROWS = 4_096  # paths advanced together: eight persons with 500 paths each
# So few persons, in one call or several, are computed one by one before `_rows_are_independent` is
# known, which takes longer.
FEW_PERSONS = 32
VECTOR = 32  # numbers per iteration of elementwise loops: two registers of 512 bits
_REUSED_BYTES = 31 * 2**20  # below the 32 MiB from which glibc never reuses memory


# Persons, rows of each, shape of the weight, whether there is a bias, whether it is `Affine`.
_ProductShape = tuple[int, int, int, int, bool, bool]
_independent: dict[_ProductShape, bool] = {}  # products that `_rows_are_independent` has tested
_untested: Counter[frozenset[_ProductShape]] = Counter()  # persons computed one by one


@dataclass(frozen=True)
class RolloutOptions:
    """Options of a rollout.

    Args:
        n_paths: Number of paths per person.
        seed: Seed of the keyed random numbers.
        scenario: Macro scenario; None draws all macro series.
        rhythm: Years per step, equal to the distance between records in training.
        light: Advance paths by the fast cell instead of the backbone.
        member: Number of the ensemble's member that advances these paths.
        n_members: Number of members; path k follows member k mod `n_members`.
    """

    n_paths: int
    seed: int
    scenario: Scenario | None = None
    rhythm: int = 1
    light: bool = False
    member: int = 0
    n_members: int = 1

    @property
    def path_numbers(self) -> NDArray[np.int64]:
        """Numbers of the paths of the member."""
        return np.arange(self.member, self.n_paths, self.n_members)


@dataclass(frozen=True, eq=False)
class MacroFutures:
    """The macro futures of an origin year; path k has the same future for all persons.

    `features` (n_step, n_column, 4) are each year's covariates and `wage` (n_step, n_column) the
    log wage index. Columns are the paths, filled up by the last one (`fill_vectors`).
    """

    features: Tensor
    wage: Tensor


class Rollout:
    """Simulates paths from a network, for one set of options."""

    def __init__(
        self,
        network: Saga,
        calendar: Calendar,
        process: MacroProcess | None,
        options: RolloutOptions,
    ) -> None:
        self.network, self.calendar, self.process = network, calendar, process
        self.options, numbers = options, options.path_numbers
        self.n_paths, self.columns = len(numbers), numbers[fill_vectors(len(numbers))]
        with torch.inference_mode():
            self.start_stepper, self.step_modules = choose_stepper(network, light=options.light)
            self.head = with_affine_layers(network.head)
        self.macro_futures = lru_cache(maxsize=64)(self._macro_futures)
        # After a block of this size is freed, glibc reuses the memory of smaller blocks.
        # Otherwise every simulated year would request memory from the system again.
        torch.empty(_REUSED_BYTES, dtype=torch.uint8)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the inputs; a worker process creates the other attributes again."""
        return Rollout, (self.network, self.calendar, self.process, self.options)

    def _macro_futures(self, origin: int) -> MacroFutures:
        features, wage = draw_macro_futures(
            self.calendar, self.process, self.options, origin, MAX_STEPS
        )
        return MacroFutures(
            torch.from_numpy(
                features[self.columns].transpose(1, 0, 2).astype(np.float32, order="C")
            ),
            torch.from_numpy(wage[self.columns].T.astype(np.float32, order="C")),
        )

    def group_size(self, n_persons: int) -> int:
        """Number of persons to simulate together, of `n_persons` in all.

        A larger group shares the fixed cost of a year; a smaller one fits into the processor's
        cache.
        """
        return persons_per_group(
            (self.network, self.head, *self.step_modules), [len(self.columns)], n_persons
        )

    @torch.inference_mode()
    def simulate(
        self, sequences: Sequences, persons: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> list[NDArray[np.float32]]:
        """Real earnings after each person's last record, shapes (steps of the person, n_paths).

        The paths are those of the member. Earnings are zero from death on. The age at a last record
        may be at most 64 - steps.

        Args:
            sequences: Records of the panel.
            persons: Indices of persons (n,).
            steps: Years to simulate for each person (n,).
        """
        order = np.argsort(-steps, kind="stable")  # the persons who continue are the first ones
        persons, steps = persons[order], steps[order]
        rhythm, years = self.options.rhythm, int(steps[0])
        padded, lengths = pad(sequences, persons, MAX_STEPS + 1), sequences.lengths[persons]
        rows, last = np.arange(len(persons)), lengths - 1
        origin, age = padded.year[rows, last], torch.from_numpy(padded.age[rows, last])
        constant_inputs = [
            (
                future_values(padded.other[i, :n], padded.continued),
                future_codes(padded.codes[i, :n], padded.continued),
            )
            for i, n in enumerate(lengths)
        ]
        records = Records(
            self.network.embed(padded),
            torch.from_numpy(padded.age),
            lengths.tolist(),
            lambda: [self._embed_constant(*inputs) for inputs in constant_inputs],
        )
        # Level of the person's units in each year; 0 if amounts are relative to wages only.
        later, units = np.arange(1, years + 1), sequences.units
        level = torch.from_numpy(
            units.level(padded.age[rows, last, None] + later, origin[:, None] + later).astype(
                np.float32
            )
        )
        futures = [self.macro_futures(int(year)) for year in origin]
        if len(set(origin.tolist())) == 1:
            futures = futures[:1]
        stepper = self.start_stepper(records, len(self.columns), -(-years // rhythm), rhythm)
        # All rows are equal. They are still expanded, because products of few rows may round
        # differently.
        x = stepper.hidden.expand(-1, len(self.columns), -1)
        alive = torch.ones(len(persons), len(self.columns), dtype=torch.bool)
        seed, person_ids = self.options.seed, sequences.person_id[persons].tolist()
        orders = path_orders(self.options.n_paths, seed, person_ids).take(self.columns, axis=1)
        earnings = [torch.empty(int(n), self.n_paths) for n in steps]
        for start in range(0, years, rhythm):
            end, n = start + rhythm, int((steps > start).sum())
            u = torch.from_numpy(
                path_uniforms(
                    orders[:n], start // rhythm, seed, person_ids[:n], origin[:n] + end
                ).astype(np.float32)
            )
            # Years within a step share a state and a random number: a path keeps its rank.
            for year in range(start, min(end, years)):
                macro, wage = _stack_year(futures[:n], year)
                distribution = self.head(x[:n], torch.tensor([year - start + 1]), macro)
                dead, positive, z = self.head.sample(distribution, u)
                positive = positive & alive[:n]
                logs = torch.add(level[:n, year, None], z, alpha=units.scale) + wage
                simulated = torch.where(positive, torch.exp(logs), 0.0)
                for i in range(int((steps > year).sum())):
                    earnings[i][year] = simulated[i, : self.n_paths]
            alive = alive[:n] & ~dead
            n_next = int((steps > end).sum())
            if n_next:
                state = torch.where(positive, POSITIVE, ZERO)
                x = stepper.step(state[:n_next], (z * positive)[:n_next], age[:n_next] + end)
        return [earnings[i].numpy() for i in np.argsort(order)]

    def _embed_constant(self, other: NDArray[np.float32], codes: NDArray[np.int64]) -> Tensor:
        """The constant part (1, d) of future tokens, from `other` (K,) and `codes` (C,)."""
        tokens = self.network.tokens
        return tokens.embed_other(torch.from_numpy(other[None])) + tokens.embed_codes(
            torch.from_numpy(codes[None])
        )


def _stack_year(futures: Sequence[MacroFutures], year: int) -> tuple[Tensor, Tensor]:
    """Covariates (n, n_column, 4) and log wage index (n, n_column) of a year.

    n is 1 if all persons have the same origin.
    """
    return (
        torch.stack([future.features[year] for future in futures]),
        torch.stack([future.wage[year] for future in futures]),
    )


def draw_macro_futures(
    calendar: Calendar,
    process: MacroProcess | None,
    options: RolloutOptions,
    origin: int,
    n_years: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Macro covariates and log wage index of the years after `origin`.

    Shapes (n_paths, n_years, 4) and (n_paths, n_years); all zero without a macro process.
    """
    shape = (options.n_paths, n_years)
    if process is None or not n_years:
        return np.zeros((*shape, MACRO_FEATURES)), np.zeros(shape)
    series = process.draw(options.seed, options.n_paths, origin, origin + n_years, options.scenario)
    features = macro_features(series, process.unemployment(origin, options.scenario))
    wage = calendar.wage_index(np.array([origin]))[0] + log_wage_index(series[..., 1])
    return features, wage


def future_codes(codes: NDArray[np.int64], continued: ContinuedInputs) -> NDArray[np.int64]:
    """Code numbers (C,) of future tokens after a record's codes (n_token, C)."""
    static = np.where(continued.static_codes, codes[-1], 0)
    return np.where(continued.lasting_codes, filled_forward(codes, codes > 0)[-1], static)


def future_values(other: NDArray[np.float32], continued: ContinuedInputs) -> NDArray[np.float32]:
    """Continuous values (K,) of future tokens after a record's values (n_token, K)."""
    last = filled_forward(other, ~np.isnan(other))[-1]
    return np.where(continued.lasting_other, last, np.float32(np.nan))


def fill_vectors(n_paths: int) -> NDArray[np.int64]:
    """Indices of the paths, filled up to whole vectors by repeating the last path."""
    return np.minimum(np.arange(-(-n_paths // VECTOR) * VECTOR), n_paths - 1)


def persons_per_group(
    modules: Iterable[torch.nn.Module],
    rows: Sequence[int],
    n_persons: int,
    group_rows: int = GROUP_ROWS,
) -> int:
    """Persons to compute together, of `n_persons` in all; `rows` has the rows of one in a product.

    1 if the rows are not independent, and until this is tested, which it is after a few persons.
    """
    size = max(1, group_rows // max(rows))
    shapes = _product_shapes(modules, rows, size)
    if untested := shapes - _independent.keys():
        _untested[shapes] += n_persons
        if _untested[shapes] <= FEW_PERSONS:
            return 1
        with single_threaded():  # as in simulations
            _independent.update((shape, _rows_are_independent(*shape)) for shape in untested)
    return size if all(_independent[shape] for shape in shapes) else 1


def _product_shapes(
    modules: Iterable[torch.nn.Module], rows: Sequence[int], n_persons: int
) -> frozenset[_ProductShape]:
    """The products of the modules for a group of persons, who have `rows` rows each."""
    layers = [layer for module in modules for layer in module.modules()]
    shapes = {
        (*layer.weight.shape, layer.bias is not None, isinstance(layer, Affine))
        for layer in layers
        if isinstance(layer, torch.nn.Linear | Affine)
    }
    lstm = [layer for layer in layers if isinstance(layer, torch.nn.LSTM)]
    shapes |= {(4 * layer.hidden_size, layer.input_size, True, False) for layer in lstm}
    n_persons = max(2, n_persons)  # as in a group: large products use other kernels
    return frozenset((n_persons, n, *shape) for n in (*rows, MAX_STEPS + 1) for shape in shapes)


def _rows_are_independent(
    n_persons: int, rows: int, out: int, size: int, bias: bool, affine: bool
) -> bool:
    """Whether a product gives the rows of a person the same bits alone and with other persons."""
    generator = torch.Generator().manual_seed(0)
    x, weight, shift = (
        torch.randn(shape, generator=generator)
        for shape in ((n_persons, rows, size), (out, size), (out,))
    )
    multiply = product if affine else F.linear
    with torch.inference_mode():
        together = multiply(x, weight, shift if bias else None)
        return all(
            torch.equal(together[i], multiply(x[i], weight, shift if bias else None))
            for i in range(n_persons)
        )
