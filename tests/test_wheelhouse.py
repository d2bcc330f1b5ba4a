"""Which packages a system needs, in versions of the lock, with checksums."""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheelhouse() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "distribution")
        return import_module("wheelhouse")


@pytest.mark.parametrize("name", ["linux", "windows"])
def test_every_package_of_a_system_has_a_version_and_none_is_for_developers(
    wheelhouse: ModuleType, name: str
) -> None:
    system = wheelhouse.SYSTEMS[name]
    direct = [Requirement("torch"), Requirement("typer"), Requirement("polars")]
    needed = wheelhouse.required(system, direct)
    assert {"torch", "typer", "polars", "rich", "sympy"} <= needed
    assert not {"pytest", "mypy", "ruff"} & needed
    pins = wheelhouse.read_pins(ROOT / "requirements.lock")
    pinned = wheelhouse.pinned(system, needed, pins)
    assert f"torch=={pins['torch']}" in pinned


def test_markers_are_those_of_the_system_not_of_this_machine(wheelhouse: ModuleType) -> None:
    direct = [
        Requirement("colorama; sys_platform == 'win32'"),
        Requirement("uvloop; sys_platform != 'win32'"),
        Requirement("extra-thing; extra == 'dev'"),
    ]
    needed = {
        name: wheelhouse.required(system, direct) for name, system in wheelhouse.SYSTEMS.items()
    }
    assert needed == {"linux": {"uvloop"}, "windows": {"colorama"}}


def test_a_package_without_a_version_is_an_error(wheelhouse: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no version of nothing"):
        wheelhouse.pinned(wheelhouse.SYSTEMS["linux"], {"nothing"}, {"torch": "2.0"})


def test_only_torch_is_looked_for_at_the_index_of_torch(
    wheelhouse: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(wheelhouse.subprocess, "run", lambda call, check: calls.append(call))
    wheel = tmp_path / "saga_forecast-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    wheelhouse.collect(
        [*wheelhouse.SYSTEMS.values()], [wheel], tmp_path / "out", "https://torch.example/cpu"
    )
    at_index = [call for call in calls if "--index-url" in call]
    others = [call for call in calls if "--index-url" not in call]
    assert [[word.split("==")[0] for word in call if "==" in word] for call in at_index] == [
        ["torch"]
    ]
    assert {"altair", "polars", "typer"} <= {
        word.split("==")[0] for call in others for word in call
    }
    for call in others:  # of Windows it is PyPI's
        assert ("win_amd64" in call) or not any(word.startswith("torch==") for word in call)


def test_checksums_and_hashes_are_those_of_the_files(
    wheelhouse: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "some_thing-1.2-py3-none-any.whl").write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    wheelhouse.write_checksums(tmp_path)
    sums = (tmp_path / "SHA256SUMS").read_text()
    assert sums == f"{digest}  some_thing-1.2-py3-none-any.whl\n"
    requirements = (tmp_path / "requirements.txt").read_text()
    assert requirements == f"some-thing==1.2 --hash=sha256:{digest}\n"
