"""Writes docs/results.md and the results of README.md from the tables committed beside this file. No figure is typed by hand.

Without an option the pages are written; the options check them, or take results: see --help.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluation.contest import FILES
from evaluation.report.pages import all_tables
from evaluation.report.paper import Results
from evaluation.report.result_tables import to_markdown
from evaluation.scoring.comparison import VARIANT
from evaluation.scoring.metrics import METRICS
from saga.errors import UsageError
from saga.files.tables import read_provenance, write_table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS, README = ROOT / "docs/results.md", ROOT / "README.md"
START, END = "<!-- results: written by docs/results/write.py -->", "<!-- end of results -->"
SHOWN = ("saga", "carry", "groupq", "abb", "gbt")  # in the README
KEPT = "kept"  # in a provenance: baselines whose rows were judged beside another bundle, and which
OF_GROUPS = (
    "crps_log",
    *(name for name in METRICS if name.startswith("coverage_")),
)  # what is committed of groups, of all else everything
PANELS = {
    "register": (
        "Synthetic register, a seed not used in training",
        """pip install "gluonts[torch]"  # for deepar, which is left out without it
saga register generate --persons 60000 --seed 2 --future-to 2062 --future-draws 20 --out fresh
saga register generate --persons 100000 --seed 1 --out other
python -m studies.ablations --panel other --out variants
saga train --panel fresh --config small --seed 1 --out variants/same
saga calibrate variants/same --panel fresh --rollout light
echo '- {name: same, table: Equal data, label: small on equal data, note: 12 000 steps, bundle: same}' >> variants/variants.yaml
saga evaluate bundles/small --panel fresh --baselines all --tables all --variants variants/variants.yaml --out evaluation""",
    ),
    "nlsy79": (
        "NLSY79, hourly wages of real people, persons held out",
        """saga train --panel nlsy79_wages.parquet --mapping nlsy79 --config examples/nlsy79.yaml --seed 1 --out nlsy79
saga calibrate nlsy79 --panel nlsy79_wages.parquet --mapping nlsy79 --map-persons 500
saga evaluate nlsy79 --panel nlsy79_wages.parquet --mapping nlsy79 --horizons 1,2,10,20 \\
    --baselines carry,groupq,ar1,abb,gbt --out evaluation""",
    ),
    "nlsy79-1998": (
        "NLSY79, persons and the last twenty years held out",
        """saga train --panel nlsy79_wages.parquet --mapping nlsy79 --config examples/nlsy79.yaml --seed 1 --until 1998 --out nlsy79-1998
saga calibrate nlsy79-1998 --panel nlsy79_wages.parquet --mapping nlsy79 --map-persons 500 --until 1998
saga evaluate nlsy79-1998 --panel nlsy79_wages.parquet --mapping nlsy79 --horizons 2,10,20 \\
    --baselines carry,groupq,ar1,abb,gbt --out evaluation""",
    ),
}


def take(panel: str, out: Path, stay: Sequence[str] = ()) -> None:
    """Makes the tables in `out` the committed results of `panel`: one file a table, a column `panel`, the provenance by panel.

    Baselines named in `stay` keep their rows, and so do all variants (but not what a contest makes of the bundle itself, `saga:told` and
    the placebos) where `out` has none: they were judged on the same persons, beside the bundle that the provenance then names. Raises
    UsageError, before anything is written, for an unknown panel, an `out` without results, and a baseline that cannot stay: it has rows in
    `out`, or none before.
    """
    judged = set(_found(panel, out, "metrics")["model"])
    before = _records("metrics").get(panel, {})
    rivals = {
        name for name in _rows("metrics", panel, "model") if not name.startswith(VARIANT)
    } - judged
    for name in stay:
        if name in judged:
            raise UsageError(
                f"{out} has rows of {name}: with those of before they would stand there twice. Leave {name} out of KEPT."
            )
        if name not in rivals:
            names = ", ".join(sorted(rivals)) or "none"
            raise UsageError(
                f"The results of {panel} have no baseline {name} whose rows could stay. Those that could: {names}."
            )
    origins = {name: before.get(KEPT, {}).get(name, before.get("bundle")) for name in stay}
    variants = (out / "variants.parquet").is_file()
    staying = [
        *stay,
        *([] if variants else [f"{VARIANT}{name}" for name in _rows("variants", panel, "name")]),
    ]
    for name in FILES:
        kept, source = HERE / f"{name}.parquet", out / f"{name}.parquet"
        if name == "variants" and not variants:
            continue
        former = pl.read_parquet(kept) if kept.is_file() else None
        records = {other: record for other, record in _records(name).items() if other != panel}
        table = None if former is None else former.filter(pl.col("panel") != panel)
        if source.is_file():
            records[panel] = read_provenance(source)
            new = _committed(name, pl.read_parquet(source)).select(
                pl.lit(panel).alias("panel"), pl.all()
            )
            if former is not None and "model" in former.columns:
                records[panel] |= {KEPT: origins} if stay else {}
                new = pl.concat(
                    [new, former.filter(pl.col("panel") == panel, pl.col("model").is_in(staying))]
                )
            table = (
                new if table is None else pl.concat([table, new]).sort("panel", maintain_order=True)
            )
        if table is not None and not table.is_empty():
            write_table(table, kept, records)
        else:
            kept.unlink(missing_ok=True)


def take_variants(panel: str, out: Path) -> None:
    """Replaces the rows of the variants in `out`, in every table; others stay, and beside which bundle they were judged is kept.

    Raises UsageError, before anything is written, for an unknown panel and an `out` without variants.
    """
    theirs = _found(panel, out, "variants")["name"].to_list()
    for name in FILES:
        kept, source = HERE / f"{name}.parquet", out / f"{name}.parquet"
        if not kept.is_file() or not source.is_file():
            continue
        table, records, new = (
            pl.read_parquet(kept),
            read_provenance(kept),
            _committed(name, pl.read_parquet(source)),
        )
        if name == "variants":
            column, names = "name", theirs
            before = records.get(panel, {})
            staying = table.filter(pl.col("panel") == panel, ~pl.col("name").is_in(theirs))[
                "name"
            ].to_list()
            earlier = before.get(KEPT, {})
            records[panel] = read_provenance(source) | {
                KEPT: {one: earlier.get(one, before.get("bundle")) for one in staying}
            }
        elif "model" in table.columns:
            column, names = "model", [f"{VARIANT}{one}" for one in theirs]
        else:
            continue
        new = new.filter(pl.col(column).is_in(names)).select(pl.lit(panel).alias("panel"), pl.all())
        rest = table.filter((pl.col("panel") != panel) | ~pl.col(column).is_in(names))
        write_table(pl.concat([rest, new]).sort("panel", maintain_order=True), kept, records)


def _found(panel: str, out: Path, name: str) -> pl.DataFrame:
    """A table of the contest in `out`. Raises UsageError where there is none, or no such panel."""
    if panel not in PANELS:
        raise UsageError(f"There is no panel {panel}. The panels are {', '.join(PANELS)}.")
    if not (out / f"{name}.parquet").is_file():
        raise UsageError(
            f"{out} has no {name}.parquet. Give the directory that `saga evaluate --out` wrote its {name} to."
        )
    return pl.read_parquet(out / f"{name}.parquet")


def _records(name: str) -> dict[str, Any]:
    """Panel -> provenance of its rows in the committed table; none where there is no table."""
    file = HERE / f"{name}.parquet"
    return read_provenance(file) if file.is_file() else {}


def _rows(name: str, panel: str, column: str) -> list[str]:
    """The names of a panel's rows in the committed table, each once."""
    file = HERE / f"{name}.parquet"
    return (
        pl.read_parquet(file)
        .filter(pl.col("panel") == panel)[column]
        .unique(maintain_order=True)
        .to_list()
        if file.is_file()
        else []
    )


def _committed(name: str, table: pl.DataFrame) -> pl.DataFrame:
    """The rows that are committed: of groups only the scores that pages show."""
    if name == "metrics":
        return table.filter((pl.col("group") == "all") | pl.col("metric").is_in(OF_GROUPS))
    return table.drop("bundle") if name == "variants" else table


def results(panel: str) -> Results:
    """The committed results of a panel."""
    found = {
        name: pl.read_parquet(file)
        for name in FILES
        if (file := HERE / f"{name}.parquet").is_file()
    }
    own = {
        name: table.filter(pl.col("panel") == panel).drop("panel") for name, table in found.items()
    }
    return Results(
        provenance=read_provenance(HERE / "metrics.parquet")[panel],
        **{k: v for k, v in own.items() if v.height},
    )


def results_page() -> str:
    """docs/results.md."""
    parts = [
        "# Results\n",
        "Written by `python docs/results/write.py` from the tables in `docs/results/`; the commands make those tables. Columns marked "
        "published are the paper's own figures on the Swedish LISA register: another population, not a comparison on equal terms.\n",
    ]
    for panel, (title, command) in PANELS.items():
        found = results(panel)
        origin = ", ".join(
            f"{key} `{value}`"
            for key, value in found.provenance.items()
            if not isinstance(value, (dict, list))
        )
        pages = [table for table in all_tables(found) if " by group, " not in table.title]
        parts += [
            f"# {title}\n",
            f"```console\n{command}\n```\n",
            f"{origin}.{kept_from(found.provenance)}{variants_of(panel)}\n",
            to_markdown(pages),
        ]
    return "\n".join(parts)


def kept_from(provenance: Mapping[str, Any]) -> str:
    """A sentence where rows of baselines are those of a contest before."""
    sentences = [
        f" The rows of {name} are those of the contest of bundle `{bundle[:12]}`, on the same persons; differences are to that one."
        for name, bundle in provenance.get(KEPT, {}).items()
    ]
    return "".join(sentences)


def variants_of(panel: str) -> str:
    """A sentence where variants were judged beside another bundle than the rest."""
    found = _records("variants").get(panel, {})
    if not found:
        return ""
    names = _rows("variants", panel, "name")
    judged = results(panel).provenance["bundle"]
    beside = {name: found.get(KEPT, {}).get(name, found["bundle"]) for name in names}
    others = {name: bundle for name, bundle in beside.items() if bundle != judged}
    if not others:
        return ""
    who = (
        "The variants"
        if len(others) == len(names)
        else f"The variants but {', '.join(sorted(set(names) - set(others)))}"
    )
    bundles = ", ".join(f"`{bundle[:12]}`" for bundle in sorted(set(others.values())))
    return f" {who} were judged beside the bundle {bundles} and are to be compared with each other."


def summary(panel: str) -> str:
    """A short table for the README: CRPS of log earnings and coverage of the 90 % sets, by setting and horizon."""
    whole = results(panel).metrics.filter((pl.col("group") == "all") & (pl.col("n") > 0))
    found = {
        (r["setting"], r["metric"], r["horizon"], r["model"]): r
        for r in whole.iter_rows(named=True)
    }
    shown = [name for name in SHOWN if any(model == name for *_, model in found)]
    lines = ["| setting | h | persons | " + " | ".join(shown) + " | coverage 90 %: saga | band |"]
    lines.append("|" + "---|" * (len(shown) + 5))
    for setting, horizon in sorted(
        {(k[0], k[2]) for k in found}, key=lambda k: (k[0] != "in-time", k[1])
    ):
        crps = [found[setting, "crps_log", horizon, model]["value"] for model in shown]
        marked = [f"**{value:.3f}**" if value == min(crps) else f"{value:.3f}" for value in crps]
        cover = found[setting, "coverage_90", horizon, "saga"]
        band = (
            ""
            if cover["band_lower"] is None
            else f"{100 * cover['band_lower']:.1f}-{100 * cover['band_upper']:.1f}"
        )
        row = [
            setting,
            str(horizon),
            f"{cover['n']:,}",
            *marked,
            f"{100 * cover['value']:.1f}",
            band,
        ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def readme() -> str:
    """README.md with its results block written anew."""
    text = README.read_text(encoding="utf-8")
    block = "\n\n".join(f"{title}:\n\n{summary(panel)}" for panel, (title, _) in PANELS.items())
    return re.sub(
        f"{re.escape(START)}.*{re.escape(END)}",
        f"{START}\n\n{block}\n\n{END}",
        text,
        flags=re.DOTALL,
    )


def main() -> int:
    """Write the pages, compare them, or take results."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    option = parser.add_mutually_exclusive_group().add_argument
    option(
        "--check",
        action="store_true",
        help="exit 1 where a page differs from what would be written",
    )
    option(
        "--take",
        nargs="+",
        metavar=("PANEL OUT", "KEPT"),
        help="take what `saga evaluate --out OUT` wrote as the results of PANEL; rows of baselines KEPT, which OUT must not have, stay, "
        "and rows of variants where OUT has none",
    )
    option(
        "--take-variants",
        nargs=2,
        metavar=("PANEL", "OUT"),
        help="the rows of its variants alone, beside the results that are there",
    )
    given = parser.parse_args()
    try:
        if given.take:
            if len(given.take) < 2:
                parser.error(
                    "--take needs a panel and the directory of its contest: --take PANEL OUT"
                )
            panel, out, *stay = given.take
            take(panel, Path(out), stay)
            return 0
        if given.take_variants:
            panel, out = given.take_variants
            take_variants(panel, Path(out))
            return 0
    except UsageError as error:
        parser.error(str(error))
    pages = {RESULTS: results_page(), README: readme()}
    if given.check:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in pages.items()))
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
