"""A batch in an object store has the bytes of a local one, whatever is killed; errors help."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import obstore
import polars as pl
import pytest
from carry import Carry
from object_servers import PYTHON, ObjectServer
from obstore.store import from_url
from scored_folder import path_rows, write_scored

from saga.batch.engine import score
from saga.batch.run_folder import MANIFEST
from saga.batch.shards import Shard, merge_shards
from saga.data.reading import Source
from saga.errors import InputError, UsageError
from saga.files import object_store
from saga.files.object_store import ObjectFolder, StoreLostError
from tests.command_line import done, refusal
from tests.saga.batch.run_files import await_persons, end_of, files_of, start_score, write_years

PERSONS, SIZE = 60, 3


@pytest.fixture(scope="module")
def server(free_port: Callable[[], int]) -> Iterator[ObjectServer]:
    """One server for all tests, because clients keep the connections of a URL.

    The environment changes only before the first test and after the last: threads of the clients
    read it, and a change at that moment ends the process.
    """
    if not PYTHON.exists():
        pytest.skip("there is no object store; `make build/store-tools` installs one")
    started = ObjectServer.at(free_port())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in started.environment.items():
            patch.setenv(name, value)
        yield started
    started.end()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "years"
    return write_years(folder, range(2001, 2005), n_persons=PERSONS, seed=4, suffix=".parquet")


@pytest.fixture(scope="module")
def local_files(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("local") / "out"
    score(source, out, Carry(), persons_per_partition=SIZE)
    return files_of(out, lock=False)


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


@pytest.mark.thorough
def test_a_killed_server_and_a_killed_run_leave_the_bytes_of_a_local_run(
    source: Path, local_files: dict[str, bytes], server: ObjectServer
) -> None:
    given, out = _upload(source, server.url("in")), server.url("kills")
    start = partial(start_score, given, out, size=SIZE, seconds=0.2, workers=2)
    with start() as process:
        await_persons(process, 6)
        server.stop()
        time.sleep(3)
        assert process.poll() is None, "the run waits for the server"
        server.start()
        await_persons(process, 24)
        process.send_signal(signal.SIGKILL)
    assert MANIFEST not in _objects(out)
    with start() as process:
        await_persons(process, 36)
        server.stop()
        server.start()
        assert end_of(process) == 0
    assert _objects(out) == local_files


@pytest.mark.parametrize(
    "name",
    [
        "run[1]",
        "one #1",
        "p%41",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("a*b", "who?", "p%20q", "år b")
        ),
    ],
)
def test_a_folder_of_a_store_has_the_name_that_its_url_says(
    source: Path, local_files: dict[str, bytes], server: ObjectServer, name: str
) -> None:
    bucket = ObjectFolder(server.url(""))
    for file in source.iterdir():
        bucket.put(f"{name}/in/{name} {file.name}", file.read_bytes())
    out = f"{server.url('')}/{name}/out"
    score(f"{server.url('')}/{name}/in", out, Carry(), persons_per_partition=SIZE)
    names = {entry.removeprefix(f"{name}/out/") for entry in bucket.files() if "/out/" in entry}
    parts = [entry for entry in local_files if entry.endswith(".parquet")]
    assert set(parts) < names
    assert all(bucket.read(f"{name}/out/{part}") == local_files[part] for part in parts)
    bucket.remove(name)


def test_shards_and_a_merge_on_a_store_name_what_is_missing_or_changed(
    source: Path, local_files: dict[str, bytes], server: ObjectServer
) -> None:
    given, out = _upload(source, server.url("in")), server.url("shards")

    def compute(*shards: int) -> None:
        for index in shards:
            score(given, out, Carry(), persons_per_partition=SIZE, shard=Shard(index, 3))

    compute(0, 2)
    with pytest.raises(UsageError, match=r"lacks 7 of 20 parts"):
        merge_shards(out)
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


def test_two_runs_that_begin_at_once_are_one(server: ObjectServer) -> None:
    """Each of them asks for the run of the folder and finds none; the second one must not win."""
    folder = ObjectFolder.open(server.url("begun"))
    for content in (b"first", b"second"):
        folder.create("_run.json", content)
    assert folder.read("_run.json") == b"first"


def test_one_object_csv_and_a_register_are_read_as_from_a_folder(
    source: Path, server: ObjectServer, tmp_path: Path
) -> None:
    rows = pl.read_parquet(source / "*.parquet")
    rows.write_csv(tmp_path / "all.csv", separator=";")
    rows.write_ipc(tmp_path / "all.arrow")
    register = tmp_path / "register"
    (register / "panel").mkdir(parents=True)
    rows.write_parquet(register / "panel" / "all.parquet")
    (register / "register.json").write_text('{"register_id": "generated", "prices": 2022}')
    store = _open(server.url())
    for path in (tmp_path / "all.csv", tmp_path / "all.arrow"):
        obstore.put(store, path.name, path)
    for path in (register / "panel" / "all.parquet", register / "register.json"):
        obstore.put(store, str(path.relative_to(tmp_path)), path)
    for name in ("all.csv", "all.arrow", "register", "register/panel"):
        near, far = Source(tmp_path / name), Source(server.url(name))
        assert near.describe() == far.describe()
        assert pl.concat(far.blocks()).equals(pl.concat(near.blocks()))
        assert far.persons().equals(near.persons())


@pytest.mark.thorough
def test_a_missing_bucket_a_foreign_folder_and_a_stopped_server_are_errors(
    source: Path, server: ObjectServer
) -> None:
    given = _upload(source, "s3://register/in")
    with pytest.raises(UsageError, match=r"://absent/out does not exist.*Check the bucket"):
        score(source, "s3://absent/out", Carry())
    with pytest.raises(UsageError, match=r"://absent/in does not exist.*NoSuchBucket"):
        score("s3://absent/in", "s3://register/none", Carry())
    with pytest.raises(InputError, match="no such file or folder"):
        score("s3://register/absent", "s3://register/none", Carry())
    obstore.put(_open("s3://register/thesis"), "thesis.docx", b"")
    with pytest.raises(UsageError, match=r"thesis\.docx, which no scoring run wrote"):
        score(given, "s3://register/thesis", Carry())
    server.stop()
    with pytest.raises(UsageError, match=r"does not answer.*AWS_ENDPOINT_URL"):
        score(source, "s3://register/nobody", Carry())
    server.start()


def test_a_store_that_does_not_come_back_ends_the_run_with_exit_code_3(
    source: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_PATIENCE", timedelta(seconds=2))

    def stop_server(_done: int, _persons: int) -> None:
        if server.runs:
            server.stop()

    with pytest.raises(StoreLostError, match="the same command again") as lost:
        score(source, server.url("lost"), Carry(), progress=stop_server)
    assert lost.value.exit_code == 3
    server.start()


def _write_population(folder: Path) -> Path:
    """A scored run, and the panel, weights and targets of its persons, in one folder."""
    rng = np.random.default_rng(5)
    write_scored(folder / "scored", path_rows(rng.lognormal(12, 0.5, (120, 2, 4))))
    persons = pl.DataFrame({"person_id": [f"{i:04d}" for i in range(120)]})
    (folder / "panel").mkdir()
    persons.with_columns(
        sex=pl.Series(["female", "male"] * 60), year=2022, birth_year=1980, earnings=1.0
    ).write_csv(folder / "panel" / "2022.csv")
    persons.with_columns(weight=pl.Series([1.0, 2.0, 3.0] * 40)).write_csv(folder / "weights.csv")
    (folder / "targets.csv").write_text("year,sex,total\n2023,female,30000000\n")
    return folder


def _population(command: str, place: str, out: str) -> str:
    """A line of `saga tables` or `saga align` with all its files at a place."""
    line = f"{command} {place}/scored --panel {place}/panel --out {out}"
    own = "--by sex" if command == "tables" else f"--targets {place}/targets.csv"
    return f"{line} --weights {place}/weights.csv {own}"


def test_tables_and_alignment_from_and_to_a_store_are_those_of_a_folder(
    server: ObjectServer, tmp_path: Path
) -> None:
    near, far = _write_population(tmp_path / "population"), server.url("population")
    for path in near.rglob("*.*"):
        obstore.put(_open(far), str(path.relative_to(near)), path)
    for command, method in (("tables", ""), ("align", "adjust"), ("align", "weights")):
        out, more = f"{command}{method}", f"--method {method}" if method else ""
        done(_population(command, str(near), str(tmp_path / out)), more)
        done(_population(command, far, server.url(out)), more)
        written = _objects(server.url(out))
        assert {path.name for path in (tmp_path / out).iterdir()} == set(written)
        for name, content in written.items():
            if name != "tables.xlsx":  # has the time of its making
                assert content == (tmp_path / out / name).read_bytes(), name
    assert "is not empty" in refusal(_population("tables", far, server.url("tables")))


def test_tables_and_alignment_with_a_wrong_file_of_a_store_leave_nothing(
    server: ObjectServer, tmp_path: Path
) -> None:
    near, far = _write_population(tmp_path / "population"), server.url("population")
    for path in near.rglob("*.*"):
        obstore.put(_open(far), str(path.relative_to(near)), path)
    out = server.url("out")

    def refused(command: str, *options: str) -> str:
        told = refusal(_population(command, far, out), options)
        assert not _objects(out)
        return told

    assert "There is no file s3://register/absent.csv" in refused(
        "align", "--targets", "s3://register/absent.csv"
    )
    assert "There is no file s3://register/absent.csv" in refused(
        "tables", "--weights", "s3://register/absent.csv"
    )
    assert "NoSuchBucket" in refused("tables", "--out", "s3://absent/out")
    obstore.put(_open(far), "few.csv", b"person_id,weight\n0000,1\n")
    assert "does not have persons" in refused("tables", "--weights", f"{far}/few.csv")
    obstore.put(_open(far), "much.csv", b"year,total\n2023,1\n2024,1e12\n")
    impossible = "--targets", f"{far}/much.csv", "--method", "weights"
    assert "No weights of these persons" in refused("align", *impossible)
    obstore.put(_open(f"{far}/scored"), "part-00001.parquet", b"half")
    assert "part-00001.parquet is missing or was changed" in refused("tables")
    obstore.delete(_open(f"{far}/scored"), MANIFEST)
    assert "no complete scoring run" in refused("tables")


@pytest.mark.parametrize("url", ["ftp://host/out", "http://host/out", "s3://", "s3:///out"])
def test_a_wrong_url_is_an_error(source: Path, url: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be opened|is not the URL"):
        score(source, url, Carry())
    refusal("score", url, "out")


def test_a_file_url_is_a_path(source: Path, local_files: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "an out"
    score(source.as_uri(), out.as_uri(), Carry(), persons_per_partition=SIZE)
    assert files_of(out, lock=False) == local_files
