"""The list of behaviours fits the code: each fault can be planted, and each test exists."""

from __future__ import annotations

import pytest

from tests.guards.plant_faults import ROOT, Behaviour, read_behaviours

BEHAVIOURS = list(read_behaviours())


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda entry: entry.behaviour)
def test_the_fault_can_be_planted_and_its_test_exists(behaviour: Behaviour) -> None:
    code = (ROOT / behaviour.file).read_text(encoding="utf-8")
    assert code.count(behaviour.find) == 1
    assert behaviour.find != behaviour.replace
    file, _, name = behaviour.test.partition("::")
    assert f"def {name.split('[')[0].split('::')[-1]}(" in (ROOT / file).read_text(encoding="utf-8")
