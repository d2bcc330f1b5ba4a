"""What a forecast of ten persons costs: processor seconds against importing torch and polars.

    python benchmarks/start_up.py [--rounds 7]

Each round runs both once, on one thread. Prints the smallest seconds of each and their ratio (aim:
1.5), which other work on the machine changes least.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

PERSONS, YEARS = 10, range(2013, 2023)
IMPORTS = "import torch, polars"
FORECAST = "from saga.cli import main; main()"


def seconds(code: str, *words: str) -> float:
    """Processor seconds of a Python program on one thread, until it has ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the three numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        people, out = Path(folder, "people.csv"), Path(folder, "out.csv")
        rows = [f"{p},{y},{1970 + p},{300_000 + 1_000 * p}" for p in range(PERSONS) for y in YEARS]
        people.write_text("\n".join(["person_id,year,birth_year,earnings", *rows]))
        forecast = ("forecast", str(people), "--out", str(out))
        pairs = [(seconds(IMPORTS), seconds(FORECAST, *forecast)) for _ in range(rounds)]
    imports, forecasts = (min(times) for times in zip(*pairs, strict=True))
    print(
        f"imports {imports:.2f} s, forecast {forecasts:.2f} s, ratio {forecasts / imports:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
