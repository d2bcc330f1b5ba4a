"""`saga.fit`: what the commands do, in one call, within a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.calibration.fit.bundle_calibration import calibrate_bundle
from saga.training.ensembles import train_folds
from saga.training.harness import TimeLimit

import saga
from saga import Bundle, Forecaster, InputError, UsageError, read_panel
from saga.data.facts import read_facts
from saga.data.origins import require_trainable
from saga.data.split import salt_beside, with_salt
from saga.files.atomic import sole_output
from tests.command_line import refusal
from tests.saga.data.test_facts import CPI_2026, office_file
from tests.toy_training import QUIET, make_panel

Columns = Mapping[str, Sequence[object]]
NAMES: dict[str, Any] = {"id": "pid", "time": "t", "target": "wage"}
CONFIG = """
model: {width: 8, layers: 1, heads: 1, bins: 8, head_width: 8}
batch_persons: 16
max_steps: 12
warmup_steps: 2
validate_every: 6
precision: 32-true
"""


@pytest.fixture(scope="module")
def columns() -> Columns:
    """120 simulated persons as a dictionary of columns with names of their own."""
    panel = make_panel()
    frame = panel.only(panel.persons()[::2]).frame
    frame = frame.select("person_id", "year", "birth_year", "earnings")
    renamed = frame.rename({"person_id": "pid", "year": "t", "earnings": "wage"})
    return renamed.to_dict(as_series=False)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "toy.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def fitted(columns: Columns, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Forecaster:
    out = tmp_path_factory.mktemp("fit") / "bundle"
    return saga.fit(columns, id="pid", time="t", target="wage", config=config, out=out)


@pytest.mark.parametrize(
    ("column", "argument"),
    [("pid", "id"), ("t", "time"), ("wage", "target"), ("birth_year", "birth_year")],
)
def test_a_missing_column_is_named_by_the_argument(
    columns: Columns, column: str, argument: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f'Or name it: {argument}="ITS_NAME"'):
        saga.fit({name: cells for name, cells in columns.items() if name != column}, **NAMES)
    with pytest.raises(InputError, match=r"looked for wag.*Is it wage"):
        saga.fit(columns, id="pid", time="t", target="wag")
    pl.DataFrame(columns).write_csv(tmp_path / "panel.csv")
    with pytest.raises(InputError, match=r'Is it wage\? .*name it: target="ITS_NAME"'):
        saga.fit(tmp_path / "panel.csv", id="pid", time="t", target="wag")


def test_a_panel_too_short_to_calibrate_is_refused_before_training(tmp_path: Path) -> None:
    """Before the libraries of training are loaded; three known years and one more are enough."""
    short: list[list[int | None]] = [[1, 1, 1], [1, 1, None, None], [None] * 4]
    files = [tmp_path / f"panel{k}.csv" for k in range(len(short))]
    for file, known in zip(files, short, strict=True):
        years = range(2000, 2000 + len(known))
        frame = pl.DataFrame({"person_id": "a", "birth_year": 1970, "year": years})
        frame.with_columns(earnings=pl.Series(known, dtype=pl.Float64)).write_csv(file)
        with pytest.raises(InputError, match="too short to train or calibrate on"):
            require_trainable(read_panel(file))
    script = (
        "import sys, saga\n"
        "for panel in sys.argv[1:]:\n"
        "    try: saga.fit(panel)\n"
        "    except saga.InputError as error: print(error, 'pytorch_lightning' in sys.modules)"
    )
    python = [sys.executable, "-c", script, *map(str, files)]
    printed = subprocess.run(python, capture_output=True, text=True, check=True).stdout
    refused = "a panel with 4 years of the same persons, or more. False"
    assert printed.count(refused) == len(short)
    longer = {"person_id": "a", "birth_year": 1970, "year": range(2000, 2004), "earnings": 100}
    require_trainable(read_panel(pl.DataFrame(longer)))


@pytest.mark.parametrize("earnings", [[7.5, 0.0, 11.25, 12.5], [0.25, None, 0.5, 0.5, 0.75]])
def test_logarithms_and_millions_are_refused_before_training(earnings: list[float]) -> None:
    years = range(2000, 2000 + len(earnings))
    rows = {"person_id": "a", "birth_year": 1970, "year": years, "earnings": earnings}
    with pytest.raises(InputError, match=r"below 20, as logarithms are.*earnings.*exponentials"):
        require_trainable(read_panel(pl.DataFrame(rows), prices=2022))


def test_a_refused_training_leaves_no_salt(tmp_path: Path) -> None:
    rows = {"person_id": ["a"], "birth_year": [1970], "year": [2000], "earnings": [300.0]}
    pl.DataFrame(rows).write_csv(tmp_path / "panel.csv")
    refused = refusal("train --panel", tmp_path / "panel.csv", "--out", tmp_path / "out")
    assert "too short to train" in refused
    assert [path.name for path in tmp_path.iterdir()] == ["panel.csv"]


def test_advice_about_a_mapping_says_how_python_gives_one(columns: Columns) -> None:
    """Where fit has no argument: codes, another currency, a panel without macro series."""
    sex = ["x"] * len(columns["pid"])
    with pytest.raises(InputError, match=r"read_panel\(rows, mapping=\.\.\.\)"):
        saga.fit({**columns, "sex": sex}, **NAMES)
    early = {name: (pl.Series(columns[name]) - 25).to_list() for name in ("t", "birth_year")}
    with pytest.raises(UsageError, match=r'read_panel\(rows, mapping={"macro": "none"}\)'):
        saga.fit({**columns, **early}, **NAMES)


@pytest.mark.thorough
@pytest.mark.slow
def test_fit_gives_the_bundle_of_train_and_calibrate(
    fitted: Forecaster, columns: Columns, config: Path, tmp_path: Path
) -> None:
    """With the same secret salt, without which no two trainings have the same split."""
    panel = read_panel(columns, **NAMES)
    panel = with_salt(panel, salt_beside(fitted.bundle.path))
    train_folds(panel, tmp_path / "b", 5, config=config, run=QUIET)
    bundle = calibrate_bundle(tmp_path / "b", panel)
    assert fitted.bundle.model_digest == bundle.model_digest
    assert fitted.bundle.calibration_digest == bundle.calibration_digest


@pytest.mark.thorough
@pytest.mark.slow
def test_a_fitted_forecaster_reads_the_names_that_it_was_told(
    fitted: Forecaster, columns: Columns
) -> None:
    table = fitted.forecast(columns, horizons=5).table
    assert set(table["horizon"]) == {5}
    with pytest.raises(UsageError, match='Leave id="pid" out'):
        saga.fit(fitted.panel(columns), id="pid")


@pytest.mark.thorough
def test_a_forecaster_reads_later_frames_as_the_first_or_refuses_them(
    fitted: Forecaster, columns: Columns, config: Path, tmp_path: Path
) -> None:
    """By the same names and price index; how a panel was read is not known, also after loading."""
    facts = read_facts(office_file(tmp_path, CPI_2026))
    later = {**columns, "t": [year + 12 for year in columns["t"]]}  # type: ignore[operator]
    later["birth_year"] = [year + 12 for year in columns["birth_year"]]  # type: ignore[operator]
    names = {"columns": {"person_id": "pid", "year": "t", "earnings": "wage"}}
    panel = read_panel(later, mapping=names, facts=facts)
    assert Forecaster(fitted.bundle, facts=facts).panel(later).frame.equals(panel.frame)
    assert not fitted.panel(later).frame.equals(panel.frame)
    of_panel = saga.fit(panel, config=config, time_limit=1e-3, out=tmp_path / "b")
    assert of_panel.facts is facts
    for forecaster in (of_panel, Forecaster.load(tmp_path / "b")):
        assert forecaster.panel(panel) is panel
        with pytest.raises(UsageError, match=r"fitted on a panel.*Give read_panel"):
            forecaster.forecast(later)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_leaderboard_ranks_the_bundle_among_its_rivals(fitted: Forecaster) -> None:
    board = fitted.leaderboard()
    assert set(board["model"]) == {"saga", "carry", "groupq", "gbt"}
    for _, of_horizon in board.group_by("horizon"):
        assert of_horizon["crps_log"].is_sorted()
    assert "left out" not in str(fitted)


@pytest.mark.thorough
@pytest.mark.slow
def test_amounts_below_the_floor_are_not_judged(columns: Columns, config: Path) -> None:
    thousands = {**columns, "wage": [w and w / 1000 for w in columns["wage"]]}  # type: ignore[operator]
    fitted = saga.fit(thousands, id="pid", time="t", target="wage", config=config)
    assert "judgement: Scores would have no meaning" in str(fitted)
    assert "`floor:`" in str(fitted)
    with pytest.raises(UsageError, match="not judged"):
        fitted.leaderboard()


@pytest.mark.thorough
@pytest.mark.slow
def test_what_a_time_limit_cuts_is_recorded(columns: Columns, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "short"
    saga.fit(columns, id="pid", time="t", target="wage", config=config, time_limit=1e-3, out=out)
    kept = Forecaster(Bundle.load(out))
    assert kept.bundle.metrics["training"]["by_member"][0]["steps"] == 1
    networks = "networks: stopped early, the first at step 1 of 12"
    assert f"{networks}; judgement: no time was left" in str(kept)
    with pytest.raises(UsageError, match="not judged"):
        kept.leaderboard()
    with pytest.raises(UsageError, match="time_limit is a number of seconds above 0"):
        saga.fit(columns, time_limit=0)


def test_a_part_that_is_cut_again_and_again_is_told_once() -> None:
    """Five networks stop at five steps; what a reader must know is one line."""
    limit = TimeLimit()
    for part in (limit.part(0.5), limit.part(0.2)):
        for step in (2, 5):
            part.leave_out("networks", f"stopped early, the first at step {step}")
    assert limit.left_out == {"networks": "stopped early, the first at step 2"}


def test_two_fits_do_not_write_to_one_folder(columns: Columns, tmp_path: Path) -> None:
    with sole_output(tmp_path / "b"), pytest.raises(UsageError, match=r"is writing .*b\. Wait"):
        saga.fit(columns, id="pid", time="t", target="wage", out=tmp_path / "b")
