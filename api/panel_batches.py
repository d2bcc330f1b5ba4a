"""Panels of several calls as one: read together and forecast together, then apart again.

Most of the cost of a small panel is fixed. Persons of different calls get different names for the
time that they are together. No number depends on who else is in a panel.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Generic, TypeVar

import anyio
import anyio.to_thread
import polars as pl
from polars.exceptions import PanicException
from saga.api.request_panel import PricesOption, RequestPanel, read_request_panel

from saga.data.facts import Facts
from saga.data.panel import Panel
from saga.errors import SagaError
from saga.features.training_reference import ComparedRecords
from saga.features.transforms import Transforms
from saga.plans.plan import PieceOutput, Plan
from saga.requests import Request
from saga.schema import MAX_AGE, MIN_AGE

MAX_TOGETHER = 64  # persons of one piece of work: some tenths of a second
_MAX_ROWS = MAX_TOGETHER * (MAX_AGE - MIN_AGE + 1)  # of frames that are read together
_PREFIX = 7  # characters before the name of a person

Item = TypeVar("Item")
Output = TypeVar("Output")


@dataclass(frozen=True)
class SentFrame:
    """The person-years of a call as they were sent, and the prices of their amounts."""

    frame: pl.DataFrame
    prices: PricesOption
    origin: int | None = None

    @property
    def batch_key(self) -> Hashable:
        """Frames with the same key can be read together; None: only alone."""
        persons = self.frame.get_column("person_id", default=None)
        if persons is None or persons.dtype != pl.String or len(persons) > _MAX_ROWS:
            return None
        names = set(persons.to_list())
        if len(names) > MAX_TOGETHER or not all(name and _is_plain(name) for name in names):
            return None
        return self.prices, self.origin, *self.frame.schema.items()


def _is_plain(name: str) -> bool:
    """Whether Python and polars agree on the blanks around the name, and it has other letters."""
    return name.isprintable() and not name.isspace()


def read_panels(
    transforms: Transforms, facts: Facts, sent: Sequence[SentFrame]
) -> list[RequestPanel | SagaError]:
    """The panel of each call, or why it is refused, as `read_request_panel` says.

    Frames with the same `batch_key` are read together; if one of them is refused or loses a row,
    each of them is read alone.
    """
    answers: dict[int, RequestPanel | SagaError] = {}
    groups: dict[Hashable, list[int]] = {}
    for i, call in enumerate(sent):
        batch_key = call.batch_key if len(sent) > 1 else None
        groups.setdefault(i if batch_key is None else batch_key, []).append(i)
    for group in groups.values():
        together = (
            _read_together(transforms, facts, [sent[i] for i in group]) if len(group) > 1 else None
        )
        for position, i in enumerate(group):
            answers[i] = (
                _read_alone(transforms, facts, sent[i]) if together is None else together[position]
            )
    return [answers[i] for i in range(len(sent))]


def _read_alone(transforms: Transforms, facts: Facts, call: SentFrame) -> RequestPanel | SagaError:
    try:
        return read_request_panel(
            transforms, call.frame, call.prices, facts=facts, origin=call.origin
        )
    except SagaError as error:
        return error


def _read_together(
    transforms: Transforms, facts: Facts, calls: Sequence[SentFrame]
) -> list[RequestPanel] | None:
    """The panels of frames that are read as one; None if one of them must be read alone."""
    frame = _joined([call.frame for call in calls])
    try:
        joined = read_request_panel(
            transforms, frame, calls[0].prices, facts=facts, origin=calls[0].origin
        )
    except SagaError:
        return None
    if joined.panel.meta.excluded or joined.panel.meta.nines:  # rows are counted by call
        return None
    person_ids: list[list[str]] = [[] for _ in calls]
    for name in joined.person_ids:
        person_ids[_number(name)].append(name[_PREFIX:])
    panels = split_panel(joined.panel, len(calls))
    if joined.panel.meta.unpublished_prices and not isinstance(calls[0].prices, int):
        panels = [_with_own_prices(panel) for panel in panels]
    reference = transforms.reference
    compared = (
        [None] * len(calls)
        if reference is None
        else _split(reference.compare(joined.panel), panels)
    )
    return [
        RequestPanel(panel, tuple(ids), compared=records)
        for panel, ids, records in zip(panels, person_ids, compared, strict=True)
    ]


def _with_own_prices(panel: Panel) -> Panel:
    """The panel of a call: of all years with unpublished prices it keeps those of its records."""
    years = set(panel.frame["year"].to_list())
    marks = {year: mark for year, mark in panel.meta.unpublished_prices.items() if year in years}
    return replace(panel, meta=replace(panel.meta, unpublished_prices=marks))


def _split(compared: ComparedRecords, panels: Sequence[Panel]) -> list[ComparedRecords]:
    """The compared records of a joined panel, by the `panels` of which it consists."""
    rows = pairwise(accumulate((len(panel) for panel in panels), initial=0))
    persons = pairwise(accumulate((panel.n_persons for panel in panels), initial=0))
    return [
        compared.part(slice(*of_rows), slice(*of_persons))
        for of_rows, of_persons in zip(rows, persons, strict=True)
    ]


def _joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all frames, with a number before the name of each person."""
    names = [
        _prefix(i) + name.strip()
        for i, frame in enumerate(frames)
        for name in frame["person_id"].to_list()
    ]
    return _renamed(pl.concat(frames), names)


def _renamed(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The rows with other names of their persons, without a query of polars."""
    renamed = frame.clone()
    persons = pl.Series("person_id", names, dtype=pl.String)
    return renamed.replace_column(frame.get_column_index("person_id"), persons)


def _prefix(i: int) -> str:
    return f"{i:0{_PREFIX - 1}d} "


def _number(name: str) -> int:
    """The number before the name of a person."""
    return int(name[: _PREFIX - 1])


def join_panels(panels: Sequence[Panel]) -> Panel:
    """One panel of all persons; `panels` are of frames with the same `batch_key`."""
    return panels[0].with_frame(_joined([panel.frame for panel in panels]))


def split_panel(panel: Panel, n: int) -> list[Panel]:
    """The `n` panels of which a joined panel consists."""
    return [panel.with_frame(frame) for frame in split_rows(panel.frame, n)]


def split_rows(frame: pl.DataFrame, n: int) -> list[pl.DataFrame]:
    """The rows of each of `n` calls, which are sorted by call, with their persons' own names."""
    names = frame["person_id"].to_list()
    starts = [bisect_left(names, i, key=_number) for i in range(n + 1)]
    frame = _renamed(frame, [name[_PREFIX:] for name in names])
    return [frame[start:end] for start, end in pairwise(starts)]


@dataclass(frozen=True)
class ForecastPart:
    """Persons of one call, at most `MAX_TOGETHER`, and the plan of the call."""

    plan: Plan[Request]
    panel: Panel

    @property
    def batch_key(self) -> Hashable:
        """Parts with the same key can be forecast together; None: only alone.

        The numbers do not depend on the paths and the seed. The calibrator is compared because the
        thresholds follow the outcomes. What is to be recorded is that of one call.
        """
        plan = self.plan
        if plan.record:
            return None
        of_calls = ("excluded", "outside_ages", "lost", "facts", "nines", "unpublished_prices")
        meta = vars(self.panel.meta) | dict.fromkeys(of_calls)
        scenario, facts = repr(plan.draws.scenario), id(self.panel.meta.facts)
        return repr(meta), facts, plan.request, scenario, id(plan.forecaster.calibrator)


def parts_of(plan: Plan[Request]) -> list[ForecastPart]:
    """The persons of a call in parts that can be computed one after the other."""
    return [ForecastPart(plan, part) for part in plan.pieces(MAX_TOGETHER)]


def forecast_parts(parts: list[ForecastPart]) -> list[PieceOutput]:
    """What is computed for each part; parts of several calls are forecast as one panel."""
    plan = parts[0].plan
    if len(parts) == 1:
        return [plan.compute(parts[0].panel)]
    table = plan.compute(join_panels([part.panel for part in parts])).table
    return [PieceOutput(rows) for rows in split_rows(table, len(parts))]


class Batcher(Generic[Item, Output]):
    """Runs waiting items together: while one batch runs, the next gathers.

    Args:
        run: Makes the outputs of items.
        gather: Waits for further items that come soon.
    """

    def __init__(
        self, run: Callable[[list[Item]], list[Output]], gather: Callable[[], Awaitable[None]]
    ) -> None:
        self._run, self._gather = run, gather
        self._waiting: list[tuple[Item, asyncio.Future[Output]]] = []
        self._runner: asyncio.Task[None] | None = None
        self._thread = anyio.CapacityLimiter(1)

    async def submit(self, item: Item) -> Output:
        """The output of an item."""
        future: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        while self._waiting:
            await self._gather()
            batch, self._waiting = self._waiting, []
            items = [item for item, _ in batch]
            try:
                outputs = await anyio.to_thread.run_sync(self._run, items, limiter=self._thread)
            except (Exception, PanicException) as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), output in zip(batch, outputs, strict=True):
                if not future.done():
                    future.set_result(output)
