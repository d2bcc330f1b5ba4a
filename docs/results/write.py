"""Writes docs/results.md, the results of README.md, and the blocks of the scoreboard in all pages.

No figure is typed by hand: they come from the tables in this folder, each of which a row of the
scoreboard has the digest of, and from the rows themselves. Without an option the pages are
written; for the options see --help.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from saga.evaluation.committed_results import KEPT, CommittedResults
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.pages import write_pages
from saga.evaluation.report.paper import paper_tables
from saga.evaluation.report.paper_checklist import ticked_rows
from saga.evaluation.report.result_tables import (
    Table,
    TableCell,
    format_band,
    heading,
    order_models,
    outside_band,
    to_markdown,
)
from saga.evaluation.report.scoreboard_blocks import renew, source_line
from saga.evaluation.scoring.comparison import (
    BUNDLE_NAME,
    SURE,
    SURE_TEXT,
    VARIANT,
    YEAR,
    adjust_together,
    verdict_lines,
)
from saga.evaluation.scoring.gap import CLAIRVOYANT

from saga.bundle import Bundle
from saga.errors import UsageError
from saga.pages.format import markdown_table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHIPPED = ROOT / "bundles/small"
RESULTS, README = ROOT / "docs/results.md", ROOT / "README.md"
PAPER = ROOT / "docs/method/paper.md"
PAPER_START, PAPER_END = "<!-- paper -->", "<!-- end of paper -->"
START, END = "<!-- results: written by docs/results/write.py -->", "<!-- end of results -->"
README_HORIZONS = (1, 10)
NLSY_COMMANDS = "Commands: [NLSY79](how-to/nlsy79.md#train-calibrate-evaluate-forecast)."
AHEAD = re.compile(
    r"(saga is significantly better \(p < \.01, Holm\)|;) at (every horizon|some horizons) than"
)
NO_INTERVAL = "none"  # too few calibration outcomes that far ahead
# Further tables of the page: pattern of the columns shown, first words of the rows shown (None:
# all).
FURTHER: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "Lifetime earnings": (
        "$|true|saga|ar1|gbt|gkos$|lstm|clairvoyant",
        ("mean against", "Gini", "CRPS", "coverage"),
    ),
}
AFTER_REGISTER = """Announced before it was judged:

<!-- scoreboard: row register-shipped -->
<!-- end -->

### Equal data

Above, SAGA has learnt from 430,000 persons; here from the same 42,000 as the others (configuration
`small`). CRPS of
`saga`, which alone is recalibrated, and how much higher it is of the others; p by person (and
future) over the table (Holm) where it is below .1.
In-time the others know what the economy did: they are fitted on outcomes of the same years.
`saga:told` is `saga` with the realised macro series.

```console
saga train --panel fresh --config small --seed 40821177 --out same
saga calibrate same --panel fresh --rollout light
saga evaluate same --panel fresh --baselines all --tables hindsight --cache evaluation/scores \\
    --out equal
```

<!-- scoreboard: contest register-equal-told -->
<!-- end -->
"""
PROVENANCE = ("calibration", "panel", "until")
PANELS = {  # name: title, short title, commands
    "register": (
        "Synthetic register, a seed not used in training",
        "simulated",
        """saga register generate --persons 60000 --seed 40821177 --future-to 2062 \\
    --future-draws 20 --out fresh
saga evaluate bundles/small --panel fresh --baselines all --tables all --out evaluation""",
    ),
    "nlsy79": (
        "NLSY79, hourly wages of real persons, persons held out",
        "real (NLSY79), other persons",
        "",  # on the page of the panel
    ),
    "nlsy79-1998": (
        "NLSY79, hourly wages of real persons, persons and the last twenty years held out",
        "real (NLSY79), other persons and later years",
        "",  # the same with --until 1998
    ),
}


def results_page(committed: CommittedResults, shipped: Sequence[str]) -> str:
    """The text of docs/results.md."""
    board = committed.board
    parts = [
        "# Results\n",
        "Written by `python docs/results/write.py`. All scores, groups, tests and the paper's own "
        "figures: `python docs/results/write.py --tables DIR`.\n",
        "The score is the CRPS of log earnings: lower is better. "
        "*Ahead of* means: significantly better (p < .01) at every horizon, or at those in "
        "brackets, with p adjusted over all tests of the section (Holm). "
        "*Inside the sets*: share of outcomes (%) inside SAGA's 90 % sets, in brackets the band of "
        "95 % of calibrated forecasters; ! marks a share outside. *In-time*: "
        "origins and outcomes inside the panel's years; *forward*: outcomes after the last "
        "year used. The clairvoyant knows "
        "the register's process and hidden states; the other names: "
        "[baselines](method/baselines.md).\n",
    ]
    for panel, (title, _, commands) in PANELS.items():
        results = committed.of(panel)
        provenance = ", ".join(
            f"{key} `{str(value)[:12] if key in ('bundle', 'calibration') else value}`"
            for key, value in results.provenance.items()
            if key in PROVENANCE
        )
        row = committed.row_of(panel)
        tests = _tests_of(results)
        verdicts = verdict_lines(tests)
        parts += [
            f"## {title}\n",
            "\n".join(
                f"- {line}"
                for line in [
                    *(
                        AHEAD.sub(lambda found: "," if found[1] == ";" else "ahead of", line)
                        for line in verdicts.values()
                    ),
                    interval_line(results, tests),
                ]
            )
            + "\n",
            *([note] if panel == "register" and (note := _age_note(results)) else []),
            to_markdown([*_headline_tables(results), *_further_tables(results)], level=3),
            f"{source_line(row, board, shipped)} Provenance: {provenance}.{_kept_note(results)}"
            f"{_lifetimes_note(panel, committed)}\n",
            f"```console\n{commands}\n```\n" if commands else f"{NLSY_COMMANDS}\n",
            *([AFTER_REGISTER] if panel == "register" else []),
        ]
    return "\n".join(parts)


def _age_note(results: Results) -> str:
    """Says so if the tables are those of another bundle or calibration than the shipped one."""
    shipped = Bundle.load(SHIPPED)
    if results.provenance.get("calibration") == shipped.calibration_digest:
        return ""
    scored = str(results.provenance["bundle"])
    return (
        f"**These tables are those of bundle `{scored[:12]}`, not of the shipped bundle "
        f"`{shipped.digest[:12]}`.** The contest takes hours and has not been repeated since.\n"
    )


def _by_key(results: Results) -> dict[tuple[str, int, str, str], dict[str, Any]]:
    """Rows of all persons with an outcome by (setting, horizon, metric, model)."""
    rows = results.metrics.filter(pl.col("group") == "all", pl.col("n") > 0)
    rows = rows.sort(pl.col("setting") != "in-time", "horizon", maintain_order=True)
    return {
        (row["setting"], row["horizon"], row["metric"], row["model"]): row
        for row in rows.iter_rows(named=True)
    }


def _tests_of(results: Results) -> pl.DataFrame:
    """The tests of everybody against the other methods, with p adjusted over all of them together.

    Methods whose rows are from the contest of another bundle are compared with that bundle.
    """
    tests = results.comparisons
    if tests is None:
        raise UsageError("The committed results have no comparisons. Take them with --take.")
    return adjust_together(tests)


def interval_line(results: Results, tests: pl.DataFrame) -> str:
    """In how many rows the mean interval score of the bundle is the lowest, and surely so.

    A row is a setting, a horizon and a coverage. Not counted: rows without sets of the bundle.
    """
    scores: dict[tuple[str, int, str], dict[str, float]] = {}
    for (setting, horizon, metric, model), row in _by_key(results).items():
        if metric.startswith("interval_") and model != CLAIRVOYANT and VARIANT not in model:
            scores.setdefault((setting, horizon, metric), {})[model] = row["value"]
    rows = {key: by_model for key, by_model in scores.items() if BUNDLE_NAME in by_model}
    kept = list(results.provenance.get(KEPT, {}))
    unsure = tests.filter(
        pl.col("test") != YEAR,
        ~pl.col("model").is_in(kept),
        ~((pl.col("difference") > 0) & (pl.col("p_holm") < SURE)),
    )
    unsure_rows = set(unsure.select("setting", "horizon", "metric").iter_rows())
    sure = sum(key not in unsure_rows for key in rows)
    exceptions = []
    for (setting, horizon, metric), by_model in rows.items():
        best = min(by_model, key=by_model.__getitem__)
        if best != BUNDLE_NAME:
            excess = 100 * (by_model[BUNDLE_NAME] / by_model[best] - 1)
            where = f"{setting}, h = {horizon}, {metric.removeprefix('interval_')} %"
            exceptions.append(f"{where} ({excess:.1f} % above {best})")
    line = (
        f"mean interval score of 50, 80, 90 and 95 % sets: {BUNDLE_NAME}'s is the lowest in "
        f"{len(rows) - len(exceptions)} of {len(rows)} rows"
    )
    line += f"; not {'; '.join(exceptions)}." if exceptions else "."
    untested = f" (not tested against {', '.join(kept)})" if kept else ""
    return f"{line} It is significantly lower than every other method's in {sure}{untested}."


def _headline_tables(results: Results) -> list[Table]:
    """CRPS of every model, and the coverage of the bundle, by setting and horizon."""
    by_key = _by_key(results)
    models = order_models({model for *_, model in by_key})
    table_rows = list[list[TableCell]]()
    for setting, horizon in dict.fromkeys(key[:2] for key in by_key):
        n = by_key[setting, horizon, "crps_log", BUNDLE_NAME]["n"]
        first = [TableCell(setting), TableCell(str(horizon))]
        scores = [by_key[setting, horizon, "crps_log", model] for model in models]
        lowest = min(row["value"] for row in scores if row["model"] != CLAIRVOYANT)
        cells = [TableCell(f"{row['value']:.3f}", bold=row["value"] == lowest) for row in scores]
        row = by_key.get((setting, horizon, "coverage_90", BUNDLE_NAME))
        covered = TableCell(NO_INTERVAL)
        if row:
            band = format_band(row)
            text = f"{100 * row['value']:.1f}" + (f" ({band})" if band else "")
            covered = TableCell(text, alarm=outside_band(row))
        table_rows.append([*first, TableCell(f"{n:,}"), *cells, covered])
    heads = ["setting", "years ahead", "persons", *map(heading, models), "inside the sets"]
    return [Table("CRPS of log earnings, and coverage of SAGA's 90 % sets", "", heads, table_rows)]


def _further_tables(results: Results) -> list[Table]:
    """The tables of FURTHER without their published columns."""
    tables = {table.title: table for table in paper_tables(results)}
    shown: list[Table] = []
    for title, (columns, names) in FURTHER.items():
        if title not in tables:
            continue
        table = tables[title]
        at = [
            i
            for i, head in enumerate(table.head)
            if re.match(columns, head) and not table.rows[0][i].published
        ]
        rows = [
            [row[i] for i in at]
            for row in table.rows
            if names is None or row[0].text.startswith(names)
        ]
        note = re.sub(r" Published: [^.]*\.", "", table.note)
        note = note if note not in [other.note for other in shown] else ""
        shown.append(Table(title, note, [table.head[i] for i in at], rows))
    return shown


def _kept_note(results: Results) -> str:
    """Sentences about rows of baselines from the contest of an earlier bundle."""
    kept = results.provenance.get(KEPT, {})
    if not kept:
        return ""
    rows = ", ".join(f"{name} (`{bundle[:12]}`)" for name, bundle in kept.items())
    return (
        f" Rows from the contest of another bundle, on the same persons: {rows}; differences are "
        "to that bundle, and intervals those of its kind of sets."
    )


def _lifetimes_note(panel: str, committed: CommittedResults) -> str:
    """A sentence about lifetimes from the contest of another bundle."""
    bundle, scored = (
        committed.records(name).get(panel, {}).get("bundle") for name in ("lifetimes", "metrics")
    )
    if bundle in (None, scored):
        return ""
    return f" The lifetimes are those of the contest of the bundle `{bundle[:12]}`."


def readme_table(committed: CommittedResults) -> str:
    """The table of the README: SAGA, the best other method, and the coverage of SAGA.

    A lead over that method has its p if it is significant by every test, of persons and of years.
    """
    rows = []
    for panel, (_, label, _) in PANELS.items():
        results = committed.of(panel)
        by_key, tests = _by_key(results), _tests_of(results).filter(metric="crps_log")
        settings = list(dict.fromkeys(setting for setting, *_ in by_key))
        # A panel with later years is for the forward setting; the other panels show the others.
        if "forward" in settings and panel != "register":
            settings = ["forward"]
        for setting, horizon in dict.fromkeys(key[:2] for key in by_key):
            if setting not in settings or horizon not in README_HORIZONS:
                continue
            crps = {
                model: row["value"]
                for (*key, metric, model), row in by_key.items()
                if key == [setting, horizon] and metric == "crps_log"
            }
            others = [name for name in order_models(crps) if name not in (BUNDLE_NAME, CLAIRVOYANT)]
            best = min(others, key=lambda name: crps[name])
            n = by_key[setting, horizon, "crps_log", BUNDLE_NAME]["n"]
            coverage = by_key.get((setting, horizon, "coverage_90", BUNDLE_NAME))
            texts = [f"{crps[BUNDLE_NAME]:.3f}", f"{crps[best]:.3f}"]
            bold = 0 if crps[BUNDLE_NAME] <= crps[best] else 1
            texts[bold] = f"**{texts[bold]}**"
            tested = tests.filter(setting=setting, horizon=horizon, model=best)["p_holm"]
            if bold == 0 and len(tested) and (tested < SURE).all():
                texts[0] += f" ({SURE_TEXT})"
            rows.append(
                [
                    label,
                    setting,
                    str(horizon),
                    f"{n:,}",
                    texts[0],
                    f"{texts[1]} ({best})",
                    f"{100 * coverage['value']:.1f}" if coverage else NO_INTERVAL,
                ]
            )
    head = [
        *("persons", "setting", "years ahead", "number of persons", "error of SAGA"),
        "error of the best other method",
        "outcomes inside the 90 % sets (%)",
    ]
    return markdown_table(head, rows)


def readme(committed: CommittedResults, shipped: Sequence[str]) -> str:
    """README.md with a new results block."""
    text = README.read_text(encoding="utf-8")
    rows = ", ".join(f"`{committed.row_of(panel)['hash'][:12]}`" for panel in PANELS)
    bundle = str(committed.records("metrics")["register"]["bundle"])
    source = f"Rows {rows} of the [scoreboard](docs/how-to/contest.md#the-scoreboard)."
    if bundle not in shipped:
        source += f" Simulated: bundle `{bundle[:12]}`, not the shipped one."
    block = f"{START}\n\n{readme_table(committed)}\n\n{source}\n\n{END}"
    return re.sub(f"{re.escape(START)}.*{re.escape(END)}", lambda _: block, text, flags=re.DOTALL)


def paper_page(committed: CommittedResults, shipped: Sequence[str]) -> str:
    """docs/method/paper.md with new tables."""
    board = committed.board
    study = board.result("paper-rows")
    tables = ticked_rows(committed.of("register"), study["pages"][0]["rows"])
    rows = committed.row_of("register"), study
    source = "\n".join(source_line(row, board, shipped) for row in rows)
    block = f"{PAPER_START}\n\n{tables}\n\n{source}\n\n{PAPER_END}"
    text = PAPER.read_text(encoding="utf-8")
    return re.sub(f"{PAPER_START}.*{PAPER_END}", lambda _: block, text, flags=re.DOTALL)


def pages(committed: CommittedResults) -> dict[Path, str]:
    """Every page that has generated figures, as it should be."""
    board, bundle = committed.board, Bundle.load(SHIPPED)
    of_calibration = (r for r in board.rows if r.get("calibration") == bundle.calibration_digest)
    shipped = [*dict.fromkeys([bundle.digest, *(row["bundle"] for row in of_calibration)])]
    texts = {
        RESULTS: results_page(committed, shipped),
        README: readme(committed, shipped),
        PAPER: paper_page(committed, shipped),
    }
    for page in sorted((ROOT / "docs").rglob("*.md")):
        texts.setdefault(page, page.read_text(encoding="utf-8"))
    return {page: renew(text, board, shipped) for page, text in texts.items()}


def main() -> int:
    """Writes the pages, compares them, or takes results."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    option = parser.add_mutually_exclusive_group().add_argument
    option(
        "--check",
        action="store_true",
        help="exit 1 if a page differs from what would be written",
    )
    option("--tables", metavar="DIR", type=Path, help="write every table as a page, DIR/PANEL")
    option(
        "--take",
        nargs="+",
        metavar=("PANEL OUT", "KEPT"),
        help="take what `saga evaluate --out OUT` wrote as the results of PANEL; rows of baselines "
        "KEPT, which OUT must not have, stay, and rows of variants if OUT has none",
    )
    option(
        "--take-variants",
        nargs=2,
        metavar=("PANEL", "OUT"),
        help="take only the rows of the variants; other committed results stay",
    )
    args = parser.parse_args()
    committed = CommittedResults(HERE, PANELS)
    try:
        if args.take:
            if len(args.take) < 2:
                parser.error("--take needs a panel and the directory of its contest: PANEL OUT")
            panel, out, *staying = args.take
            committed.take(panel, Path(out), staying)
            return 0
        if args.take_variants:
            panel, out = args.take_variants
            committed.take_variants(panel, Path(out))
            return 0
    except UsageError as error:
        parser.error(str(error))
    if args.tables:
        for panel in PANELS:
            (args.tables / panel).mkdir(parents=True, exist_ok=True)
            write_pages(committed.of(panel), args.tables / panel)
        return 0
    try:
        texts = pages(committed)
    except UsageError as error:
        parser.error(str(error))
    if args.check:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in texts.items()))
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
