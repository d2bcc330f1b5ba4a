"""Connections: how many there are, how long one may be silent, and errors of HTTP itself.

uvicorn's protocol waits for headers without a limit of time, and accepts connections until the
process can open no more files. In both ways a few silent clients could stop the service.
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
_TITLES = {
    400: ("http-400", "This is not a request of HTTP/1.1"),
    408: ("header-slow", "The headers of the request did not arrive in time"),
    431: ("header-size", "The first line and the headers of the request are too large"),
    501: ("transfer-encoding", "The service takes bodies with a length, or in chunks"),
    503: ("connections", "The service has as many connections as it can serve"),
    505: ("http-version", "The service speaks HTTP/1.1 and HTTP/1.0"),
}


class ConnectionLimits:
    """The connections without a call, oldest first; all connections of a process share one.

    Args:
        max_connections: Most connections of the process.
        header_seconds: Longest time for the headers of a request to arrive.
        write_seconds: Longest time in which a client may read nothing of its answer.
    """

    def __init__(
        self, *, max_connections: int, header_seconds: float, write_seconds: float
    ) -> None:
        self.max_connections = max_connections
        self.header_seconds, self.write_seconds = header_seconds, write_seconds
        self.idle: dict[GuardedProtocol, None] = {}

    def oldest_idle(self) -> GuardedProtocol | None:
        """The connection to close if there are too many: the oldest that never made a call."""
        silent = (protocol for protocol in self.idle if protocol.cycle is None)
        return next(silent, next(iter(self.idle), None))

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> GuardedProtocol:
        """The protocol of a new connection, as uvicorn asks for it."""
        return GuardedProtocol(self, config, server_state, app_state, _loop)


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
        self._limits = limits
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection. If there are too many, the oldest one without a call is closed."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            oldest = self._limits.oldest_idle()
            if oldest is None:
                self.refuse(503)
                return
            oldest.close_idle()
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        line = data.partition(b"\r\n")[0]
        if not self._has_call() and _OTHER_VERSION.search(line):  # h11 accepts every digit
            self.refuse(505)
            return
        super().data_received(data)
        if not self.transport.is_closing():
            self._note_state()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timers()
        self._limits.idle.pop(self, None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._note_state()

    def pause_writing(self) -> None:
        """Limit the time in which the client must read on; uvicorn calls this if it does not."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue an answer that the client reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

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

    def close_idle(self) -> None:
        """Close a connection that has no call."""
        self._stop_timers()
        self._limits.idle.pop(self, None)
        self.transport.abort()

    def _has_call(self) -> bool:
        """Whether a request is being answered; a `cycle` is uvicorn's request and response."""
        return self.cycle is not None and not self.cycle.response_complete

    def _note_state(self) -> None:
        if self._has_call():
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None
            self._limits.idle.pop(self, None)
        else:
            self._await_headers()

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
            self.close_idle()

    def _stop_timers(self) -> None:
        for timer in (self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._header_timer = self._write_timer = None
