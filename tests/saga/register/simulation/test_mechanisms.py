"""Switches: a world without one of its mechanisms misses a published figure that it meets with it."""

import json
from functools import cache

import pytest
from typer.testing import CliRunner

from saga.cli import app
from saga.errors import UsageError
from saga.register import RegisterSettings, generate_register
from saga.register.simulation.mechanisms import MECHANISMS, NEUTRAL_VALUES, switch_off
from saga.register.simulation.parameters import Parameters
from saga.register.textbook.gaussian_ar1 import GaussianProcess
from saga.register.validation.register_check import check_register

# Persons, first and last year of a register just large and long enough -> mechanism -> a figure that needs it.
NEEDED = {
    (6_000, 2019, 2020): {
        "benefits": "level.all.p25",
        "heterogeneous_levels": "level.all.decile10",
        "job_premia": "level.men.p90",
        "pareto_top": "level.all.top1",
    },
    (8_000, 1990, 2022): {"business_cycle": "sign.kelley.bust"},
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Verdicts by key of a register of so many persons and these years, without the given mechanisms."""

    @cache
    def judged(size, *without):
        folder = tmp_path_factory.mktemp("world") / "register"
        persons, first_year, last_year = size
        generate_register(
            folder,
            RegisterSettings(
                persons=persons, seed=1, first_year=first_year, last_year=last_year, without=without
            ),
        )
        table = check_register(folder, only=list(NEEDED[size].values()))
        return dict(table.select("key", "verdict").iter_rows())

    return judged


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "mechanism", "key"),
    [(size, *pair) for size, needed in NEEDED.items() for pair in needed.items()],
)
def test_without_a_mechanism_a_target_that_held_is_missed(verdicts, size, mechanism, key):
    assert verdicts(size)[key] == "inside"
    assert verdicts(size, mechanism)[key] == "outside"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_switch_changes_the_parameters_and_switching_twice_is_switching_once(mechanism):
    p = Parameters()
    assert switch_off(p, [mechanism]) != p
    assert switch_off(p, [mechanism, mechanism]) == switch_off(p, [mechanism])


def test_mechanisms_can_be_switched_off_together_in_any_order():
    everything = switch_off(Parameters(), NEUTRAL_VALUES)
    assert everything == switch_off(Parameters(), reversed(NEUTRAL_VALUES))
    assert everything.economy.felt == everything.benefits.generosity == 0.0


def test_the_command_switches_off_and_register_json_says_so(tmp_path):
    off = ["--without", "scars", "--without", "benefits", "--without", "scars"]
    run = CliRunner().invoke(
        app, ["register", "generate", "--persons", "3", "--out", str(tmp_path / "off"), *off]
    )
    assert run.exit_code == 0, run.stderr
    about = json.loads((tmp_path / "off" / "register.json").read_text())
    assert about["without"] == ["benefits", "scars"]
    generate_register(
        tmp_path / "same",
        RegisterSettings(
            persons=3, seed=0, parameters=switch_off(Parameters(), ["scars", "benefits"])
        ),
    )
    same = json.loads((tmp_path / "same" / "register.json").read_text())
    assert same["without"] == []
    assert about["parameters"] == same["parameters"]
    files = [path.relative_to(tmp_path / "off") for path in (tmp_path / "off").rglob("*.parquet")]
    assert all(
        (tmp_path / "off" / file).read_bytes() == (tmp_path / "same" / file).read_bytes()
        for file in files
    )


def test_an_unknown_mechanism_is_refused_with_the_list_of_all(tmp_path):
    run = CliRunner().invoke(
        app,
        [
            "register",
            "generate",
            "--persons",
            "3",
            "--out",
            str(tmp_path / "out"),
            "--without",
            "luck",
        ],
    )
    assert run.exit_code == 2
    assert all(name in run.stderr for name in ("luck", *MECHANISMS))
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="textbook process"):
        generate_register(
            tmp_path / "out",
            RegisterSettings(persons=3, seed=0, process=GaussianProcess(), without=("scars",)),
        )
