"""Traces of calls and jobs, received by an OTLP endpoint over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from saga.api import tracing
from saga.api.settings import Settings
from saga.api.tracing import Tracing, open_tracing

from saga.client import Client
from saga.errors import UsageError
from tests.waiting import awaited

if TYPE_CHECKING:
    from tests.conftest import Running

Start = Callable[[Settings], AbstractContextManager["Running"]]
PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
EARNINGS = 731_642.5


@dataclass
class Collector:
    """An OTLP endpoint: its address, and the spans that arrived, as they were sent."""

    url: str
    spans: list[Span] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def await_span(self, name: str, count: int = 1) -> list[Span]:
        awaited(lambda: [span.name for span in self.spans].count(name) >= count, 120)
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = ExportTraceServiceRequest.FromString(body)
            received.bodies.append(body)
            received.spans += [
                span
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def _attributes(span: Span) -> dict[str, Any]:
    return {
        entry.key: entry.value.string_value or entry.value.int_value for entry in span.attributes
    }


@pytest.mark.thorough
def test_a_call_and_a_job_are_traced_through_all_their_steps(
    start: Start, tiny_bundle: Path, collector: Collector, tmp_path: Path
) -> None:
    persons = pl.DataFrame(
        {"person_id": ["SENTINEL"], "year": [2022], "birth_year": [1980], "earnings": [EARNINGS]}
    )
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=tmp_path / "jobs")
    with start(settings) as service:
        service.wait_until_ready()
        body = {
            "persons": [
                {
                    "person_id": "SENTINEL",
                    "birth_year": 1980,
                    "history": [{"year": 2022, "earnings": EARNINGS}],
                }
            ]
        }
        answer = service.client.post("/v1/forecasts", json=body, headers={"traceparent": PARENT})
        assert answer.status_code == 200
        (call,) = collector.await_span("POST /v1/forecasts")
        with Client(service.url) as client:
            client.score(persons)
        (merge,) = collector.await_span("merge")
        (job,) = collector.await_span("job")
        (submission,) = collector.await_span("POST /v1/jobs")
    assert (call.trace_id.hex(), call.parent_span_id.hex()) == ("ab" * 16, "cd" * 8)
    attributes = _attributes(call)
    assert attributes["http.response.status_code"] == 200
    assert attributes["saga.request"] == answer.headers["x-request-id"]
    steps = [span for span in collector.spans if span.parent_span_id == call.span_id]
    assert {span.name for span in steps} >= {"parse", "queue", "compute"}
    for span in steps:
        assert call.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= call.end_time_unix_nano
    assert job.parent_span_id == submission.span_id
    assert job.trace_id == submission.trace_id
    (score,) = collector.await_span("score")
    assert {score.parent_span_id, merge.parent_span_id} == {job.span_id}
    assert [event.name for event in score.events][-1] == "progress"
    sent = b"".join(collector.bodies)
    assert b"SENTINEL" not in sent
    assert b"731642" not in sent


def test_without_an_endpoint_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    nothing = open_tracing("saga")
    with nothing.span("call") as span:
        assert span is None
        assert nothing.traceparent() is None
        assert nothing.current() is None
    nothing.add("queue", 1.0, None)
    nothing.close()


def test_an_endpoint_without_the_library_is_an_error_with_its_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setattr(tracing, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"saga-forecast\[otel\]"):
        open_tracing("saga")


def test_spans_of_two_calls_do_not_mix() -> None:
    """A stage that another task has measured belongs to the call that it was measured for."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces = Tracing(provider)
    with traces.span("first"):
        first = traces.current()
    with traces.span("second"):
        traces.add("queue", 0.25, first)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    queue = spans["queue"]
    assert queue.parent is not None
    assert queue.parent.span_id == spans["first"].context.span_id
    assert queue.end_time is not None
    assert queue.start_time is not None
    assert queue.end_time - queue.start_time == 250_000_000
