"""The socket of the service in several processes (`saga serve --workers`)."""

from __future__ import annotations

import multiprocessing
import socket
import sys
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from saga.api.server import open_socket, server_config
from saga.api.settings import Settings


def report_port(listener: socket.socket, answer: Connection) -> None:
    answer.send((type(listener).__name__, listener.getsockname()[1]))


@pytest.mark.thorough
def test_a_started_process_gets_the_same_listener() -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with open_socket("127.0.0.1", 0) as listener:
        process = context.Process(target=report_port, args=(listener, sender))
        process.start()
        assert receiver.poll(60)
        assert receiver.recv() == (type(listener).__name__, listener.getsockname()[1])
        process.join(60)
        assert process.exitcode == 0


def test_another_event_loop_that_is_installed_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections rest on asyncio's sockets: with uvloop each of them ended at once."""
    other = SimpleNamespace(new_event_loop=lambda: pytest.fail("the other loop is used"))
    monkeypatch.setitem(sys.modules, "uvloop", other)
    factory = server_config(FastAPI, Settings.of()).get_loop_factory()
    assert factory is not None
    factory().close()
