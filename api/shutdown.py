"""The gradual end of a process: it answers calls while its callers move to another process."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from saga.api.service import Service


@contextmanager
def gradual_stop(service: Service) -> Iterator[None]:
    """While the context is open, SIGTERM ends the process gradually; the server handles the end.

    The service goes on for `drain_seconds`, while /readyz says that it ends, so that callers behind
    a proxy have moved to another process. Then the handler of the server is called, which waits for
    the calls; those that are not done `stop_seconds` later are answered with a problem document. A
    second signal, or SIGINT, ends this wait. Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, settings = asyncio.get_running_loop(), service.settings
    server_handlers = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }

    def stop(number: signal.Signals) -> None:
        service.is_draining = True
        loop.call_later(settings.stop_seconds, service.queue.close)
        handler = server_handlers[number]
        if callable(handler):
            handler(number, None)

    def begin(number: signal.Signals) -> None:
        if number == signal.SIGTERM and not service.is_draining and settings.drain_seconds > 0:
            service.is_draining = True
            loop.call_later(settings.drain_seconds, stop, number)
        else:
            stop(number)

    for number in server_handlers:
        signal.signal(number, lambda n, _: loop.call_soon_threadsafe(begin, signal.Signals(n)))
    try:
        yield
    finally:
        for number, handler in server_handlers.items():
            signal.signal(number, handler)
