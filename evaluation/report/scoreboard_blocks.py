"""Blocks of pages that the scoreboard writes: figures enter a page here and nowhere else.

A page has a marker, the block, and an end:

    <!-- scoreboard: table psid-folds -->
    ...
    <!-- end -->

`table NAME` shows the tables of the last judgement of a contest (`table NAME 2` the second one),
`lead NAME` the leads of the bundle over the others with p adjusted over the whole block (Holm),
`row NAME` no table. Each block ends with the row that it comes from, and says if the bundle is not
the shipped one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from saga.evaluation.scoreboard import ABORTED, BACKFILLED, Row, Scoreboard
from saga.evaluation.scoring.comparison import BUNDLE_NAME, YEAR, adjust_holm
from saga.evaluation.scoring.gap import CLAIRVOYANT

from saga.errors import UsageError
from saga.pages.format import in_percent, markdown_table, p_value

END = "<!-- end -->"
_BLOCK = re.compile(rf"(<!-- scoreboard: (\w+) (\S+)(?: (\d+))? -->\n).*?{END}", re.DOTALL)
SHORT = 12  # characters of a digest that a page shows


def renew(text: str, board: Scoreboard, shipped: str) -> str:
    """The page with every block written anew; `shipped` is the digest of the shipped bundle.

    Raises UsageError if a block names a contest without a result, or an unknown kind.
    """

    def block(match: re.Match[str]) -> str:
        start, kind, name, number = match.groups()
        row = board.result(name)
        if kind not in _KINDS:
            raise UsageError(f"There is no block {kind!r}. The kinds are {', '.join(_KINDS)}.")
        table = _KINDS[kind](row, int(number) if number else None)
        return f"{start}\n{table}\n{source_line(row, board, shipped)}\n\n{END}"

    return _BLOCK.sub(block, text)


def source_line(row: Row, board: Scoreboard, shipped: str) -> str:
    """The row, its bundle, commit and seed, and how often the contest was judged."""
    bundle = row.get("bundle")
    words = [f"Row `{row['hash'][:SHORT]}`"]
    if row["kind"] == BACKFILLED:
        words.append("backfilled")
    if bundle:
        other = "" if shipped.startswith(bundle) else " (not the shipped one)"
        words.append(f"bundle `{bundle[:SHORT]}`{other}")
    words += [f"{key} `{row[key][:8]}`" for key in ("commit",) if row.get(key)]
    words += [f"seed {row['seed']}"] if row.get("seed") is not None else []
    attempts = board.attempts(row["contest"])
    failed = sum(r["kind"] == ABORTED for r in board.judgements(row["contest"]))
    if attempts > 1:
        words.append(f"judged {attempts} times" + (f", {failed} aborted" if failed else ""))
    return f"{', '.join(words)}."


def _tables(row: Row, number: int | None) -> str:
    shown: Sequence[Mapping[str, Any]] = row["pages"]
    if number:
        shown = shown[number - 1 : number]
    return "\n".join(f"{markdown_table(t['head'], t['rows'])}\n" for t in shown)


def _leads(row: Row, _: int | None) -> str:
    """CRPS of the bundle, and the other models' less it, with p over all tests of the block."""
    scores, tests = row["scores"], row["tests"]
    models = sorted({m for t in tests.values() for m in t.get("crps_log", {})} - {CLAIRVOYANT})
    keys = [(at, model) for at in scores for model in models]
    main_tests = {key: _main_test(tests, *key) for key in keys}
    p = np.array([np.nan if t is None or t[2] is None else t[2] for t in main_tests.values()])
    adjusted = dict(zip(main_tests, adjust_holm(p), strict=True))
    lines = []
    for at, by_metric in scores.items():
        of_bundle = by_metric["crps_log"][BUNDLE_NAME]
        setting, horizon = at.rsplit(" ", 1)
        covered = by_metric.get("coverage_90", {}).get(BUNDLE_NAME, [None])[0]
        lines.append(
            [setting, horizon, f"{of_bundle[2]:,}", f"{of_bundle[0]:.4f}", in_percent(covered)]
            + [_lead(main_tests[at, model], adjusted[at, model]) for model in models]
        )
    head = ["setting", "years ahead", "persons", BUNDLE_NAME, "inside 90 %"]
    return f"{markdown_table([*head, *(f'{model} less it' for model in models)], lines)}\n"


def _main_test(tests: Mapping[str, Any], at: str, model: str) -> Sequence[Any] | None:
    """The test by person (and future) of one model's CRPS; None without one."""
    rows = tests.get(at, {}).get("crps_log", {}).get(model, [])
    return next((t for t in rows if t[3] != YEAR), None)


def _lead(test: Sequence[Any] | None, p: float) -> str:
    if test is None:
        return ""
    return f"{test[0]:+.4f} ± {test[1]:.4f} (p {p_value(None if np.isnan(p) else float(p))})"


def _no_table(_row: Row, _number: int | None) -> str:
    return ""


_KINDS = {"table": _tables, "lead": _leads, "row": _no_table}
