"""Without a mechanism the register misses a published figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess

from saga.errors import UsageError
from saga.register import RegisterSettings, generate_register
from saga.register.simulation.parameters import MECHANISMS, Parameters, switch_off
from saga.register.validation.register_check import check_register
from tests.command_line import done, refusal
from tests.saga.register.register_files import digests

Size = tuple[int, int, int]  # persons, first year, last year
Verdicts = Callable[..., dict[str, str]]

# Size of a register that is just large enough -> mechanism -> a figure that needs it.
NEEDED: dict[Size, dict[str, str]] = {
    (6_000, 2019, 2020): {
        "benefits": "level.all.p25",
        "heterogeneous_levels": "level.all.decile10",
        "job_premia": "level.men.p90",
        "pareto_top": "level.all.top1",
    },
    (8_000, 1990, 2022): {"business_cycle": "sign.kelley.bust"},
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """Key -> verdict, for a register of a given size without given mechanisms."""

    @cache
    def check(size: Size, *without: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("mechanisms") / "register"
        persons, first_year, last_year = size
        generate_register(
            folder,
            RegisterSettings(
                persons=persons, seed=1, first_year=first_year, last_year=last_year, without=without
            ),
        )
        table = check_register(folder, only=list(NEEDED[size].values()))
        return dict(table.select("key", "verdict").iter_rows())

    return check


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("size", "mechanism", "key"),
    [(size, *pair) for size, needed in NEEDED.items() for pair in needed.items()],
)
def test_a_target_is_missed_without_its_mechanism(
    verdicts: Verdicts, size: Size, mechanism: str, key: str
) -> None:
    assert verdicts(size)[key] == "inside"
    assert verdicts(size, mechanism)[key] == "outside"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_switching_off_changes_the_parameters_once(mechanism: str) -> None:
    p = Parameters()
    assert switch_off(p, [mechanism]) != p
    assert switch_off(p, [mechanism, mechanism]) == switch_off(p, [mechanism])


def test_the_order_of_switching_off_does_not_matter() -> None:
    simple = [name for name in MECHANISMS if name != "heavy_tails"]  # set to neutral values
    all_off = switch_off(Parameters(), simple)
    assert all_off == switch_off(Parameters(), reversed(simple))
    assert all_off.economy.felt == all_off.benefits.generosity == 0.0


def test_the_command_switches_off_and_register_json_records_it(tmp_path: Path) -> None:
    off = "--without scars --without benefits --without scars"
    done("register generate --persons 3", off, "--out", tmp_path / "off")
    about = json.loads((tmp_path / "off" / "register.json").read_text())
    assert about["without"] == ["benefits", "scars"]
    parameters = switch_off(Parameters(), ["scars", "benefits"])
    generate_register(tmp_path / "same", RegisterSettings(persons=3, seed=0, parameters=parameters))
    same = json.loads((tmp_path / "same" / "register.json").read_text())
    assert same["without"] == []
    assert about["parameters"] == same["parameters"]
    without, neutral = (digests(tmp_path / name) for name in ("off", "same"))
    assert without.pop("register.json") != neutral.pop("register.json")
    assert without == neutral


def test_an_unknown_mechanism_is_refused_and_all_are_listed(tmp_path: Path) -> None:
    told = refusal("register generate --persons 3 --without luck --out", tmp_path / "out")
    assert all(name in told for name in ("luck", *MECHANISMS))
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="textbook process"):
        generate_register(
            tmp_path / "out",
            RegisterSettings(persons=3, seed=0, process=GaussianProcess(), without=("scars",)),
        )
