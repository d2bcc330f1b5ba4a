"""What threads cost: processor seconds against one core, alone and beside copies.

    python benchmarks/threads.py [--persons 2000] [--copies 1 2 4] [--steps 200] [--only train]

Runs `saga forecast` of the example, a short `saga train`, `saga calibrate`, and `saga score` of
five times as many persons, as 1, 2 and 4 copies at the same time. Prints processor seconds of a
copy and their ratio to one core (the bound is 1.3), and how much faster the default is alone than
one core (aim: 1.5 on two idle cores, for training and for a batch of persons), beside what the
machine can do: how many times the work of one copy two do at once, each on a core of its own.
Some 8 seconds of a training are its start and end, which no thread shortens: `--steps 800` judges
the steps.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

CLI = "from saga.cli import main; main()"
EXAMPLE = Path(__file__).parents[1] / "examples" / "people.csv"
_BATCH = 5  # persons of the batch for each person of the other commands
CONFIG = """model: {{width: 96, layers: 2, heads: 4, bins: 96, head_width: 96, light: 64}}
batch_persons: 128
max_steps: {steps}
warmup_steps: 10
learning_rate: 1.0e-3
validate_every: {steps}
validation_persons: 200
"""


def run(command: list[str], copies: int, *, one_core: bool) -> tuple[float, float]:
    """Mean processor seconds of a copy, and seconds until the last one ends.

    `{copy}` in the command is the number of the copy. With `one_core` each copy may use one: the
    threads of a batch do not depend on variables of libraries.
    """
    libraries = ("OMP_NUM_THREADS", "POLARS_MAX_THREADS")
    environment = {name: v for name, v in os.environ.items() if name not in libraries}
    cores = sorted(os.sched_getaffinity(0))
    allowed = [{cores[i % len(cores)]} if one_core else set(cores) for i in range(copies)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CLI, *(word.format(copy=i) for word in command)],
            env=environment,
            preexec_fn=partial(os.sched_setaffinity, 0, allowed[i]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for i in range(copies)
    ]
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"saga {' '.join(command)} failed.")
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / copies, seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--persons", type=int, default=2_000)
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=200, help="of the training")
    parser.add_argument("--only", help="the one command to run, where it needs no other")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        register, config = f"{folder}/register", f"{folder}/config.yaml"
        Path(config).write_text(CONFIG.format(steps=arguments.steps))
        panel, many = f"{register}/panel", f"{folder}/many"
        for n, out in ((arguments.persons, register), (_BATCH * arguments.persons, many)):
            run(["register", "generate", "--persons", str(n), "--out", out], 1, one_core=True)
        train = ["train", "--panel", panel, "--config", config, "--out"]
        for name, command in {
            "forecast": ["forecast", str(EXAMPLE), "--out", f"{folder}/{{copy}}.csv"],
            "train": [*train, f"{folder}/{{copy}}-{{run}}"],
            "calibrate": ["calibrate", f"{folder}/{{copy}}-{{run}}", "--panel", panel],
            "score": ["score", f"{many}/panel", f"{folder}/scored-{{copy}}-{{run}}"],
        }.items():
            if arguments.only not in (None, name):
                continue
            print_cost(name, command, arguments.copies)


def print_cost(name: str, command: list[str], copies: list[int]) -> None:
    """Print the rows of a command."""
    for n in copies:
        words = [[word.replace("{run}", f"{n}-{k}") for word in command] for k in (0, 1, 2)]
        one, one_seconds = run(words[0], n, one_core=True)
        default, seconds = run(words[1], n, one_core=False)
        faster = ""
        if n == 1:
            _, of_two = run(words[2], 2, one_core=True)
            faster = f", {one_seconds / seconds:.2f} times as fast"
            faster += f" (two on a core each: {2 * one_seconds / of_two:.2f})"
        print(
            f"{name:9} {n} copies: {default:.1f} processor seconds a copy, "
            f"{default / one:.2f} of one core{faster}",
            flush=True,
        )


if __name__ == "__main__":
    main()
