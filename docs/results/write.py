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
from saga.evaluation.contest_tables import FILES
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
from saga.evaluation.scoreboard import SHOWN, Row, Scoreboard, digest_table
from saga.evaluation.scoring.comparison import (
    BUNDLE_NAME,
    SURE,
    VARIANT,
    YEAR,
    adjust_together,
    verdict_lines,
)
from saga.evaluation.scoring.gap import CLAIRVOYANT
from saga.evaluation.scoring.metrics import METRICS

from saga.bundle import Bundle
from saga.errors import UsageError
from saga.files.tables import read_provenance, write_table
from saga.pages.format import markdown_table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHIPPED = ROOT / "bundles/small"
RESULTS, README = ROOT / "docs/results.md", ROOT / "README.md"
BOARD = "scoreboard.jsonl"  # in this folder
DIGESTED = ("metrics", "comparisons", "lifetimes", "variants")  # tables that a row binds
PAPER = ROOT / "docs/method/paper.md"
PAPER_START, PAPER_END = "<!-- paper -->", "<!-- end of paper -->"
START, END = "<!-- results: written by docs/results/write.py -->", "<!-- end of results -->"
README_HORIZONS = (1, 10)
NLSY_COMMANDS = "Commands: [NLSY79](how-to/nlsy79.md#train-calibrate-evaluate-forecast)."
AHEAD = "saga is significantly better (p < .01, Holm) at every horizon than"
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

## Equal data

SAGA, too, has learnt from the register of these persons alone (configuration `small`). CRPS of
`saga`, and how much higher it is of the others; p over the table (Holm) where it is below .1.
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
KEPT = "kept"  # in a provenance: baseline or variant -> the bundle of the contest of its rows
# Of groups these metrics are committed, of all persons every metric.
GROUP_METRICS = ("crps_log", *(name for name in METRICS if name.startswith("coverage_")))
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


def take(panel: str, out: Path, staying: Sequence[str] = ()) -> None:
    """Makes the tables in `out` the committed results of `panel`.

    There is one file per table, with a column `panel` and the provenance by panel. Baselines named
    in `staying` keep their committed rows; the provenance then names the bundle of their contest.
    If `out` has no variants, all committed variants stay too, but not the rows that a contest makes
    from the bundle (`saga:told` and the placebos). Lifetimes stay if `out` has none.

    Raises UsageError, before anything is written, if the panel is unknown, if `out` has no results,
    or if a baseline cannot stay because `out` has rows of it or there are none to stay.
    """
    scored = set(_read_output(panel, out, "metrics")["model"])
    former_record = _records("metrics").get(panel, {})
    baselines = {
        name for name in _names("metrics", panel, "model") if not name.startswith(VARIANT)
    } - scored
    for name in staying:
        if name in scored:
            raise UsageError(
                f"{out} has rows of {name}: with the committed ones they would be there twice. "
                f"Leave {name} out of KEPT."
            )
        if name not in baselines:
            names = ", ".join(sorted(baselines)) or "none"
            raise UsageError(
                f"The results of {panel} have no baseline {name} whose rows could stay. "
                f"Those that could: {names}."
            )
    bundles = {
        name: former_record.get(KEPT, {}).get(name, former_record.get("bundle")) for name in staying
    }
    has_variants = (out / "variants.parquet").is_file()
    models = list(staying)
    if not has_variants:
        models += [f"{VARIANT}{name}" for name in _names("variants", panel, "name")]
    for name in FILES:
        file, source = HERE / f"{name}.parquet", out / f"{name}.parquet"
        if (name == "variants" and not has_variants) or (
            name == "lifetimes" and not (out / f"{name}.parquet").is_file()
        ):
            continue
        former = pl.read_parquet(file) if file.is_file() else None
        records = {other: record for other, record in _records(name).items() if other != panel}
        table = None if former is None else former.filter(pl.col("panel") != panel)
        if source.is_file():
            records[panel] = read_provenance(source)
            new = _committed_rows(name, panel, source)
            if former is not None and "model" in former.columns:
                records[panel] |= {KEPT: bundles} if staying else {}
                stays = pl.col("model").is_in(models)
                new = pl.concat([new, former.filter(pl.col("panel") == panel, stays)])
            table = (
                new if table is None else pl.concat([table, new]).sort("panel", maintain_order=True)
            )
        if table is not None and not table.is_empty():
            write_table(table, file, records)
        else:
            file.unlink(missing_ok=True)
    _show(panel)


def take_variants(panel: str, out: Path) -> None:
    """Replaces the rows of the variants in `out`, in every table; other rows stay.

    The provenance names the bundle of the contest of each staying variant. Raises UsageError,
    before anything is written, if the panel is unknown or `out` has no variants.
    """
    variants = _read_output(panel, out, "variants")["name"].to_list()
    for name in FILES:
        file, source = HERE / f"{name}.parquet", out / f"{name}.parquet"
        if not file.is_file() or not source.is_file():
            continue
        table, records = pl.read_parquet(file), read_provenance(file)
        of_panel = pl.col("panel") == panel
        if name == "variants":
            column, names = "name", variants
            former = records.get(panel, {})
            staying = table.filter(of_panel, ~pl.col("name").is_in(variants))["name"].to_list()
            bundles = former.get(KEPT, {})
            records[panel] = read_provenance(source) | {
                KEPT: {variant: bundles.get(variant, former.get("bundle")) for variant in staying}
            }
        elif "model" in table.columns:
            column, names = "model", [f"{VARIANT}{variant}" for variant in variants]
        else:
            continue
        new = _committed_rows(name, panel, source).filter(pl.col(column).is_in(names))
        rest = table.filter(~of_panel | ~pl.col(column).is_in(names))
        write_table(pl.concat([rest, new]).sort("panel", maintain_order=True), file, records)
    _show(panel)


def _show(panel: str) -> None:
    """Append to the scoreboard which tables the page of results shows from now on."""
    record = _records("metrics")[panel]
    provenance = {
        name: record[name] for name in ("bundle", "calibration", "seed") if name in record
    }
    board = Scoreboard.read(HERE / BOARD)
    tables = {"tables": _digests(panel), "others": _others(panel)}
    board.append({"kind": SHOWN, "contest": panel, **tables, **provenance})


def _others(panel: str) -> list[str]:
    """The bundles of other contests that rows of a panel are from."""
    records = [_records(name).get(panel, {}) for name in DIGESTED]
    named = {record.get("bundle") for record in records}
    named |= {bundle for record in records for bundle in record.get(KEPT, {}).values()}
    return sorted(bundle for bundle in named if bundle)


def _digests(panel: str) -> dict[str, str]:
    """The digest of a panel's rows in each committed table."""
    digests: dict[str, str] = {}
    for name in DIGESTED:
        file = HERE / f"{name}.parquet"
        if file.is_file():
            rows = pl.read_parquet(file).filter(pl.col("panel") == panel).drop("panel")
            digests |= {name: digest_table(rows)} if rows.height else {}
    return digests


def _row_of(panel: str, board: Scoreboard) -> Row:
    """The row of the tables of a panel; UsageError if they are not those of its digests."""
    row = board.result(panel)
    for name, digest in _digests(panel).items():
        if row["tables"].get(name) != digest:
            raise UsageError(
                f"docs/results/{name}.parquet is not as row {row['hash'][:12]} of the scoreboard "
                f"says ({panel}). Restore it, or take results with --take, which appends a row."
            )
    return row


def _read_output(panel: str, out: Path, name: str) -> pl.DataFrame:
    """A table of the contest in `out`; UsageError if it or the panel does not exist."""
    if panel not in PANELS:
        raise UsageError(f"There is no panel {panel}. The panels are {', '.join(PANELS)}.")
    if not (out / f"{name}.parquet").is_file():
        raise UsageError(
            f"{out} has no {name}.parquet. Give the directory that `saga evaluate --out` wrote its "
            f"{name} to."
        )
    return pl.read_parquet(out / f"{name}.parquet")


def _records(name: str) -> dict[str, Any]:
    """Panel -> provenance of its rows in the committed table; empty without the table."""
    file = HERE / f"{name}.parquet"
    return read_provenance(file) if file.is_file() else {}


def _names(name: str, panel: str, column: str) -> list[str]:
    """The distinct values of a column in a panel's rows of the committed table."""
    file = HERE / f"{name}.parquet"
    if not file.is_file():
        return []
    rows = pl.read_parquet(file).filter(pl.col("panel") == panel)
    return rows[column].unique(maintain_order=True).to_list()


def _committed_rows(name: str, panel: str, source: Path) -> pl.DataFrame:
    """The rows of an output table that are committed, with the column `panel`."""
    table = pl.read_parquet(source)
    if name == "metrics":
        table = table.filter((pl.col("group") == "all") | pl.col("metric").is_in(GROUP_METRICS))
    if name == "variants":
        table = table.drop("bundle")
    return table.select(pl.lit(panel).alias("panel"), pl.all())


def committed_results(panel: str) -> Results:
    """The committed results of a panel."""
    tables: dict[str, pl.DataFrame] = {}
    for name in FILES:
        file = HERE / f"{name}.parquet"
        if file.is_file():
            rows = pl.read_parquet(file).filter(pl.col("panel") == panel).drop("panel")
            tables |= {name: rows} if rows.height else {}
    return Results(provenance=_records("metrics")[panel], **tables)


def results_page(board: Scoreboard, shipped: str) -> str:
    """The text of docs/results.md."""
    parts = [
        "# Results\n",
        "Written by `python docs/results/write.py`. All scores, groups, tests and the paper's own "
        "figures: `python docs/results/write.py --tables DIR`.\n",
        "The score is the CRPS of log earnings: lower is better. "
        "*Ahead of* means: significantly better (p < .01) at every horizon, with p adjusted over "
        "all tests of the section (Holm). "
        "*Inside the sets*: share of outcomes (%) inside SAGA's 90 % sets, in brackets the band of "
        "95 % of calibrated forecasters; ! marks a share outside. *In-time*: "
        "origins and outcomes inside the panel's years; *forward*: outcomes after the last "
        "year used. The clairvoyant knows "
        "the register's process and hidden states; the other names: "
        "[baselines](method/baselines.md).\n",
    ]
    for panel, (title, _, commands) in PANELS.items():
        results = committed_results(panel)
        provenance = ", ".join(
            f"{key} `{str(value)[:12] if key in ('bundle', 'calibration') else value}`"
            for key, value in results.provenance.items()
            if key in PROVENANCE
        )
        row = _row_of(panel, board)
        tests = _tests_of(results)
        verdicts = verdict_lines(tests)
        parts += [
            f"# {title}\n",
            "\n".join(
                f"- {line.replace(AHEAD, 'ahead of')}"
                for line in [*verdicts.values(), interval_line(results, tests)]
            )
            + "\n",
            *([note] if panel == "register" and (note := _age_note(results)) else []),
            to_markdown([*_headline_tables(results), *_further_tables(results)]),
            f"{source_line(row, board, shipped)} Provenance: {provenance}.{_kept_note(results)}"
            f"{_lifetimes_note(panel)}\n",
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


def _lifetimes_note(panel: str) -> str:
    """A sentence about lifetimes from the contest of another bundle."""
    bundle, scored = (
        _records(name).get(panel, {}).get("bundle") for name in ("lifetimes", "metrics")
    )
    if bundle in (None, scored):
        return ""
    return f" The lifetimes are those of the contest of the bundle `{bundle[:12]}`."


def readme_table() -> str:
    """The table of the README: SAGA, the best other method, and the coverage of SAGA."""
    rows = []
    for panel, (_, label, _) in PANELS.items():
        by_key = _by_key(committed_results(panel))
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


def readme(board: Scoreboard, shipped: str) -> str:
    """README.md with a new results block."""
    text = README.read_text(encoding="utf-8")
    rows = ", ".join(f"`{_row_of(panel, board)['hash'][:12]}`" for panel in PANELS)
    bundle = str(_records("metrics")["register"]["bundle"])
    source = f"Rows {rows} of the [scoreboard](docs/how-to/contest.md#the-scoreboard)."
    if bundle != shipped:
        source += f" Simulated: bundle `{bundle[:12]}`, not the shipped one."
    block = f"{START}\n\n{readme_table()}\n\n{source}\n\n{END}"
    return re.sub(f"{re.escape(START)}.*{re.escape(END)}", lambda _: block, text, flags=re.DOTALL)


def paper_page(board: Scoreboard, shipped: str) -> str:
    """docs/method/paper.md with new tables."""
    study = board.result("paper-rows")
    tables = ticked_rows(committed_results("register"), study["pages"][0]["rows"])
    rows = _row_of("register", board), study
    source = "\n".join(source_line(row, board, shipped) for row in rows)
    block = f"{PAPER_START}\n\n{tables}\n\n{source}\n\n{PAPER_END}"
    text = PAPER.read_text(encoding="utf-8")
    return re.sub(f"{PAPER_START}.*{PAPER_END}", lambda _: block, text, flags=re.DOTALL)


def pages() -> dict[Path, str]:
    """Every page that has generated figures, as it should be."""
    board, shipped = Scoreboard.read(HERE / BOARD), Bundle.load(SHIPPED).digest
    texts = {
        RESULTS: results_page(board, shipped),
        README: readme(board, shipped),
        PAPER: paper_page(board, shipped),
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
    try:
        if args.take:
            if len(args.take) < 2:
                parser.error("--take needs a panel and the directory of its contest: PANEL OUT")
            panel, out, *staying = args.take
            take(panel, Path(out), staying)
            return 0
        if args.take_variants:
            panel, out = args.take_variants
            take_variants(panel, Path(out))
            return 0
    except UsageError as error:
        parser.error(str(error))
    if args.tables:
        for panel in PANELS:
            (args.tables / panel).mkdir(parents=True, exist_ok=True)
            write_pages(committed_results(panel), args.tables / panel)
        return 0
    try:
        texts = pages()
    except UsageError as error:
        parser.error(str(error))
    if args.check:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in texts.items()))
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
