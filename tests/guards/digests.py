"""Digests of what SAGA computes, to compare a commit with an earlier one on the same machine.

    python tests/guards/digests.py --out build/before.json
    python tests/guards/digests.py --out build/after.json --against build/before.json

Everything is asked for as a user asks: by commands, and of a running service. Provenance is left
out, because it names the commit. The second run prints what moved, and then exits with 1. The
bundle with folds, trees and own columns is made once in `build/digests/inputs`; delete this folder
to make it anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).resolve().parents[2]
SAGA = Path(sys.executable).with_name("saga")
SMALL = ROOT / "bundles" / "small"
PEOPLE = ROOT / "examples" / "people.csv"
MAPPING = "extra:\n  shoe_size: {kind: number}\n  town: {kind: category, static: true}\n"
MODEL = """model: {width: 32, layers: 1, heads: 2, mlp_ratio: 2, bins: 40, head_width: 32}
batch_persons: 128
max_steps: 60
warmup_steps: 10
validate_every: 30
trees: true
"""


def saga(*words: object) -> str:
    """The standard output of a command, which has to succeed; a delivery may advise to retrain."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [str(SAGA), *map(str, words)], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    if done.returncode not in ((0, 1) if words[0] == "deliver" else (0,)):
        raise SystemExit(f"saga {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def digest(value: str | bytes) -> str:
    """The first 16 hexadecimal digits of the SHA-256."""
    data = value.encode() if isinstance(value, str) else value
    return hashlib.sha256(data).hexdigest()[:16]


def digest_of_tables(path: Path) -> str:
    """The digest of the rows of a table, or of all tables of a folder, without metadata."""
    files = sorted(file for file in path.rglob("*") if file.suffix in (".parquet", ".csv"))
    files = files if path.is_dir() else [path]
    if not files:
        raise SystemExit(f"{path}: no tables")
    tables = [pl.read_parquet(file) if file.suffix == ".parquet" else pl.read_csv(file)
              for file in files]  # fmt: skip
    return digest("\n".join(frame.write_csv() for frame in tables))


def without_provenance(value: Any) -> Any:
    """A JSON value without what names a commit, a call or a time."""
    if isinstance(value, dict):
        return {key: without_provenance(item) for key, item in value.items() if key != "provenance"}
    if isinstance(value, list):
        return [without_provenance(item) for item in value]
    return value


def make_inputs(folder: Path) -> None:
    """A register, deliveries cut from it, and a bundle with folds, trees and own columns."""
    if (folder / "done").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    saga("register", "generate", "--persons", 900, "--seed", 5, "--out", folder / "register")
    panel = pl.concat(
        [pl.read_parquet(file) for file in sorted((folder / "register/panel").rglob("*.parquet"))],
        how="diagonal_relaxed",
    )
    for year in (2018, 2020, 2022):
        panel.filter(pl.col("year") <= year).write_parquet(folder / f"until_{year}.parquet")
    number = panel["person_id"].hash(seed=1)
    columns = ["person_id", "year", "birth_year", "earnings", "sex", "education_level"]
    panel.select(columns).with_columns(
        shoe_size=(36 + number % 12).cast(pl.Float64) + (pl.col("year") % 3),
        town=pl.when(number % 5 == 0).then(pl.lit("A")).otherwise(pl.lit("B")),
    ).write_parquet(folder / "own.parquet")  # fmt: skip
    (folder / "own.yaml").write_text(MAPPING)
    (folder / "model.yaml").write_text(MODEL)
    own = ["--panel", folder / "own.parquet", "--mapping", folder / "own.yaml", "--seed", 3]
    saga("train", *own, "--config", folder / "model.yaml", "--folds", 3, "--from", "none",
         "--out", folder / "folds")  # fmt: skip
    saga("calibrate", folder / "folds", *own, "--paths", 50)
    (folder / "done").touch()


def some_persons(path: Path, persons: int) -> pl.DataFrame:
    """The rows of the first persons of a panel who were born from 1965 on."""
    panel = pl.read_parquet(path).filter(pl.col("birth_year") >= 1965)
    return panel.filter(pl.col("person_id").rank("dense") <= persons)


def products(
    name: str, source: Path, bundle: Path, work: Path, *more: object
) -> Iterator[tuple[str, str]]:
    """Digests of each product of one bundle for one source."""
    given = [source, "--bundle", bundle, *more]
    forecast, paths = work / f"{name}-forecast.parquet", work / f"{name}-paths"
    saga("forecast", *given, "--out", forecast, "--unrounded", "--limits", "--bands", 5)
    yield f"{name}: forecast with limits and bands", digest_of_tables(forecast)
    for rollout in ("light", "exact"):
        if rollout == "light" and name == "folds":
            continue
        out = work / f"{name}-{rollout}.parquet"
        saga("lifetime", *given, "--out", out, "--rollout", rollout, "--paths", 100,
             "--from-age", 20, "--tax", "se-2022", "--unrounded")  # fmt: skip
        yield f"{name}: lifetimes, {rollout}", digest_of_tables(out)
    saga("score", source, paths, "--bundle", bundle, *more, "--product", "paths", "--paths", 20,
         *(["--circumstances"] if bundle == SMALL else []))  # fmt: skip
    yield f"{name}: paths", digest_of_tables(paths)
    for product in ("forecasts", "lifetimes"):
        out = work / f"{name}-{product}"
        saga("score", source, out, "--bundle", bundle, *more, "--product", product, "--paths", 50)
        yield f"{name}: batch of {product}", digest_of_tables(out)


def commands_digests(inputs: Path, work: Path) -> Iterator[tuple[str, str]]:
    """Digests of the shipped bundle, of the bundle with folds, of a ledger and of a register."""
    yield from products("small", PEOPLE, SMALL, work)
    some = work / "some.parquet"
    some_persons(inputs / "until_2022.parquet", 150).write_parquet(some)
    yield from products("register", some, SMALL, work)
    saga("tables", work / "register-paths", "--by", "sex", "--panel", some,
         "--out", work / "tables", "--minimum", 10)  # fmt: skip
    yield "register: group tables", digest_of_tables(work / "tables")
    own = work / "own.parquet"
    some_persons(inputs / "own.parquet", 40).write_parquet(own)
    yield from products("folds", own, inputs / "folds", work, "--mapping", inputs / "own.yaml")

    key, url = work / "ledger.key", f"sqlite:///{work / 'ledger.sqlite'}"
    key.write_bytes(b"0123456789abcdef" * 2)
    ledger = ["--database", url, "--database-key", key]
    for year in (2018, 2020, 2022):
        saga("deliver", SMALL, "--panel", inputs / f"until_{year}.parquet", "--persons", 60,
             "--out", work / f"delivery-{year}", *ledger)  # fmt: skip
    saga("forecast", some, "--bundle", SMALL, "--out", work / "adapted.parquet", *ledger,
         "--unrounded")  # fmt: skip
    yield "ledger: forecasts after three deliveries", digest_of_tables(work / "adapted.parquet")
    yield "ledger: years of the last delivery", digest_of_tables(work / "delivery-2022")

    saga("register", "generate", "--persons", 2000, "--seed", 7, "--out", work / "register",
         "--future-to", 2030, "--future-draws", 2)  # fmt: skip
    for part in ("panel", "future", "latent"):
        yield f"register of 2,000 persons: {part}", digest_of_tables(work / "register" / part)


def service_digests() -> Iterator[tuple[str, str]]:
    """Digests of the published schema and of two calls to a running service."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [str(SAGA), "serve", "--bundle", str(SMALL), "--port", str(port), "--threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{url}/readyz")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        schema = json.load(urllib.request.urlopen(f"{url}/openapi.json"))
        yield "OpenAPI document", digest(json.dumps(schema, sort_keys=True))
        history = [{"year": 2012 + k, "earnings": 250_000 + 9_000 * k} for k in range(10)]
        person = {"person_id": "A", "birth_year": 1980, "sex": "female", "history": history}
        for path, more in (
            ("forecasts", {"horizons": [1, 5, 10, 30], "bands": 5}),
            ("lifetimes", {"paths": 100, "tax": "se-2022"}),
        ):
            body = json.dumps({"persons": [person], "seed": 2, **more}).encode()
            call = urllib.request.Request(
                f"{url}/v1/{path}", body, {"Content-Type": "application/json"}
            )
            answer = without_provenance(json.load(urllib.request.urlopen(call)))
            yield f"POST /v1/{path}", digest(json.dumps(answer, sort_keys=True))
    finally:
        server.terminate()
        server.wait()


def help_digests() -> Iterator[tuple[str, str]]:
    """Digests of the help of every command."""
    import typer

    from saga.cli import app

    def names(group: Any, *before: str) -> Iterator[tuple[str, ...]]:
        for name, command in sorted(group.commands.items()):
            inner = hasattr(command, "commands")
            yield from names(command, *before, name) if inner else [(*before, name)]

    for words in names(typer.main.get_command(app)):
        yield f"help: {' '.join(words)}", digest(saga(*words, "--help"))


def main() -> None:
    """Compute the digests, store them, and compare them with earlier ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="file of the digests (.json)")
    parser.add_argument("--against", type=Path, help="file of an earlier run")
    parser.add_argument("--inputs", type=Path, default=ROOT / "build/digests/inputs")
    parser.add_argument("--only", choices=["numbers", "service", "help"])
    args = parser.parse_args()
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as work:
        groups = {"service": service_digests, "help": help_digests}
        if args.only in (None, "numbers"):
            make_inputs(args.inputs)
            groups = {"numbers": lambda: commands_digests(args.inputs, Path(work)), **groups}
        for group, make in groups.items():
            if args.only in (None, group):
                for name, value in make():
                    digests[name] = value
                    sys.stdout.write(f"{value}  {name}\n")
                    sys.stdout.flush()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(digests, indent=1) + "\n")
    if args.against:
        earlier = json.loads(args.against.read_text())
        moved = [name for name, value in digests.items() if earlier.get(name) not in (value,)]
        gone = [] if args.only else [name for name in earlier if name not in digests]
        sys.stdout.write("".join(f"moved: {name}\n" for name in moved))
        sys.stdout.write("".join(f"gone: {name}\n" for name in gone))
        raise SystemExit(1 if moved or gone else 0)


if __name__ == "__main__":
    main()
