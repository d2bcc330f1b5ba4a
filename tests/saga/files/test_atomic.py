"""Files that belong together appear together."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from saga.files.atomic import new_files


def test_new_files_replace_all_of_a_folder_or_none(tmp_path: Path) -> None:
    """A full disk or an interruption left new tables beside old pages."""
    out = tmp_path / "out"
    with new_files(out) as made:
        for name in ("table", "page"):
            (made / name).write_text("old")
    (out / "other").write_text("a user's own")
    for stop in (OSError(errno.ENOSPC, "full"), KeyboardInterrupt()):
        with pytest.raises(type(stop)):
            _replace_and_stop(out, stop)
        assert {path.read_text() for path in out.iterdir()} == {"a user's own", "old"}
        assert len(list(out.iterdir())) == 3
    (out / ".killed.tmp").mkdir()
    (out / ".killed.tmp" / "table").write_text("half")
    with new_files(out) as made:
        (made / "table").write_text("new")
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "other": "a user's own",
        "page": "old",
        "table": "new",
    }


def _replace_and_stop(out: Path, stop: BaseException) -> None:
    with new_files(out) as made:
        (made / "table").write_text("new")
        raise stop
