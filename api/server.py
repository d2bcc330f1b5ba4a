"""`saga serve`: one process that listens, loads the bundle and says how to ask it for a forecast."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from api.app import create_app
from api.example import curl
from api.service import example_scale
from api.settings import Settings
from calibration.adaptive.ledger import open_ledger
from saga.bundle import Bundle
from saga.errors import Problem, UsageError
from saga.forecaster import Forecaster
from saga.requests import Precision, RolloutName


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def serve(
    *,
    bundle: str | Path | None = None,
    host: str | None = None,
    port: int | None = None,
    keys: str | Path | None = None,
    threads: int | None = None,
    rollout: RolloutName | None = None,
    precision: Precision | None = None,
    say: Callable[[str], Any] = _say,
) -> None:
    """Serve until interrupted. What is None comes from the environment (`SAGA_...`) or the defaults of `Settings`.

    Prints the URL and a ready-made curl through `say` once a first forecast has run. Raises UsageError where the port is taken, the
    key file is not valid, the address needs keys or the ledger cannot be used, BundleError where the bundle cannot be trusted, LedgerError
    where the ledger's database does not answer.
    """
    given = {
        "bundle": bundle,
        "host": host,
        "port": port,
        "keys": keys,
        "threads": threads,
        "rollout": rollout,
        "precision": precision,
    }
    settings = Settings.of(**{name: value for name, value in given.items() if value is not None})

    def announce(forecaster: Forecaster) -> None:
        command = curl(url, keyed=settings.keys is not None, scale=example_scale(forecaster))
        say(f"SAGA is ready at {url} (documentation at {url}/docs). Try:\n\n{command}\n\n")

    app = create_app(settings, announce=announce)
    with open_socket(settings.host, settings.port) as listener:
        # What is unusable from the start is said here; where another server runs the app, /readyz answers 503 and the log says why.
        Bundle.load(settings.bundle)
        if settings.database is not None:
            open_ledger(settings.database.get_secret_value(), settings.database_key).close()
        name = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{name}:{listener.getsockname()[1]}"
        # uvicorn's own log would print the query of each call and the message of an exception; ours prints neither.
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=30,
        )
        uvicorn.Server(config).run(sockets=[listener])


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket, bound before anything is loaded so that a taken port is said at once."""
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
            f"The system says: {error.strerror}",
            "Pick another address with --host or another port with --port",
        )
        raise UsageError(f"Cannot listen on {host}, port {port}", [problem]) from None
    return listener
