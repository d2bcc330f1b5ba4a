"""The model of a bundle: networks, trees and macro process, and their raw forecasts of a panel.

Nothing here is calibrated; the forecaster recalibrates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from saga.bundle import Bundle
from saga.data.facts import Facts
from saga.data.macro_rows import SERIES
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.errors import UsageError
from saga.features.calendar import Calendar
from saga.features.sequences import encode
from saga.features.transforms import Transforms
from saga.files.bundle_folder import TREES
from saga.files.stored_values import faults_of
from saga.machine import cpu_count
from saga.macro.group_trends import GroupTrends
from saga.macro.history import sweden
from saga.macro.process import MacroProcess
from saga.macro.scenarios import SCENARIOS, Scenario, ScenarioSource, scenario_from
from saga.model import Saga
from saga.model.members import Member, build_members, shared_transforms
from saga.paths import Paths
from saga.requests import Draws, Progress, RolloutName
from saga.simulation.ensemble import MemberSequences, average_marginals, simulation_pool
from saga.simulation.group_layer import GroupLayer
from saga.simulation.marginals import DirectMarginals, macro_nodes
from saga.simulation.rollout import MacroFutures, Rollout, RolloutOptions
from saga.trees.mixture import TreeMember, tree_members

_MANY_PERSONS = 300  # from this number of persons on, several processes save time


class PersonBlock(NamedTuple):
    """Persons computed together: their indices in the panel, and the labels of their groups."""

    rows: NDArray[np.int64]
    groups: Mapping[str, NDArray[np.str_]]


# Raw marginals of a block at horizons 1..n.
BlockMarginals = Callable[[PersonBlock, int], Marginals]


@dataclass(frozen=True, eq=False)
class BundleModel:
    """The model of a bundle.

    Args:
        members: The networks, with the transforms of each.
        trees: Boosted trees that are mixed into the marginals, if the bundle has some.
        transforms: What all members share: money, rhythm and codes.
        process: The macro process; None if the bundle was trained without macro series.
        groups: The economy of groups; None if the bundle has none.
        calendar: The macro covariates of each year.
        rollout: How paths are simulated.
        threads: Number of threads.
        workers: Number of processes for many persons.
    """

    members: tuple[Member, ...]
    trees: tuple[TreeMember | None, ...]
    transforms: Transforms
    process: MacroProcess | None
    groups: GroupLayer | None
    calendar: Calendar
    rollout: RolloutName
    threads: int
    workers: int

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        facts: Facts,
        *,
        rollout: RolloutName,
        threads: int | None,
        workers: int,
    ) -> Self:
        """Build the networks and trees of a bundle; arguments and errors as in `Forecaster`."""
        if rollout not in get_args(RolloutName):
            names = ", ".join(get_args(RolloutName))
            raise UsageError(f"There is no rollout {rollout!r}. Use one of {names}.")
        if threads is not None and threads < 1:
            raise UsageError(f"The number of threads is 1 or more, not {threads}.")
        members = build_members(bundle.config, bundle.transforms, bundle.weights)
        with faults_of(TREES):
            trees = tree_members(bundle.trees, bundle.config)
        if rollout == "light":
            members[0].network.fast_cell()
        transforms, groups = shared_transforms(bundle.transforms), bundle.macro.get("groups")
        with faults_of("macro.json"):
            trends = None if groups is None else GroupTrends.from_dict(groups)
            layer = None if trends is None else GroupLayer(trends, transforms)
            process, calendar = _process_and_calendar(bundle, facts)
        return cls(
            members,
            trees,
            transforms,
            process,
            layer,
            calendar,
            rollout,
            threads or cpu_count(),
            workers,
        )

    @property
    def network(self) -> Saga:
        """The network. UsageError if the bundle is an ensemble, which has several."""
        if len(self.members) > 1:
            raise UsageError(
                f"This bundle has {len(self.members)} members, but one network is needed here. "
                "Use a bundle that was trained without --folds and with `members: 1`."
            )
        return self.members[0].network

    def scenario(self, source: ScenarioSource) -> Scenario | None:
        """The scenario of a source; UsageError if the bundle has no macro series."""
        if source is None or (isinstance(source, str) and source == "baseline"):
            return None
        history = None if self.process is None else self.process.history
        scenario = None
        if history is not None or not (isinstance(source, str) and source in SCENARIOS):
            scenario = scenario_from(source, history)
        if scenario is None or (history is None and scenario.rows):
            raise UsageError(
                "This bundle was trained without macro series, so it has no scenarios of them. "
                "Leave the scenario out."
            )
        if columns := scenario.ratio_names:
            if self.groups is None or not self.groups.trends.columns:
                raise UsageError(
                    f"The scenario has the column '{columns[0]}', but this bundle has no economy "
                    "of groups. Leave the column out."
                )
            self.groups.trends.check_ratios(columns)
        return scenario

    def of_panel(
        self, panel: Panel, scenario: ScenarioSource
    ) -> tuple[MemberSequences, BlockMarginals]:
        """The records of a panel's persons, and their raw marginals under a scenario."""
        records = tuple(encode(panel, member.transforms, self.calendar) for member in self.members)
        conditions = self.scenario(scenario)
        direct = self._direct_marginals(conditions)
        mixes = [None if trees is None else trees.mix_with(panel) for trees in self.trees]
        groups = self.groups
        levels = None if groups is None else groups.levels(records[0])

        def marginals(block: PersonBlock, n: int) -> Marginals:
            members = [
                member.marginals(sequences, block.rows, block.groups, n)
                for member, sequences in zip(direct, records, strict=True)
            ]
            if len(mixes) != len(members):  # at most one: trees beside the average
                members = [average_marginals(members)]
            for k, mix in enumerate(mixes):
                if mix is not None:
                    members[k] = mix(block.rows, members[k])
            raw = average_marginals(members)
            if groups is not None and levels is not None:
                raw = groups.move_marginals(raw, levels[block.rows], conditions)
            return raw

        return records, marginals

    def simulate_blocks(
        self,
        records: MemberSequences,
        blocks: Iterator[PersonBlock],
        draws: Draws,
        *,
        to_horizon: int | None,
        to_age: int,
        progress: Progress | None = None,
    ) -> Iterator[tuple[PersonBlock, Paths]]:
        """Raw paths of each block of persons; arguments as in `Forecaster.blocks`."""
        rollouts, persons = self._rollouts(draws), records[0]
        groups, conditions = self.groups, self.scenario(draws.scenario)
        levels = None if groups is None else groups.levels(persons)
        origin = persons.year[persons.offsets[1:] - 1]
        years_left = to_age - (origin - persons.birth_year)
        steps = np.clip(years_left, 0, to_horizon)
        width = to_horizon if to_horizon is not None else int(max(1, steps.max()))
        processes = self.workers if len(persons) >= _MANY_PERSONS else 1
        with simulation_pool(
            rollouts, records, steps, threads=self.threads, processes=processes
        ) as draw:
            for block in blocks:
                rows = block.rows
                earnings = np.full((len(rows), width, draws.n_paths), np.nan, dtype=np.float32)
                for i, path_earnings in enumerate(draw(rows)):
                    earnings[i, : len(path_earnings)] = path_earnings
                    if progress:
                        progress(int(rows[i]) + 1, len(persons))
                if groups is not None and levels is not None:
                    earnings = groups.move_paths(
                        earnings, origin[rows], levels[rows], draws, conditions
                    )
                yield (
                    block,
                    Paths(
                        persons.person_id[rows],
                        persons.birth_year[rows],
                        origin[rows],
                        earnings,
                        groups=block.groups,
                        conditioned=conditions is not None,
                    ),
                )

    def macro_futures(self, draws: Draws) -> Callable[[int], MacroFutures]:
        """The macro futures of the simulated paths, by origin year."""
        return self._rollouts(draws)[0].macro_futures

    def expected_growth(self, origin: int) -> NDArray[np.float64]:
        """Logs of the expected growth of real wages 1..30 years after `origin`, shape (30,)."""
        _, wages = macro_nodes(self.calendar, self.process, origin, None)
        now = self.calendar.wage_index(np.array([origin]))
        return np.asarray(np.log(np.exp(wages - now).mean(axis=1)))

    def _rollouts(self, draws: Draws) -> list[Rollout]:
        """A rollout for each member that has a path."""
        options = RolloutOptions(
            n_paths=draws.n_paths,
            seed=draws.seed,
            scenario=self.scenario(draws.scenario),
            rhythm=self.transforms.rhythm,
            light=self.rollout == "light",
            n_members=len(self.members),
        )
        return [
            Rollout(member.network, self.calendar, self.process, replace(options, member=k))
            for k, member in enumerate(self.members[: draws.n_paths])
        ]

    @cached_property
    def _direct_marginals(self) -> Callable[[Scenario | None], list[DirectMarginals]]:
        """The members' marginals under a scenario.

        Macro nodes take longer than a small request, so they are stored, also for four scenarios.
        """

        def under(scenario: Scenario | None) -> list[DirectMarginals]:
            economy = (self.calendar, self.process, scenario)
            return [
                DirectMarginals(member.network, member.transforms, *economy, threads=self.threads)
                for member in self.members
            ]

        return lru_cache(maxsize=5)(under)


def _process_and_calendar(bundle: Bundle, facts: Facts) -> tuple[MacroProcess | None, Calendar]:
    """The macro process of a bundle, and the calendar; both know the facts of later years.

    No number of a forecast from an origin within the bundle's history depends on later years. After
    the last known year wages grow as fast as in the long run.
    """
    if not bundle.macro.get("series"):
        return None, Calendar(None)
    process = MacroProcess.from_dict(bundle.macro)
    known = process.history
    if "source" not in bundle.macro:  # the Swedish series
        known = known.continued(sweden(max(facts.series[SERIES[0]].values), facts))
    growth = float(np.log1p(process.mean[SERIES.index("real_wage_growth")]))
    calendar = Calendar(known, process.history.last_year, growth)
    return replace(process, known=known), calendar
