"""Writes docs/results.md and the results of README.md from the metrics committed beside this file. No figure is typed by hand.

Usage: python docs/results/write.py            after copying metrics.parquet of `saga evaluate` to register.parquet and nlsy79.parquet
       python docs/results/write.py --check    exit 1 where a page differs from what would be written
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import polars as pl

from evaluation.tables import build_tables, to_markdown
from saga.output import read_provenance

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS, README = ROOT / "docs/results.md", ROOT / "README.md"
START, END = "<!-- results: written by docs/results/write.py -->", "<!-- end of results -->"
MODELS = ("saga", "carry", "groupq")
PANELS = {
    "register": (
        "Synthetic register, a seed not used in training",
        """saga register generate --persons 60000 --seed 2 --future-to 2042 --future-draws 20 --out fresh
saga evaluate bundles/small --panel fresh --out evaluation""",
    ),
    "nlsy79": (
        "NLSY79, hourly wages of real people, persons held out",
        """saga train --panel nlsy79_wages.parquet --mapping nlsy79 --config examples/nlsy79.yaml --seed 1 --out nlsy79
saga calibrate nlsy79 --panel nlsy79_wages.parquet --mapping nlsy79 --map-persons 500
saga evaluate nlsy79 --panel nlsy79_wages.parquet --mapping nlsy79 --horizons 1,2,10,20 --out evaluation""",
    ),
}


def metrics(panel: str) -> tuple[pl.DataFrame, dict[str, object]]:
    """The committed metrics of a panel and their provenance."""
    file = HERE / f"{panel}.parquet"
    return pl.read_parquet(file), dict(read_provenance(file))


def results_page() -> str:
    """docs/results.md."""
    parts = [
        "# Results\n",
        "Written by `python docs/results/write.py` from the metrics in `docs/results/`; the commands make those metrics. Columns marked "
        "published are the paper's own figures on the Swedish LISA register: another population, not a comparison on equal terms.\n",
    ]
    for panel, (title, command) in PANELS.items():
        table, provenance = metrics(panel)
        origin = ", ".join(f"{key} `{value}`" for key, value in provenance.items() if not isinstance(value, (dict, list)))
        pages = [t for t in build_tables(table) if t.title.startswith(("Accuracy", "Coverage,"))]
        parts += [f"# {title}\n", f"```console\n{command}\n```\n", f"{origin}.\n", to_markdown(pages)]
    return "\n".join(parts)


def summary(panel: str) -> str:
    """A short table for the README: CRPS of log earnings and coverage of the 90 % sets, by setting and horizon."""
    table, _ = metrics(panel)
    whole = table.filter((pl.col("group") == "all") & (pl.col("n") > 0))
    found = {(r["setting"], r["metric"], r["horizon"], r["model"]): r for r in whole.iter_rows(named=True)}
    lines = ["| setting | h | persons | CRPS log: saga | carry | groupq | MAE log: saga | carry | groupq | coverage 90 %: saga | band |"]
    lines.append("|" + "---|" * 11)
    for setting, horizon in sorted({(k[0], k[2]) for k in found}, key=lambda k: (k[0] != "in-time", k[1])):

        def values(metric: str, at: tuple[str, int] = (setting, horizon)) -> list[str]:
            cells = [found[at[0], metric, at[1], model]["value"] for model in MODELS]
            return [f"**{v:.3f}**" if v == min(cells) else f"{v:.3f}" for v in cells]

        cover = found[setting, "coverage_90", horizon, "saga"]
        band = "" if cover["band_lower"] is None else f"{100 * cover['band_lower']:.1f}-{100 * cover['band_upper']:.1f}"
        row = [setting, str(horizon), f"{cover['n']:,}", *values("crps_log"), *values("mae_log"), f"{100 * cover['value']:.1f}", band]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def readme() -> str:
    """README.md with its results block written anew."""
    text = README.read_text(encoding="utf-8")
    block = "\n\n".join(f"{title}:\n\n{summary(panel)}" for panel, (title, _) in PANELS.items())
    return re.sub(f"{re.escape(START)}.*{re.escape(END)}", f"{START}\n\n{block}\n\n{END}", text, flags=re.DOTALL)


def main() -> int:
    """Write the pages, or compare them."""
    pages = {RESULTS: results_page(), README: readme()}
    if "--check" in sys.argv:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in pages.items()))
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
