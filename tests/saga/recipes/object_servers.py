"""A server of S3 on this machine, which a test can stop and start again.

It is moto (`make build/store-tools`), in an environment of its own, because its libraries do not go
with the pins. Its process lives on while the server is stopped, so the objects are kept.
"""

from __future__ import annotations

import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

BUCKET = "register"
PYTHON = Path(__file__).parents[3] / "build/store-tools/bin/python"
_SERVER = """
import sys
from moto.server import ThreadedMotoServer

for line in sys.stdin:
    if line.strip() == "start":
        server = ThreadedMotoServer("127.0.0.1", int(sys.argv[1]), verbose=False)
        server.start()
    else:
        server.stop()
    print("done", flush=True)
"""


@dataclass
class ObjectServer:
    """A running server with one bucket; `environment` is how a client finds it."""

    port: int
    process: subprocess.Popen[str]
    runs: bool = False

    @classmethod
    def at(cls, port: int) -> ObjectServer:
        line = [str(PYTHON), "-c", _SERVER, str(port)]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(line, text=True, stdin=pipe, stdout=pipe, stderr=nothing)
        server = cls(port, process)
        server.start()
        bucket = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(bucket).close()
        return server

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "moto",
            "AWS_SECRET_ACCESS_KEY": "moto",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    def url(self, path: str = "") -> str:
        return f"s3://{BUCKET}/{path}".rstrip("/")

    def start(self) -> None:
        self._ask("start")

    def stop(self) -> None:
        self._ask("stop")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _ask(self, what: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"
        self.runs = what == "start"
