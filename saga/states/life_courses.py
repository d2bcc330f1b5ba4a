"""Life courses: circumstances drawn along paths of earnings (`saga.states.state_network`).

As with paths, a person's courses are a function of the weights, that person's record and paths, and the seed alone: randomness is keyed
by (seed, person, year), and persons are drawn together only where that changes no bit (`saga.simulation.rollout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from saga.features.sequences import POSITIVE, UNKNOWN, ZERO, Sequences, pad
from saga.keyed_random import uniforms
from saga.model import Saga
from saga.paths import Paths
from saga.schema import MIN_AGE
from saga.simulation.rollout import GROUP_ROWS, MAX_STEPS, rows_stand_alone, whole_vectors
from saga.states.codes import ABROAD, COLUMNS, DEAD, INDUSTRY, STATE, STATES, Spells
from saga.states.state_network import MAX_LOOKAHEAD, Choose, StateInputs, StateNetwork

DEAD_STATE, ABROAD_STATE = (
    len(STATES) + 1,
    len(STATES) + 2,
)  # numbers of the state beyond those that a record shows
_DRAWS = 2 + len(COLUMNS)  # numbers that a year takes: emigration, death, each column


@dataclass(frozen=True)
class ZeroRuns:
    """What a path of earnings says about each of its years, arrays (H, M).

    `zeros`: years of zeros that begin with it, MAX_LOOKAHEAD + 1 at most; `left`: years that follow, MAX_LOOKAHEAD at most, and 0 where the year is
    not zero; `last`: whether that year and all that follow are zero.
    """

    zeros: NDArray[np.int64]
    left: NDArray[np.int64]
    last: NDArray[np.bool_]

    @classmethod
    def of_paths(cls, zero: NDArray[np.bool_]) -> ZeroRuns:
        """Of paths that are `zero` (H, M)."""
        steps = len(zero)
        run = np.zeros((steps + 1, *zero.shape[1:]), np.int64)
        for t in reversed(range(steps)):
            run[t] = np.where(zero[t], run[t + 1] + 1, 0)
        return cls.from_counts(run[:-1], np.broadcast_to(np.arange(steps)[::-1, None], zero.shape))

    @classmethod
    def from_counts(cls, run: NDArray[np.int64], left: NDArray[np.int64]) -> ZeroRuns:
        """Of zeros in a row, and of years that follow, both counted to the end (H, M)."""
        told = np.where(run > 0, np.minimum(left, MAX_LOOKAHEAD), 0)
        return cls(np.minimum(run, MAX_LOOKAHEAD + 1), told, run > left)


@dataclass(frozen=True, eq=False)
class LifeCourses:
    """Paths of earnings and the circumstances of their years.

    `numbers`: column -> (n, H, M) numbers of its codes, which `codes` names from 1 on; 0: none, or not in the register. The state of the
    dead is DEAD_STATE, of those abroad ABROAD_STATE, each for good. Earnings of those abroad are what they would be here: paths are
    conditional on residence.
    """

    paths: Paths
    numbers: Mapping[str, NDArray[np.int16]]
    codes: Mapping[str, tuple[str, ...]]

    def until(self, age: int) -> LifeCourses:
        """Without the years beyond an age; those of persons who are older by then than others become NaN and 0."""
        within = self.paths.years - self.paths.birth_year[:, None] <= age
        width = max(1, int(within.sum(1).max()))
        kept = within[:, :width, None]
        earnings = np.where(kept, self.paths.earnings[:, :width], np.nan).astype(np.float32)
        numbers = {
            name: np.where(kept, values[:, :width], 0).astype(np.int16)
            for name, values in self.numbers.items()
        }
        return LifeCourses(self.paths.with_earnings(earnings), numbers, self.codes)

    def labels(self, name: str) -> tuple[str, ...]:
        """The codes of a column from number 1 on, those of who is not in the register counted."""
        return (*self.codes[name], DEAD, ABROAD) if name == "state" else self.codes[name]


class LifeCourseSimulator:
    """Draws courses for persons of one panel, under one seed and for one number of paths."""

    def __init__(
        self,
        law: StateNetwork,
        network: Saga,
        sequences: Sequences,
        codes: NDArray[np.int16],
        labels: Mapping[str, tuple[str, ...]],
        *,
        n_paths: int,
        seed: int,
        until: int,
    ) -> None:
        """`codes` (n_row, 7) of the sequences' rows (`saga.states.codes.numbers`), named by `labels`; `until`: the last year that the law
        was learnt from."""
        self.law, self.network, self.sequences, self.codes = law, network, sequences, codes
        self.well_paid = (sequences.state == POSITIVE) & (
            sequences.z >= network.tokens.centre
        )  # rows with earnings above the average
        # By definition there is a youngest child where there are children; a law that is learnt may err once in ten thousand.
        family = (("children", "0"), ("youngest_child", "none"))
        self.childless = [
            labels[name].index(code) + 1 if code in labels[name] else 0 for name, code in family
        ]
        self.n_paths, self.seed, self.until = n_paths, seed, until
        self.carried = whole_vectors(n_paths)

    @property
    def group_size(self) -> int:
        """Persons that are best drawn together, as in `Rollout.group`."""
        rows = len(self.carried)
        return max(1, GROUP_ROWS // rows) if rows_stand_alone((self.law, self.network), rows) else 1

    @torch.inference_mode()
    def simulate(
        self,
        persons: NDArray[np.int64],
        earnings: Sequence[NDArray[np.float32]],
        wages: Sequence[NDArray[np.float32]],
    ) -> list[NDArray[np.int16]]:
        """Numbers of the columns, (H, M, 7) a person, along `earnings` (H, M) that go to age 64; `wages` (H, M) are log wage indices.

        0: none, or not in the register; the state of the dead and of those abroad is DEAD_STATE and ABROAD_STATE for good.
        """
        order = np.argsort(
            [-len(each) for each in earnings], kind="stable"
        )  # those on their way are always the first
        chosen, steps = persons[order], np.array([len(earnings[i]) for i in order])
        n, m, columns = len(chosen), len(self.carried), len(COLUMNS)
        last = self.sequences.offsets[chosen + 1] - 1
        origin, age = (
            self.sequences.year[last],
            self.sequences.year[last] - self.sequences.birth_year[chosen],
        )
        hidden = self._origins(chosen).repeat_interleave(m, 0)
        state, z, ahead = self._along([earnings[i] for i in order], [wages[i] for i in order], last)
        standing = self._standing(chosen).take(np.repeat(np.arange(n), m))
        out = [np.zeros((own, self.n_paths, columns), np.int16) for own in steps]
        gone = np.zeros(n * m, np.int16)
        names = self.sequences.person_id[chosen].tolist()
        for t in range(int(steps[0])):
            going = int((steps > t).sum())
            rows = slice(0, going * m)
            year = np.repeat(origin[:going] + 1 + t, m)
            standing = standing.take(rows)
            keys = zip(names[:going], (origin[:going] + 1 + t).tolist(), strict=True)
            drawn_u = [
                uniforms(self.n_paths * _DRAWS, "course", self.seed, *key).reshape(
                    self.n_paths, _DRAWS
                )
                for key in keys
            ]
            u = torch.from_numpy(np.concatenate([each[self.carried] for each in drawn_u]))
            described = self.network.tokens.encode_earnings(
                state[t : t + 3, rows], z[t : t + 3, rows]
            )
            given = StateInputs(
                origin=hidden[rows],
                before=described[0],
                now=described[1],
                after=described[2],
                zeros=torch.from_numpy(ahead.zeros[t, rows]),
                left=torch.from_numpy(ahead.left[t, rows]),
                last=torch.from_numpy(ahead.last[t, rows]),
                age=torch.from_numpy(np.repeat(age[:going] + 1 + t - MIN_AGE, m)),
                period=torch.from_numpy(
                    np.minimum(0.0, (year - self.until) / 10).astype(np.float32)
                ),
                codes=torch.from_numpy(standing.codes),
                workplace=torch.from_numpy(standing.workplace),
                years=torch.from_numpy(standing.years(year - 1)),
            )
            leave, die, reads = self.law.exits(given)
            left, died = (
                (u[:, k] < logits.softmax(-1)[:, 1]).numpy()
                for k, logits in enumerate((leave, die))
            )
            leaving = np.where(left, ABROAD_STATE, np.where(died, DEAD_STATE, 0))
            gone = np.where(gone[rows] > 0, gone[rows], leaving).astype(np.int16)
            codes = self.law.columns(reads, given.codes, self._inverting(u[:, 2:])).numpy()
            shown = np.where(gone[:, None] > 0, 0, codes)
            shown[:, STATE] = np.where(gone > 0, gone, codes[:, STATE])
            for i, own in enumerate(shown.reshape(going, m, columns)):
                out[i][t] = own[: self.n_paths]
            standing = standing.after(year, codes)
        return [out[place] for place in np.argsort(order)]

    def _along(
        self,
        earnings: Sequence[NDArray[np.float32]],
        wages: Sequence[NDArray[np.float32]],
        last: NDArray[np.int64],
    ) -> tuple[torch.Tensor, torch.Tensor, ZeroRuns]:
        """Earnings as a token shows them, state and relative log (longest + 2, rows): the last record's, the path's, unknown behind its
        end; and what lies ahead in each year of the paths (longest, rows)."""
        n, m, longest = len(earnings), len(self.carried), len(earnings[0])
        state, z = np.full((longest + 2, n, m), UNKNOWN), np.zeros((longest + 2, n, m), np.float32)
        state[0], z[0] = self.sequences.state[last][:, None], self.sequences.z[last][:, None]
        zeros, left = np.zeros((2, longest, n, m), np.int64)
        only = np.zeros((longest, n, m), np.bool_)
        for i, (money, wage) in enumerate(zip(earnings, wages, strict=True)):
            own, positive = slice(0, len(money)), money[:, self.carried] > 0
            state[1:][own, i] = np.where(positive, POSITIVE, ZERO)
            logs = np.log(np.where(positive, money[:, self.carried], 1.0)) - wage[:, self.carried]
            z[1:][own, i] = np.where(positive, logs, 0.0)
            ahead = ZeroRuns.of_paths(~positive)
            zeros[own, i], left[own, i], only[own, i] = ahead.zeros, ahead.left, ahead.last
        rows = n * m
        lies_ahead = ZeroRuns(
            zeros.reshape(longest, rows), left.reshape(longest, rows), only.reshape(longest, rows)
        )
        return (
            torch.from_numpy(state.reshape(-1, rows)),
            torch.from_numpy(z.reshape(-1, rows)),
            lies_ahead,
        )

    def _standing(self, persons: NDArray[np.int64]) -> Spells:
        """What is known of each person at the origin."""
        start, length = self.sequences.offsets[persons], self.sequences.lengths[persons]
        standing = Spells.unknown(len(persons), self.sequences.year[start])
        for t in range(int(length.max())):
            row = start + np.minimum(t, length - 1)  # the last record once more changes nothing
            standing = standing.after(self.sequences.year[row], self.codes[row].astype(np.int64))
        # What was never told is not known to have been so for long, as in training. No workplace is told by silence, but not where
        # somebody has earned as people with one do.
        untold = standing.codes == 0
        earned = np.array(
            [self.well_paid[a : a + n].any() for a, n in zip(start, length, strict=True)]
        )
        untold[:, INDUSTRY] &= earned
        untold = np.column_stack([untold, untold[:, INDUSTRY]])
        last = self.sequences.year[start + length - 1]
        return Spells(
            standing.codes, standing.workplace, np.where(untold, last[:, None], standing.since)
        )

    def _origins(self, persons: NDArray[np.int64]) -> torch.Tensor:
        """The decoder's state at each person's last record, (n, d)."""
        tokens = pad(self.sequences, persons, MAX_STEPS + 1)
        arrays = (tokens.state.astype(np.int64), tokens.z, tokens.other, tokens.codes, tokens.age)
        token = self.network.tokens(*(torch.from_numpy(array) for array in arrays))
        hidden, _ = self.network.hidden(token, torch.from_numpy(tokens.age))
        return hidden[
            torch.arange(len(persons)), torch.from_numpy(self.sequences.lengths[persons] - 1)
        ]

    def _inverting(self, u: torch.Tensor) -> Choose:
        """Chooses the numbers of column after column by inversion of `u` (rows, 7)."""
        alone: list[torch.Tensor] = []

        def choose(j: int, logits: torch.Tensor) -> torch.Tensor:
            if COLUMNS[j] == "youngest_child" and alone:
                none = torch.arange(logits.shape[1]) == self.childless[1]
                logits = logits.masked_fill(alone[0][:, None] != none, float("-inf"))
            cumulative = logits.softmax(-1).cumsum(-1, dtype=torch.float64)
            number = (cumulative < u[:, j, None]).sum(-1).clamp(max=logits.shape[1] - 1)
            if COLUMNS[j] == "children" and all(self.childless):
                alone.append(number == self.childless[0])
            return number

        return choose
