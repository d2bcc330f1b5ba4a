"""The scoreboard cannot be rewritten, and pages show no figure of it that a row does not have."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from saga.evaluation.report.scoreboard_blocks import SAME, renew
from saga.evaluation.scoreboard import ABORTED, FILE, Scoreboard, hash_row, main, seed_of

from saga.bundle import Bundle
from saga.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def damaged(lines: list[str], how: str, at: int) -> list[str]:
    """The lines with one of them changed, changed with a new hash, removed, or moved."""
    row = json.loads(lines[at])
    if how == "changed":
        return [*lines[:at], json.dumps({**row, "seed": 7}), *lines[at + 1 :]]
    if how == "hashed anew":
        row |= {"seed": 7}
        row["hash"] = hash_row(row)
        return [*lines[:at], json.dumps(row), *lines[at + 1 :]]
    if how == "removed":
        return [*lines[:at], *lines[at + 1 :]]
    return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]


@pytest.mark.parametrize(
    ("how", "first_broken"),
    [("changed", 2), ("hashed anew", 3), ("removed", 2), ("moved", 2)],
)
def test_the_first_row_that_is_not_as_written_is_named(
    tmp_path: Path, how: str, first_broken: int
) -> None:
    board = Scoreboard(tmp_path / "board.jsonl")
    for seed in range(4):
        board.append({"kind": "judged", "contest": "c", "seed": seed})
    lines = board.file.read_text(encoding="utf-8").splitlines()
    assert Scoreboard.read(board.file).rows == board.rows
    board.file.write_text("\n".join(damaged(lines, how, 1)) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=rf": row {first_broken} is not as it was written"):
        Scoreboard.read(board.file)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The program in a repository of its own, with a file `study` to change."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / "study").write_text("1", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("out*", encoding="utf-8")
    commit("first")
    return lambda *arguments: main([*arguments])


def commit(message: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", message]):
        subprocess.run(["git", *arguments], check=True)


def announce(board: Callable[..., int], name: str, *commands: str) -> int:
    facts = ("--panel", "p", "--split", "s", "--question", "q")
    return board("announce", name, *facts, "--", *commands)


def test_a_contest_is_judged_with_the_seed_of_its_commit_and_every_judgement_stays(
    board: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    page = "| seed | n |\\n|---|---|\\n| {seed} | 1 |\\n"
    write = f"python -c \"open('{{out}}/results.md', 'w').write('{page}')\""
    assert announce(board, "first", write) == 0
    assert announce(board, "second", "python -c 'raise SystemExit(3)'") == 0
    assert announce(board, "first", write) == 2, "a name is taken once"
    for out in ("out1", "out2"):
        assert board("judge", "first", "--out", out) == 0
    assert board("judge", "second", "--out", "out3") == 0
    assert board("judge", "first", "--out", "out1") == 2, "a judgement starts from nothing"
    commit("rows")
    rows = Scoreboard.read()
    seed = seed_of(rows.contest("first")["commit"])
    assert [row["attempt"] for row in rows.judgements("first")] == [1, 2]
    assert rows.result("first")["pages"] == [{"head": ["seed", "n"], "rows": [[str(seed), "1"]]}]
    assert [row["kind"] for row in rows.judgements("second")] == [ABORTED]
    with pytest.raises(UsageError, match="no result"):
        rows.result("second")
    block = "<!-- scoreboard: table first -->\nold\n<!-- end -->"
    shown = renew(block, rows, [])
    assert f"| {seed} | 1 |" in shown
    assert f"seed {seed}, judged 2 times" in shown
    (Path.cwd() / "study").write_text("2", encoding="utf-8")
    assert board("judge", "first", "--out", "out4") == 2, "the study is not that of a commit"
    assert "study" in capsys.readouterr().err
    assert board("verify") == 0
    FILE.write_text("", encoding="utf-8")
    assert board("verify") == 2, "rows of a commit were removed"


def test_a_check_that_says_no_is_judged_and_one_without_results_is_aborted(
    board: Callable[..., int],
) -> None:
    table = "|a|\\n|-|\\n|1|\\n"
    no = f"python -c \"open('{{out}}/results.md', 'w').write('{table}'); raise SystemExit(1)\""
    nothing = "python -c 'raise SystemExit(1)'"
    for name, commands in {"no": [no], "nothing": [nothing], "early": [no, "true"]}.items():
        assert announce(board, name, *commands) == 0
        assert board("judge", name, "--out", f"out-{name}") == 0
    rows = Scoreboard.read()
    ends = {name: rows.judgements(name)[0]["kind"] for name in ("no", "nothing", "early")}
    assert ends == {"no": "judged", "nothing": ABORTED, "early": ABORTED}
    shown = renew("<!-- scoreboard: table no -->\n<!-- end -->", rows, [])
    assert "seed" not in shown, "its commands use none"


def test_a_block_of_coverage_has_the_rows_of_everybody_at_that_coverage(tmp_path: Path) -> None:
    rows = Scoreboard.read(tmp_path / "board.jsonl")
    head = ["sets", "h or K", "coverage, %", "covered, %"]
    table = [
        [name, "1", level, "x"] for name in ("sets, all", "sex=male") for level in ("50", "90")
    ]
    rows.append({"kind": "judged", "contest": "c", "pages": [{"head": head, "rows": table}]})
    shown = renew("<!-- scoreboard: coverage c 90 -->\n<!-- end -->", rows, [])
    assert [line for line in shown.splitlines() if line.startswith("|")][2:] == [
        "| sets, all | 1 | 90 | x |"
    ]


def test_a_contest_of_two_settings_names_them(tmp_path: Path) -> None:
    rows = Scoreboard.read(tmp_path / "board.jsonl")
    scores = {"saga": [0.2, 0.01, 9], "lstm": [0.21, 0.01, 9]}
    test = {"lstm": [[0.01, 0.004, 0.02, "person"]]}
    ends = ("forward 10", "in-time 10")
    rows.append(
        {
            "kind": "judged",
            "contest": "c",
            "scores": {at: {"crps_log": scores} for at in ends},
            "tests": {at: {"crps_log": test} for at in ends},
        }
    )
    shown = renew("<!-- scoreboard: contest c -->\n<!-- end -->", rows, [])
    assert "| years ahead | in-time 10 | forward 10 |" in shown
    assert "| lstm | +0.0100" in shown


def test_a_contest_shows_methods_that_were_recalibrated_with_p_over_the_block(
    tmp_path: Path,
) -> None:
    rows = Scoreboard.read(tmp_path / "board.jsonl")
    means = {"saga": [0.2, 0.01, 9], "lstm": [0.1, 0.01, 9]}
    means |= {"b+cal": [0.22, 0.01, 9], "a+cal": [0.21, 0.01, 9]}
    tests = {"a+cal": [[0.01, 0.004, 0.02, "person"]], "b+cal": [[0.02, 0.004, 0.01, "person"]]}
    rows.append(
        {
            "kind": "judged",
            "contest": "c",
            "scores": {"in-time 5": {"crps_log": means}},
            "tests": {"in-time 5": {"crps_log": tests}},
        }
    )
    shown = renew("<!-- scoreboard: contest c -->\n<!-- end -->", rows, [])
    table = [line for line in shown.splitlines() if line.startswith("|")]
    assert table == [
        "| years ahead | 5 |",
        "|---|---|",
        "| saga | **0.2000** |",
        "| a | +0.0100 ± 0.0040 (p .0200) |",
        "| b | +0.0200 ± 0.0040 (p .0200) |",
    ]


def test_two_judgements_at_once_make_one_chain(tmp_path: Path) -> None:
    first, second = (Scoreboard.read(tmp_path / "board.jsonl") for _ in range(2))
    for board, contest in ((first, "a"), (second, "b"), (first, "a")):
        board.append({"kind": "judged", "contest": contest})
    rows = Scoreboard.read(tmp_path / "board.jsonl").rows
    assert [row["contest"] for row in rows] == ["a", "b", "a"]


def test_the_rows_of_the_repository_are_whole_and_seeds_are_those_of_commits() -> None:
    rows = Scoreboard.read(ROOT / FILE).rows
    assert len(rows) > 50
    seeds = [(row["seed"], seed_of(row["commit"])) for row in rows if row["kind"] == "contest"]
    assert all(announced == of_commit for announced, of_commit in seeds)


def test_pages_name_bundles_of_the_scoreboard_and_say_which_are_not_shipped() -> None:
    board = (ROOT / FILE).read_text(encoding="utf-8")
    shipped = Bundle.load(ROOT / "bundles/small").digest
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"`([0-9a-f]{12})`", text)) - {shipped[:12]}
        assert {digest for digest in named if digest not in board} == set(), page
        others = {d for d in named if f'"bundle": "{d}' in board}
        assert not others or "not the shipped one" in text or SAME in text, page
