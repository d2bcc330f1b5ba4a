"""The Prometheus metrics of `GET /metrics`; labels are routes, never data of a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from saga.api.jobs.job_folders import State

# Upper ends of the bins of durations, seconds.
_DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class JobMetrics:
    """What `GET /metrics` says about jobs, the same for all services that share their folder."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = Gauge(
            "saga_jobs",
            "Jobs of the queue by state, until they expire",
            ("state",),
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._oldest = Gauge(
            "saga_jobs_oldest_queued_seconds",
            "Seconds that the oldest waiting job has waited",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._workers = Gauge(
            "saga_job_workers",
            "Workers that have reached the queue within the last minute",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._up = Gauge(
            "saga_job_queue_up",
            "1 while the queue's database answers, 0 while it does not",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._persons = Gauge(
            "saga_jobs_persons_pending",
            "Persons of unfinished jobs who are not yet computed",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )

    def update(
        self,
        by_state: Mapping[State, int],
        oldest_seconds: float,
        persons: int,
        workers: int,
        *,
        is_up: bool,
    ) -> None:
        """Set the metrics to what the folder has (`JobFolders.counts`), and workers and queue."""
        for state in get_args(State):
            self._jobs.labels(state).set(by_state.get(state, 0))
        self._oldest.set(oldest_seconds)
        self._persons.set(persons)
        self._workers.set(workers)
        self._up.set(is_up)


class Metrics:
    """The metrics of one service, in its own registry so that services do not share counts.

    With a folder `shared`, which the environment variable PROMETHEUS_MULTIPROC_DIR must name from
    the start of the process on, they are those of all processes that share it.
    """

    def __init__(self, shared: Path | None = None) -> None:
        self.registry, self._shared = CollectorRegistry(), shared
        if shared is None:
            ProcessCollector(registry=self.registry)
        labels = ("method", "route", "status")
        self._requests = Counter(
            "saga_http_requests", "HTTP calls answered", labels, registry=self.registry
        )
        self._seconds = Histogram(
            "saga_http_seconds",
            "Seconds to answer",
            ("route",),
            buckets=_DURATIONS,
            registry=self.registry,
        )
        self._stages = Histogram(
            "saga_stage_seconds",
            "Seconds of a call in the queue, of decoding its body, of one piece of computing and "
            "of compressing its answer",
            ("stage",),
            buckets=_DURATIONS,
            registry=self.registry,
        )
        self._persons = Counter(
            "saga_persons", "Persons forecast", ("product",), registry=self.registry
        )
        self._work = Counter(
            "saga_path_years", "Simulated person-path-years", ("product",), registry=self.registry
        )
        self.waiting = Gauge(
            "saga_queue_waiting",
            "Calls that wait to be computed",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.lost_lines = Counter(
            "saga_log_lines_lost",
            "Lines that could not be written to the log, for example because its disk is full",
            registry=self.registry,
        )
        self.ready = Gauge(
            "saga_ready",
            "1 once the bundle is verified and warmed up",
            registry=self.registry,
            multiprocess_mode="livemin",
        )

    def ledger_gauge(self) -> Gauge:
        """The metric of a service with a ledger."""
        return Gauge(
            "saga_ledger_up",
            "1 while the ledger can be read and written",
            registry=self.registry,
            multiprocess_mode="livemin",
        )

    def count_answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered call."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def observe_stage(self, stage: str, seconds: float) -> None:
        """Count seconds of the stage "queue", "parse", "compute" or "compress"."""
        self._stages.labels(stage).observe(seconds)

    def count_computed(self, product: str, n_persons: int, work: int) -> None:
        """Count one finished forecast or lifetime call."""
        self._persons.labels(product).inc(n_persons)
        self._work.labels(product).inc(work)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        if self._shared is None:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self._shared))  # type: ignore[no-untyped-call]
        registry.register(_ProcessesCollector(self._live_processes(self._shared)))
        return generate_latest(registry)

    def _live_processes(self, shared: Path) -> list[int]:
        """The processes of the folder that still run; live gauges of the others are deleted."""
        files = shared.glob("*.db")
        processes = {int(path.stem.rsplit("_", 1)[1]) for path in files}
        dead = {pid for pid in processes if not Path(f"/proc/{pid}").exists()}
        for pid in dead:
            mark_process_dead(pid, str(shared))  # type: ignore[no-untyped-call]
        return sorted(processes - dead)


class _ProcessesCollector(Collector):
    """CPU seconds, memory and open files of several processes, added up."""

    def __init__(self, processes: Sequence[int]) -> None:
        self._processes = processes

    def collect(self) -> Iterator[Metric]:
        """The metrics of `ProcessCollector` that can be added up."""
        sums: dict[str, Metric] = {}
        for pid in self._processes:
            for metric in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                known = sums.setdefault(metric.name, metric)
                if known is not metric:
                    (sample,), (more,) = known.samples, metric.samples
                    known.samples = [sample._replace(value=sample.value + more.value)]
        for name in ("process_start_time_seconds", "process_max_fds"):
            sums.pop(name, None)
        yield from sums.values()
