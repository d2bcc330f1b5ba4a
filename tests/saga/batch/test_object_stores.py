"""A run from and to an S3 store writes the bytes of a local run, whatever process is killed.

The server is a real one, started by the tests: `npm install s3rver`, and SAGA_S3RVER names
`node_modules/.bin/s3rver`. It keeps its objects on disk, so it can be killed and started again.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import obstore
import polars as pl
import pytest
from carry import Carry
from obstore.store import from_url
from scored_folder import path_rows, write_scored
from typer.testing import CliRunner, Result

from saga.batch.engine import score
from saga.batch.partitions import Source
from saga.batch.run_folder import MANIFEST
from saga.batch.shards import Shard, merge_shards
from saga.cli import app
from saga.errors import InputError, UsageError
from saga.files import object_store
from saga.files.object_store import StoreLostError

ROOT = Path(__file__).parents[3]
PERSONS, SIZE = 60, 3
SCRIPT = """
import sys
from carry import Carry
from saga.batch.engine import score

if __name__ == "__main__":
    source, out = sys.argv[1:]
    score(
        source,
        out,
        Carry(seconds=0.2),
        persons_per_partition=3,
        workers=2,
        progress=lambda n, _: print(n, flush=True),
    )
"""


@dataclass
class Server:
    """An S3 server with one bucket, whose objects are in `folder`."""

    program: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        place = "-d", str(self.folder), "-a", "127.0.0.1", "-p", str(self.port)
        self.process = subprocess.Popen(
            [self.program, *place, "--configure-bucket", "register"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(300):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.1)
        pytest.fail("the S3 server does not start")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(
    tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    program = os.environ.get("SAGA_S3RVER")
    if program is None:
        pytest.skip("SAGA_S3RVER does not name an S3 server")
    started = Server(program, tmp_path / "objects", free_port())
    started.folder.mkdir()
    started.start()
    # Keys that this server has.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "S3RVER")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{started.port}")
    yield started
    started.kill()


def _write_years(folder: Path) -> Path:
    """One file per year, persons in random order; Parquet and CSV are read by other code."""
    rng = np.random.default_rng(4)
    folder.mkdir()
    for year in range(2001, 2005):
        rows = {"person_id": [f"{i:03d}" for i in rng.permutation(PERSONS)], "birth_year": 1970}
        frame = pl.DataFrame({**rows, "year": year, "earnings": rng.lognormal(12, 1, PERSONS)})
        frame.write_parquet(folder / f"{year}.parquet")
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write_years(tmp_path_factory.mktemp("stores") / "years")


@pytest.fixture(scope="module")
def local_files(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("local") / "out"
    score(source, out, Carry(), persons_per_partition=SIZE)
    paths = [path for path in out.rglob("*") if path.is_file()]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths if path.name != "_lock"}


def _upload(folder: Path, url: str) -> str:
    store = _open(url)
    for path in folder.iterdir():
        obstore.put(store, path.name, path)
    return url


def _objects(url: str) -> dict[str, bytes]:
    store = _open(url)
    paths = [entry["path"] for entry in obstore.list(store).collect()]
    return {path: bytes(obstore.get(store, path).bytes()) for path in paths}


def _open(url: str) -> obstore.store.ObjectStore:
    return from_url(url, client_options={"allow_http": True})


@pytest.mark.s3
def test_a_killed_server_and_a_killed_run_leave_the_bytes_of_a_local_run(
    source: Path, local_files: dict[str, bytes], server: Server, tmp_path: Path
) -> None:
    given, out = _upload(source, "s3://register/in"), "s3://register/kills"
    script = tmp_path / "batch.py"
    script.write_text(SCRIPT)
    recipes = Path(sys.modules["carry"].__file__ or "").parent
    environment = {**os.environ, "PYTHONPATH": f"{recipes}:{ROOT}", "OMP_NUM_THREADS": "1"}

    def start() -> subprocess.Popen[str]:
        line = [sys.executable, str(script), given, out]
        return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)

    def await_persons(process: subprocess.Popen[str], persons: int) -> None:
        assert process.stdout is not None
        if not any(int(line) >= persons for line in process.stdout):
            pytest.fail("the run ended before it could be killed")

    with start() as process:
        await_persons(process, 6)
        server.kill()
        time.sleep(3)
        assert process.poll() is None, "the run waits for the server"
        server.start()
        await_persons(process, 24)
        process.send_signal(signal.SIGKILL)
    assert MANIFEST not in _objects(out)
    with start() as process:
        await_persons(process, 36)
        server.kill()
        server.start()
        assert process.stdout is not None
        process.stdout.read()
        assert process.wait(100) == 0
    assert _objects(out) == local_files


@pytest.mark.s3
def test_shards_and_a_merge_on_a_store_name_what_is_missing_or_changed(
    source: Path, local_files: dict[str, bytes], server: Server
) -> None:
    given, out = _upload(source, "s3://register/in"), "s3://register/shards"
    assert server.process is not None

    def compute(*shards: int, recipe: Carry | None = None) -> None:
        for index in shards:
            shard = Shard(index, 3)
            score(given, out, recipe or Carry(), persons_per_partition=SIZE, shard=shard)

    with pytest.raises(UsageError, match="no scoring run"):
        merge_shards(out)
    compute(0, 2)
    with pytest.raises(UsageError, match=r"lacks 7 of 20 parts"):
        merge_shards(out)
    with pytest.raises(UsageError, match="another run: seed differ"):
        compute(1, recipe=Carry(seed=1))
    compute(1)
    obstore.put(_open(out), "part-00003.parquet", b"half")
    with pytest.raises(UsageError, match=r"lacks 1 of 20 parts, or they were changed"):
        merge_shards(out)
    compute(0)
    with ThreadPoolExecutor(2) as threads:  # no lock keeps out the second, which writes the same
        list(threads.map(merge_shards, [out, out]))
    assert _objects(out) == local_files
    with pytest.raises(UsageError, match="would be read as input next time"):
        score(given, f"{given}/out", Carry())


@pytest.mark.s3
def test_one_object_csv_and_a_register_are_read_as_from_a_folder(
    source: Path, server: Server, tmp_path: Path
) -> None:
    assert server.process is not None
    rows = pl.read_parquet(source / "*.parquet")
    rows.write_csv(tmp_path / "all.csv", separator=";")
    rows.write_ipc(tmp_path / "all.arrow")
    register = tmp_path / "register"
    (register / "panel").mkdir(parents=True)
    rows.write_parquet(register / "panel" / "all.parquet")
    (register / "register.json").write_text('{"register_id": "generated", "prices": 2022}')
    store = _open("s3://register")
    for path in (tmp_path / "all.csv", tmp_path / "all.arrow"):
        obstore.put(store, path.name, path)
    for path in (register / "panel" / "all.parquet", register / "register.json"):
        obstore.put(store, str(path.relative_to(tmp_path)), path)
    for name in ("all.csv", "all.arrow", "register", "register/panel"):
        near, far = Source(tmp_path / name), Source(f"s3://register/{name}")
        assert near.describe() == far.describe()
        assert far.columns() == near.columns()
        assert pl.concat(far.frames()).equals(pl.concat(near.frames()))
        assert far.persons().equals(near.persons())


@pytest.mark.s3
def test_a_missing_bucket_and_a_key_without_rights_are_errors(
    source: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = _upload(source, "s3://register/in")
    with pytest.raises(UsageError, match="NoSuchBucket"):
        score(source, "s3://absent/out", Carry())
    with pytest.raises(UsageError, match="NoSuchBucket"):
        score("s3://absent/in", "s3://register/none", Carry())
    with pytest.raises(InputError, match="no such object or folder"):
        score("s3://register/absent", "s3://register/none", Carry())
    obstore.put(_open("s3://register/thesis"), "thesis.docx", b"")
    with pytest.raises(UsageError, match=r"thesis\.docx, which no scoring run wrote"):
        score(given, "s3://register/thesis", Carry())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with pytest.raises(UsageError, match="the store refuses access"):
        score(source, "s3://register/refused", Carry())
    server.kill()
    with pytest.raises(UsageError, match=r"does not answer.*AWS_ENDPOINT_URL"):
        score(source, "s3://register/nobody", Carry())
    server.start()


@pytest.mark.s3
def test_a_store_that_does_not_come_back_ends_the_run_with_exit_code_3(
    source: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_PATIENCE", timedelta(seconds=2))

    def kill_server(_done: int, _persons: int) -> None:
        if server.process is not None and server.process.poll() is None:
            server.kill()

    with pytest.raises(StoreLostError, match="the same command again") as lost:
        score(source, "s3://register/lost", Carry(), progress=kill_server)
    assert lost.value.exit_code == 3
    server.start()


@pytest.mark.s3
@pytest.mark.usefixtures("server")
def test_tables_and_alignment_of_a_store_are_those_of_a_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    scored = write_scored(tmp_path / "scored", path_rows(rng.lognormal(12, 0.5, (120, 2, 4))))
    panel = tmp_path / "panel"
    panel.mkdir()
    pl.DataFrame({"person_id": [f"{i:04d}" for i in range(120)]}).with_columns(
        sex=pl.Series(["female", "male"] * 60), year=2022, birth_year=1980, earnings=1.0
    ).write_csv(panel / "2022.csv")
    places = {
        "folder": (str(scored), str(panel)),
        "store": (_upload(scored, "s3://register/scored"), _upload(panel, "s3://register/panel")),
    }
    targets = tmp_path / "targets.csv"
    targets.write_text("year,sex,total\n2023,female,15000000\n")

    def run(place: str, *more: str) -> Result:
        command, *options = more
        scored_at, panel_at = places[place]
        line = [command, scored_at, "--panel", panel_at, "--out", f"{tmp_path}/{place}-{command}"]
        return CliRunner().invoke(app, [*line, *options, "--json"])

    for place in places:
        assert run(place, "tables", "--by", "sex").exit_code == 0
        assert run(place, "align", "--targets", str(targets)).exit_code == 0
    for command, names in (
        ("tables", ("statistics.csv", "transitions.csv", "provenance.json")),
        ("align", (MANIFEST, "part-00000.parquet", "part-00001.parquet", "alignment.csv")),
    ):
        for name in names:
            of_store = (tmp_path / f"store-{command}" / name).read_bytes()
            assert of_store == (tmp_path / f"folder-{command}" / name).read_bytes()
    obstore.put(_open("s3://register/scored"), "part-00001.parquet", b"half")
    shutil.rmtree(tmp_path / "store-tables")
    changed = run("store", "tables", "--by", "sex")
    assert "part-00001.parquet is missing or was changed" in changed.stderr
    places["store"] = "s3://register/absent", str(panel)
    assert "no complete scoring run" in run("store", "tables", "--by", "sex").stderr


@pytest.mark.parametrize("url", ["ftp://host/out", "http://host/out", "s3://", "s3:///out"])
def test_a_wrong_url_is_an_error(source: Path, url: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be opened|is not the URL"):
        score(source, url, Carry())
    refused = CliRunner().invoke(app, ["score", url, "out"])
    assert refused.exit_code == 2


def test_a_file_url_is_a_path(source: Path, local_files: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "an out"
    score(source.as_uri(), out.as_uri(), Carry(), persons_per_partition=SIZE)
    paths = [path for path in out.rglob("*") if path.is_file() and path.name != "_lock"]
    assert {str(path.relative_to(out)): path.read_bytes() for path in paths} == local_files
