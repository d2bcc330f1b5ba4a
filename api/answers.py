"""What all answers share: security headers, HEAD, entity tags, compression, problems as errors."""

from __future__ import annotations

import gzip
import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial

from saga.api.problems import MEDIA_TYPE, library_error
from saga.api.security import KEY
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The documentation has inline styles and one inline script, and shows answers as `data:` images.
_DOCUMENT_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"
_SECURITY = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
_MIN_BYTES = 1_024  # smaller answers are not compressed
_LARGE_BYTES = 65_536  # larger ones are compressed in a thread, holders in turn
_COMPRESSIBLE = ("application/json", "application/problem+json", "text/")
_GZIP_LEVEL = 5
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", re.IGNORECASE)  # in Accept-Encoding
InTurn = Callable[[str, Callable[[], bytes]], Awaitable[bytes]]  # see `Service.in_turn`
ASKED = "saga.asked"  # entry of a request's scope: HEAD, if the client asked for that
ANSWER_HEADERS = "saga.answer_headers"  # entry of a request's scope: further headers of its answer


class AnswerFormat:
    """Middleware: HEAD like GET without a body, 304 for a known entity tag, compression, headers.

    An error of a library that is a text, such as that of a wrong `Range`, becomes a problem.
    All answers of the service are complete when they begin, so each is one body.
    """

    def __init__(
        self, app: ASGIApp, observe: Callable[[str, float], None], in_turn: InTurn
    ) -> None:
        self._app, self._observe, self._in_turn = app, observe, in_turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET", ASKED: method}
        answer = _Answer(scope, send, method, self._observe, self._in_turn)
        await self._app(scope, receive, answer.take)


class _Answer:
    """Collects an answer of one body, changes it and sends it; streams pass through."""

    def __init__(
        self,
        scope: Scope,
        send: Send,
        method: str,
        observe: Callable[[str, float], None],
        in_turn: InTurn,
    ) -> None:
        self._scope, self._send, self._method = scope, send, method
        self._observe, self._in_turn = observe, in_turn
        self._start: Message | None = None

    async def take(self, message: Message) -> None:
        """Take a message of the application."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            self._add_headers(headers, message["status"])
            self._start = {**message, "headers": headers.raw}
            return
        if self._start is not None:
            start, self._start = self._start, None
            if start["status"] >= 400:
                message = self._as_problem(start, message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                message = await self._finish(start, message)
            await self._send(start)
        if self._method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    def _add_headers(self, headers: MutableHeaders, status: int) -> None:
        is_page = headers.get("content-type", "").startswith("text/html")
        policy = _DOCUMENT_POLICY if is_page else _DATA_POLICY
        extra = self._scope.get(ANSWER_HEADERS) or {}
        for name, value in {**_SECURITY, "content-security-policy": policy, **extra}.items():
            headers.setdefault(name, value)
        may_be_cached = self._method in ("GET", "HEAD") and status == 200
        headers.setdefault("cache-control", "no-cache" if may_be_cached else "no-store")
        headers.add_vary_header("Accept-Encoding")

    def _as_problem(self, start: Message, message: Message) -> Message:
        """The body of an error as a problem document, with the other headers as they are."""
        headers = MutableHeaders(raw=start["headers"])
        if headers.get("content-type") == MEDIA_TYPE:
            return message
        problem = library_error(start["status"])
        headers.update(problem.headers)
        return {**message, "body": problem.body}

    async def _finish(self, start: Message, message: Message) -> Message:
        """The message; its body is compressed if the client accepts it, empty if it has it."""
        headers, body = MutableHeaders(raw=start["headers"]), message.get("body", b"")
        sent = Headers(scope=self._scope)
        if (
            self._method in ("GET", "HEAD")
            and start["status"] == 200
            and (body or "etag" not in headers)  # a file has a tag, and for HEAD no body
        ):
            tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
            headers["etag"] = tag
            if _matches(sent.get("if-none-match", ""), tag):
                start["status"] = 304
                for name in ("content-length", "content-type"):
                    del headers[name]
                return {**message, "body": b""}
        kind, accepted = headers.get("content-type", ""), sent.get("accept-encoding", "")
        if (
            start["status"] != 206  # a part of the file as it is
            and len(body) >= _MIN_BYTES
            and kind.startswith(_COMPRESSIBLE)
            and _GZIP.search(accepted)
        ):
            compress = partial(self._compress, body)
            if len(body) > _LARGE_BYTES:
                key = self._scope.get(KEY)  # an open page has none
                body = await self._in_turn(key.holder if key else "", compress)
            else:
                body = compress()
            headers["content-encoding"] = "gzip"
            headers["content-length"] = str(len(body))
        return {**message, "body": body}

    def _compress(self, body: bytes) -> bytes:
        begin = time.perf_counter()
        compressed = gzip.compress(body, _GZIP_LEVEL, mtime=0)
        self._observe("compress", time.perf_counter() - begin)
        return compressed


def _matches(header: str, tag: str) -> bool:
    tags = {entry.strip() for entry in header.split(",")}
    return tag in tags or tag.removeprefix("W/") in tags or "*" in tags
