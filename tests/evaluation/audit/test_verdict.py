"""The verdict of an audit says whose the leaks are."""

from __future__ import annotations

import pytest
from saga.evaluation.audit.bundle_audit import judge_audit
from saga.evaluation.audit.bundle_scan import Finding
from saga.evaluation.audit.canaries import Canary
from saga.evaluation.audit.membership import Result
from saga.evaluation.audit.record_inference import Difference

CAUGHT = Canary("repeated", "area .9", must=True, caught=True)
MISSED = Canary("repeated", "area .5", must=True, caught=False)
SMALL_CELL = Finding("cells", "2 persons", False)
TOLD = Difference("sickness benefit", 0.6, 0.5, 0.1, 0.08, 0.12)


def attack(target: str, area: float) -> Result:
    return Result(
        "record, offline", target, "all", 900, 900, area, area - 0.01, area + 0.01, {"0.01": 0.01}
    )


@pytest.mark.parametrize(
    ("leaky", "others", "finding", "canary", "word", "only_shadows"),
    [
        ([], [], None, CAUGHT, "no leak found", False),
        (["shadows"], [], None, CAUGHT, "leak", True),
        (["shadows"], [], SMALL_CELL, CAUGHT, "leak", True),
        (["shadows", "bundle"], [], None, CAUGHT, "leak", False),
        (["bundle"], [], None, CAUGHT, "leak", False),
        (["shadows"], [TOLD], None, CAUGHT, "leak", False),
        ([], [], SMALL_CELL, CAUGHT, "leak", False),
        (["shadows"], [], None, MISSED, "no power", False),
    ],
)
def test_the_advice_says_if_all_leaks_are_of_shadows(
    leaky: list[str],
    others: list[Difference],
    finding: Finding | None,
    canary: Canary,
    word: str,
    only_shadows: bool,
) -> None:
    results = [attack(t, 0.6 if t in leaky else 0.5) for t in ("bundle", "shadows")]
    findings = [] if finding is None else [finding]
    verdict = judge_audit(results, others, findings, [canary], recognised=0)
    assert verdict["word"] == word
    assert ("None is of the bundle itself" in verdict["advice"]) == only_shadows
