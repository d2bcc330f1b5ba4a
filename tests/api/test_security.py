"""Bearer keys: key files, scopes, expiry, rotation, and which endpoints need which key."""

from __future__ import annotations

import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import structlog
from saga.api.app import create_app
from saga.api.key_file import (
    BearerKey,
    add_key,
    find_key,
    new_key,
    parse_keys,
    read_keys,
    revoke_key,
)
from saga.api.problems import ProblemError
from saga.api.security import GRACE_SECONDS, KeyStore, check_exposure
from saga.api.settings import Settings
from saga.calibration.adaptive.pseudonyms import PseudonymKey

from saga.errors import UsageError
from tests.api.conftest import ask
from tests.conftest import Start
from tests.keys import make_keys
from tests.waiting import awaited

NOW = datetime(2026, 6, 1, tzinfo=UTC)
LINE = f"a sha256:{'a' * 64} holder=a scopes=forecast"


def test_a_key_is_recognised_by_its_hash() -> None:
    secret, key = new_key("analyst")
    assert secret not in key.line
    keys = (BearerKey("other", "0" * 64, "other"), key)
    assert find_key(keys, secret) == key
    assert find_key(keys, secret[:-1]) is None
    assert find_key(keys, key.digest) is None, "the hash in the file is not a key"


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "line\nbreak"])
def test_a_name_that_does_not_fit_the_key_file_is_refused(name: str) -> None:
    for key_name, holder in ((name, None), ("fits", name or " ")):
        with pytest.raises(UsageError, match="letters, digits"):
            new_key(key_name, holder=holder)


def test_a_line_has_all_that_a_key_is() -> None:
    _, key = new_key("a-2", holder="a", scopes=("metrics", "forecast"), expires=NOW)
    assert key.scopes == ("forecast", "metrics")
    assert BearerKey.parse(key.line) == key


def test_a_key_ends_when_it_expires_or_is_revoked() -> None:
    _, key = new_key("a", expires=NOW)
    assert key.status(NOW - timedelta(seconds=1)) == "active"
    assert key.status(NOW) == "expired"
    assert new_key("a")[1].status(NOW) == "active"


def test_revoking_keeps_the_line_and_the_other_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    (_, first), (secret, second) = new_key("one"), new_key("two", holder="one")
    file.write_text("# the keys of one")
    with pytest.raises(UsageError, match="no key"):
        add_key(file, first)
    file.write_text(f"# the keys of one\n{first.line}")
    add_key(file, second)
    with pytest.raises(UsageError, match="of this name"):
        add_key(file, first)
    inode = file.stat().st_ino
    assert revoke_key(file, "one", NOW) == revoke_key(file, "one", NOW + timedelta(1))
    keys = read_keys(file)
    assert [key.status(NOW) for key in keys] == ["revoked", "active"]
    assert find_key(keys, secret) == second
    assert file.read_text().startswith("# the keys of one\n")
    assert file.stat().st_ino == inode, "a mount of the file sees the change"
    with pytest.raises(UsageError, match="no key of this name"):
        revoke_key(file, "three", NOW)
    text = file.read_bytes()
    file.write_bytes(b"\xef\xbb\xbf" + text)  # as editors on Windows begin a file
    assert revoke_key(file, "two", NOW) == replace(second, revoked=NOW)
    file.write_bytes("# Nökel\n".encode("latin-1") + text)
    for change in (lambda: revoke_key(file, "two", NOW), lambda: add_key(file, first)):
        with pytest.raises(UsageError, match="cannot be read"):
            change()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "analyst plain-SENTINEL\n",
        "a sha256:SENTINEL\n",
        f"{LINE.removesuffix(' scopes=forecast')}\n",
        f"a sha256:{'a' * 64} scopes=forecast\n",
        f"a sha256:{'a' * 64} holder=a scopes=SENTINEL\n",
        f"{LINE} expires=SENTINEL\n",
        f"{LINE} SENTINEL\n",
        f"{LINE} other=SENTINEL\n",
        f"{LINE} holder=SENTINEL\n",
        f"# a comment\x0bb\u2028SENTINEL sha256:{'a' * 64} holder=a scopes=forecast\n",
        f"a sha256:{'a' * 64}SENTINEL holder=a scopes=forecast\n",
        f"{LINE}\na sha256:{'b' * 64} holder=a scopes=forecast\n",
    ],
)
def test_a_bad_key_file_is_refused_without_repeating_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_keys(file)
    assert "SENTINEL" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_key_file_that_is_no_file_is_refused_before_it_is_read(tmp_path: Path, kind: str) -> None:
    """A pipe keeps its reader waiting, and a device has no end."""
    path = Path("/dev/zero") if kind == "device" else tmp_path
    if kind == "pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    for read in (read_keys, partial(PseudonymKey.read, create=True)):
        with pytest.raises(UsageError) as told:
            read(path)
        assert told.value.problems[0].message == "Not a regular file"


def test_no_change_of_two_commands_at_once_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for i in range(20):
        add_key(file, new_key(f"old{i}")[1])
    made = [new_key(f"new{i}")[1] for i in range(20)]
    with ThreadPoolExecutor(8) as pool:
        revoked = [pool.submit(revoke_key, file, f"old{i}", NOW) for i in range(20)]
        added = [pool.submit(add_key, file, key) for key in made]
        for revocation in revoked:
            revocation.result()
        for addition in added:
            addition.result()
    status = {key.name: key.status(NOW) for key in read_keys(file)}
    assert status == {f"old{i}": "revoked" for i in range(20)} | {k.name: "active" for k in made}


def test_one_key_has_one_name(tmp_path: Path) -> None:
    file, (_, key) = tmp_path / "keys", new_key("one")
    add_key(file, key)
    twice = BearerKey("two", key.digest, "two")
    with pytest.raises(UsageError) as caught:
        add_key(file, twice)
    assert caught.value.problems[0].rule == "key-hash-twice"
    with pytest.raises(UsageError, match="not valid"):
        parse_keys(f"{key.line}\n{twice.line}\n")
    assert read_keys(file) == (key,)


def test_a_key_of_the_common_holder_is_asked_for_by_name() -> None:
    with pytest.raises(UsageError, match="--holder common"):
        new_key("common")
    assert new_key("common", holder="common")[1].holder == "common"
    assert new_key("common", holder="office")[1].holder == "office"


@pytest.mark.parametrize("text", ["half a li", "", None])
def test_a_file_that_became_unreadable_keeps_its_keys_for_a_grace_and_is_logged_once(
    tmp_path: Path, text: str | None
) -> None:
    file, log = tmp_path / "keys", io.StringIO()
    secret, key = new_key("one")
    add_key(file, key)
    logger = structlog.wrap_logger(
        structlog.WriteLogger(log), processors=[structlog.processors.JSONRenderer()]
    )
    store = KeyStore(file, logger, max_calls=1)
    file.unlink() if text is None else file.write_text(text)
    for _ in range(3):
        store._next_reading = 0.0
        assert find_key(store.keys(), secret) == key
        assert store.accepts(key)
    assert log.getvalue().count("\n") == 1
    with pytest.raises(ProblemError, match="cannot read its keys"):
        store.keys(grace=0)
    assert store._failed_since is not None
    store._failed_since -= GRACE_SECONDS
    with pytest.raises(ProblemError):
        store.keys()
    assert not store.accepts(key)
    file.write_text(new_key("two")[1].line)
    store._next_reading = 0.0
    assert find_key(store.keys(), secret) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8000"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "[::1]:8501"}, 200),
        ({"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"}, 200),
        ({"host": "evil.example:8501"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "localhost@evil.example"}, 403),
        ({"host": "[::1"}, 403),
        ({"host": ""}, 403),
        ({"host": "192.168.1.5"}, 403),
        ({"host": "127.0.0.1:8000", "origin": "http://evil.example"}, 403),
        ({"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:3000"}, 403),
        ({"host": "127.0.0.1:8000", "origin": "null"}, 403),
    ],
)
def test_without_keys_calls_of_foreign_pages_are_refused(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    """A page whose name was made to point to this machine sends its own name (DNS rebinding)."""
    log = io.StringIO()
    for path in ("/livez", "/v1/variables"):
        answer = ask(create_app(Settings(bundle=tmp_path), log=log), path, **headers)
        assert answer.status_code == status
    if status == 403:
        assert answer.json()["type"] == "urn:saga:problem:foreign"
    _, key = new_key("one")
    add_key(tmp_path / "keys", key)
    keyed = create_app(Settings(bundle=tmp_path, keys=tmp_path / "keys"), log=log)
    assert ask(keyed, "/livez", **headers).status_code == 200, "a proxy gives the name of the site"


PORTAL = "https://portal.example.org"


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("host", "origin", "status", "is_allowed"),
    [
        ("127.0.0.1:8000", PORTAL, 200, True),
        ("127.0.0.1:8000", f"{PORTAL}:444", 403, False),
        ("127.0.0.1:8000", "http://portal.example.org", 403, False),
        ("127.0.0.1:8000", f"{PORTAL}.evil.example", 403, False),
        ("127.0.0.1:8000", "null", 403, False),
        ("portal.example.org", PORTAL, 403, False),  # a name that leads here (DNS rebinding)
    ],
)
def test_pages_of_named_origins_alone_may_call_from_a_browser(
    tmp_path: Path, keyed: bool, host: str, origin: str, status: int, is_allowed: bool
) -> None:
    """With keys a proxy gives the name of the site, so the key decides and not `Host`."""
    keys = tmp_path / "keys" if keyed else None
    sent = make_keys(tmp_path / "keys", "portal")["portal"] if keyed else {}
    app = create_app(Settings.of(bundle=tmp_path, keys=keys, origins=PORTAL), log=io.StringIO())
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    is_allowed = is_allowed or (keyed and origin == PORTAL)
    before = ask(app, "/v1/forecasts", "OPTIONS", host=host, origin=origin, **asked)
    assert (before.status_code == 200) is is_allowed
    answer = ask(app, "/v1/variables", host=host, origin=origin, **sent)
    assert answer.status_code == (200 if keyed else status)
    for one in (before, answer):
        allowed = one.headers.get("access-control-allow-origin")
        assert allowed == (PORTAL if is_allowed else None)
        assert "access-control-allow-credentials" not in one.headers
    if keyed:
        refused = ask(app, "/v1/variables", host=host, origin=origin)
        assert refused.status_code == 401, "an origin is no key"
        assert ("access-control-allow-origin" in refused.headers) is is_allowed, "errors are read"


@pytest.mark.parametrize(
    "origins", ["*", "null", f"{PORTAL}/", "portal.example.org", f"{PORTAL}, *"]
)
def test_origins_are_exact(tmp_path: Path, origins: str) -> None:
    with pytest.raises(UsageError) as caught:
        Settings.of(bundle=tmp_path, origins=origins)
    assert "SAGA_ORIGINS" in str(caught.value.problems[0])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_the_service_refuses_other_addresses_without_keys(host: str, tmp_path: Path) -> None:
    check_exposure(host, tmp_path)
    with pytest.raises(UsageError, match="Without keys"):
        create_app(Settings(bundle=tmp_path, host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_loopback_no_keys_are_needed(host: str) -> None:
    check_exposure(host, None)


@pytest.mark.parametrize(
    ("path", "header", "status", "says"),
    [
        *((path, "", 401, "no key") for path in ("/v1/variables", "/v1/model", "/metrics")),
        ("/v1/model", "Bearer wrong", 401, "invalid_token"),
        ("/v1/model", "Basic x", 401, "no key"),
        ("/v1/model", "{expired}", 401, "The key has expired"),
        ("/v1/variables", "{valid}", 200, ""),
        *((path, "", 200, "") for path in ("/livez", "/docs", "/openapi.json")),
    ],
)
def test_a_call_without_a_valid_key_gets_401_and_a_challenge(
    tmp_path: Path, path: str, header: str, status: int, says: str
) -> None:
    keys: dict[str, dict[str, str]] = {}
    now = datetime.now(UTC)
    for name, days in (("valid", 1), ("expired", -1)):
        keys |= make_keys(tmp_path / "keys", name, expires=now + timedelta(days))
    secrets = {name: sent["Authorization"] for name, sent in keys.items()}
    settings = Settings(bundle=tmp_path, host="0.0.0.0", keys=tmp_path / "keys")
    sent = header.format(**secrets)
    headers = {"Authorization": sent} if sent else {}
    answer = ask(create_app(settings, log=io.StringIO()), path, **headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert says in answer.headers["www-authenticate"] + answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert "wrong" not in answer.text
        assert not any(secret.split()[1] in answer.text for secret in secrets.values())


def test_scopes_rotation_and_holders_of_a_running_service(
    start: Start, tiny_bundle: Path, tmp_path: Path
) -> None:
    """A scope opens its endpoints only; a revoked key fails within 5 s; logs name the holder."""
    file = tmp_path / "keys"
    keys: dict[str, dict[str, str]] = {}
    for name, holder, scopes in (
        ("office-2026", "office", ("forecast", "record", "outcomes")),
        ("scraper", "monitoring", ("metrics",)),
        ("reader", "library", ("forecast",)),
    ):
        keys |= make_keys(file, name, holder=holder, scopes=scopes)
    person = {"person_id": "P", "birth_year": 1980, "history": [{"year": 2022, "earnings": 1e5}]}
    forecast = {"persons": [person], "horizons": [1]}
    outcomes = {"outcomes": [{"person_id": "P", "year": 2023, "earnings": 1.0}]}
    with start(Settings(bundle=tiny_bundle, threads=1, keys=file)) as service:

        def status(name: str, path: str, body: object = None) -> int:
            method = "GET" if body is None else "POST"
            return service.client.request(method, path, json=body, headers=keys[name]).status_code

        recording = {**forecast, "record": True}
        for name, path, body, expected in (
            ("reader", "/v1/forecasts", forecast, 200),
            ("reader", "/v1/forecasts", recording, 403),
            ("reader", "/v1/outcomes", outcomes, 403),
            ("reader", "/metrics", None, 403),
            ("reader", "/v1/calibration", None, 200),
            ("scraper", "/metrics", None, 200),
            ("scraper", "/v1/model", None, 200),
            ("scraper", "/v1/calibration", None, 403),
            ("scraper", "/v1/forecasts", forecast, 403),
            ("scraper", "/v1/lifetimes", {"persons": [person]}, 403),
            ("office-2026", "/v1/forecasts", recording, 404),  # allowed; there is no ledger
            ("office-2026", "/v1/outcomes", outcomes, 404),
        ):
            assert status(name, path, body) == expected, (name, path)

        keys |= make_keys(file, "office-2027", holder="office")
        awaited(lambda: status("office-2027", "/v1/variables") == 200, 5)
        assert status("office-2026", "/v1/variables") == 200, "both keys of the holder work"
        revoke_key(file, "office-2026", datetime.now(UTC))
        awaited(lambda: status("office-2026", "/v1/variables") == 401, 5)
        assert status("office-2027", "/v1/variables") == 200
        log = service.log.getvalue()
    assert not any(sent["Authorization"].split()[1] in log for sent in keys.values())
    answered = [json.loads(line) for line in log.splitlines() if '"answered"' in line]
    assert {
        (line.get("holder"), line.get("key"))
        for line in answered
        if line["route"] == "/v1/forecasts"
    } == {("library", "reader"), ("monitoring", "scraper"), ("office", "office-2026")}
    assert all("holder" not in line for line in answered if line["status"] == 401)
