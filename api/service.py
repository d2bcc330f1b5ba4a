"""One running service: settings, forecaster, ledger, queue, counters and log."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

import anyio.to_thread
from fastapi import Depends, Request
from saga.api.answers import ANSWER_HEADERS
from saga.api.budget import BodyMemory, JsonScan, Quotas
from saga.api.codecs import JSON, media_type, parse_json
from saga.api.compute_queue import ComputeQueue, Ticket
from saga.api.example import example_persons
from saga.api.key_file import OPERATOR, Caller
from saga.api.ledger_access import WAIT_SECONDS, LedgerAccess
from saga.api.logs import error_location, make_logger
from saga.api.panel_batches import Batcher, SentFrame, read_panels
from saga.api.problems import SetupError, startup_error
from saga.api.refusals import refused
from saga.api.request_models import CallOptions, ForecastBody
from saga.api.request_panel import RequestPanel, read_request_panel
from saga.api.security import check_scope
from saga.api.service_metrics import JobMetrics, Metrics
from saga.api.settings import Settings, unread_variables
from saga.api.table_reader import READER
from saga.api.turns import Turns
from saga.calibration.adaptive.issued_intervals import IssuedInterval
from saga.calibration.adaptive.ledger import RecordCounts, open_ledger
from structlog.contextvars import bind_contextvars

from saga.bundle import describe_schema
from saga.data.facts import open_facts
from saga.data.panel import Panel
from saga.diagnostics_tables import Diagnostics
from saga.errors import SagaError
from saga.features.transforms import TYPICAL_SEK
from saga.files.bundle_folder import JUDGED_TABLES
from saga.files.stored_values import faults_of
from saga.forecast_results import Result
from saga.forecaster import Forecaster
from saga.pages.report import render_report
from saga.plans import Plan
from saga.requests import ForecastRequest, LifetimeRequest
from saga.requests import Request as TypedRequest
from saga.simulation.rollout import FEW_PERSONS

if TYPE_CHECKING:
    from saga.api.jobs.job_service import JobService

ContentT = TypeVar("ContentT")
_SMALL_BODY = 4_096  # bytes of JSON whose decoding costs less than its way to another thread
_MAX_THREADS = 2  # that decode, check or write: they hold the interpreter, and /livez must answer


class Service:
    """State that the endpoints share.

    `start` makes the service ready. Until then, endpoints that compute return status 503.
    """

    def __init__(self, settings: Settings, log: TextIO | None, shared: Path | None = None) -> None:
        self.settings, self.shared = settings, shared
        self.metrics = Metrics(shared)
        self.log = make_logger(log, self.metrics.lost_lines.inc)
        if unread := unread_variables():
            self.log.warning("variables_not_read", names=unread)
        self.queue = ComputeQueue(
            max_calls=settings.queue,
            max_seconds=settings.queue_seconds,
            max_work=settings.max_work,
            observe=self.metrics.observe_stage,
            note_waiting=self.metrics.waiting.set,
        )
        self._quotas = Quotas(settings.quota, shared=shared)
        self.panels = Batcher(self._read_panels, lambda: self.queue.gather("decode"))
        self.bodies = BodyMemory(
            max_bytes=settings.max_body_bytes,
            max_total=settings.max_bodies_bytes,
            seconds=settings.body_seconds,
        )
        self._turns, self._rounds = Turns(_MAX_THREADS), Turns(1)
        self.ledger_access: LedgerAccess | None = None
        self.is_draining = False
        self.jobs = None if settings.jobs is None else _open_jobs(self)
        self._forecaster: Forecaster | None = None
        self._startup_error: SagaError | None = None
        self._watch: asyncio.Task[None] | None = None
        self._report_lock, self._report = asyncio.Lock(), ""

    async def start(self, announce: Callable[[Forecaster], None]) -> None:
        """Load and verify the bundle, forecast once, open the ledger, and mark the service ready.

        If the service cannot start, the log gives the reason, and /readyz only the kind of error.
        """
        try:
            self._forecaster = await anyio.to_thread.run_sync(self._load)
        except SagaError as error:
            self._startup_error = startup_error(error)
            self.log.error(
                "not_ready",
                title=error.title,
                wrong=error.args[0],
                problems=[str(problem) for problem in error.problems],
            )
            return
        except Exception as error:
            self._startup_error = SetupError(
                "The service failed while it started; its log says where"
            )
            self.log.error("not_ready", **error_location(error))
            return
        if self.ledger_access is not None:
            self._watch = asyncio.create_task(self.ledger_access.watch())
        self.metrics.ready.set(1)
        self.log.info("ready")
        announce(self._forecaster)

    def close(self) -> None:
        """Answer the calls that are not done with status 503, because the service stops."""
        self.queue.close()
        if self.jobs is not None:
            self.jobs.uploads.close()

    def stop(self) -> None:
        """Stop what runs in the background."""
        if self._watch is not None:
            self._watch.cancel()

    def _load(self) -> Forecaster:
        settings = self.settings
        forecaster = Forecaster.load(
            settings.bundle,
            threads=settings.threads,
            rollout=settings.rollout,
            facts=open_facts(settings.facts),
        )
        # The first forecasts of a process are slow, so they are made before clients call: of enough
        # persons that those of later calls are computed together (`persons_per_group`).
        (person,) = example_persons(example_scale(forecaster))
        persons = [{**person, "person_id": str(i)} for i in range(FEW_PERSONS + 1)]
        body = json.dumps({"persons": persons}).encode()
        frame = parse_json(body, ForecastBody, max_persons=len(persons)).frame
        people = read_request_panel(
            forecaster.transforms, frame, prices=None, facts=forecaster.facts
        )
        forecaster.forecast(people.panel, ForecastRequest(horizons=[1]))
        forecaster.lifetime(people.panel, LifetimeRequest(to_age=40))
        READER.start()
        if settings.database is not None:
            url = settings.database.get_secret_value()
            ledger = open_ledger(url, settings.database_key, wait_seconds=WAIT_SECONDS)
            up = self.metrics.ledger_gauge()
            self.ledger_access = LedgerAccess(ledger, forecaster, self.log, up)
        return forecaster

    def plan(
        self, request: TypedRequest, panel: Panel, options: CallOptions, caller: Caller
    ) -> Plan[TypedRequest]:
        """The plan of a call, under the thresholds of the caller's part of the ledger."""
        access = self.ledger_access
        in_force = None if access is None else access.current(caller.holder)
        draws, record = options.draws(), options.records
        plan = self.forecaster.plan(request, panel, draws, in_force, record=record)
        plan.check_scenario()
        return plan

    def with_ledger_notes(self, result: Result, caller: Caller) -> Result:
        """The result; if the ledger cannot be read, it says that the state is the last known."""
        if (access := self.ledger_access) is None:
            return result
        provenance = {**result.provenance, "adaptive": access.identity(caller.holder)}
        warnings = (*result.warnings, *access.warnings())
        return replace(result, provenance=provenance, warnings=warnings)

    def admit(self, request: Request, caller: Caller) -> AbstractAsyncContextManager[Ticket]:
        """The place of a call, before its body is read; see `ComputeQueue.admit`.

        Raises what the `forecaster` raises, and ProblemError 429 if the quota of the key is used
        up.
        """
        self.take_quota(request, caller)
        _ = self.forecaster
        return self.queue.admit(caller.holder)

    def take_quota(self, request: Request, caller: Caller) -> None:
        """Count a call of a key; raises ProblemError 429 if its quota is used up."""
        if caller is not OPERATOR:
            request.scope[ANSWER_HEADERS] = self._quotas.take(caller.holder)

    async def parse(
        self, request: Request, ticket: Ticket, decode: Callable[[bytes], ContentT]
    ) -> ContentT:
        """What `decode` makes of the body of a request.

        At most two large bodies are decoded at a time; holders take turns. Raises what
        `JsonScan.take`, `BodyMemory.body` and `decode` raise.
        """
        is_json = media_type(request.headers.get("content-type")) == JSON
        scan = JsonScan().take if is_json else lambda _: None
        async with self.bodies.body(request, ticket.holder, scan) as body:
            start = time.perf_counter()
            ticket.stage = "decode"
            if is_json and len(body) <= _SMALL_BODY:
                content = decode(body)
            else:
                content = await self.in_turn(ticket.holder, partial(decode, body))
            self.metrics.observe_stage("parse", time.perf_counter() - start)
            return content

    async def take_turn(self, holder: str) -> None:
        """Wait for the turn of a call: one begins in each round of the event loop, holders in turn.

        If all began at once, each step of a call would wait for a step of all the others.
        """
        async with self._rounds.turn(holder):
            await asyncio.sleep(0)

    async def in_turn(self, holder: str, make: Callable[[], ContentT]) -> ContentT:
        """What `make` makes, in a thread, of or for a holder; two at a time, holders take turns."""
        async with self._turns.turn(holder):
            return await anyio.to_thread.run_sync(make)

    def _read_panels(self, sent: list[SentFrame]) -> list[RequestPanel | SagaError]:
        return read_panels(self.forecaster.transforms, self.forecaster.facts, sent)

    def count_computed(self, product: str, n_persons: int, n_paths: int, n_years: int) -> None:
        """Count the size of one finished call, which the line of its answer in the log has, too."""
        self.metrics.count_computed(product, n_persons, n_persons * n_paths * n_years)
        bind_contextvars(product=product, persons=n_persons, paths=n_paths, years=n_years)

    async def report_page(self) -> str:
        """The calibration report of the bundle as HTML; the first call makes it, in seconds.

        Raises UsageError if the bundle has no diagnostics.
        """

        def render() -> str:
            judged = self.forecaster.bundle
            diagnostics = Diagnostics.of_bundle(judged)
            with faults_of(JUDGED_TABLES):
                return render_report(diagnostics, bundle=judged.digest, vintages=judged.vintages)

        async with self._report_lock:
            if not self._report:
                self._report = await anyio.to_thread.run_sync(render)
            return self._report

    def variables(self) -> dict[str, Any]:
        """The columns of a panel, with the bundle's own ones as soon as it is loaded."""
        return describe_schema(self._forecaster.bundle.transforms if self._forecaster else {})

    @property
    def forecaster(self) -> Forecaster:
        """The forecaster; raises an error with status 503 if it is not loaded."""
        if self._startup_error is not None:
            raise self._startup_error
        if self._forecaster is None:
            raise refused("loading")
        return self._forecaster


def _open_jobs(service: Service) -> JobService:
    """The jobs of the service."""
    from saga.api.jobs.job_service import JobService  # of an optional library

    metrics = JobMetrics(service.metrics.registry)
    return JobService(service.settings, service.log, metrics, service.shared)


def example_scale(forecaster: Forecaster) -> float:
    """Factor from the example's SEK to ordinary amounts in the bundle's currency."""
    transforms = forecaster.transforms
    return 1.0 if transforms.currency == "SEK" else transforms.typical_amount / TYPICAL_SEK


def ledger_of(service: Service) -> LedgerAccess:
    """The ledger; raises an error with status 404 if there is none, 503 if it is known to fail."""
    if service.ledger_access is None:
        raise refused("no-ledger")
    service.ledger_access.require_up()
    return service.ledger_access


def check_recording(service: Service, caller: Caller) -> None:
    """Raise ProblemError unless the caller may enter intervals in a ledger that answers."""
    check_scope(caller, "record")
    ledger_of(service)


async def record_issued(
    service: Service, caller: Caller, issued: Sequence[IssuedInterval]
) -> RecordCounts:
    """Enter intervals of the service's bundle in the ledger."""
    bundle = service.forecaster.bundle.digest
    return await ledger_of(service).write(caller, lambda ledger: ledger.record(bundle, issued))


async def service_of(request: Request) -> Service:
    """The service that received the request."""
    service: Service = request.app.state.service
    return service


CurrentService = Annotated[Service, Depends(service_of)]
