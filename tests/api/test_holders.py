"""What the holders of a running service can do to each other, tried: nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from saga.api.key_file import add_key, new_key, revoke_key
from saga.api.settings import Settings

if TYPE_CHECKING:
    from tests.conftest import Running

Start = Callable[[Settings], AbstractContextManager["Running"]]
PERSON = "person_id,year,birth_year,earnings\n{},2020,1980,250000\n"


@pytest.fixture(scope="module")
def holders(
    start: Start, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, dict[str, dict[str, str]], Path]]:
    """A service whose jobs wait, the headers of its holders, and the folder with their files."""
    root = tmp_path_factory.mktemp("holders")
    headers = {}
    for name in ("one", "two", "streaming"):
        secret, key = new_key(name)
        headers[name] = {"Authorization": f"Bearer {secret}"}
        add_key(root / "keys", key)
        (root / "files" / name).mkdir(parents=True)
        (root / "files" / name / "people.csv").write_text(PERSON.format(name))
    settings = Settings(
        bundle=tiny_bundle,
        threads=1,
        keys=root / "keys",
        jobs=root / "jobs",
        job_files=root / "files",
        job_workers=0,
        body_seconds=3,
    )
    with start(settings) as service:
        service.wait_until_ready()
        sent = {"headers": headers["one"] | {"Content-Type": "text/csv"}, "content": PERSON}
        deadline = time.monotonic() + 60
        while service.client.post("/v1/jobs", **sent).status_code == 503:  # type: ignore[arg-type]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield service, headers, root


def test_a_file_named_while_links_are_swapped_is_never_another_holders(
    holders: tuple[Running, dict[str, dict[str, str]], Path],
) -> None:
    service, headers, root = holders
    own, kept = root / "files" / "one" / "race.csv", root / "files" / "one" / "kept"
    own.write_text(PERSON.format("one"))
    statuses = set()
    for _ in range(10):
        statuses.add(_post_file(service, headers["one"]))
        own.rename(kept)
        own.symlink_to("../two/people.csv")
        statuses.add(_post_file(service, headers["one"]))
        own.unlink()
        kept.rename(own)
    assert statuses == {202, 422}
    copies = [path.read_text() for path in (root / "jobs" / "jobs").glob("*/persons.csv")]
    assert copies
    assert not any("two" in text for text in copies)


def _post_file(service: Running, headers: dict[str, str]) -> int:
    return service.client.post(
        "/v1/jobs", json={"file": "race.csv", "horizons": [1]}, headers=headers
    ).status_code


def test_slow_tables_of_one_holder_do_not_keep_another_out(
    holders: tuple[Running, dict[str, dict[str, str]], Path],
) -> None:
    """Eight connections send a byte now and then; each is given up after the stated time in all."""
    service, headers, _ = holders
    host = service.url.removeprefix("http://")
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Type: text/csv\r\n"
        f"Authorization: {headers['one']['Authorization']}\r\nContent-Length: 10000\r\n\r\np"
    )
    address = (host.partition(":")[0], int(host.partition(":")[2]))
    slow = [socket.create_connection(address, timeout=20) for _ in range(8)]
    try:
        for connection in slow:
            connection.sendall(head.encode())
        start = time.monotonic()
        while time.monotonic() < start + 2:
            answer = service.client.post(
                "/v1/jobs",
                content=PERSON.format("two"),
                headers=headers["two"] | {"Content-Type": "text/csv"},
            )
            assert answer.status_code == 202, answer.text
            for connection in slow:
                with suppress(OSError):  # it was refused
                    connection.sendall(b"x")
            time.sleep(0.3)
        answers = []
        for connection in slow:
            try:
                answers.append(connection.recv(12).decode()[-3:])
            except OSError:
                answers.append("503")
        assert set(answers) == {"503", "408"}
        assert answers.count("408") == 4
        assert time.monotonic() < start + 15
    finally:
        for connection in slow:
            connection.close()


def test_a_revoked_key_ends_its_open_stream(
    holders: tuple[Running, dict[str, dict[str, str]], Path],
) -> None:
    service, headers, root = holders
    sent = headers["streaming"] | {"Content-Type": "text/csv"}
    job = service.client.post("/v1/jobs", content=PERSON.format("s"), headers=sent)
    assert job.status_code == 202, job.text
    address = f"{job.headers['location']}/events"
    with service.client.stream("GET", address, headers=headers["streaming"], timeout=20) as events:
        chunks = events.iter_raw()
        assert b"queued" in next(chunks)
        revoke_key(root / "keys", "streaming", datetime.now(UTC))
        start = time.monotonic()
        with suppress(httpx.RemoteProtocolError):
            for _ in chunks:
                assert time.monotonic() < start + 5
        assert time.monotonic() < start + 5
    assert service.client.get(address, headers=headers["streaming"]).status_code == 401
