"""The state network: its training data look like a rollout, and planted dynamics are recovered."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.training.states.state_data import StateRecords, make_state_batch
from saga.training.states.state_fit import StateFitOptions, StateModule, fit_state_network

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.forecaster import Forecaster
from saga.requests import Draws
from saga.schema import MAX_AGE
from saga.states.codes import SOURCES
from saga.states.life_courses import ZeroRuns

# Planted: yearly probabilities to move from county 01 to 03, and back.
LEAVING, RETURNING = 0.30, 0.10
RICH = 250_000.0  # SEK; planted: persons above it work in industry 62, persons below in 47


@pytest.fixture(scope="module")
def records(tiny_bundle: Path, register_panel: Panel) -> StateRecords:
    return StateRecords.from_panel(register_panel, Forecaster.load(tiny_bundle))


def test_every_target_year_occurs_once(records: StateRecords, register_panel: Panel) -> None:
    batch = make_state_batch(
        records, np.arange(len(records.sequences)), 2022, np.random.default_rng(0)
    )
    frame = register_panel.frame.sort("person_id", "year")
    following = frame.select((pl.col("year").diff().over("person_id") == 1).sum()).item()
    end = int(frame["year"].to_numpy().max())
    exits = frame.group_by("person_id").agg(
        pl.col("exit_year", "exit_reason").last(), pl.col("year").max()
    )
    observed = exits.filter(pl.col("exit_year") == pl.col("year") + 1, pl.col("exit_year") <= end)
    died, emigrated = (
        observed.filter(pl.col("exit_reason") == reason).height for reason in ("dead", "emigrated")
    )
    assert died
    assert emigrated
    assert len(batch["person"]) == following + died + emigrated
    assert int((batch["dies"] == 1).sum()) == died
    assert int(batch["emigrates"].sum()) == emigrated
    assert bool(batch["zero_to_end"][batch["dies"] == 1].all()), "the path allows every death"
    assert int((batch["next_codes"] >= 0).any(1).sum()) == following


def test_runs_of_zeros_in_training_agree_with_those_in_a_rollout(records: StateRecords) -> None:
    """Oracle: a person's path, with zeros after a death, is counted as rollouts count it."""
    sequences, end = records.sequences, records.end
    whole = np.flatnonzero(
        [
            np.all(np.diff(sequences.year[a:b]) == 1) and (sequences.state[a:b] > 0).all()
            for a, b in itertools.pairwise(sequences.offsets.tolist())
        ]
    )
    dead = whole[sequences.dead_year[whole] > 0]
    chosen = np.concatenate([whole[:60], dead[:20]])
    batch = {
        name: value.numpy()
        for name, value in make_state_batch(
            records, chosen, 2022, np.random.default_rng(1), shortened=0.0
        ).items()
    }
    assert len(dead)
    for i, person in enumerate(chosen):
        rows = slice(*sequences.offsets[person : person + 2])
        born, died = int(sequences.birth_year[person]), int(sequences.dead_year[person])
        zero = (sequences.state[rows] == 1).tolist()
        zero += [True] * (min(end, born + MAX_AGE) - int(sequences.year[rows][-1]) if died else 0)
        ahead = ZeroRuns.of_paths(np.array(zero)[:, None])
        of_person = batch["person"] == i
        at = batch["age"][of_person] + 16 + born - int(sequences.year[rows][0])
        for name in ("zero_years", "years_left", "zero_to_end"):
            np.testing.assert_array_equal(
                batch[name][of_person], getattr(ahead, name)[at, 0], err_msg=name
            )


@pytest.fixture(scope="module")
def planted(register_panel: Panel) -> Panel:
    """The register with known moves between counties and industries that follow earnings."""
    frame = register_panel.frame.sort("person_id", "year")
    rng = np.random.default_rng(3)
    first = (frame["person_id"] != frame["person_id"].shift(1)).fill_null(True).to_numpy()
    u, county = rng.random(frame.height), np.zeros(frame.height, int)
    for row in range(frame.height):
        before = 0 if first[row] else county[row - 1]
        county[row] = (
            (u[row] < 0.5)
            if first[row]
            else (u[row] < LEAVING if before == 0 else u[row] >= RETURNING)
        )
    industry = (
        pl.when(pl.col("earnings") > RICH)
        .then(pl.lit("62"))
        .when(pl.col("earnings") > 0)
        .then(pl.lit("47"))
    )
    planted = frame.with_columns(
        pl.Series("county", np.where(county, "03", "01")), industry.alias("industry")
    )
    return Panel(planted.select(register_panel.frame.columns), register_panel.meta)


@pytest.mark.thorough
def test_planted_dynamics_are_recovered(tiny_bundle: Path, planted: Panel, tmp_path: Path) -> None:
    bundle = fit_state_network(
        tiny_bundle,
        planted,
        out=tmp_path / "fitted",
        options=StateFitOptions(width=32, steps=500),
        seed=1,
    )
    forecaster = Forecaster(bundle)
    test = planted.only(persons_of(planted, "test"))
    last = test.frame.group_by("person_id").agg(
        pl.col("year").max(), pl.col("exit_year").first(), born=pl.col("birth_year").first()
    )
    eligible = last.filter(
        pl.col("exit_year").is_null(), pl.col("born").is_between(1962, 2000), pl.col("year") == 2022
    )["person_id"]
    persons = test.only(eligible.sort().to_list()[:60])
    (block,) = forecaster.life_courses(persons, Draws(40))
    codes = bundle.transforms["codes"]["county"]
    county, industry = block.numbers["county"], block.numbers["industry"]
    resident = (county[:, 1:] > 0) & (county[:, :-1] > 0)
    first, other = codes.index("01") + 1, codes.index("03") + 1
    before, after = county[:, :-1][resident], county[:, 1:][resident]
    # Fitted on about 10,000 years in each county, a standard error of .005. The tolerance is
    # larger because the fit is not perfect.
    assert (after[before == first] == other).mean() == pytest.approx(LEAVING, abs=0.035)
    assert (after[before == other] == first).mean() == pytest.approx(RETURNING, abs=0.035)
    working = (block.paths.earnings > 0) & (industry > 0)
    rich = block.paths.earnings[working] > RICH
    codes = bundle.transforms["codes"]["industry"]
    expected = np.where(rich, codes.index("62") + 1, codes.index("47") + 1)
    assert (industry[working] == expected).mean() > 0.9, (
        "the industry follows the earnings of the same path and year"
    )


def test_columns_and_exits_without_observations_are_never_simulated(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    removed = ("county", *(name for name in SOURCES.values() if name != "earnings"))
    exits = ("exit_year", "exit_reason")
    frame = register_panel.frame.with_columns(
        pl.lit(None, register_panel.frame.schema[name]).alias(name) for name in (*removed, *exits)
    )
    poor = Panel(frame, register_panel.meta)
    options = StateFitOptions(width=8, steps=20, batch_persons=64)
    forecaster = Forecaster(
        fit_state_network(tiny_bundle, poor, out=tmp_path / "poor", options=options)
    )
    last = frame.group_by("person_id").agg(pl.col("year").max(), born=pl.col("birth_year").first())
    eligible = (
        last.filter(pl.col("year") == 2022, pl.col("born") > 1962)["person_id"].sort().to_list()
    )
    (block,) = forecaster.life_courses(poor.only(eligible[:20]), Draws(40))
    assert block.numbers["marital_status"].any()
    assert not block.numbers["county"].any()
    assert not block.numbers["state"].any(), "no employment state, no death and no emigration"


def test_another_panel_or_other_money_is_refused(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    meta = register_panel.meta
    for other, words in (
        ({"panel_id": "other"}, "split differently"),
        ({"price_year": 2015}, "of 2015"),
    ):
        panel = Panel(register_panel.frame, replace(meta, **other))
        with pytest.raises(UsageError, match=words):
            fit_state_network(tiny_bundle, panel, out=tmp_path / "fitted")


@pytest.mark.thorough
def test_a_stopped_run_resumes_to_the_same_weights(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, out = StateFitOptions(width=8, steps=220, batch_persons=16), tmp_path / "stopped"
    straight = fit_state_network(
        tiny_bundle, register_panel, out=tmp_path / "straight", options=options
    )
    step, count = StateModule.training_step, [0]

    def interrupted(self: StateModule, batch: object, index: int) -> object:
        count[0] += 1
        if count[0] == 150:
            raise KeyboardInterrupt
        return step(self, batch, index)  # type: ignore[arg-type]

    monkeypatch.setattr(StateModule, "training_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_state_network(tiny_bundle, register_panel, out=out, options=options)
    assert not out.exists()
    assert (out.with_name("stopped.circumstances.run") / "last.ckpt").is_file()
    resumed = fit_state_network(tiny_bundle, register_panel, out=out, options=options)
    assert count[0] < 150 + 220, "it started again from the beginning"
    assert resumed.circumstances is not None
    assert straight.circumstances is not None
    for name, tensor in straight.circumstances.items():
        assert tensor.equal(resumed.circumstances[name]), name
    assert not out.with_name("stopped.circumstances.run").exists()


def test_the_forecast_network_and_its_calibration_do_not_change(
    tiny_bundle: Path, living_bundle: Path
) -> None:
    before, after = Bundle.load(tiny_bundle), Bundle.load(living_bundle)
    assert after.model_digest == before.model_digest
    assert after.calibration_digest == before.calibration_digest
    assert before.digest in after.manifest["parents"]
