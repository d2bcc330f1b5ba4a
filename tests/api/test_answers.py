"""What all answers share: HEAD, entity tags, compression, security headers; and connections."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response
from saga.api.answers import AnswerFormat
from saga.api.app import create_app
from saga.api.codecs import ARROW_STREAM, CSV, JSON, PARQUET, decode_json
from saga.api.logs import bridge_logs
from saga.api.negotiation import accepted_type
from saga.api.problems import ProblemError
from saga.api.routes.jobs import OpenFileResponse
from saga.api.server import server_config
from saga.api.settings import Settings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.api import conftest
from tests.conftest import Start
from tests.keys import make_keys


def ask(path: str, method: str = "GET", **headers: str) -> httpx.Response:
    app = create_app(Settings(bundle=Path("none")), log=io.StringIO())
    return conftest.ask(app, path, method, **headers)


def test_a_page_has_a_tag_and_is_not_sent_again_to_a_client_that_has_it() -> None:
    page = ask("/v1/variables")
    again = ask("/v1/variables", **{"If-None-Match": page.headers["etag"]})
    assert (page.status_code, again.status_code, again.content) == (200, 304, b"")
    assert page.headers["cache-control"] == "no-cache"
    assert ask("/v1/variables", **{"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/v1/variables", "/openapi.json", "/docs"])
def test_head_has_the_headers_of_get_and_no_body(path: str) -> None:
    head, page = ask(path, "HEAD"), ask(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == page.headers["etag"]


def test_head_of_a_result_reads_nothing_of_its_file(tmp_path: Path) -> None:
    path, sent = tmp_path / "result.parquet", list[Message]()
    path.write_bytes(bytes(2**20))

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return await asyncio.Future[Message]()

    async def ask_for(method: str) -> list[Message]:
        sent.clear()
        response = OpenFileResponse(path.open("rb"), "result.parquet", PARQUET)
        app = AnswerFormat(response, lambda *_: None, lambda _, make: asyncio.to_thread(make))
        await app({"type": "http", "method": method, "headers": []}, receive, send)
        return list(sent)

    head, page = asyncio.run(ask_for("HEAD")), asyncio.run(ask_for("GET"))
    assert head[0] == page[0]
    assert [message.get("body") for message in head[1:]] == [b""]
    assert len(page) > 2


def test_calls_of_a_running_service_start_in_turn(tmp_path: Path) -> None:
    """Those without a valid key are together one more holder."""
    headers = make_keys(tmp_path / "keys", "a", "b")
    unknown = {"c": {}, "d": {"Authorization": "Bearer d"}, "e": {"Authorization": "Bearer e"}}
    app, order = create_app(Settings.of(keys=tmp_path / "keys"), log=None), list[str]()

    async def call(client: httpx.AsyncClient, holder: str) -> None:
        await client.get("/v1/variables", headers=(headers | unknown)[holder])
        order.append(holder)

    async def send() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await asyncio.gather(*(call(client, holder) for holder in "aaaacdeb"))

    asyncio.run(send())
    assert "".join(order) == "aacbadae"


def test_errors_have_no_tag_and_are_not_stored() -> None:
    answer = ask("/nothing")
    assert answer.status_code == 404
    assert "etag" not in answer.headers
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/livez", "/docs", "/nothing"])
def test_every_answer_says_what_a_browser_may_do_with_it(path: str) -> None:
    headers = ask(path).headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("path", "header", "encoding"),
    [
        ("/v1/variables", "", None),
        ("/v1/variables", "identity", None),
        ("/v1/variables", "gzip", "gzip"),
        ("/v1/variables", "br;q=1, GZIP;q=0.5", "gzip"),
        ("/v1/variables", "br, gzip; q=0.0", None),
        ("/livez", "gzip", None),  # too small
    ],
)
def test_a_large_answer_is_compressed_if_the_client_allows(
    path: str, header: str, encoding: str | None
) -> None:
    answer = ask(path, **{"Accept-Encoding": header})
    assert answer.headers.get("content-encoding") == encoding
    assert answer.content == ask(path, **{"Accept-Encoding": ""}).content


class Crash:
    """Middleware outside all others, with a defect."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == "/crash-outside":
            raise RuntimeError("secret")
        await self._app(scope, receive, send)


def crash() -> None:
    raise RuntimeError("secret")


def add_crashes(app: FastAPI) -> None:
    """Let the service crash at two addresses."""
    app.add_middleware(Crash)
    app.add_api_route("/crash", crash)
    bridge_logs(app.state.service.log, "uvicorn")


def read_all(connection: socket.socket) -> bytes:
    connection.settimeout(30)
    answer = b""
    try:
        while chunk := connection.recv(65_536):
            answer += chunk
    except ConnectionResetError:
        pass
    return answer


@pytest.fixture(scope="module")
def port(start: Start) -> Iterator[int]:
    """The port of a service without a bundle that closes silent connections soon."""
    settings = Settings.of(bundle=Path("none"), header_seconds=0.2)
    with start(settings, add_crashes, ready=False) as service:
        yield service.client.base_url.port or 0


HOST = b"Host: localhost\r\n"
STATIC = b"GET /static-offline-docs/swagger-ui.css HTTP/1.1\r\n" + HOST
POST = b"POST /v1/forecasts HTTP/1.1\r\n" + HOST
CHUNKED, SECOND = b"Transfer-Encoding: chunked\r\n", b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\x01\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),  # without Host
        (b"GET /livez HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (POST + b"Content-Length: x\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nnot a length\r\n", 400),
        # A second call hides behind the end of the body as one of the two lengths has it.
        (POST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + SECOND, 400),
        (POST + b"Content-Length: 999\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + SECOND, 400),
        # A proxy may take the second line for a header of its own, or pass over it.
        (SECOND[:-2] + b"X: a\r\n b\r\n\r\n", 400),
        (SECOND[:-2] + b"X: a\n\tTransfer-Encoding: chunked\r\n\r\n", 400),
        (STATIC + b"Range: bytes=a-b\r\n\r\n", 400),
        (STATIC + b"Range: lines=1-2\r\n\r\n", 400),
        (STATIC + b"Range: bytes=5-2\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET /livez HTTP/1.1\r\n" + HOST + b"Origin: http://evil.example\r\n\r\n", 403),
        (b"GET /nothing HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        (b"GET /static-offline-docs/nothing HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        # Behind a proxy that is not trusted a redirect would lead to plain HTTP.
        (POST.replace(b"forecasts", b"forecasts/") + b"Content-Length: 0\r\n\r\n", 404),
        (b"BREW /livez HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n", 408),
        (STATIC + b"Range: bytes=99999999999-\r\n\r\n", 416),
        (STATIC + b"Range: bytes=-0\r\n\r\n", 416),
        # While such a request is read, no other call is answered.
        (POST + CHUNKED + b"\r\n" + b"1\r\n \r\n" * 2_000, 413),
        (SECOND[:-2] + b"a:b\r\n" * 600 + b"\r\n", 431),
        (SECOND[:-2] + b"Cookie: " + b"a=b; " * 600 + b"\r\n\r\n", 431),
        (b"GET /livez?" + b"a=b&" * 600 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
        (b"GET /" + b"x" * 70_000, 431),
        (b"GET /crash HTTP/1.1\r\n" + HOST + b"\r\n", 500),
        (b"GET /crash-outside HTTP/1.1\r\n" + HOST + b"\r\n", 500),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (POST + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 503),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
    ],
)
def test_every_error_is_a_problem_document(port: int, sent: bytes, status: int) -> None:
    """Members of each layer: bytes, connections, middleware, routes, files, defects of ours."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(sent)
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"content-type: application/problem+json" in head.lower()
    document = json.loads(body)
    assert document["status"] == status
    assert {"type", "title", "detail", "instance"} <= document.keys()
    assert b"secret" not in body
    if status == 416:
        assert b"content-range: bytes */" in head.lower()
    if status == 405:
        assert b"allow: " in head.lower()


def test_a_websocket_is_not_offered(port: int) -> None:
    """Its protocol would not have the limits of connections, and answers with texts."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    assert server_config(FastAPI, Settings()).ws == "none"
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /nothing HTTP/1.1\r\n" + HOST + upgrade + b"\r\n")
        head, _, _ = read_all(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")


def test_silent_connections_give_way_to_those_that_call(start: Start) -> None:
    with start(Settings.of(bundle=Path("none"), max_connections=8), ready=False) as service:
        address = "127.0.0.1", service.client.base_url.port
        silent = [socket.create_connection(address) for _ in range(30)]
        assert service.client.get("/livez").status_code == 200
        closed = 0
        for connection in silent:
            connection.settimeout(0.05)
            try:
                closed += connection.recv(1) == b""
            except ConnectionResetError:
                closed += 1
            except TimeoutError:
                pass
            connection.close()
    assert closed >= 22


LARGE = bytes(16 * 2**20 - 256) + bytes(range(256))  # more than the system sends ahead


def add_large_answer(app: FastAPI) -> None:
    app.add_api_route("/large", lambda: Response(LARGE, media_type="application/octet-stream"))


def ask_large(port: int | None) -> socket.socket:
    """A connection of a small receive buffer on which the large answer has begun."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
    client.settimeout(60)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /large HTTP/1.1\r\n" + HOST + b"\r\n")
    assert client.recv(15) == b"HTTP/1.1 200 OK"
    return client


def read_slowly(client: socket.socket, seconds: float) -> bytes:
    """What arrives, read at such a rate that the large answer takes `seconds`."""
    content, start = bytearray(), time.monotonic()
    with suppress(ConnectionResetError):
        while not content.endswith(LARGE[-256:]) and (piece := client.recv(2**16)):
            content += piece
            time.sleep(max(0.0, start + seconds * len(content) / len(LARGE) - time.monotonic()))
    return bytes(content)


def test_a_large_answer_is_complete_however_slowly_its_client_reads(start: Start) -> None:
    """Reading takes longer than headers may, and than a client may read nothing."""
    limits = Settings.of(bundle=Path("none"), header_seconds=0.5, body_seconds=3)
    with (
        start(limits, add_large_answer, ready=False) as service,
        ask_large(service.client.base_url.port) as client,
    ):
        content = read_slowly(client, 8)
    assert content.partition(b"\r\n\r\n")[2] == LARGE


def test_a_client_that_reads_nothing_is_left(start: Start) -> None:
    limits = Settings.of(bundle=Path("none"), body_seconds=0.5)
    with (
        start(limits, add_large_answer, ready=False) as service,
        ask_large(service.client.base_url.port) as client,
    ):
        time.sleep(2)
        assert len(read_slowly(client, 0)) < len(LARGE)


def test_of_many_unread_answers_that_of_a_reader_stays(start: Start) -> None:
    """Others than the slowest readers are complete when answers would fill the memory.

    On a busy machine the kernel may take an unread answer faster than a reader reads, so the reader
    has three tries; a service that does not look at the speed fails in all of them.
    """
    assert any(_reader_stays(start) for _ in range(3))


def _reader_stays(start: Start) -> bool:
    limits = Settings.of(bundle=Path("none"), max_bodies_bytes=2 * len(LARGE))
    with start(limits, add_large_answer, ready=False) as service, ExitStack() as stack:
        port = service.client.base_url.port
        silent = [stack.enter_context(ask_large(port)) for _ in range(3)]
        reader = stack.enter_context(ask_large(port))
        half = sum(len(reader.recv(2**16)) for _ in range(len(LARGE) // 2**17))
        silent += [stack.enter_context(ask_large(port)) for _ in range(6)]
        is_whole = half + len(read_slowly(reader, 1)) >= len(LARGE)
        complete = sum(len(read_slowly(client, 0)) >= len(LARGE) for client in silent)
    assert complete <= 2
    return is_whole


def test_connections_with_unread_answers_give_way_to_those_that_call(start: Start) -> None:
    limits = Settings.of(bundle=Path("none"), max_connections=8)
    with start(limits, add_large_answer, ready=False) as service, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(ask_large(service.client.base_url.port))
        assert httpx.get(f"{service.url}/livez").status_code == 200


def test_a_part_of_a_file_is_not_compressed(tmp_path: Path) -> None:
    file = tmp_path / "rejected.csv"
    file.write_text("person_id,rule\n" * 1_000)
    page = FileResponse(file, media_type="text/csv")
    wrapped = AnswerFormat(page, lambda *_: None, lambda _, make: asyncio.to_thread(make))

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(wrapped)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            headers = {"Range": "bytes=0-2999", "Accept-Encoding": "gzip"}
            return await client.get("/", headers=headers)

    answer = asyncio.run(send())
    assert answer.status_code == 206
    assert "content-encoding" not in answer.headers
    assert answer.content == file.read_bytes()[:3_000]


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        (None, JSON),
        ("*/*", JSON),
        ("text/html, application/xhtml+xml, */*;q=0.8", JSON),
        (PARQUET, PARQUET),
        (f"application/json;q=0.5, {PARQUET}", PARQUET),
        (f"{PARQUET};q=0.1, application/json", JSON),
        (f"text/html, {ARROW_STREAM};q=0.2", ARROW_STREAM),
        ("text/csv; header=present", CSV),
        ("text/*", CSV),
        ("application/*;q=0.5, text/*", CSV),
        ("application/json;q=0, application/*;q=0.1, */*", CSV),
        ("*/*;q=0.1, application/json;q=nan", PARQUET),
        ("text/csv, application/json", CSV),
        ("text/html\napplication/json", JSON),
        ("*/*;q=0", None),
        ("text/html", None),
        ("application/json;q=0", None),
        ("text/html;q=x, image/*", None),
    ],
)
def test_the_answer_has_the_type_that_the_client_likes_best(
    header: str | None, kind: str | None
) -> None:
    headers = [(b"accept", line.encode()) for line in (header or "").splitlines()]
    request = Request({"type": "http", "headers": headers})
    if kind is not None:
        assert accepted_type(request) == kind
    else:
        with pytest.raises(ProblemError) as caught:
            accepted_type(request)
        assert caught.value.status == 406


def test_json_may_begin_with_a_byte_order_mark() -> None:
    assert decode_json(b'\xef\xbb\xbf{"persons": []}') == {"persons": []}
