"""Bearer keys: key files, refused addresses, and which endpoints need a key."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import httpx
import pytest

from api.app import create_app
from api.security import Keyring, check_exposure, new_key, read_keys
from api.settings import Settings
from saga.errors import UsageError


def test_a_key_is_recognised_by_its_hash() -> None:
    key, line = new_key("analyst")
    name, _, digest = line.partition(" sha256:")
    assert key not in line
    ring = Keyring({"other": "0" * 64, name: digest})
    assert ring.holder(key) == "analyst"
    assert ring.holder(key[:-1]) is None
    assert ring.holder(digest) is None, "the hash in the file is not a key"


def test_two_keys_differ() -> None:
    assert new_key("a")[0] != new_key("a")[0]


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "line\nbreak"])
def test_a_name_that_does_not_fit_the_key_file_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        new_key(name)


def test_a_key_file_may_have_comments_and_blank_lines(tmp_path: Path) -> None:
    key, line = new_key("analyst")
    file = tmp_path / "keys"
    file.write_text(f"# made today\n\n{line}\n")
    ring = read_keys(file)
    assert ring is not None
    assert ring.holder(key) == "analyst"


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "analyst plain-SENTINEL\n", "a sha256:SENTINEL\n"]
)
def test_a_bad_key_file_is_refused_without_repeating_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_keys(file)
    assert "SENTINEL" not in str(caught.value)


def test_a_missing_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(tmp_path / "none")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_the_service_refuses_other_addresses_without_keys(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Without keys"):
        create_app(Settings(bundle=tmp_path, host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_loopback_no_keys_are_needed(host: str) -> None:
    check_exposure(host, None)


def test_with_keys_any_address_is_allowed(tmp_path: Path) -> None:
    check_exposure("0.0.0.0", tmp_path)


@pytest.mark.parametrize("path", ["/v1/variables", "/v1/model", "/metrics"])
@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({}, None),
        ({"Authorization": "Bearer wrong"}, "invalid_token"),
        ({"Authorization": "Basic x"}, None),
    ],
)
def test_a_call_without_a_known_key_gets_401_and_a_challenge(
    tmp_path: Path, path: str, header: dict[str, str], error: str | None
) -> None:
    answer = _get(tmp_path, path, header)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (error is None) or error in answer.headers["www-authenticate"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert "wrong" not in answer.text


def test_a_call_with_the_key_is_answered(tmp_path: Path) -> None:
    assert _get(tmp_path, "/v1/variables", None).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/docs", "/openapi.json"])
def test_health_and_documentation_need_no_key(tmp_path: Path, path: str) -> None:
    assert _get(tmp_path, path, {}).status_code == 200


def _get(tmp_path: Path, path: str, headers: dict[str, str] | None) -> httpx.Response:
    key, line = new_key("analyst")
    (tmp_path / "keys").write_text(line)
    app = create_app(
        Settings(bundle=tmp_path, host="0.0.0.0", keys=tmp_path / "keys"), log=io.StringIO()
    )

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://service"
        ) as client:
            return await client.get(
                path, headers={"Authorization": f"Bearer {key}"} if headers is None else headers
            )

    return asyncio.run(send())
