"""Tax reforms as files: read, checked, refused with the key that is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saga.errors import UsageError
from saga.requests import TaxReform
from saga.tax.tax_reform import reform_from, tax_source
from saga.tax.tax_rules import resolve_tax

REFORM = """\
base: se-2026
uprating: wages
real_wage_growth: 0.015
parameters:
  state_rate: 0.25
  work_credit_amount_4: 2.9
"""


def test_a_file_becomes_a_reform_and_other_texts_are_names(tmp_path: Path) -> None:
    file = tmp_path / "top-rate.yaml"
    file.write_text(REFORM)
    reform = tax_source(str(file))
    assert reform == TaxReform(
        "top-rate", "se-2026", "wages", 0.015, (("state_rate", 0.25), ("work_credit_amount_4", 2.9))
    )
    assert tax_source("se-2024") == "se-2024"
    higher = resolve_tax(reform).tax(np.array([900_000.0]))
    assert higher[0] > resolve_tax("se-2026").tax(np.array([900_000.0]))[0]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "has no keys"),
        ("- 1", "has no keys"),
        ("base: [", "r.yaml cannot be read as YAML\n.*line 1 is not YAML"),
        (
            "base: se-2026\nparameters:\n  state_rate: 0.2\n  state_rate: 0.1",
            "line 4: state_rate stands",
        ),
        (f"base: se-2026\nreal_wage_growth: 0x{'f' * 6_000}", "real_wage_growth: not possible"),
        (
            "base: se-2026\nparameters: {allowance_limit_2: 1:30}",
            "limit_2: the value is not possible",
        ),
        ("uprating: wages", "r.yaml, base: the key is missing"),
        ("base: 2026", "no tax rule '2026'"),
        ("base: paper", "no tax rule 'paper'"),
        ("base: se-2026\nuprate: wages", "r.yaml, uprate: there is no such key"),
        ("base: se-2026\nuprating: magic", "r.yaml, uprating: unknown"),
        ("base: se-2026\nreal_wage_growth: 2", "r.yaml, real_wage_growth: not possible"),
        ("base: se-2026\nparameters: 3", "r.yaml, parameters: not a mapping"),
        ("base: se-2026\nparameters: {state_rat: 0.2}", "state_rat: .*Is it state_rate"),
        ("base: se-2026\nparameters: {state_rate: 20}", "state_rate: the value is not possible"),
        ("base: se-2026\nparameters: {state_rate: .nan}", "state_rate: the value is not possible"),
        ("base: se-2026\nparameters: {state_rate: yes}", "state_rate: the value is not possible"),
    ],
)
def test_a_faulty_reform_is_refused_with_its_key(
    content: str, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(content)
    with pytest.raises(UsageError, match=complaint):
        tax_source(str(file))
    with pytest.raises(UsageError, match="nowhere"):
        tax_source(str(tmp_path / "nowhere.yaml"))


def test_limits_that_do_not_ascend_are_refused() -> None:
    reform = reform_from({"base": "se-2026", "parameters": {"allowance_limit_2": 0.5}}, "r", "r")
    with pytest.raises(UsageError, match="allowance_limit_2 is not above allowance_limit_1"):
        resolve_tax(reform)
