"""`saga serve`: one or several processes that listen, load the bundle and print a curl command."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from saga.api.app import create_app
from saga.api.connections import ConnectionLimits, GuardedProtocol
from saga.api.example import curl
from saga.api.logs import bridge_logs, make_logger
from saga.api.service import example_scale
from saga.api.settings import Settings
from saga.calibration.adaptive.ledger import open_ledger
from uvicorn.supervisors import Multiprocess

from saga.bundle import Bundle
from saga.data.facts import open_facts
from saga.errors import Problem, UsageError
from saga.forecaster import Forecaster

# For so long one thread keeps the interpreter from another. With Python's 5 ms, /livez would wait
# for a forecast at each of its steps.
_SWITCH_SECONDS = 0.001
_NEW_OBJECTS = 10_000  # between two searches for garbage: a call makes hundreds, and few are cycles
_WAITING, _ACCEPTED = 2_048, 8  # connections that wait, and that are accepted at a time
_ANSWER_SECONDS = 5  # for the answers to calls that are not done in time
_OTHER_FILES = 128  # besides connections: the ledger, the bundle, pipes
_START_SECONDS = 120  # a process that does not respond for so long is replaced


class _Listener(socket.socket):
    """A socket at which many connections wait, of which `_ACCEPTED` are accepted at a time.

    asyncio has one number for both. It would accept a thousand connections at once and answer no
    call meanwhile.
    """

    def listen(self, _backlog: int = 0) -> None:
        super().listen(_WAITING)

    def __reduce__(self) -> tuple[Callable[..., _Listener], tuple[Any, ...]]:
        """For a process that is started: multiprocessing knows plain sockets only."""
        return _same_listener, (DupFd(self.fileno()), self.family, self.type, self.proto)


def _same_listener(descriptor: Any, family: int, kind: int, protocol: int) -> _Listener:
    return _Listener(family, kind, protocol, fileno=descriptor.detach())


def serve(settings: Settings) -> None:
    """Serve until interrupted; once ready, print the URL and a curl command.

    Raises:
        UsageError: The port is taken, the key file is not valid, the address needs keys or the
            ledger cannot be used.
        BundleError: The bundle cannot be used.
        InputError: The facts cannot be used.
        LedgerError: The ledger's database cannot be reached.
        QueueError: The database of the jobs cannot be used.
    """
    create_app(settings)  # so that a wrong setting is found before any process starts
    with open_socket(settings.host, settings.port) as listener:
        # With an unusable bundle, facts or ledger the command stops here. With another server the
        # service starts, /readyz returns 503 and the log gives the reason.
        Bundle.load(settings.bundle)
        open_facts(settings.facts)
        if settings.database is not None:
            open_ledger(settings.database.get_secret_value(), settings.database_key).close()
        if settings.jobs is not None:
            from saga.api.jobs.job_queue import JobQueue  # of an optional library

            JobQueue(settings.job_queue_url).close()
        name = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{name}:{listener.getsockname()[1]}"
        if settings.workers == 1:
            # One of several processes would be reported as leaked when a signal ends this one.
            alone = partial(process_app, settings, url, threading.Semaphore(1))
            uvicorn.Server(server_config(alone, settings)).run(sockets=[listener])
        else:
            first = multiprocessing.get_context("spawn").Semaphore(1)
            _serve_in_processes(partial(process_app, settings, url, first), settings, listener)


def _serve_in_processes(
    application: Callable[..., FastAPI], settings: Settings, listener: socket.socket
) -> None:
    """Run several processes that accept calls at one socket; one that ends is started again."""
    bridge_logs(make_logger(sys.__stderr__), "uvicorn")
    with tempfile.TemporaryDirectory(prefix="saga-") as folder:
        # The processes must find the variable when they import the library of the metrics.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        config = server_config(partial(application, Path(folder)), settings)
        Multiprocess(config, [listener]).run()


def process_app(
    settings: Settings,
    url: str,
    first: Semaphore | threading.Semaphore,
    shared: Path | None = None,
) -> FastAPI:
    """The application in the process that serves it; the first one that is ready announces it."""

    def announce(forecaster: Forecaster) -> None:
        # What is loaded stays; searching it for garbage takes 0.2 s, in which no call is answered.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS)
        if not first.acquire(False):  # without waiting; both kinds take it by position
            return
        command = curl(url, keyed=settings.keys is not None, scale=example_scale(forecaster))
        text = f"SAGA is ready. In a browser: {url} (for programs: {url}/docs). Try:\n\n{command}\n"
        with suppress(OSError, ValueError):  # a service works without a terminal
            print(text, flush=True)  # noqa: T201  # flushed so that a pipe gets it at once

    if (supervisor := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=[supervisor], daemon=True).start()
    sys.setswitchinterval(_SWITCH_SECONDS)
    app = create_app(settings, announce=announce, shared=shared)
    bridge_logs(app.state.service.log, "uvicorn", "asgi_correlation_id")
    return app


def _end_with(supervisor: BaseProcess) -> None:
    """End this process gradually when its supervisor was killed, so that the port becomes free."""
    supervisor.join()
    os.kill(os.getpid(), signal.SIGTERM)


def server_config(app: Callable[[], FastAPI], settings: Settings) -> uvicorn.Config:
    """The configuration of uvicorn, with connections as `saga.api.connections` guards them.

    `app` makes the application in the process that serves it.
    """
    limits = ConnectionLimits(
        max_connections=_allowed_connections(settings.max_connections),
        max_unread_bytes=settings.max_bodies_bytes,
        header_seconds=settings.header_seconds,
        write_seconds=settings.body_seconds,
    )
    # uvicorn's log would contain queries and exception messages; SAGA's log has neither.
    return uvicorn.Config(
        app,
        factory=True,
        http=partial(GuardedProtocol, limits),  # type: ignore[arg-type]  # called like a class
        loop="asyncio",  # uvloop, which uvicorn takes where it is, reads more than a turn at once
        ws="none",  # a library for them would take connections from the protocol above
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no answer depends on the address of a client
        workers=settings.workers,
        # Processes share a plain socket, for which the number is also that of waiting connections.
        backlog=_ACCEPTED if settings.workers == 1 else _WAITING,
        timeout_worker_healthcheck=_START_SECONDS,
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


def open_socket(host: str, port: int) -> socket.socket:
    """A bound socket; it is opened before the bundle is loaded, so a used port is found at once.

    Raises UsageError if the address cannot be bound.
    """
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = _Listener(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:  # the latter of a name that no host can have
        if listener is not None:
            listener.close()
        problem = Problem(
            "listen",
            f"The system reports: {getattr(error, 'strerror', error)}",
            "Pick another address with --host or another port with --port",
        )
        raise UsageError(f"Cannot listen on {host}, port {port}", [problem]) from None
    return listener
