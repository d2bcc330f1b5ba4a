"""How people's earnings answer to the economy: in the model's futures and in the register's true ones.

A path is one macro future for everybody, and so is a drawn future of the register; each gives a cross-section a year
(`evaluation.cross_section`). The response of a statistic h years ahead is its least-squares slope, over futures, on the mean unemployment
of the years 1..h. A model that learnt nothing of recessions has slopes of zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import linregress

from evaluation.cross_section import BY_NAME, EVERYBODY, STATISTICS
from evaluation.futures import true_economies

Array = NDArray[np.float64]
ANSWERING = ("zero", "mean", "p10_p50")  # lower earnings, more zeros, a longer lower tail
AHEAD = (1, 2, 3, 5, 10)


def true_unemployment(futures: Path) -> dict[int, Array]:
    """Unemployment (years,) by draw of the register's future economies, fractions."""
    return {draw: economy["unemployment"].to_numpy() for draw, economy in true_economies(futures).items()}


def responses(sections: pl.DataFrame, unemployment: Mapping[str, Mapping[int, Array]], years: Sequence[int] = AHEAD) -> pl.DataFrame:
    """Columns statistic, year, and for the model and (`_true`) the truth `slope` and `se`, per percentage point of unemployment.

    `sections` of `simulated` and `true`; `unemployment[source][future]` (years,). Relative statistics are taken in logs. Standard errors
    are those of least squares, futures being independent; a source with fewer than 4 futures has no rows.
    """
    rows = []
    for name in (statistic.name for statistic in STATISTICS if statistic.name in ANSWERING):
        of = sections.filter(pl.col("group") == EVERYBODY, pl.col("statistic") == name)
        for year in years:
            row: dict[str, str | int | float] = {"statistic": name, "year": year}
            for source, suffix in (("model", ""), ("truth", "_true")):
                found = of.filter(pl.col("source") == source, pl.col("year") == year)
                if found.height < 4:
                    break
                y = found["value"].to_numpy()
                x = 100 * np.array([unemployment[source][future][:year].mean() for future in found["future"]])
                fit = linregress(x, np.log(y) if BY_NAME[name].relative else y)
                row |= {f"slope{suffix}": float(fit.slope), f"se{suffix}": float(fit.stderr)}
            else:
                rows.append(row)
    return pl.DataFrame(rows)


def as_markdown(table: pl.DataFrame) -> str:
    """The table of `responses`, a row a statistic."""
    if table.is_empty():
        return ""
    years = table["year"].unique().sort().to_list()
    lines = ["What a percentage point more of unemployment, on average since the origin, goes with: model / truth (± standard error).", ""]
    lines += [f"| statistic | {' | '.join(f'{year} years' for year in years)} |", "|---|" + "---|" * len(years)]
    for (name,), part in table.group_by(["statistic"], maintain_order=True):
        relative = BY_NAME[str(name)].relative
        cells = [
            f"{_form(r['slope'], relative)} ± {_form(r['se'], relative)[1:]} / "
            f"{_form(r['slope_true'], relative)} ± {_form(r['se_true'], relative)[1:]}"
            for r in part.sort("year").iter_rows(named=True)
        ]
        lines.append(f"| {BY_NAME[str(name)].meaning} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _form(value: float, relative: bool) -> str:
    return f"{100 * value:+.1f} %" if relative else f"{value:+.4f}"
