"""Files of a register: the same bytes from the same seed, and no incomplete register."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess

from saga.data.reading import read_panel
from saga.errors import UsageError
from saga.register import RegisterSettings, generate_register
from saga.register.simulation.economy import build_economy
from saga.register.simulation.parameters import Parameters
from tests.saga.register.register_files import digests

PERSONS, SEED = 12, 5
SETTINGS = RegisterSettings(persons=PERSONS, seed=SEED)
WITH_FUTURES = replace(SETTINGS, future_to=2040, future_draws=2)


@pytest.fixture(scope="module")
def register(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A register with two macro futures."""
    out = tmp_path_factory.mktemp("register") / "with-futures"
    generate_register(out, WITH_FUTURES)
    return out


@pytest.mark.thorough
def test_bytes_do_not_depend_on_the_number_of_workers(register: Path, tmp_path: Path) -> None:
    generate_register(tmp_path / "two", WITH_FUTURES, workers=2)
    assert digests(tmp_path / "two") == digests(register)


@pytest.mark.thorough
def test_panel_depends_on_the_seed_and_not_on_the_futures(register: Path, tmp_path: Path) -> None:
    for seed in (SEED, SEED + 1):
        generate_register(tmp_path / str(seed), replace(SETTINGS, seed=seed))
        same = digests(tmp_path / str(seed) / "panel") == digests(register / "panel")
        assert same == (seed == SEED)


def test_panel_can_be_read_by_its_contract(register: Path) -> None:
    panel = read_panel(register)
    rows = json.loads((register / "register.json").read_text())["rows"]
    assert panel.frame.height == rows
    assert panel.frame["person_id"].n_unique() == PERSONS


def test_futures_are_of_the_same_people_and_differ_between_draws(register: Path) -> None:
    latent = pl.read_parquet(register / "latent/**/*.parquet")
    draws = [
        pl.read_parquet(register / f"future/draw={k}/**/*.parquet", hive_partitioning=False)
        for k in range(2)
    ]
    for draw in draws:
        assert set(draw["person_id"]) == set(latent["person_id"])
        assert draw.select("person_id", "year").is_duplicated().sum() == 0
        assert draw["year"].min() == 2023
        assert (draw["year"] - draw["birth_year"]).to_numpy().max() <= 64
        after = draw.filter(pl.col("year") >= pl.col("exit_year"))
        assert (after.filter(pl.col("exit_reason") == "dead")["earnings"] == 0).all()
        emigrated = after.filter(pl.col("exit_reason") == "emigrated")
        assert emigrated["earnings"].null_count() == emigrated.height
    assert (draws[0]["earnings"] != draws[1]["earnings"]).drop_nulls().to_numpy().mean() > 0.5
    panel = pl.read_parquet(register / "panel/**/*.parquet", hive_partitioning=False)
    exited = set(panel.filter(pl.col("exit_year").is_not_null())["person_id"])
    assert not exited & set(latent["person_id"])
    macro = pl.read_parquet(register / "future/macro.parquet")
    assert macro.columns == ["draw", "year", "unemployment", "real_wage_growth", "inflation"]
    assert macro.height == 2 * (2040 - 2022)


def test_progress_counts_persons_and_a_failure_leaves_no_files(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        generate_register(tmp_path / "out", RegisterSettings(persons=3, seed=0), progress=stop)
    assert seen == [(1, 3)]
    assert list(tmp_path.iterdir()) == []


FUTURE: dict[str, Any] = {"future_to": 2040, "future_draws": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"persons": 0},
        {"seed": -1},
        {"first_year": 1989},
        {"last_year": 2023},
        {"first_year": 2010, "last_year": 2000},
        {"future_to": 2040},
        {"future_draws": 2},
        {"future_to": 2022, "future_draws": 1},
        {"future_to": 2100, "future_draws": 1},
        {"future_records": True},
        {**FUTURE, "future_records": True, "process": GaussianProcess()},
    ],
)
def test_settings_out_of_range_are_refused_before_any_work(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        generate_register(tmp_path / "out", replace(SETTINGS, **wrong))
    assert not (tmp_path / "out").exists()


def test_a_folder_with_files_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep")
    with pytest.raises(UsageError, match="exists already"):
        generate_register(tmp_path, SETTINGS)
    assert (tmp_path / "notes.txt").read_text() == "keep"


def test_hidden_state_is_saved_at_the_end_of_the_latent_years(
    register: Path, tmp_path: Path
) -> None:
    generate_register(tmp_path / "saved", replace(SETTINGS, latent_years=(2002, 2012)))
    folders = {path.name for path in (tmp_path / "saved" / "latent").iterdir()}
    assert folders == {"year=2002", "year=2012", "year=2022"}
    assert {path.name for path in (register / "latent").iterdir()} == {"year=2022"}
    for part in ("latent/year=2022", "panel"):
        assert digests(tmp_path / "saved" / part) == digests(register / part)
    panel = read_panel(register).frame
    files = tmp_path / "saved/latent/year=2002/**/*.parquet"
    state = pl.read_parquet(files, hive_partitioning=False)
    residents = panel.filter(pl.col("year") == 2002, pl.col("birth_year") > 2002 - 64)["person_id"]
    assert set(residents) <= set(state["person_id"])  # the state also has those abroad


@pytest.mark.thorough
def test_a_macro_draw_does_not_depend_on_the_number_of_draws(tmp_path: Path) -> None:
    one, fifty = (tmp_path / str(draws) / "future" for draws in (1, 50))
    for draws in (1, 50):
        settings = replace(SETTINGS, persons=4, future_to=2026, future_draws=draws)
        generate_register(tmp_path / str(draws), settings)
    assert digests(one / "draw=0") == digests(fifty / "draw=0")
    macro, macro_of_fifty = (pl.read_parquet(folder / "macro.parquet") for folder in (one, fifty))
    assert macro_of_fifty.filter(pl.col("draw") == 0).equals(macro)
    rates = macro_of_fifty.group_by("year").agg(pl.col("unemployment").n_unique())
    assert rates["unemployment"].to_list() == [50] * 4


@pytest.mark.thorough
def test_a_drawn_history_brings_its_own_macro_series(tmp_path: Path) -> None:
    generate_register(tmp_path / "drawn", replace(SETTINGS, history=3))
    generate_register(tmp_path / "sweden", SETTINGS)
    drawn, sweden = (read_panel(tmp_path / name) for name in ("drawn", "sweden"))
    economy = build_economy(1942, 2022, Parameters().economy, history=3)
    rows = drawn.meta.macro_rows
    assert sweden.meta.macro_rows is None
    assert rows is not None
    assert sorted(rows) == list(range(1990, 2023))
    assert [rows[2000][0], rows[2000][1]] == [economy[2000].unemployment, economy[2000].growth]
    assert drawn.meta.panel_id != sweden.meta.panel_id
    assert not drawn.frame["earnings"].equals(sweden.frame["earnings"])
