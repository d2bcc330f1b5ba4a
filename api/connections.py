"""Connections: how many there are, how long one may be silent, and errors of HTTP itself.

uvicorn's protocol waits for headers without a limit of time, and accepts connections until the
process can open no more files. In both ways a few silent clients could stop the service. It also
takes an answer for sent when the system has only begun to send it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from http import HTTPStatus
from typing import Any

import h11
from saga.api.problems import MEDIA_TYPE
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_OTHER_VERSION = re.compile(rb"^[A-Z]+ \S+ HTTP/(?!1\.[01]$)\d")
_FOLDED = re.compile(rb"\n[ \t]")
_HEADER_BYTES = 2**16  # of the first line and the headers of a request
_HEADER_PARTS = 512  # of them: headers, options of the query, cookies; each takes as long as a line
_PART, _HEAD_END = re.compile(rb"[\n&;]"), re.compile(rb"\n\r?\n")
# Each chunk takes as long as a thousand bytes. A body of more than `_CHUNKS` has larger ones.
_CHUNKS, _CHUNK_BYTES = 1_000, 16
_TURN_BYTES = 2**14  # that are read of a connection before the next one has its turn
# Bytes a second of an answer that a client must read, in each `write_seconds`. A client that reads
# 32 KiB a second does: what the system has buffered, up to a megabyte at a time, is not seen here.
_READ_RATE = 2**13
_FIRST_BYTES, _FIRST_SECONDS = 2**16, 1.0  # of a reader that has just begun and has no speed yet
_TITLES = {
    400: ("http-400", "This is not a request of HTTP/1.1"),
    408: ("header-slow", "The headers of the request did not arrive in time"),
    413: ("chunks", "The body is in many chunks of a few bytes"),
    431: ("header-size", "The first line and the headers of the request are too large"),
    501: ("transfer-encoding", "The service takes bodies with a length, or in chunks"),
    503: ("connections", "The service has as many connections as it can serve"),
    505: ("http-version", "The service speaks HTTP/1.1 and HTTP/1.0"),
}


class ConnectionLimits:
    """The connections that wait for their clients, oldest first; those of a process share one.

    `idle` have no call, `unread` have an answer of which a part is still to be sent.

    Args:
        max_connections: Most connections of the process.
        max_unread_bytes: Most bytes of answers in memory that clients have not read yet.
        header_seconds: Longest time for the headers of a request to arrive.
        write_seconds: A client must read on in each such time.
    """

    def __init__(
        self,
        *,
        max_connections: int,
        max_unread_bytes: int,
        header_seconds: float,
        write_seconds: float,
    ) -> None:
        self.max_connections, self.max_unread_bytes = max_connections, max_unread_bytes
        self.header_seconds, self.write_seconds = header_seconds, write_seconds
        self.idle: dict[GuardedProtocol, None] = {}
        self.unread: dict[GuardedProtocol, None] = {}

    def first_to_close(self) -> GuardedProtocol | None:
        """The connection to close if there are too many: the oldest that never made a call.

        After those without a call it is the one whose client reads most slowly.
        """
        silent = (protocol for protocol in self.idle if protocol.cycle is None)
        return next(silent, next(iter(self.idle), self.slowest_reader()))

    def slowest_reader(self) -> GuardedProtocol | None:
        """The connection whose answer is read most slowly, None if none is being read."""
        return min(self.unread, key=lambda protocol: protocol.read_rate(), default=None)

    def make_room(self) -> None:
        """Close the slowest readers if the unread answers take too much memory; one may stay."""
        n_bytes = sum(protocol.unread_bytes() for protocol in self.unread)
        while n_bytes > self.max_unread_bytes and len(self.unread) > 1:
            slowest = self.slowest_reader()
            assert slowest is not None
            n_bytes -= slowest.unread_bytes()
            slowest.give_way()


class _StrictConnection(h11.Connection):
    """h11 without its lenience: it takes every version, and joins lines of a folded header.

    A proxy may take a folded line for another header, so that both see different requests. What
    would keep the other connections waiting is refused: very many headers, or tiny chunks.
    """

    _n_chunks = _n_bytes = 0  # of the present body

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event. Raises RemoteProtocolError for bytes that are no request."""
        head = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        line, end, _ = head.partition(b"\r\n")
        if end and _OTHER_VERSION.search(line):
            raise h11.RemoteProtocolError("another version", error_status_hint=505)
        blank = _HEAD_END.search(head) if len(head) > _HEADER_PARTS else None
        if blank is not None and len(_PART.findall(head, 0, blank.start())) > _HEADER_PARTS:
            raise h11.RemoteProtocolError("many headers", error_status_hint=431)
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._n_chunks += event.chunk_end
            self._n_bytes += len(event.data)
            if self._n_chunks > max(_CHUNKS, self._n_bytes // _CHUNK_BYTES):
                raise h11.RemoteProtocolError("tiny chunks", error_status_hint=413)
        if isinstance(event, h11.Request):
            self._n_chunks = self._n_bytes = 0
            n_bytes = len(head) - len(self.trailing_data[0])
            if _FOLDED.search(head, 0, n_bytes):
                raise h11.RemoteProtocolError("a folded header")
        return event


class GuardedProtocol(H11Protocol):
    """One connection, closed if its headers or the reading of its answer take too long."""

    def __init__(
        self,
        limits: ConnectionLimits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _StrictConnection(h11.SERVER, _HEADER_BYTES)
        self._limits = limits
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._read_start, self._bytes_at_start = 0.0, 0  # of the present `write_seconds`

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection. If there are too many, another one is closed, or this one is."""
        super().connection_made(transport)
        # `pause_writing` is then called as soon as a byte waits, `resume_writing` if none does.
        transport.set_write_buffer_limits(high=0)
        transport.max_size = _TURN_BYTES  # type: ignore[attr-defined]  # of asyncio's sockets
        if len(self.connections) > self._limits.max_connections:
            other = self._limits.first_to_close()
            if other is None:
                self.refuse(503)
                return
            other.give_way()
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        super().data_received(data)
        if not self.transport.is_closing():
            self._note_state()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request, as soon as the client has been sent the answer."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._note_state()

    def pause_writing(self) -> None:
        """Expect that the client reads; asyncio calls this when a part of an answer must wait."""
        super().pause_writing()
        self._limits.unread.setdefault(self)
        self._expect_reading()
        self._limits.make_room()

    def resume_writing(self) -> None:
        """Continue, or wait for the next request, when all that was written is sent."""
        super().resume_writing()
        self._limits.unread.pop(self, None)
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        if not self.transport.is_closing():
            self._note_state()

    def unread_bytes(self) -> int:
        """Bytes of the answer that wait for the client to read others."""
        return self.transport.get_write_buffer_size()

    def read_rate(self) -> float:
        """Bytes a second that the client has read lately."""
        n_bytes = self._bytes_at_start - self.unread_bytes() + _FIRST_BYTES
        return n_bytes / (self.loop.time() - self._read_start + _FIRST_SECONDS)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 # uvicorn's text is not used
        """Answer bytes that are no request with a problem document.

        uvicorn calls this while it handles h11's error, which suggests a status.
        """
        status = getattr(sys.exception(), "error_status_hint", 400)
        self.refuse(status if status in _TITLES else 400)

    def refuse(self, status: int) -> None:
        """Answer with a problem document, without a call, and close."""
        slug, title = _TITLES[status]
        content = json.dumps(
            {
                "type": f"urn:saga:problem:{slug}",
                "title": title,
                "status": status,
                "detail": title,
                "instance": "urn:saga:request:none",
                "problems": [],
            }
        ).encode()
        headers = [
            ("content-type", MEDIA_TYPE),
            ("content-length", str(len(content))),
            ("connection", "close"),
        ]
        reason = HTTPStatus(status).phrase.encode()
        try:
            for event in (
                h11.Response(status_code=status, headers=headers, reason=reason),
                h11.Data(data=content),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # in the middle of an answer
            pass
        self.transport.close()

    def give_way(self) -> None:
        """Close the connection, without what the client has not read."""
        self._forget()
        self.transport.abort()

    def _note_state(self) -> None:
        # A `cycle` is uvicorn's request and response.
        if self.flow.write_paused or not (self.cycle is None or self.cycle.response_complete):
            self._unset_keepalive_if_required()
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None
            self._limits.idle.pop(self, None)
        else:
            self._await_headers()

    def _expect_reading(self) -> None:
        self._read_start, self._bytes_at_start = self.loop.time(), self.unread_bytes()
        self._write_timer = self.loop.call_later(self._limits.write_seconds, self._on_read_time)

    def _on_read_time(self) -> None:
        n_bytes = self._bytes_at_start - self.unread_bytes()
        if n_bytes < _READ_RATE * self._limits.write_seconds:
            self.give_way()
        else:
            self._expect_reading()

    def _await_headers(self) -> None:
        self._limits.idle.setdefault(self)
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(
                self._limits.header_seconds, self._on_slow_headers
            )

    def _on_slow_headers(self) -> None:
        self._header_timer = None
        if self.conn.trailing_data[0]:
            self.refuse(408)
        else:
            self.give_way()

    def _forget(self) -> None:
        """Stop the timers, and count the connection no longer among those that wait."""
        for timer in (self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._header_timer = self._write_timer = None
        self._limits.idle.pop(self, None)
        self._limits.unread.pop(self, None)
