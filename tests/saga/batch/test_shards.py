"""Shards write the bytes of one run; a merge refuses anything that is missing or changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from carry import Carry

from saga.batch.engine import score
from saga.batch.run_folder import MANIFEST, SHARDS
from saga.batch.shards import Shard, merge_shards
from saga.data.reading import Source
from saga.errors import InputError, UsageError
from saga.files.atomic import file_lock, sole_writer
from tests.command_line import refusal
from tests.saga.batch.run_files import end_of, files_of, start_score, write_years

PERSONS, SIZE = 50, 4  # 13 partitions


def _years(folder: Path, *, broken: bool = False) -> Path:
    return write_years(folder, range(2001, 2005), n_persons=PERSONS, seed=4, broken=broken)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _years(tmp_path_factory.mktemp("shards") / "years")


@pytest.fixture(scope="module")
def one_run(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run without shards."""
    out = tmp_path_factory.mktemp("one") / "out"
    score(source, out, Carry(), persons_per_partition=SIZE)
    return files_of(out)


def _compute(
    source: Path | Source, out: Path, shards: Sequence[int], recipe: Carry | None = None
) -> None:
    for index in shards:
        score(source, out, recipe or Carry(), persons_per_partition=SIZE, shard=Shard(index, 3))


def test_shards_in_any_order_and_a_merge_give_the_bytes_of_one_run(
    source: Path, one_run: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _compute(source, out, [2, 0, 1])
    assert not (out / MANIFEST).exists()
    report = merge_shards(out)
    assert (report.partitions, report.persons_in) == (13, PERSONS)
    assert files_of(out) == one_run
    assert merge_shards(out).totals == report.totals, "a second merge changes nothing"
    assert files_of(out) == one_run


def test_a_shard_stages_its_own_persons_alone(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(RuntimeError, match="rows of partition"):
        score(source, out, Carry(fault="000"), persons_per_partition=SIZE, shard=Shard(0, 3))
    rows = pl.read_parquet(out / SHARDS / "0-of-3-staged" / "group-*" / "*.parquet")
    numbers = [int(person) // SIZE % 3 for person in rows["person_id"].cast(pl.String)]
    assert set(numbers) == {0}


@pytest.mark.thorough
def test_processes_at_the_same_time_one_killed_and_run_again(
    source: Path, one_run: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    start = partial(start_score, source, out, size=SIZE, seconds=0.1)
    processes = [start(shard=f"{index}/3") for index in range(3)]
    while not list(out.glob("_receipts/*.json")):
        assert processes[1].poll() is None
    with pytest.raises(UsageError, match="Another process is writing"):
        merge_shards(out)
    processes[1].kill()
    assert list(map(end_of, processes)) == [0, -9, 0]
    with pytest.raises(UsageError, match="with --shard 1/3 and"):
        merge_shards(out)
    assert end_of(start(shard="1/3")) == 0
    merge_shards(out)
    assert files_of(out) == one_run


def test_a_missing_shard_and_a_half_written_part_are_named(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _compute(source, out, [0, 1])
    with pytest.raises(UsageError, match=r"lacks 4 of 13 parts.*--shard 2/3 "):
        merge_shards(out)
    _compute(source, out, [2])
    part = out / "part-00003.parquet"
    part.write_bytes(part.read_bytes()[:-10])
    with pytest.raises(UsageError, match=r"lacks 1 of 13 parts, or they were changed.*0/3 "):
        merge_shards(out)
    _compute(source, out, [0])
    assert merge_shards(out).persons_in == PERSONS


def test_shards_of_another_number_complete_the_same_run(
    source: Path, one_run: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _compute(source, out, [0, 1])
    score(source, out, Carry(), persons_per_partition=SIZE, shard=Shard(0, 2))
    with pytest.raises(UsageError, match="Run `saga score` on it with the same arguments"):
        merge_shards(out)
    score(source, out, Carry(), persons_per_partition=SIZE)
    assert files_of(out) == one_run


def test_another_product_or_input_in_between_is_refused_and_nothing_is_lost(
    source: Path, one_run: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _compute(source, out, [0])
    with pytest.raises(UsageError, match="another run: seed differ"):
        _compute(source, out, [1], Carry(seed=1))
    with pytest.raises(UsageError, match="another run: on_error differ"):
        _compute(Source(source, on_error="drop"), out, [1])
    _compute(source, out, [1, 2])
    merge_shards(out)
    assert files_of(out) == one_run


def test_rows_staged_for_a_run_that_failed_at_bad_input_are_not_used(tmp_path: Path) -> None:
    out, broken = tmp_path / "out", _years(tmp_path / "broken", broken=True)
    with pytest.raises(InputError):
        score(broken, out, Carry(), persons_per_partition=PERSONS, shard=Shard(0, 3))
    fixed = _years(tmp_path / "fixed")
    score(fixed, out, Carry(), persons_per_partition=PERSONS, shard=Shard(0, 3))
    assert merge_shards(out).persons_out == PERSONS


def test_one_process_a_shard_and_one_merge(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _compute(source, out, [0, 1, 2])
    with (
        file_lock(out / SHARDS / "1-of-3.lock"),
        pytest.raises(UsageError, match="Another process"),
    ):
        _compute(source, out, [1])
    with sole_writer(out):
        with pytest.raises(UsageError, match="Another process"):
            merge_shards(out)
        with pytest.raises(UsageError, match="Another process"):
            _compute(source, out, [0])
    with pytest.raises(UsageError, match="no scoring run"):
        merge_shards(tmp_path / "absent")


@pytest.mark.parametrize("text", ["3/3", "1/0", "1", "a/b", "-1/3", "1/3/5"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"shard"):
        Shard.parse(text)


def test_merge_takes_no_other_argument(tmp_path: Path) -> None:
    assert "Leave --seed out" in refusal("score --merge", tmp_path, "--seed 3")
    assert "Name the INPUT" in refusal("score --shard 0/2")
