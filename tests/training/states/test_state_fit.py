"""The law of circumstances: learnt from questions that are asked once, as a path would ask them; known laws are found again."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.forecaster import Forecaster
from saga.requests import Draws
from saga.schema import MAX_AGE
from saga.states.life_courses import ZeroRuns
from training.states.state_fit import (
    CircumstancesModule,
    Lives,
    StateFitOptions,
    fit_state_network,
    make_batch,
)

LEAVING, RETURNING = 0.30, 0.10  # planted: a year's chance to move from county 01 to 03, and back
RICH = 250_000.0  # planted: who earns more works in industry 62, who earns less in 47


@pytest.fixture(scope="module")
def lives(tiny_bundle: Path, register_panel: Panel) -> Lives:
    return Lives.of(register_panel, Forecaster.load(tiny_bundle))


def test_every_year_is_asked_about_once(lives: Lives, register_panel: Panel) -> None:
    batch = make_batch(lives, np.arange(len(lives.sequences)), 2022, np.random.default_rng(0))
    frame = register_panel.frame.sort("person_id", "year")
    following = frame.select((pl.col("year").diff().over("person_id") == 1).sum()).item()
    end = int(frame["year"].max())
    exits = frame.group_by("person_id").agg(
        pl.col("exit_year", "exit_reason").last(), pl.col("year").max()
    )
    seen = exits.filter(pl.col("exit_year") == pl.col("year") + 1, pl.col("exit_year") <= end)
    died, left = (
        seen.filter(pl.col("exit_reason") == reason).height for reason in ("dead", "emigrated")
    )
    assert died
    assert left
    assert len(batch["person"]) == following + died + left
    assert int((batch["dies"] == 1).sum()) == died
    assert int(batch["leaves"].sum()) == left
    assert bool(batch["last"][batch["dies"] == 1].all()), "a death is always allowed by the path"
    assert int((batch["happened"] >= 0).any(1).sum()) == following


def test_training_sees_of_a_path_what_a_rollout_sees(lives: Lives) -> None:
    """An oracle for what lies ahead: the path of each person, the dead's with zeros to its end, counted as rollouts count."""
    sequences, end = lives.sequences, lives.end
    whole = np.flatnonzero(
        [
            np.all(np.diff(sequences.year[a:b]) == 1) and (sequences.state[a:b] > 0).all()
            for a, b in _bounds(sequences)
        ]
    )
    dead = whole[sequences.dead_year[whole] > 0]
    chosen = np.concatenate([whole[:60], dead[:20]])
    batch = {
        name: value.numpy()
        for name, value in make_batch(
            lives, chosen, 2022, np.random.default_rng(1), shortened=0.0
        ).items()
    }
    assert len(dead)
    for i, person in enumerate(chosen):
        rows = slice(*sequences.offsets[person : person + 2])
        born, died = int(sequences.birth_year[person]), int(sequences.dead_year[person])
        zero = (sequences.state[rows] == 1).tolist()
        zero += [True] * (min(end, born + MAX_AGE) - int(sequences.year[rows][-1]) if died else 0)
        ahead = ZeroRuns.of_paths(np.array(zero)[:, None])
        mine = batch["person"] == i
        at = batch["age"][mine] + 16 + born - int(sequences.year[rows][0])
        for name in ("zeros", "left", "last"):
            np.testing.assert_array_equal(
                batch[name][mine], getattr(ahead, name)[at, 0], err_msg=name
            )


def _bounds(sequences: object) -> list[tuple[int, int]]:
    offsets = sequences.offsets.tolist()  # type: ignore[attr-defined]
    return list(itertools.pairwise(offsets))


@pytest.fixture(scope="module")
def planted(register_panel: Panel) -> Panel:
    """The register with a county that moves by a known law, and an industry that follows from earnings."""
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


def test_a_planted_law_is_found_again(tiny_bundle: Path, planted: Panel, tmp_path: Path) -> None:
    made = fit_state_network(
        tiny_bundle,
        planted,
        out=tmp_path / "made",
        options=StateFitOptions(width=32, steps=500),
        seed=1,
        progress=False,
    )
    forecaster = Forecaster(made)
    test = planted.only(persons_of(planted, "test"))
    last = test.frame.group_by("person_id").agg(
        pl.col("year").max(), pl.col("exit_year").first(), born=pl.col("birth_year").first()
    )
    able = last.filter(
        pl.col("exit_year").is_null(), pl.col("born").is_between(1962, 2000), pl.col("year") == 2022
    )["person_id"]
    people = test.only(able.sort().to_list()[:60])
    (block,) = forecaster.life_courses(people, Draws(40))
    codes = made.transforms["codes"]["county"]
    county, industry = block.numbers["county"], block.numbers["industry"]
    here = (county[:, 1:] > 0) & (county[:, :-1] > 0)
    first, other = codes.index("01") + 1, codes.index("03") + 1
    before, after = county[:, :-1][here], county[:, 1:][here]
    # Learnt from about 10,000 years in each county: a standard error of .005; five of them, and the fit is not perfect.
    assert (after[before == first] == other).mean() == pytest.approx(LEAVING, abs=0.035)
    assert (after[before == other] == first).mean() == pytest.approx(RETURNING, abs=0.035)
    working = (block.paths.earnings > 0) & (industry > 0)
    rich = block.paths.earnings[working] > RICH
    codes = made.transforms["codes"]["industry"]
    told = np.where(rich, codes.index("62") + 1, codes.index("47") + 1)
    assert (industry[working] == told).mean() > 0.9, (
        "the industry goes with the earnings of the same path and year"
    )


def test_what_no_record_tells_is_never_drawn(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    gone = (
        "county",
        "unemployment_benefit",
        "parental_benefit",
        "sickness_benefit",
        "disability_pension",
        "pension_income",
    )
    exits = ("exit_year", "exit_reason")
    frame = register_panel.frame.with_columns(
        pl.lit(None, register_panel.frame.schema[name]).alias(name) for name in (*gone, *exits)
    )
    poor = Panel(frame, register_panel.meta)
    options = StateFitOptions(width=8, steps=20, batch_persons=64)
    forecaster = Forecaster(
        fit_state_network(tiny_bundle, poor, out=tmp_path / "poor", options=options, progress=False)
    )
    last = frame.group_by("person_id").agg(pl.col("year").max(), born=pl.col("birth_year").first())
    able = last.filter(pl.col("year") == 2022, pl.col("born") > 1962)["person_id"].sort().to_list()
    (block,) = forecaster.life_courses(poor.only(able[:20]), Draws(40))
    assert block.numbers["marital_status"].any()
    assert not block.numbers["county"].any()
    assert not block.numbers["state"].any(), "no state, and nobody dies or leaves"


def test_another_panel_or_other_money_is_refused(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    meta = register_panel.meta
    for other, words in (
        ({"panel_id": "other"}, "split otherwise"),
        ({"price_year": 2015}, "of 2015"),
    ):
        panel = Panel(register_panel.frame, replace(meta, **other))
        with pytest.raises(UsageError, match=words):
            fit_state_network(tiny_bundle, panel, out=tmp_path / "made", progress=False)


def test_a_stopped_run_goes_on_to_the_same_law(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, out = StateFitOptions(width=8, steps=220, batch_persons=16), tmp_path / "stopped"
    straight = fit_state_network(
        tiny_bundle, register_panel, out=tmp_path / "straight", options=options, progress=False
    )
    step, count = CircumstancesModule.training_step, [0]

    def interrupted(self: CircumstancesModule, batch: object, index: int) -> object:
        count[0] += 1
        if count[0] == 150:
            raise KeyboardInterrupt
        return step(self, batch, index)  # type: ignore[arg-type]

    monkeypatch.setattr(CircumstancesModule, "training_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_state_network(tiny_bundle, register_panel, out=out, options=options, progress=False)
    assert not out.exists()
    assert (out.with_name("stopped.circumstances.run") / "last.ckpt").is_file()
    made = fit_state_network(tiny_bundle, register_panel, out=out, options=options, progress=False)
    assert count[0] < 150 + 220, "it began anew"
    assert made.circumstances is not None
    assert straight.circumstances is not None
    for name, tensor in straight.circumstances.items():
        assert tensor.equal(made.circumstances[name]), name
    assert not out.with_name("stopped.circumstances.run").exists()


def test_the_model_and_its_calibration_stay(tiny_bundle: Path, living_bundle: Path) -> None:
    before, after = Bundle.load(tiny_bundle), Bundle.load(living_bundle)
    assert after.model_digest == before.model_digest
    assert after.calibration_digest == before.calibration_digest
    assert before.digest in after.manifest["parents"]
