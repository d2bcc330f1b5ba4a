"""The reader of YAML: values as they are written, and no content that is hidden or multiplied."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from saga.errors import UsageError
from saga.files.yaml_text import read_yaml

ROOT = Path(__file__).resolve().parents[3]


def read(text: str) -> object:
    return read_yaml(text, "it cannot be read", "rule")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("10", 10),
        ("010", "010"),
        ("0x1f", "0x1f"),
        ("7:30", "7:30"),
        ("1_000", "1_000"),
        ("no", "no"),
        ("2030-01-01", "2030-01-01"),
        ("true", True),
        ("1e-3", 0.001),
        (".inf", math.inf),
        ("null", None),
        ("[]", []),
        ("''", ""),
    ],
)
def test_a_value_is_what_is_written(written: str, value: object) -> None:
    found = read(f"key: {written}")
    assert found == {"key": value}
    assert list(map(type, found.values())) == [type(value)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: a stands twice"),
        ("a:\n  b: 1\n  b: 2", "line 3: b stands twice"),
        ('{"a": 1,\n"a": 2}', "line 2: a stands twice"),
        ("2030: 1\n'2030': 2", "line 2: 2030 stands twice"),
        ("a: &x {b: 1}\nc: {<<: *x}", "line 2: *x stands for another part"),
        ("a: &x [*x]", "line 1: *x stands for another part"),
        (f"a: !!int 0x{'f' * 6_000}", "line 1: tag:yaml.org,2002:int is a tag"),
        ("a: !!python/name:os.system", "line 1: tag:yaml.org,2002:python/name:os.system is a tag"),
        (f"a:\n  {'9' * 6_000}", "line 2: a number is too long"),
        (f"a:\n  {'[' * 9_000}", "line 2: there are too many levels"),
        ("a:\n  b:\n", "line 2: b has no content"),
        ("a: 1\nb:  # later\nc: 2", "line 2: b has no content"),
        ("a:\n  b: {}", "line 2: b has no content"),
        ("a: {b: , c: 1}", "line 1: b has no content"),
        ("a: {b}", "line 1: b has no content"),
        ("a:\n- 1\n-\n", "line 3: a part has no content"),
        ("{}", "line 1: a part has no content"),
        ("a: 1\nb: [", "line 2 is not YAML"),
        ("a: 1\nb: \x00", "line 2 is not YAML"),
        ("a: 1\n\tb: 1", "line 2 is not YAML: it contains a tab"),
    ],
)
def test_what_hides_or_multiplies_content_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(UsageError, match="it cannot be read") as caught:
        read(text)
    assert [problem.message for problem in caught.value.problems] == [why]


def test_a_short_text_cannot_take_long() -> None:
    """Ten levels of ten merged tables each would be ten thousand million entries."""
    levels = [f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 10)}]}}" for k in range(1, 11)]
    start = time.process_time()
    with pytest.raises(UsageError, match=r"\*a0 stands for another part"):
        read("\n".join(["a0: &a0 {x: 1}", *levels]))
    assert time.process_time() - start < 1


def test_there_is_one_reader_of_yaml() -> None:
    folders = ("saga", "api", "training", "calibration", "evaluation", "studies")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    reading = [
        file.relative_to(ROOT).as_posix()
        for file in files
        if any(call in file.read_text(encoding="utf-8") for call in ("yaml.load", "yaml.safe_load"))
    ]
    assert reading == ["saga/files/yaml_text.py"]
