"""Plants faults one by one, and checks that the test of each behaviour fails.

    python tests/guards/plant_faults.py [--room data] [--behaviour WORDS]

`tests/guards/faults/ROOM.toml` lists behaviours. Each names a file, a text that occurs once in it,
the fault that replaces it, and the test that has to fail then. Prints the faults that survive, and
exits with 1 if there are any. Files are restored, also after Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_name("faults")


@dataclass(frozen=True)
class Behaviour:
    """Something that SAGA does, a fault that would break it, and the test that notices.

    Attributes:
        room: Name of the file that lists it.
        behaviour: What holds, in one sentence.
        file: Path of the code in the checkout.
        find: Text that occurs once in the file.
        replace: The fault.
        test: The test, such as `tests/saga/test_scores.py::test_crps`; it may name a parameter.
    """

    room: str
    behaviour: str
    file: str
    find: str
    replace: str
    test: str


def read_behaviours(folder: Path = FOLDER) -> Iterator[Behaviour]:
    """All behaviours that are listed, room by room."""
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["behaviour"]:
            yield Behaviour(room=path.stem, **entry)


def passes(test: str) -> bool:
    """Whether a test passes now; an error counts as a failure, no test at all stops the program."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{test}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}")
    return done.returncode == 0


def survives(behaviour: Behaviour) -> bool:
    """Whether the test still passes with the fault."""
    path = ROOT / behaviour.file
    text = path.read_bytes()
    try:
        path.write_bytes(text.replace(behaviour.find.encode(), behaviour.replace.encode()))
        return passes(behaviour.test)
    finally:
        path.write_bytes(text)


def main() -> None:
    """Plant every fault that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--room", help="only behaviours of this file")
    parser.add_argument("--behaviour", default="", help="only behaviours with these words")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    survivors = []
    for behaviour in read_behaviours():
        if args.room in (None, behaviour.room) and args.behaviour in behaviour.behaviour:
            if not passes(behaviour.test):
                raise SystemExit(f"{behaviour.test} fails without a fault")
            alive = survives(behaviour)
            survivors += [behaviour] if alive else []
            sys.stdout.write(f"{'SURVIVES' if alive else 'killed'}  {behaviour.behaviour}\n")
            sys.stdout.flush()
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
