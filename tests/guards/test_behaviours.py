"""The list of behaviours fits the code: each fault can be planted, and each test exists."""

from __future__ import annotations

from tests.guards.plant_faults import ROOT, Behaviour, read_behaviours


def is_ready(behaviour: Behaviour) -> bool:
    """Whether the text to replace occurs once, and there is a test of the name."""
    code = (ROOT / behaviour.file).read_text(encoding="utf-8")
    file, _, name = behaviour.test.partition("::")
    test = f"def {name.split('[')[0].split('::')[-1]}("
    return (
        code.count(behaviour.find) == 1
        and behaviour.find != behaviour.replace
        and test in (ROOT / file).read_text(encoding="utf-8")
    )


def test_every_fault_can_be_planted_and_its_test_exists() -> None:
    behaviours = list(read_behaviours())
    assert len(behaviours) > 100
    assert [each.behaviour for each in behaviours if not is_ready(each)] == []
