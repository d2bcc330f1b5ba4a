"""Files of jobs: a holder reaches the files of its folder, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from saga.api.jobs.job_uploads import open_file
from saga.api.problems import ProblemError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of files with those of two holders, a secret beside it, and links to both."""
    root = tmp_path / "files"
    of_one = [f"one/{name}" for name in ("2026/panel.parquet", "panel.csv", ".csv", "notes.txt")]
    for name in (*of_one, "two/panel.csv"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "secret.csv").write_text("secret")
    (root / "root.csv").write_text("root")
    (root / "one" / "outside.csv").symlink_to(tmp_path / "secret.csv")
    (root / "one" / "other.csv").symlink_to(root / "two" / "panel.csv")
    (root / "one" / "inside.csv").symlink_to(root / "one" / "panel.csv")
    (root / "one" / "circle.csv").symlink_to(root / "one" / "circle.csv")
    (root / "one" / "years").symlink_to(root / "two")
    (root / "one" / "second_name.csv").hardlink_to(tmp_path / "secret.csv")
    os.mkfifo(root / "one" / "pipe.csv")
    (root / "linked").symlink_to(tmp_path)
    return root


@pytest.mark.parametrize(
    ("holder", "name", "content"),
    [
        ("one", "2026/panel.parquet", b"one/2026/panel.parquet"),
        ("one", "./2026//panel.parquet", b"one/2026/panel.parquet"),
        (None, "two/panel.csv", b"two/panel.csv"),
    ],
)
def test_a_holder_names_files_of_its_folder_and_without_keys_all(
    root: Path, holder: str | None, name: str, content: bytes
) -> None:
    with open_file(root, holder, name) as file:
        assert file.read() == content


@pytest.mark.parametrize(
    ("holder", "name"),
    [
        ("one", "../two/panel.csv"),
        ("one", "../../secret.csv"),
        ("one", "/etc/passwd"),
        ("one", "{root}/two/panel.csv"),
        ("one", "2026/../panel.csv"),
        ("one", "outside.csv"),
        ("one", "inside.csv"),
        ("one", "years/panel.csv"),
        ("one", "pipe.csv"),
        ("one", "second_name.csv"),
        ("one", ""),
        ("one", "other.csv"),
        ("one", "circle.csv"),
        ("one", "absent.csv"),
        ("one", "notes.txt"),
        ("one", ".csv"),
        ("one", "2026"),
        ("one", "."),
        ("one", "panel.csv\x00.parquet"),
        ("one", "x" * 5_000),
        ("..", "secret.csv"),
        (".", "root.csv"),
        ("linked", "secret.csv"),
        (None, "../secret.csv"),
        (None, "one/outside.csv"),
    ],
)
def test_everything_else_is_refused_in_the_same_words(
    root: Path, holder: str | None, name: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        open_file(root, holder, name.format(root=root))
    assert caught.value.status == 422
    (problem,) = caught.value.problems
    assert (problem.rule, problem.message) == ("file", "You have no such file")
    assert str(root.parent) not in str(problem)


def test_a_service_without_a_folder_reads_no_files() -> None:
    with pytest.raises(ProblemError) as caught:
        open_file(None, None, "panel.csv")
    assert caught.value.status == 404


def test_a_second_name_that_is_gone_once_it_is_opened_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder gives another's file a name of its own, which it removes at the worst moment."""
    own, opened = root / "one" / "second_name.csv", os.open

    def open_and_unlink(path: str, *arguments: Any, **options: Any) -> int:
        descriptor = opened(path, *arguments, **options)
        if path == own.name:
            own.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_unlink)
    with pytest.raises(ProblemError):
        open_file(root, "one", own.name)
