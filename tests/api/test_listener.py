"""The socket of the service in several processes (`saga serve --workers`)."""

from __future__ import annotations

import multiprocessing
import socket
from multiprocessing.connection import Connection

import pytest
from saga.api.server import open_socket


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
