"""Blocks of pages that the scoreboard writes: figures enter a page here and nowhere else.

A page has a marker, the block, and an end:

    <!-- scoreboard: table psid-folds -->
    ...
    <!-- end -->

`table NAME` shows the tables of the last judgement of a contest (`table NAME 2` the second one),
`coverage NAME 90` the rows of its first table about 90 % sets of everybody,
`contest NAME` shows the methods, those that were recalibrated if some were, and how much worse than
the bundle each of them is, with p over the whole block (Holm) where it is below .1 (`contest NAME
90`: interval scores of 90 % instead of the CRPS). `row NAME` shows no table. Each block ends with
the row that it comes from, and says if the bundle is not the shipped one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from saga.evaluation.fair_contestants import RECALIBRATED
from saga.evaluation.scoreboard import ABORTED, BACKFILLED, JUDGED, Row, Scoreboard
from saga.evaluation.scoring.comparison import BUNDLE_NAME, YEAR, adjust_holm

from saga.errors import UsageError
from saga.pages.format import markdown_table, p_value

END = "<!-- end -->"
_BLOCK = re.compile(rf"(<!-- scoreboard: (\w+) (\S+)(?: (\d+))? -->\n).*?{END}", re.DOTALL)
SAME = "forecasts like the shipped one"
SHORT = 12  # characters of a digest that a page shows
IN_TIME = "in-time "
OF_EVERYBODY = ("sets, all", "band of K years")  # first cells of a page of coverage
SHOWN_P = 0.1  # of a contest's table; others are left out


def renew(text: str, board: Scoreboard, shipped: Sequence[str]) -> str:
    """The page with every block written anew.

    `shipped` is the digest of the shipped bundle, and then those with the same forecasts.

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


def source_line(row: Row, board: Scoreboard, shipped: Sequence[str]) -> str:
    """The row, its bundle, commit and seed, and how often the contest was judged.

    The commands of a judgement that takes up the persons of another contest do not use its seed.
    """
    bundle = row.get("bundle")
    words = [f"Row `{row['hash'][:SHORT]}`"]
    if row["kind"] == BACKFILLED:
        words.append("backfilled")
    if bundle:
        alike = [digest.startswith(bundle) for digest in shipped]
        other = "" if any(alike[:1]) else f" ({SAME if any(alike) else 'not the shipped one'})"
        words.append(f"bundle `{bundle[:SHORT]}`{other}")
    words += [f"{key} `{row[key][:8]}`" for key in ("commit",) if row.get(key)]
    seed = row.get("seed")
    if seed is not None and (row["kind"] != JUDGED or str(seed) in row["command"]):
        words.append(f"seed {seed}")
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


def _coverage(row: Row, coverage: int | None) -> str:
    """The rows of everybody with this stated coverage."""
    table = row["pages"][0]
    at = table["head"].index("coverage, %")
    rows = [r for r in table["rows"] if r[at] == str(coverage) and r[0] in OF_EVERYBODY]
    return f"{markdown_table(table['head'], rows)}\n"


def _contest(row: Row, coverage: int | None) -> str:
    """A method a row: its score less the bundle's at each horizon, with p over the whole block."""
    metric, digits = (f"interval_{coverage}", ",.0f") if coverage else ("crps_log", ".4f")
    tests = row["tests"]
    horizons = sorted(row["scores"], key=lambda at: (not at.startswith(IN_TIME), _years(at)))
    of_horizons = [row["scores"][at][metric] for at in horizons]
    models = [m for m in of_horizons[0] if m.endswith(RECALIBRATED)]
    models = models or [m for m in of_horizons[0] if m != BUNDLE_NAME]
    models.sort(key=lambda m: of_horizons[0][m][0])
    by_cell = {(m, at): _main_test(tests, at, m, metric) for m in models for at in horizons}
    p = np.array([np.nan if t is None or t[2] is None else t[2] for t in by_cell.values()])
    adjusted = dict(zip(by_cell, adjust_holm(p), strict=True))
    lines = [[BUNDLE_NAME, *(f"**{of[BUNDLE_NAME][0]:{digits}}**" for of in of_horizons)]]
    for m in models:
        leads = [_lead(by_cell[m, at], adjusted[m, at], digits) for at in horizons]
        lines.append([m.removesuffix(RECALIBRATED), *leads])
    is_one_setting = len({at.split(" ", 1)[0] for at in horizons}) == 1
    heads = [str(_years(at)) if is_one_setting else at for at in horizons]
    return f"{markdown_table(['years ahead', *heads], lines)}\n"


def _years(at: str) -> int:
    return int(at.rsplit(" ", 1)[1])


def _main_test(
    tests: Mapping[str, Any], at: str, model: str, metric: str = "crps_log"
) -> Sequence[Any] | None:
    """The test by person (and future) of one model's metric; None without one."""
    rows = tests.get(at, {}).get(metric, {}).get(model, [])
    return next((t for t in rows if t[3] != YEAR), None)


def _lead(test: Sequence[Any] | None, p: float, digits: str) -> str:
    if test is None:
        return ""
    lead = f"{test[0]:+{digits}} ± {test[1]:{digits}}"
    return f"{lead} (p {p_value(float(p))})" if p < SHOWN_P else lead


def _no_table(_row: Row, _number: int | None) -> str:
    return ""


_KINDS = {"table": _tables, "coverage": _coverage, "contest": _contest, "row": _no_table}
