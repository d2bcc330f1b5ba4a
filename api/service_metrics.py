"""The Prometheus metrics of `GET /metrics`; labels are routes, never data of a request."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one service, in its own registry so that services do not share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter(
            "saga_http_requests", "HTTP calls answered", labels, registry=self.registry
        )
        self._seconds = Histogram(
            "saga_http_seconds",
            "Seconds to answer",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._stages = Histogram(
            "saga_stage_seconds",
            "Seconds of a call in the queue, of decoding its body, and of one piece of computing",
            ("stage",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._persons = Counter(
            "saga_persons", "Persons forecast", ("product",), registry=self.registry
        )
        self._work = Counter(
            "saga_path_years", "Simulated person-path-years", ("product",), registry=self.registry
        )
        self.waiting = Gauge(
            "saga_queue_waiting", "Calls that wait to be computed", registry=self.registry
        )
        self.ready = Gauge(
            "saga_ready", "1 once the bundle is verified and warmed up", registry=self.registry
        )

    def ledger_gauge(self) -> Gauge:
        """The metric of a service with a ledger."""
        return Gauge(
            "saga_ledger_up",
            "1 while the ledger can be read and written",
            registry=self.registry,
        )

    def jobs_gauge(self) -> Gauge:
        """The metric of a service with jobs."""
        return Gauge(
            "saga_jobs",
            "Jobs of the queue by state, until they expire; NaN while its database does not answer",
            ("state",),
            registry=self.registry,
        )

    def count_answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered call."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def observe_stage(self, stage: str, seconds: float) -> None:
        """Count seconds of the stage "queue", "parse" or "compute"."""
        self._stages.labels(stage).observe(seconds)

    def count_computed(self, product: str, n_persons: int, work: int) -> None:
        """Count one finished forecast or lifetime call."""
        self._persons.labels(product).inc(n_persons)
        self._work.labels(product).inc(work)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)
