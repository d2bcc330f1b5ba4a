"""`saga serve`: one process that listens, loads the bundle and prints a curl command."""

from __future__ import annotations

import asyncio
import math
import resource
import signal
import socket
import sys
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.connections import ConnectionDoors
from api.example import curl
from api.logs import bridge_logs
from api.service import Service, example_scale
from api.settings import Settings
from calibration.adaptive.ledger import open_ledger
from saga.bundle import Bundle
from saga.errors import Problem, UsageError
from saga.forecaster import Forecaster

# For so long one thread keeps the interpreter from another. With Python's 5 ms, /livez would wait
# for a forecast at each of its steps.
_SWITCH_SECONDS = 0.001
_ANSWER_SECONDS = 5  # for the answers to calls that are not done in time
_OTHER_FILES = 128  # besides connections: the ledger, the bundle, pipes


def serve(settings: Settings) -> None:
    """Serve until interrupted; once ready, print the URL and a curl command.

    Raises:
        UsageError: The port is taken, the key file is not valid, the address needs keys or the
            ledger cannot be used.
        BundleError: The bundle cannot be used.
        LedgerError: The ledger's database cannot be reached.
        QueueError: The database of the jobs cannot be used.
    """

    def announce(forecaster: Forecaster) -> None:
        command = curl(url, keyed=settings.keys is not None, scale=example_scale(forecaster))
        sys.stdout.write(
            f"SAGA is ready at {url} (documentation at {url}/docs). Try:\n\n{command}\n\n"
        )
        sys.stdout.flush()  # so that a pipe gets it at once

    app = create_app(settings, announce=announce)
    with open_socket(settings.host, settings.port) as listener:
        # With an unusable bundle or ledger the command stops here. With another server the service
        # starts, /readyz returns 503 and the log gives the reason.
        Bundle.load(settings.bundle)
        if settings.database is not None:
            open_ledger(settings.database.get_secret_value(), settings.database_key).close()
        if settings.jobs is not None:
            check_queue(settings.job_queue_url)
        name = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{name}:{listener.getsockname()[1]}"
        bridge_logs(app.state.service.log)
        sys.setswitchinterval(_SWITCH_SECONDS)
        DrainingServer(server_config(app, settings), app.state.service).run(sockets=[listener])


class DrainingServer(uvicorn.Server):
    """A server that goes on for some seconds after SIGTERM, while /readyz says that it ends.

    Callers behind a proxy have moved to another process when it stops. Calls that are not done
    `stop_seconds` later are answered with a problem document.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._drain_until: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain on the first SIGTERM; stop on any other signal."""
        seconds = self._service.settings.drain_seconds
        if sig == signal.SIGTERM and self._drain_until is None and seconds > 0:
            self._service.is_draining = True
            self._drain_until = time.monotonic() + seconds
            self._captured_signals.append(sig)
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop: after the drain, and as uvicorn decides."""
        if self._drain_until is not None and time.monotonic() >= self._drain_until:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the calls; those that are not done in time are answered all the same."""
        self._service.is_draining = True
        seconds = self._service.settings.stop_seconds
        timer = asyncio.get_running_loop().call_later(seconds, self._service.queue.close)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """The configuration of uvicorn, with connections as `api.connections` guards them."""
    doors = ConnectionDoors(
        max_connections=_allowed_connections(settings.max_connections),
        header_seconds=settings.header_seconds,
        write_seconds=settings.body_seconds,
    )
    # uvicorn's log would contain queries and exception messages; SAGA's log has neither.
    return uvicorn.Config(
        app,
        http=doors.protocol,  # type: ignore[arg-type]  # called like a class
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.stop_seconds) + _ANSWER_SECONDS,
    )


def _allowed_connections(n_connections: int) -> int:
    """At most `n_connections`, and few enough that the process can still open files.

    The limit of open files is raised as far as the system lets a process raise it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = n_connections + _OTHER_FILES
    if soft < files and (hard == resource.RLIM_INFINITY or hard > soft):
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(8, min(n_connections, soft - _OTHER_FILES))


def check_queue(url: str) -> None:
    """Raise QueueError if the database of the jobs cannot be used."""
    from api.jobs.job_queue import JobQueue  # of an optional library

    JobQueue(url).close()


def open_socket(host: str, port: int) -> socket.socket:
    """A bound socket; it is opened before the bundle is loaded, so a used port is found at once.

    Raises UsageError if the address cannot be bound.
    """
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        problem = Problem(
            "listen",
            f"The system reports: {error.strerror}",
            "Pick another address with --host or another port with --port",
        )
        raise UsageError(f"Cannot listen on {host}, port {port}", [problem]) from None
    return listener
