"""The ASGI application: `create_app(settings)` builds it; its lifespan loads the bundle.

Importing this module has no effect.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TextIO

from asgi_correlation_id import CorrelationIdMiddleware, correlation_id
from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline
from saga.api import problems
from saga.api.answers import AnswerFormat
from saga.api.logs import error_location
from saga.api.openapi import HEADER_TEXTS, body_components
from saga.api.problems import ProblemError
from saga.api.refusals import refused
from saga.api.routes import OPEN_ROUTERS, ROUTERS
from saga.api.security import KEY, KeyStore, check_exposure, check_local, identify
from saga.api.service import Service
from saga.api.settings import Settings
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, clear_contextvars

from saga.forecaster import Forecaster
from saga.version import current_version

_DESCRIPTION = (
    "Earnings one to thirty years ahead and over a lifetime, as distributions whose intervals "
    "state their guarantee. Money is in the currency and prices that the provenance names. Errors "
    "are RFC 9457 problems and repeat no value of a request."
)
_TAGS = {
    "forecasts": "Earnings of single years",
    "lifetimes": "Present values of working lives",
    "populations": "Groups and totals with 90 % bands",
    "jobs": "Products for any number of persons, in the background",
    "calibration": "Thresholds of the intervals, and the outcomes that move them",
    "model": "The bundle, and the columns of a person",
    "health": "State of the process",
}
_PROBES = ("/livez", "/readyz")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def create_app(
    settings: Settings | None = None,
    *,
    log: TextIO | None = sys.__stderr__,
    announce: Callable[[Forecaster], None] = lambda _: None,
    shared: Path | None = None,
) -> FastAPI:
    """The service as an ASGI application; `announce` is called once it is ready to forecast.

    `shared` is a folder for what several processes of one service count together.

    Raises UsageError if the settings would expose the service without keys, or the key file is not
    valid.
    """
    settings = settings or Settings.of()
    check_exposure(settings.host, settings.keys)
    service = Service(settings, log, shared)
    key_store = None
    if settings.keys is not None:
        key_store = KeyStore(settings.keys, service.log, settings.max_connections // 4)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(service.start(announce))
        watch = None if key_store is None else asyncio.create_task(key_store.watch())
        if settings.workers > 1:  # the other processes answer meanwhile
            await loading
        if service.jobs is not None:
            service.jobs.start()
        with gradual_stop(service):  # /livez responds while the bundle loads
            yield
        await loading
        if service.jobs is not None:
            await service.jobs.stop()
        if watch is not None:
            watch.cancel()
        service.stop()

    app = FastAPIOffline(
        redoc_url=None,
        redirect_slashes=False,  # behind a proxy a redirect would lose its scheme
        # A variable of the environment could otherwise send every call to a collector.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        title="SAGA",
        version=current_version(),
        description=_DESCRIPTION,
        lifespan=lifespan,
        swagger_ui_parameters={"defaultModelsExpandDepth": 0},
        servers=[{"url": "/", "description": "This service"}],
        openapi_tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    app.state.key_store = key_store
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router, dependencies=[Depends(identify)])
    for router in OPEN_ROUTERS:
        app.include_router(router)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("Authorization", "Content-Type", "Idempotency-Key", "X-Request-ID"),
            expose_headers=("Location", *HEADER_TEXTS),
        )
    app.add_middleware(RequestMonitor, service=service, key_store=key_store)
    app.add_middleware(AnswerFormat, observe=service.metrics.observe_stage, in_turn=service.in_turn)
    app.add_middleware(CorrelationIdMiddleware)
    app.openapi = cache(partial(_openapi, app))  # type: ignore[method-assign]
    return app


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
        loop.call_later(settings.stop_seconds, service.close)
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


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's schema, with the components of the request bodies added."""
    schema = FastAPI.openapi(app)
    schema["components"]["schemas"].update(body_components())
    return schema


class RequestMonitor:
    """Middleware that counts and logs each call by route, and refuses foreign ones without keys.

    A call whose body has two lengths is refused, and its connection closed: a proxy may take the
    rest of the body for the next call, of another client. The middleware also returns a problem
    document for an unexpected error, before the server prints the message of the error.
    """

    def __init__(self, app: ASGIApp, service: Service, key_store: KeyStore | None) -> None:
        self._app, self._service, self._key_store = app, service, key_store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        clear_contextvars()
        bind_contextvars(request=correlation_id.get())
        start = time.perf_counter()

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._service.is_draining:  # the client's next connection is another process's
                    closing = (b"connection", b"close")
                    message["headers"] = [*message.get("headers", []), closing]
            await send(message)

        try:
            headers = Headers(scope=scope)
            if "transfer-encoding" in headers and "content-length" in headers:
                raise refused("two-lengths")
            if (store := self._key_store) is None:
                check_local(headers, self._service.settings.origins)
            scope[KEY] = key = None if store is None else store.find(headers)
            if scope["path"] not in _PROBES:  # which the platform sends, and waits for
                await self._service.take_turn(key.holder if key else "")
            await self._app(scope, receive, send_and_note_status)
        except ProblemError as error:
            await problems.response_to(error)(scope, receive, send_and_note_status)
        except asyncio.CancelledError:  # the server does not wait for the call any longer
            if not status:
                store, call = self._key_store, asyncio.current_task()
                ended = store is not None and store.has_ended(call)
                why = refused("key", {"state": "has ended"}) if ended else refused("stopping")
                await problems.response_to(why)(scope, receive, send_and_note_status)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of a library in Rust is no `Exception`
            self._service.log.error("internal_error", **error_location(error))
            if status:  # the response has begun, so only a broken connection can report the failure
                raise ConnectionError("the response is incomplete") from None
            await problems.internal_error()(scope, receive, send_and_note_status)
        finally:
            self._count(scope, status, time.perf_counter() - start)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # The template of the route, because a path can contain anything.
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._service.metrics.count_answered(method, route, status, seconds)
        self._service.log.info(
            "answered", method=method, route=route, status=status, seconds=round(seconds, 4)
        )
