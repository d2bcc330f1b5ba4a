"""Files that belong together appear together."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partialmethod
from itertools import count
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


@pytest.mark.parametrize("last", range(5))
def test_old_and_new_files_never_stand_together(
    tmp_path: Path, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader or a kill between two files saw a mix; `last` is the step after which it comes."""
    for name in ("page", "table", "report", "no longer"):
        (tmp_path / name).write_text("old")
    steps = count()

    class _Killed(BaseException):
        pass

    def seen(path: Path, step: Callable[..., object], *args: object, **options: object) -> object:
        result = step(path, *args, **options)
        found = {file.read_text() for file in tmp_path.iterdir() if file.is_file()}
        assert len(found) <= 1, "some may be missing, but all are old or all are new"
        if next(steps) == last:
            raise _Killed
        return result

    with suppress(_Killed), new_files(tmp_path, ["no longer", "never was"]) as made:
        for name in ("page", "table", "report"):
            (made / name).write_text("new")
        for name in ("replace", "unlink"):
            monkeypatch.setattr(Path, name, partialmethod(seen, getattr(Path, name)))
    monkeypatch.undo()
    with new_files(tmp_path, ["no longer"]) as made:
        for name in ("page", "table", "report"):
            (made / name).write_text("newer")
    names = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert names == dict.fromkeys(("page", "table", "report"), "newer")


def _replace_and_stop(out: Path, stop: BaseException) -> None:
    with new_files(out) as made:
        (made / "table").write_text("new")
        raise stop
