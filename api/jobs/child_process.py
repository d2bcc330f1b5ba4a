"""Child processes that receive their settings from the service and end with it.

The parent writes the settings to the child's standard input and keeps it open. If the parent ends
or is killed, the input is closed, and the child exits. Settings can contain a password. They are
not passed as arguments, because other users of the machine can read those.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable

from pydantic import SecretStr
from saga.api.settings import Settings


async def start_child(module: str, settings: Settings, *arguments: str) -> Process:
    """Start `python -m module` with the settings of this process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=PIPE,
        start_new_session=True,  # Ctrl-C in a terminal is for the parent
    )
    assert process.stdin is not None
    process.stdin.write(_to_line(settings))
    return process


async def end_child(process: Process, *, seconds: float) -> None:
    """Ask a child to end by closing its input; kill it after `seconds`."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()


def receive_settings(at_end: Callable[[], None] = lambda: None) -> Settings:
    """In the child: the settings of the parent.

    From now on this process calls `at_end` and ends when the parent ends.
    """
    settings = Settings(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_exit_at_end_of_input, args=[at_end], daemon=True).start()
    return settings


def _to_line(settings: Settings) -> bytes:
    values = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in settings
    }
    return json.dumps(values, default=str).encode() + b"\n"


def _exit_at_end_of_input(at_end: Callable[[], None]) -> None:
    # Not `sys.stdin.read`, which holds a lock that the end of the interpreter needs.
    while os.read(0, 4096):
        pass
    try:
        at_end()
    finally:
        os._exit(0)
