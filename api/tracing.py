"""Traces of calls and jobs by OpenTelemetry, an optional library; off unless an endpoint is set.

The standard variables apply: `OTEL_EXPORTER_OTLP_ENDPOINT` switches traces on, `OTEL_SERVICE_NAME`,
`OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS` and so on shape them. A span has routes, counts
and names of stages, never data of a request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from asgi_correlation_id import correlation_id

from saga.errors import Problem, UsageError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

Attributes = Mapping[str, str | int | float]
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing:
    """The spans of one process; without a provider nothing is recorded."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer("saga")

    @contextmanager
    def span(
        self, name: str, attributes: Attributes | None = None, parent: str | None = None
    ) -> Iterator[Span | None]:
        """A span around a piece of work, below the current one or a `parent` (W3C traceparent)."""
        if self._tracer is None:
            yield None
            return
        context = None if parent is None else _context_of(parent)
        with self._tracer.start_as_current_span(
            name, context, attributes=dict(attributes or {}), record_exception=False
        ) as span:
            yield span

    def current(self) -> Context | None:
        """The place in the trace at which work of another task belongs."""
        if self._tracer is None:
            return None
        from opentelemetry import context

        return context.get_current()

    def add(self, name: str, seconds: float, place: Context | None) -> None:
        """A span that has just ended, below a `place`."""
        if self._tracer is None or place is None:
            return
        end = time.time_ns()
        span = self._tracer.start_span(name, place, start_time=end - int(seconds * 1e9))
        span.end(end)

    def traceparent(self) -> str | None:
        """The current place as W3C traceparent, for another process."""
        if self._tracer is None:
            return None
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier.get("traceparent")

    def close(self) -> None:
        """Export what is left."""
        if self._provider is not None:
            self._provider.shutdown()


def open_tracing(service_name: str) -> Tracing:
    """The traces of this process, as the standard variables say.

    Raises UsageError if an endpoint is set and the library is missing.
    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return Tracing()
    if find_spec("opentelemetry.sdk") is None or find_spec("opentelemetry.exporter") is None:
        fix = "Install saga-forecast[otel], or unset the variable"
        problem = Problem("otel-missing", "An OTLP endpoint is set", fix, _ENDPOINTS[-1])
        raise UsageError("Traces need a further library", [problem])
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before the name given here.
    resource = Resource({"service.name": service_name}).merge(Resource.create())
    if "OTEL_SERVICE_NAME" not in os.environ:
        resource = resource.merge(Resource({"service.name": service_name}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


def describe_call(span: Span, method: str, route: str, status: int) -> None:
    """Name the span of a call, by its route and not by its path."""
    span.update_name(f"{method} {route}")
    span.set_attributes(
        {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "saga.request": correlation_id.get() or "none",
        }
    )
    if status >= 500:
        from opentelemetry.trace import StatusCode

        span.set_status(StatusCode.ERROR)


def _context_of(traceparent: str) -> Context:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})
