"""`saga vintages`: complete vintages stay, and what a bundle stores enters all group tables."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from saga.evaluation.vintages import VintageOptions, choose_cutoffs, make_vintages, store_vintages
from scipy.stats import norm, t

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.errors import InputError, UsageError
from saga.forecaster import Forecaster
from saga.population.group_forecast import forecast_groups
from saga.requests import Draws, PopulationRequest
from tests.command_line import answer, refusal
from tests.toy_training import TOY, make_panel

CUTOFF, LAST = 2013, 2016
OPTIONS = VintageOptions(config=TOY, folds=3, horizons=(1, 2), by=("age",), draws=Draws(20))


@pytest.fixture(scope="module")
def panel() -> Panel:
    return make_panel()


@pytest.fixture(scope="module")
def folder(panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vintage of 2013, made of three members of a toy network."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("vintages") / "v"
    make_vintages(panel, out, [CUTOFF], OPTIONS)
    return out


def test_cutoffs_have_years_before_and_outcomes_after(panel: Panel) -> None:
    assert (panel.frame["year"].min(), panel.frame["year"].max()) == (2005, LAST)
    assert choose_cutoffs(panel, 2, 1) == [2015]
    rows = pl.concat([panel.frame, panel.frame.with_columns(pl.col("year") + 12)])
    long = panel.with_frame(rows.sort("person_id", "year"))
    assert choose_cutoffs(long, 5, 3) == [2015, 2020, 2025]
    with pytest.raises(InputError, match="too few for a vintage"):
        choose_cutoffs(panel, 2, 3)


@pytest.mark.thorough
def test_every_person_of_the_folds_is_judged_by_outcomes_after_the_cutoff(
    panel: Panel, folder: Path
) -> None:
    errors = pl.read_parquet(folder / "vintages.parquet")
    everybody = errors.filter(statistic="mean", grouping="total").sort("horizon")
    assert everybody["horizon"].to_list() == [1, 2]
    assert min(everybody["persons"].to_list()) > 200  # nine in ten of 240
    bundle = Bundle.load(folder / str(CUTOFF) / "bundle")
    assert bundle.training_records.last_year == CUTOFF


@pytest.mark.thorough
def test_a_complete_vintage_is_not_made_again(
    panel: Panel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("saga.evaluation.vintages.train_folds", refuse)
    monkeypatch.setattr("saga.evaluation.vintages.judge_vintage", refuse)
    before = pl.read_parquet(folder / "vintages.parquet")
    assert make_vintages(panel, folder, [CUTOFF], OPTIONS).equals(before)
    with pytest.raises(UsageError, match="other settings: seed"):
        make_vintages(panel, folder, [CUTOFF], _with_seed(1))
    of_same_name = replace(OPTIONS, config=replace(TOY, clip=2.0))
    with pytest.raises(UsageError, match="other settings: config"):
        make_vintages(panel, folder, [CUTOFF], of_same_name)


def _with_seed(seed: int) -> VintageOptions:
    return VintageOptions(**{**vars(OPTIONS), "draws": Draws(20, seed)})


@pytest.fixture(scope="module")
def stored(panel: Panel, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The bundle of the vintage with three vintages in it, whose means missed by 30 %."""
    one = pl.read_parquet(folder / "vintages.parquet").with_columns(
        error=pl.when(pl.col("statistic") == "mean").then(0.3).otherwise(0.0),
        se=0.0,
        sd_economy=0.0,
    )
    errors = pl.concat(
        [one.with_columns(cutoff=pl.lit(year, pl.Int32)) for year in (2001, 2005, 2009)]
    )
    path = tmp_path_factory.mktemp("stored") / "b"
    shutil.copytree(folder / str(CUTOFF) / "bundle", path)
    before = Bundle.load(path)
    bundle = store_vintages(errors, path, panel.meta.panel_id, "saga vintages")
    assert bundle.model_digest == before.model_digest
    assert before.digest in bundle.manifest["parents"]
    return bundle


@pytest.mark.thorough
def test_group_tables_have_the_fourth_part_and_name_the_vintages(
    panel: Panel, stored: Bundle
) -> None:
    request, draws = PopulationRequest(by=("cohort",), until=LAST + 2, to_age=58), Draws(20)
    people = panel.only(panel.persons()[::2])
    with_error = forecast_groups(Forecaster(stored), people, request, draws)
    without = forecast_groups(Forecaster(replace(stored, vintages=None)), people, request, draws)
    assert str(with_error.provenance["vintages"]).startswith("3 vintages (2001-2009)")
    assert "vintages" not in without.provenance
    assert without.table["sd_model"].null_count() == without.table.height
    rows = with_error.table.filter(pl.col("year") == LAST + 1, ~pl.col("suppressed"))
    mean, total, gini = (rows.filter(statistic=name) for name in ("mean", "total", "gini"))
    # An error of .3 at 1 and 2 years ahead, drawn towards steady growth, with three vintages.
    growth = (0.3**2 + 0.3**2 / 2) / 2
    share = ((3 * 0.3**2 + 4 * growth) / 7) ** 0.5 * t.ppf(0.95, 3) / norm.ppf(0.95)
    assert (mean["sd_model"] / mean["value"]).to_list() == pytest.approx(
        [share] * mean.height, rel=0.01
    )
    assert (total["sd_model"] / total["value"]).to_list() == pytest.approx(
        [share] * mean.height, rel=0.01
    )
    assert gini["sd_model"].to_list() == [0.0] * gini.height
    narrow = without.table.filter(pl.col("year") == LAST + 1, statistic="mean")
    assert (mean["upper_90"] > narrow["upper_90"]).all()
    assert (mean["value"] == narrow["value"]).all()


@pytest.mark.thorough
def test_only_enough_vintages_of_the_same_panel_are_stored(panel: Panel, stored: Bundle) -> None:
    assert stored.vintages is not None
    one = stored.vintages.filter(cutoff=2001)
    with pytest.raises(UsageError, match="1 vintages say too little"):
        store_vintages(one, stored.path, panel.meta.panel_id, "")
    other = replace(panel, meta=replace(panel.meta, panel_id="other"))
    with pytest.raises(UsageError, match="was trained on the panel toy"):
        store_vintages(stored.vintages, stored.path, other.meta.panel_id, "")


@pytest.mark.thorough
def test_no_forecast_of_a_vintage_knows_a_later_record(
    panel: Panel, folder: Path, tmp_path: Path
) -> None:
    """With other outcomes, forecasts, bands and the rule are the same; only errors differ."""
    later = pl.col("year") > CUTOFF
    other = panel.frame.with_columns(
        earnings=pl.when(later).then(7 * pl.col("earnings")).otherwise(pl.col("earnings"))
    )
    changed = make_vintages(panel.with_frame(other), tmp_path / "v", [CUTOFF], OPTIONS)
    before = pl.read_parquet(folder / "vintages.parquet")
    known = ["horizon", "group", "statistic", "forecast", "lower_90", "upper_90", "rule"]
    assert changed.select(known).equals(before.select(known))
    means, others = (table.filter(statistic="mean")["outcome"] for table in (before, changed))
    assert others.to_list() == pytest.approx((7 * means).to_list(), rel=1e-3)


@pytest.mark.thorough
def test_the_command_makes_vintages_and_a_table_in_words(panel: Panel, tmp_path: Path) -> None:
    panel.frame.drop_nulls("earnings").write_parquet(tmp_path / "panel.parquet")
    (tmp_path / "toy.yaml").write_text(
        "model: {width: 8, layers: 1, heads: 1, bins: 8, head_width: 8}\n"
        "max_steps: 4\nvalidate_every: 2\nwarmup_steps: 1\nbatch_persons: 16\n"
    )
    command = (
        f"vintages --panel {tmp_path}/panel.parquet --prices 2022 --config {tmp_path}/toy.yaml"
    )
    command += f" --horizons 1 --cutoffs 2013 --by age --paths 20 --folds 3 --out {tmp_path}/v"
    report = answer(command)
    assert report["cutoffs"] == [2013]
    assert pl.read_parquet(tmp_path / "v" / "vintages.parquet").height == report["rows"]
    assert "records up to 2013" in (tmp_path / "v" / "vintages.md").read_text()
    assert "1 vintages say too little" in refusal(command, "--store", tmp_path / "v/2013/bundle")


@pytest.mark.thorough
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_a_stopped_command_goes_on_to_the_same_table(
    stop: signal.Signals, panel: Panel, tmp_path: Path
) -> None:
    """Stopped in the training of the second vintage: there is no table, and the first one stays."""
    panel.frame.drop_nulls("earnings").write_parquet(tmp_path / "panel.parquet")
    (tmp_path / "toy.yaml").write_text(
        "model: {width: 8, layers: 1, heads: 1, bins: 8, head_width: 8}\n"
        "max_steps: 40\nvalidate_every: 10\nwarmup_steps: 1\nbatch_persons: 16\n"
    )
    line = "vintages --panel panel.parquet --prices 2022 --config toy.yaml --horizons 1"
    line += " --cutoffs 2012,2013 --by age --paths 20 --out"
    program = [sys.executable, "-c", "from saga.cli import main; main()", *line.split()]
    subprocess.run([*program, "straight"], cwd=tmp_path, check=True, capture_output=True)
    # A process in the background of a shell ignores Ctrl-C, and its children do.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    started = subprocess.Popen([*program, "stopped"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    signal.signal(signal.SIGINT, before)
    out = tmp_path / "stopped"
    while not (out / "2013").exists() and started.poll() is None:
        time.sleep(0.02)
    started.send_signal(stop)
    assert started.wait(60) == (3 if stop == signal.SIGINT else -stop)
    assert not list(out.glob("vintages.*"))
    first = (out / "2012" / "errors.parquet").stat().st_mtime_ns
    subprocess.run([*program, "stopped"], cwd=tmp_path, check=True, capture_output=True)
    assert (out / "2012" / "errors.parquet").stat().st_mtime_ns == first
    for name in ("vintages.parquet", "vintages.md"):
        assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
