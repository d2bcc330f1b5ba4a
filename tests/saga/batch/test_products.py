"""A batch has each person once, and the same bytes for any interruption, workers and files."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections.abc import Container, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from carry import Carry

from saga.batch import partitions
from saga.batch.engine import BatchInterruptedError, BatchRun, compute_locally, score
from saga.batch.products import Recipe
from saga.batch.run_folder import MANIFEST, REJECTED
from saga.bundle import shipped_bundle
from saga.data.panel import Panel
from saga.data.reading import Source, read_panel
from saga.errors import BundleError, InputError, UsageError
from saga.files import atomic
from saga.requests import Draws, ForecastRequest
from tests.command_line import answer, refusal
from tests.saga.batch.run_files import await_persons, files_of, start_score

PERSONS = 60
YEARS = range(2001, 2007)
WORKERS = pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])


def _rows() -> pl.DataFrame:
    """Persons "000" to "059" with gaps; two have no earnings and one is above 64."""
    rng = np.random.default_rng(1)
    person, year = (
        grid.ravel() for grid in np.meshgrid(np.arange(PERSONS), np.array(YEARS), indexing="ij")
    )
    frame = pl.DataFrame(
        {
            "person_id": [f"{i:03d}" for i in person],
            "year": year,
            "birth_year": np.where(person == 7, 1920, 1960 + person % 20),
            "earnings": rng.lognormal(12, 1, len(person)),
        }
    ).with_columns(earnings=pl.when(~pl.col("person_id").is_in(["020", "041"])).then("earnings"))
    # Every person has a row in the last year, so that all are in the input.
    return frame.filter(pl.Series(rng.random(len(person)) < 0.8) | (pl.col("year") == YEARS[-1]))


def _write_years(rows: pl.DataFrame, folder: Path) -> Path:
    """One CSV file per year, with the rows in random order."""
    folder.mkdir()
    for (year,), part in rows.partition_by("year", as_dict=True).items():
        part.sample(fraction=1.0, shuffle=True, seed=year).write_csv(folder / f"y{year}.csv")
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write_years(_rows(), tmp_path_factory.mktemp("scoring") / "years")


@pytest.fixture(scope="module")
def truth(source: Path) -> pl.DataFrame:
    return _computed_at_once(read_panel(source))


def _computed_at_once(panel: Panel) -> pl.DataFrame:
    """The product of the whole panel, without the engine."""
    product = Carry().open()
    return product.compute(_without(panel, product.ineligible(panel))).table


def _without(panel: Panel, persons: Container[str]) -> Panel:
    return panel.only([person for person in panel.persons() if person not in persons])


def _read(out: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(part) for part in sorted(out.glob("*.parquet"))])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_rows_equal_those_of_the_whole_panel_for_any_partition_size(
    source: Path, truth: pl.DataFrame, tmp_path: Path, size: int
) -> None:
    report = score(source, tmp_path / "out", Carry(), persons_per_partition=size)
    assert _read(tmp_path / "out").equals(truth)
    assert (report.partitions, report.rows) == (-(-PERSONS // size), truth.height)


@pytest.mark.parametrize("size", [1, 3])
def test_the_partitions_done_first_are_spread_over_all_ids(
    source: Path, tmp_path: Path, size: int
) -> None:
    """Ids often follow the year of birth: done in their order, the oldest would tell the pace."""
    order: list[int] = []

    def engine(run: BatchRun, pending: Sequence[int], workers: int | None) -> Iterator[Any]:
        order.extend(pending)
        return compute_locally(run, pending, workers)

    report = score(source, tmp_path / "out", Carry(), persons_per_partition=size, engine=engine)
    assert sorted(order) == list(range(report.partitions))
    for done in range(3, report.partitions):
        assert abs(np.mean(order[:done]) / (report.partitions - 1) - 0.5) < 0.15


@pytest.mark.thorough
def test_two_processes_write_the_same_bytes_as_one(source: Path, tmp_path: Path) -> None:
    score(source, tmp_path / "one", Carry(), persons_per_partition=9)
    score(source, tmp_path / "two", Carry(), persons_per_partition=9, workers=2)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_every_person_is_forecast_or_listed_with_the_rule(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = score(source, out, Carry(), persons_per_partition=9)
    assert report.rejected == {"no-earnings": 2, "no-usable-row": 1}
    assert report.rows_excluded.keys() == {"age-range"}
    assert (report.persons_in, report.persons_out) == (PERSONS, PERSONS - 3)
    listed = pl.read_csv(out / REJECTED, infer_schema=False)
    assert sorted(listed.rows()) == [
        ("007", "no-usable-row"),
        ("020", "no-earnings"),
        ("041", "no-earnings"),
    ]
    assert set(_read(out)["person_id"]) | set(listed["person_id"]) == {
        f"{i:03d}" for i in range(PERSONS)
    }
    totals = (atomic.read_json(out / MANIFEST) or {})["totals"]
    assert totals["rejected"] == report.rejected
    assert not list(out.glob("_staged*"))


def test_a_product_that_loses_a_person_is_an_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="are not those of its persons"):
        score(source, tmp_path / "out", Carry(fault="030"))


class Killed(BaseException):
    """Stands for the end of the process; `except Exception` does not catch it."""


def _die_at(monkeypatch: pytest.MonkeyPatch, call: int, *, after: bool) -> None:
    """The process ends at the `call`-th rename, just before or just after it takes effect."""
    replace, calls = Path.replace, iter(range(10_000))

    def fatal(self: Path, target: Path) -> Path:
        if next(calls) != call:
            return replace(self, target)
        if after:
            replace(self, target)
        raise Killed

    monkeypatch.setattr(Path, "replace", fatal)


def _crash_points() -> Iterator[tuple[int, bool]]:
    # One rename for each of: the run, the staged file of each year and their end, the list of
    # rejected persons and the manifest; two for each partition.
    return ((call, after) for call in range(1 + 2 + 1 + 2 * 3 + 2) for after in (False, True))


def test_a_crash_at_any_commit_neither_loses_nor_repeats_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _write_years(_rows().filter(pl.col("year") >= YEARS[-2]), tmp_path / "years")
    monkeypatch.setattr(partitions, "_ROWS_TOGETHER", 1)  # each year is staged by itself
    score(source, tmp_path / "whole", Carry(), persons_per_partition=20)
    expected, deaths = files_of(tmp_path / "whole"), 0
    for call, after in _crash_points():
        out = tmp_path / f"{call}-{after}"
        with monkeypatch.context() as patch:
            _die_at(patch, call, after=after)
            try:
                score(source, out, Carry(), persons_per_partition=20)
            except Killed:
                deaths += 1
                (out / ".part-00000.parquet.1.tmp").write_bytes(
                    b"half a file, as SIGKILL leaves it"
                )
        score(source, out, Carry(), persons_per_partition=20)
        assert files_of(out) == expected, f"after a death at rename {call}"
    assert deaths == len(list(_crash_points())), (
        "the process must end at every point, or the last commits are not covered"
    )


def test_a_disk_that_becomes_full_leaves_no_half_file_and_the_run_continues(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(source, tmp_path / "whole", Carry(), persons_per_partition=20)
    out, write = tmp_path / "out", Path.write_bytes

    def fill(path: Path, data: bytes) -> int:
        if "part-00000.parquet" in path.name:  # partition 1 is computed before it
            write(path, data[: len(data) // 2])
            write(Path("/dev/full"), data)  # the error of the system, which has no name of a file
        return write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fill)
        with pytest.raises(OSError, match="No space left"):
            score(source, out, Carry(), persons_per_partition=20, workers=1)
    assert not list(out.glob(".*.tmp"))
    assert not (out / "part-00000.parquet").exists()
    assert score(source, out, Carry(), persons_per_partition=20).resumed == 1
    assert files_of(out) == files_of(tmp_path / "whole")


@pytest.mark.thorough
def test_a_run_that_is_killed_at_random_moments_continues_where_it_stopped(
    source: Path, tmp_path: Path
) -> None:
    out, moments = tmp_path / "out", random.Random(3)
    score(source, tmp_path / "whole", Carry(), persons_per_partition=3)
    for workers, stop, persons in (
        (1, signal.SIGKILL, 6),
        (2, signal.SIGKILL, 15),
        (1, signal.SIGINT, 27),
        (2, signal.SIGTERM, 36),
    ):
        with start_score(source, out, size=3, seconds=0.2, workers=workers) as process:
            await_persons(process, persons)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0.0, 0.15))
            process.send_signal(stop)
            assert process.wait(10) == (-9 if stop == signal.SIGKILL else 3)
        assert not (out / MANIFEST).exists()
    report = score(source, out, Carry(), persons_per_partition=3)
    assert 36 // 3 <= report.resumed < report.partitions
    assert files_of(out) == files_of(tmp_path / "whole")


def test_ctrl_c_ends_the_run_with_exit_code_3_and_complete_partitions_stay(
    source: Path, tmp_path: Path
) -> None:
    def stop_at_half(done: int, persons: int) -> None:
        if done >= persons / 2:
            raise KeyboardInterrupt

    one_by_one = partial(score, source, tmp_path / "out", Carry(), persons_per_partition=10)
    with pytest.raises(BatchInterruptedError, match="3 partitions are complete") as stopped:
        one_by_one(workers=1, progress=stop_at_half)
    assert stopped.value.exit_code == 3
    assert one_by_one().resumed == 3


def test_a_part_that_was_changed_or_lost_is_computed_again(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    score(source, out, Carry(), persons_per_partition=10)
    expected = files_of(out)
    (out / "part-00001.parquet").write_bytes(b"changed")
    (out / "part-00004.parquet").unlink()
    assert score(source, out, Carry(), persons_per_partition=10).resumed == 4
    assert files_of(out) == expected


def test_other_arguments_or_another_input_need_another_folder(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    score(source, out, Carry(), persons_per_partition=10)
    with pytest.raises(UsageError, match="another run: seed differ"):
        score(source, out, Carry(seed=1), persons_per_partition=10)
    with pytest.raises(UsageError, match="on_error, persons_per_partition differ"):
        score(Source(source, on_error="drop"), out, Carry(), persons_per_partition=11)
    changed = _write_years(_rows().with_columns(pl.col("earnings") * 2), tmp_path / "changed")
    with pytest.raises(UsageError, match="another run: files differ"):
        score(changed, out, Carry(), persons_per_partition=10)


def test_a_folder_with_other_files_and_a_folder_in_use_are_refused(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with atomic.sole_writer(out), pytest.raises(UsageError, match="Another process is writing"):
        score(source, out, Carry())
    (out / "thesis.docx").touch()
    with pytest.raises(UsageError, match=r"thesis\.docx"):
        score(source, out, Carry())


@WORKERS
def test_broken_rows_fail_the_run_or_are_dropped_and_counted(tmp_path: Path, workers: int) -> None:
    rows = _rows().with_columns(
        earnings=pl.when((pl.col("person_id") == "033") & (pl.col("year") == 2006))
        .then(-1.0)
        .otherwise("earnings")
    )
    source = _write_years(rows, tmp_path / "years")
    with pytest.raises(InputError) as broken:
        score(source, tmp_path / "strict", Carry(), persons_per_partition=10, workers=workers)
    assert [(p.person_id, p.year, p.column) for p in broken.value.problems] == [
        ("033", 2006, "earnings")
    ]
    report = score(
        Source(source, on_error="drop"), tmp_path / "lenient", Carry(), persons_per_partition=10
    )
    assert sum(report.rows_dropped.values()) == 1


@WORKERS
def test_an_error_in_opening_the_product_is_raised_unchanged(
    source: Path, tmp_path: Path, workers: int
) -> None:
    with pytest.raises(BundleError, match="no bundle"):
        score(source, tmp_path, Carry(fault="open"), persons_per_partition=10, workers=workers)


def test_mapped_files_with_their_own_columns_types_and_price_index(tmp_path: Path) -> None:
    """Ids are numbers or text, one column is in one file, the price index is beside the data."""
    rows = (
        _rows()
        .with_columns(pl.col("person_id").cast(pl.Int64))
        .rename({"person_id": "ID", "earnings": "WAGE"})
    )
    folder = tmp_path / "data"
    folder.mkdir()
    rows.filter(pl.col("year") <= 2003).write_parquet(folder / "early.parquet")
    late = rows.filter(pl.col("year") > 2003).with_columns(
        pl.col("ID").cast(pl.String), SEX=pl.lit("f")
    )
    late.write_parquet(folder / "late.parquet")
    pl.DataFrame({"year": YEARS, "cpi": np.linspace(100, 110, len(YEARS))}).write_csv(
        folder / "cpi.csv"
    )
    mapping = tmp_path / "country.yaml"
    mapping.write_text(
        "columns: {person_id: ID, earnings: WAGE, sex: SEX}\ncodes: {sex: {f: female}}\n"
        "currency: USD\nmacro: none\nfloor: none\ndeflator: {file: cpi.csv, base_year: 2006}\n"
    )
    score(Source(folder, mapping), tmp_path / "out", Carry(), persons_per_partition=8)
    whole = read_panel(folder, mapping=mapping)
    assert _read(tmp_path / "out").equals(_computed_at_once(whole))


@pytest.fixture(scope="module")
def people(register_panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fourteen persons of the register as a file, in real money; not all can be forecast."""
    persons = register_panel.persons()[::140]
    folder = tmp_path_factory.mktemp("people")
    register_panel.only(persons).frame.write_parquet(folder / "people.parquet")
    return folder


def test_after_a_full_disk_another_bundle_is_refused_and_the_same_command_continues(
    tiny_bundle: Path, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, out, write = tmp_path / "bundle", tmp_path / "out", Path.write_bytes
    shutil.copytree(tiny_bundle, bundle)
    options = f"--bundle {bundle} --horizons 1 --persons-per-partition 5 --workers 1"
    line = ("score", people, out, options)

    def fill(path: Path, data: bytes) -> int:
        return write(Path("/dev/full") if "part-00002.parquet" in path.name else path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fill)
        assert "The disk is full" in refusal(*line)
    shutil.rmtree(bundle)
    shutil.copytree(shipped_bundle("small"), bundle)
    for more in ("", "--shard 1/2"):
        assert "another run: bundle differ" in refusal(*line, more)
    shutil.rmtree(bundle)
    shutil.copytree(tiny_bundle, bundle)
    assert answer(*line)["resumed"] == 2


def test_a_bundle_that_is_replaced_while_workers_start_is_refused(
    tiny_bundle: Path, people: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)

    def replace_bundle(_done: int, _persons: int) -> None:
        shutil.rmtree(bundle)
        shutil.copytree(shipped_bundle("small"), bundle)

    recipe = Recipe(bundle, ForecastRequest(horizons=(1,)))
    with pytest.raises(UsageError, match="another run: bundle differ"):
        score(people, tmp_path / "out", recipe, progress=replace_bundle)
    assert not list((tmp_path / "out").glob("part-*"))


@WORKERS
@pytest.mark.parametrize("changed", ["scenario", "facts"])
def test_a_file_that_changes_during_a_run_changes_no_part(
    changed: str, workers: int, people: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    """Neither before the workers start nor between two partitions."""
    scenario, facts = tmp_path / "scenario.csv", tmp_path / "facts.csv"
    recipe = Recipe(tiny_bundle, ForecastRequest((1, 2)), Draws(25, scenario=scenario), None, facts)

    def write(growth: float, index: float) -> None:
        rows = [f"{year},.08,{growth},.02\n" for year in range(2015, 2030)]
        scenario.write_text(
            "".join(["year,unemployment,real_wage_growth,inflation\n", *rows]), encoding="utf-8"
        )
        facts.write_text(
            "series,year,value,unit,mark,source\n"
            f"consumer_price_index,2025,{index},1980 = 100,V,office\n"
        )

    def change(_done: int, _all: int) -> None:
        write(*{"scenario": (-0.05, 430.0), "facts": (0.03, 470.0)}[changed])

    for folder, progress in (("whole", None), ("changed", change)):
        write(0.03, 430.0)
        score(
            people,
            tmp_path / folder,
            recipe,
            workers=workers,
            persons_per_partition=12,
            progress=progress,
        )
    assert _read(tmp_path / "changed").equals(_read(tmp_path / "whole"))
