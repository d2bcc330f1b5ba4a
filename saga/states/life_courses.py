"""Life courses: states simulated along paths of earnings (`saga.states.state_network`).

As with paths, a person's life courses are a function of the weights, the person's record and paths,
and the seed alone. Random numbers are keyed by (seed, person, year), and persons are computed
together only if that changes no bit (`saga.simulation.rollout`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from saga.features.sequences import POSITIVE, UNKNOWN, ZERO, Sequences, pad
from saga.keyed_random import uniforms
from saga.model import Saga
from saga.paths import Paths
from saga.schema import MIN_AGE
from saga.simulation.pool import split_persons, thread_pool
from saga.simulation.rollout import MAX_STEPS, MacroFutures, fill_vectors, persons_per_group
from saga.states.codes import ABROAD, COLUMNS, DEAD, INDUSTRY, STATE, STATES, Spells
from saga.states.state_network import MAX_LOOKAHEAD, ChooseCodes, StateInputs, StateNetwork

# Numbers of the state after those that a record can show.
DEAD_STATE, ABROAD_STATE = len(STATES) + 1, len(STATES) + 2
_UNIFORMS = 2 + len(COLUMNS)  # random numbers of a year: emigration, death, each column


@dataclass(frozen=True)
class ZeroRuns:
    """What a path of earnings shows ahead of each of its years, arrays (H, M).

    `zero_years` is the length of the run of zeros that starts with the year, at most MAX_LOOKAHEAD
    + 1. `years_left` counts the path's years after it, at most MAX_LOOKAHEAD, and is 0 if the year
    is not zero. `zero_to_end` says whether this and all later years are zero.
    """

    zero_years: NDArray[np.int64]
    years_left: NDArray[np.int64]
    zero_to_end: NDArray[np.bool_]

    @classmethod
    def of_paths(cls, zero: NDArray[np.bool_]) -> ZeroRuns:
        """Runs of paths whose years are `zero` (H, M)."""
        steps = len(zero)
        run = np.zeros((steps + 1, *zero.shape[1:]), np.int64)
        for t in reversed(range(steps)):
            run[t] = np.where(zero[t], run[t + 1] + 1, 0)
        years_left = np.broadcast_to(np.arange(steps)[::-1, None], zero.shape)
        return cls.from_counts(run[:-1], years_left)

    @classmethod
    def from_counts(cls, run: NDArray[np.int64], years_left: NDArray[np.int64]) -> ZeroRuns:
        """From run lengths and years left, both counted to the end of the path (H, M)."""
        limited = np.where(run > 0, np.minimum(years_left, MAX_LOOKAHEAD), 0)
        return cls(np.minimum(run, MAX_LOOKAHEAD + 1), limited, run > years_left)


@dataclass(frozen=True, eq=False)
class LifeCourses:
    """Paths of earnings and the states of their years.

    `numbers` maps each column to its code numbers (n, H, M), which `codes` names from 1 on; 0 means
    none, or not in the register. The state of the dead is DEAD_STATE and that of persons abroad is
    ABROAD_STATE; both last to the end. Earnings of persons abroad are those that they would have in
    the country, because paths are conditional on residence.
    """

    paths: Paths
    numbers: Mapping[str, NDArray[np.int16]] = field(repr=False)
    codes: Mapping[str, tuple[str, ...]] = field(repr=False)

    def until(self, age: int) -> LifeCourses:
        """The years up to an age; where persons differ in age, later years are NaN and 0."""
        within = self.paths.years - self.paths.birth_year[:, None] <= age
        width = max(1, int(within.sum(1).max()))
        within = within[:, :width, None]
        earnings = np.where(within, self.paths.earnings[:, :width], np.nan).astype(np.float32)
        numbers = {
            name: np.where(within, values[:, :width], 0).astype(np.int16)
            for name, values in self.numbers.items()
        }
        return LifeCourses(self.paths.with_earnings(earnings), numbers, self.codes)

    def labels(self, name: str) -> tuple[str, ...]:
        """The codes of a column from number 1 on, with those of the dead and persons abroad."""
        return (*self.codes[name], DEAD, ABROAD) if name == "state" else self.codes[name]


class LifeCourseSimulator:
    """Simulates life courses for persons of one panel, with one seed and number of paths."""

    def __init__(
        self,
        state_network: StateNetwork,
        network: Saga,
        sequences: Sequences,
        codes: NDArray[np.int16],
        labels: Mapping[str, tuple[str, ...]],
        *,
        n_paths: int,
        seed: int,
        last_training_year: int,
    ) -> None:
        """Prepare the simulation.

        Args:
            state_network: Network of the states.
            network: Network of earnings, which encodes the records.
            sequences: Records of the panel.
            codes: Code numbers (n_row, 7) of the records (`saga.states.codes.code_numbers`).
            labels: Codes of each column (`saga.states.codes.code_labels`).
            n_paths: Number of paths per person.
            seed: Seed of the keyed random numbers.
            last_training_year: Last year from which the state network was trained.
        """
        self.state_network, self.network, self.sequences = state_network, network, sequences
        self.codes, self.labels = codes, labels
        # Rows with earnings above the average.
        self.well_paid = (sequences.state == POSITIVE) & (sequences.z >= network.tokens.centre)
        # Numbers of the codes for no children. There is a youngest child only if there are
        # children; the network breaks this rule about once in ten thousand draws.
        family = (("children", "0"), ("youngest_child", "none"))
        self.childless = [
            labels[name].index(code) + 1 if code in labels[name] else 0 for name, code in family
        ]
        self.n_paths, self.seed, self.last_training_year = n_paths, seed, last_training_year
        self.path_index = fill_vectors(n_paths)

    def group_size(self, n_persons: int) -> int:
        """Number of persons that are best computed together, as in `Rollout.group_size`."""
        modules = (self.state_network, self.network)
        return persons_per_group(modules, [len(self.path_index)], n_persons)

    def simulate_blocks(
        self, blocks: Iterable[Paths], macro_futures: Callable[[int], MacroFutures], threads: int
    ) -> Iterator[LifeCourses]:
        """Life courses along paths to age 64; `blocks` have the sequences' persons in their order.

        `macro_futures` gives the macro futures of an origin year that the paths were drawn with.
        """

        def simulate_rows(block: Paths, first: int, rows: NDArray[np.int64]) -> NDArray[np.int16]:
            """Code numbers (n, H, M, 7) of rows of a block; `first` is its first person's index."""
            earnings = [path[np.isfinite(path[:, 0])] for path in block.earnings[rows]]
            wages = [
                macro_futures(int(year)).wage[: len(path), : self.n_paths].numpy()
                for year, path in zip(block.origin_year[rows], earnings, strict=True)
            ]
            numbers = np.zeros((len(rows), *block.earnings.shape[1:], len(COLUMNS)), np.int16)
            for i, person in enumerate(self.simulate(first + rows, earnings, wages)):
                numbers[i, : len(person)] = person
            return numbers

        first = 0
        with thread_pool(threads) as executor:
            for block in blocks:
                size = self.group_size(len(block))
                groups = split_persons(np.arange(len(block)), threads, size)
                parts = executor.map(partial(simulate_rows, block, first), groups)
                numbers = np.concatenate(list(parts))
                first += len(block)
                by_column = {name: numbers[..., j] for j, name in enumerate(self.labels)}
                yield LifeCourses(block, by_column, self.labels)

    @torch.inference_mode()
    def simulate(
        self,
        persons: NDArray[np.int64],
        earnings: Sequence[NDArray[np.float32]],
        wages: Sequence[NDArray[np.float32]],
    ) -> list[NDArray[np.int16]]:
        """Code numbers (H, M, 7) of each person; see `LifeCourses` for their meaning.

        Args:
            persons: Indices of persons (n,).
            earnings: Each person's paths (H, M), to age 64.
            wages: The log wage indices (H, M) of their macro futures.
        """
        # The longest paths first, so that persons with a further year are always the first rows.
        order = np.argsort([-len(path) for path in earnings], kind="stable")
        persons, steps = persons[order], np.array([len(earnings[i]) for i in order])
        n, m = len(persons), len(self.path_index)
        last = self.sequences.offsets[persons + 1] - 1
        origin = self.sequences.year[last]
        age = origin - self.sequences.birth_year[persons]
        hidden = self._hidden_at_origin(persons).repeat_interleave(m, 0)
        state, z, runs = self._encode_paths(
            [earnings[i] for i in order], [wages[i] for i in order], last, age
        )
        spells = self.spells_at_origin(persons).take(np.repeat(np.arange(n), m))
        numbers = [np.zeros((years, self.n_paths, len(COLUMNS)), np.int16) for years in steps]
        exited = np.zeros(n * m, np.int16)
        for t in range(int(steps[0])):
            n_going = int((steps > t).sum())  # persons whose paths have this year
            rows = slice(0, n_going * m)
            person_years = origin[:n_going] + 1 + t
            year = np.repeat(person_years, m)
            spells = spells.take(rows)
            u = self._uniforms(self.sequences.person_id[persons[:n_going]], person_years)
            # Rows t to t + 2 are the year before, this year and the year after.
            before, now, after = self.network.tokens.encode_earnings(
                state[t : t + 3, rows], z[t : t + 3, rows]
            )
            period = np.minimum(0.0, (year - self.last_training_year) / 10)
            inputs = StateInputs(
                origin=hidden[rows],
                before=before,
                now=now,
                after=after,
                zero_years=torch.from_numpy(runs.zero_years[t, rows]),
                years_left=torch.from_numpy(runs.years_left[t, rows]),
                zero_to_end=torch.from_numpy(runs.zero_to_end[t, rows]),
                age=torch.from_numpy(np.repeat(age[:n_going] + 1 + t - MIN_AGE, m)),
                period=torch.from_numpy(period.astype(np.float32)),
                codes=torch.from_numpy(spells.codes),
                workplace=torch.from_numpy(spells.workplace),
                durations=torch.from_numpy(spells.durations(year - 1)),
            )
            leave, die, features = self.state_network.exits(inputs)
            leaves = (u[:, 0] < leave.softmax(-1)[:, 1]).numpy()
            dies = (u[:, 1] < die.softmax(-1)[:, 1]).numpy()
            exits = np.where(leaves, ABROAD_STATE, np.where(dies, DEAD_STATE, 0))
            exited = np.where(exited[rows] > 0, exited[rows], exits).astype(np.int16)
            choose = self._choose_by_inversion(u[:, 2:])
            codes = self.state_network.columns(features, inputs.codes, choose).numpy()
            # Codes after an exit are drawn, too, but not shown.
            shown = np.where(exited[:, None] > 0, 0, codes)
            shown[:, STATE] = np.where(exited > 0, exited, codes[:, STATE])
            for i, person_numbers in enumerate(shown.reshape(n_going, m, len(COLUMNS))):
                numbers[i][t] = person_numbers[: self.n_paths]
            spells = spells.after(year, codes)
        return [numbers[i] for i in np.argsort(order)]

    def _uniforms(self, person_ids: NDArray[np.str_], years: NDArray[np.int64]) -> Tensor:
        """Random numbers (rows, 2 + 7) of persons in years (n,)."""
        by_person = [
            uniforms(self.n_paths * _UNIFORMS, "course", self.seed, *key).reshape(-1, _UNIFORMS)
            for key in zip(person_ids.tolist(), years.tolist(), strict=True)
        ]
        return torch.from_numpy(np.concatenate([u[self.path_index] for u in by_person]))

    def _encode_paths(
        self,
        earnings: Sequence[NDArray[np.float32]],
        wages: Sequence[NDArray[np.float32]],
        last: NDArray[np.int64],
        age: NDArray[np.int64],
    ) -> tuple[Tensor, Tensor, ZeroRuns]:
        """Earnings states and relative log earnings (longest + 2, rows), and runs (longest, rows).

        The first entry is the last record, then the path, then unknown after its end.
        """
        n, m, longest = len(earnings), len(self.path_index), len(earnings[0])
        state, z = np.full((longest + 2, n, m), UNKNOWN), np.zeros((longest + 2, n, m), np.float32)
        state[0], z[0] = self.sequences.state[last][:, None], self.sequences.z[last][:, None]
        zero_years, years_left = np.zeros((2, longest, n, m), np.int64)
        zero_to_end, units = np.zeros((longest, n, m), np.bool_), self.sequences.units
        origin = self.sequences.year[last]
        for i, (path, wage) in enumerate(zip(earnings, wages, strict=True)):
            years, path = slice(0, len(path)), path[:, self.path_index]
            positive = path > 0
            state[1:][years, i] = np.where(positive, POSITIVE, ZERO)
            logs = np.log(np.where(positive, path, 1.0)) - wage[:, self.path_index]
            later = np.arange(1, len(path) + 1)[:, None]
            relative = units.relative(logs.astype(np.float64), age[i] + later, origin[i] + later)
            z[1:][years, i] = np.where(positive, relative, 0.0)
            runs = ZeroRuns.of_paths(~positive)
            zero_years[years, i], years_left[years, i] = runs.zero_years, runs.years_left
            zero_to_end[years, i] = runs.zero_to_end
        runs = ZeroRuns(
            zero_years.reshape(longest, -1),
            years_left.reshape(longest, -1),
            zero_to_end.reshape(longest, -1),
        )
        return (
            torch.from_numpy(state.reshape(-1, n * m)),
            torch.from_numpy(z.reshape(-1, n * m)),
            runs,
        )

    def spells_at_origin(self, persons: NDArray[np.int64]) -> Spells:
        """The spells of persons at the end of their last record."""
        start, length = self.sequences.offsets[persons], self.sequences.lengths[persons]
        spells = Spells.unknown(self.sequences.year[start])
        for t in range(int(length.max())):
            row = start + np.minimum(t, length - 1)  # repeating the last record changes nothing
            spells = spells.after(self.sequences.year[row], self.codes[row].astype(np.int64))
        # A code that was never observed has no known duration, as in training. For a workplace, a
        # missing code means none, unless the person has earned as much as persons with one.
        unobserved = spells.codes == 0
        unobserved[:, INDUSTRY] &= np.array(
            [self.well_paid[a : a + n].any() for a, n in zip(start, length, strict=True)]
        )
        unobserved = np.column_stack([unobserved, unobserved[:, INDUSTRY]])
        origin = self.sequences.year[start + length - 1]
        since = np.where(unobserved, origin[:, None], spells.since)
        return Spells(spells.codes, spells.workplace, since)

    def _hidden_at_origin(self, persons: NDArray[np.int64]) -> Tensor:
        """The hidden state (n, d) of the network of earnings at each person's last record."""
        records = pad(self.sequences, persons, MAX_STEPS + 1)
        age = torch.from_numpy(records.age)
        hidden, _ = self.network.hidden(self.network.embed(records), age)
        last = torch.from_numpy(self.sequences.lengths[persons] - 1)
        return hidden[torch.arange(len(persons)), last]

    def _choose_by_inversion(self, u: Tensor) -> ChooseCodes:
        """Choose the codes of one column after the other by inverting the CDF at u (rows, 7)."""
        without_children: list[Tensor] = []

        def choose(j: int, logits: Tensor) -> Tensor:
            if COLUMNS[j] == "youngest_child" and without_children:
                none = torch.arange(logits.shape[1]) == self.childless[1]
                impossible = without_children[0][:, None] != none
                logits = logits.masked_fill(impossible, float("-inf"))
            cumulative = logits.softmax(-1).cumsum(-1, dtype=torch.float64)
            number = (cumulative < u[:, j, None]).sum(-1).clamp(max=logits.shape[1] - 1)
            if COLUMNS[j] == "children" and all(self.childless):
                without_children.append(number == self.childless[0])
            return number

        return choose


def paths_table(
    paths: Paths,
    life_courses: LifeCourses | None = None,
    wages: Callable[[int, NDArray[np.int64]], NDArray[np.float64]] | None = None,
) -> pl.DataFrame:
    """Paths as a long table `person_id, path, year, earnings`, sorted in this order of columns.

    Paths are numbered from 0; earnings are real money of the panel a year. A path ends with its
    last simulated year, at age 64 or earlier. With `wages`, the log real wages of paths by origin
    and years, it also has `wage_index`, which is 1 in the origin year. With `life_courses`, whose
    paths are `paths`, it also has the columns of `saga.states.codes`; a person without a code has
    null.
    """
    person, path, column = np.nonzero(np.isfinite(paths.earnings.transpose(0, 2, 1)))
    table = pl.DataFrame(
        {
            "person_id": paths.person_id[person],
            "path": path.astype(np.int32),
            "year": paths.years[person, column].astype(np.int32),
            "earnings": paths.earnings[person, column, path],
        }
    )
    if wages is not None:
        origins, row = np.unique(paths.origin_year, return_inverse=True)
        years = origins[:, None] + np.arange(paths.n_horizons + 1)
        logs = np.stack([wages(int(each[0]), each) for each in years])
        growth = logs[row[person], column + 1, path] - logs[row[person], 0, path]
        table = table.with_columns(wage_index=pl.Series(np.exp(growth), dtype=pl.Float32))
    if life_courses is None:
        return table
    return table.with_columns(
        _code_column(life_courses, name, person, column, path).alias(name)
        for name in life_courses.numbers
    )


def _code_column(life_courses: LifeCourses, name: str, *index: NDArray[np.int64]) -> pl.Series:
    """The codes of a column of life courses; number 0 is a missing code."""
    codes = life_courses.labels(name)
    number = life_courses.numbers[name][index].astype(np.int64)
    return pl.Series([None, *codes], dtype=pl.Enum(codes)).gather(number)
