"""How much memory and CPU does the service take for a call, by product and number of persons?

    python benchmarks/service_resources.py [--persons 1 10 100 1000] [--paths 500] [--jobs 10000]

Starts `saga serve` with the shipped bundle in a process of its own and sends persons with 12
observed years each, one call at a time, each size twice; the second call counts. CPU seconds are
those of the service and its decoding process, memory is their largest resident size during the
call. The job runs in processes of its own; their CPU seconds and their largest size are given.
Elapsed time is left out, because it depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import polars as pl
import psutil

from saga.client import Client
from saga.requests import Draws, ForecastRequest, LifetimeRequest

YEARS = range(2011, 2023)


@dataclass
class Usage:
    """CPU seconds and the largest resident size (MB) of a group of processes."""

    cpu: float
    memory: float


def make_persons(n_persons: int) -> pl.DataFrame:
    """Persons of many ages with 12 observed years each."""
    return pl.DataFrame(
        {
            "person_id": [f"{i:07d}" for i in range(n_persons) for _ in YEARS],
            "birth_year": [1962 + i % 35 for i in range(n_persons) for _ in YEARS],
            "year": [year for _ in range(n_persons) for year in YEARS],
            "earnings": [
                180_000.0 + 1_000 * (i % 200) + 7_000 * (year - 2011)
                for i in range(n_persons)
                for year in YEARS
            ],
        }
    )


def usages_below(root: int, belongs: Callable[[str], bool]) -> dict[int, Usage]:
    """Usage up to now of a process and its descendants whose command `belongs`, by number."""
    service = psutil.Process(root)
    usages = {}
    for process in (service, *service.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            if belongs(" ".join(process.cmdline())):
                times = process.cpu_times()
                memory = process.memory_info().rss / 2**20
                usages[process.pid] = Usage(times.user + times.system, memory)
    return usages


def measure(root: int, call: Callable[[], object], belongs: Callable[[str], bool]) -> Usage:
    """Usage of the processes under `root` whose command `belongs`, during a call."""
    before = usages_below(root, belongs)
    seconds: dict[int, float] = {}
    largest, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal largest
        while not done.wait(0.02):
            usages = usages_below(root, belongs)
            largest = max(largest, sum(usage.memory for usage in usages.values()))
            for pid, usage in usages.items():
                earlier = before[pid].cpu if pid in before else 0.0
                seconds[pid] = max(usage.cpu - earlier, seconds.get(pid, 0.0))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
        time.sleep(0.1)
    finally:
        done.set()
        watcher.join()
    return Usage(sum(seconds.values()), largest)


def main() -> None:
    """Print one line per product and size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--persons", type=int, nargs="+", default=[1, 10, 100, 1_000])
    parser.add_argument("--paths", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=10_000, help="persons of the job; 0: none")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = "from saga.cli import main; main()"
        command = [sys.executable, "-c", program, "serve", "--port", "0", "--jobs", folder]
        environment = {**os.environ, "SAGA_MAX_WORK": str(10**9)}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as service:
            try:
                assert service.stdout is not None
                line = next(line for line in service.stdout if line.startswith("SAGA is ready"))
                print(f"{platform.machine()}, {os.cpu_count()} cores")
                address = next(word for word in line.split() if word.startswith("http"))
                with Client(address.rstrip("."), seconds=3_600) as client:
                    measure_calls(service.pid, client, arguments)
            finally:
                service.send_signal(signal.SIGTERM)


def measure_calls(pid: int, client: Client, arguments: argparse.Namespace) -> None:
    """Measure the calls and the job, and print them."""

    def of_service(command: str) -> bool:
        return "saga.api.jobs" not in command

    idle = measure(pid, lambda: time.sleep(1), of_service)
    print(f"{'idle':10} {'':>8} {'':>12} {'':>14} {idle.memory:8.0f} MB")
    draws = Draws(n_paths=arguments.paths, seed=1)
    for product in ("forecasts", "lifetimes"):
        for n_persons in arguments.persons:
            persons = make_persons(n_persons)

            def call(persons: pl.DataFrame = persons, product: str = product) -> object:
                if product == "forecasts":
                    return client.forecast(persons, ForecastRequest(horizons=(1, 5, 10)))
                return client.lifetime(persons, LifetimeRequest(), draws)

            call()
            report(product, n_persons, measure(pid, call, of_service))
    if arguments.jobs:
        persons = make_persons(arguments.jobs)
        request = ForecastRequest(horizons=(1, 5, 10))
        usage = measure(
            pid, lambda: client.score(persons, request), lambda command: not of_service(command)
        )
        report("job", arguments.jobs, usage)


def report(product: str, n_persons: int, usage: Usage) -> None:
    """Print one line."""
    each = 1_000 * usage.cpu / n_persons
    cpu = f"{usage.cpu:8.2f} CPU s {each:8.1f} ms each"
    print(f"{product:10} {n_persons:8,} {cpu} {usage.memory:8.0f} MB", flush=True)


if __name__ == "__main__":
    main()
