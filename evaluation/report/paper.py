"""The paper's tables for our register, its published figures beside: results in, tables out. Only shares of means are computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl

from evaluation.lifetime_scores import RATES, RULES, TRUTH
from evaluation.placebos import PLACEBOS
from evaluation.report.result_tables import Cell, Table, heading, ordered, published
from evaluation.scoring.comparison import HINDSIGHT, REFEREE, VARIANT, YEAR, verdict_lines
from evaluation.scoring.gap import BOUND, REFERENCES
from saga.files.tables import read_provenance
from saga.requests import RATE

HORIZON = 10  # the paper's tables of one horizon
LABEL = published()["label"]
CUTS = {
    "all": "everybody",
    "sex=male": "men",
    "sex=female": "women",
    "education_level=compulsory": "compulsory school",
    "education_level=upper_secondary": "upper secondary",
    "education_level=short_tertiary": "short tertiary",
    "education_level=long_tertiary": "long tertiary",
    "employers=stable": "stable employer",
    "employers=1-3": "1-3 changes of employer",
    "employers=4+": "4 or more changes of employer",
    "quintile=1": "lowest fifth",
    "quintile=2": "second fifth",
    "quintile=3": "middle fifth",
    "quintile=4": "fourth fifth",
    "quintile=5": "highest fifth",
    "place=stockholm": "Stockholm county",
    "place=vastra_gotaland": "Västra Götaland (Gothenburg)",
    "place=skane": "Skåne (Malmö)",
    "place=other": "other counties",
}
ROBUST = {
    "all": "headline",
    "cohort=1965-79": "cohorts 1965-79",
    "sex=male": "men only",
    "employers=stable": "stable employer",
}
STATISTICS = {
    "mean": "mean (million)",
    "p50": "median (million)",
    "p10": "P10 (million)",
    "p90": "P90 (million)",
    "p99": "P99 (million)",
    "gini": "Gini",
    "top_1_share": "top 1 % share (%)",
    "crps": "CRPS of single lives (million)",
    "coverage_90": "coverage of 90 % sets (%)",
    "bias": "mean against true (%)",
}
TAXES = {
    "mean": "mean lifetime tax (million)",
    "rate": "mean effective rate (%)",
    "rate_p99": "P99 rate (%)",
    "gini": "Gini of tax",
}


@dataclass(frozen=True, eq=False)
class Results:
    """What an evaluation left in its directory; None where a table was not asked for."""

    metrics: pl.DataFrame
    provenance: Mapping[str, Any]
    comparisons: pl.DataFrame | None = None
    lifetimes: pl.DataFrame | None = None
    calibration_size: pl.DataFrame | None = None
    variants: pl.DataFrame | None = None
    estimates: pl.DataFrame | None = None
    cost: pl.DataFrame | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The Parquet files of `folder`."""
        names = ("comparisons", "lifetimes", "calibration_size", "variants", "estimates", "cost")
        found = {
            name: pl.read_parquet(file)
            for name in names
            if (file := folder / f"{name}.parquet").is_file()
        }
        metrics = folder / "metrics.parquet"
        return cls(pl.read_parquet(metrics), read_provenance(metrics), **found)


def paper_tables(results: Results) -> list[Table]:
    """Every table that the results hold, without those of `evaluation.report.result_tables.build_tables`."""
    tables = [
        *_compared(results),
        *_hindsight(results),
        *_coverage_by_group(results),
        *_subgroups(results),
        *_robustness(results),
    ]
    tables += [
        *_variants(results),
        *_lifetime(results),
        *_tax(results),
        *_calibration_size(results),
        *_estimates(results),
        *_cost(results),
    ]
    return [table for table in tables if table.rows]


def _compared(results: Results) -> list[Table]:
    table = results.comparisons
    if table is None or table.is_empty():
        return []
    theirs = published()["diebold_mariano"]
    rows = table.filter(pl.col("metric") == "crps_log", pl.col("group") == "all")
    lines = verdict_lines(table)
    tables = []
    for (setting, test), some in rows.group_by("setting", "test", maintain_order=True):
        cells = []
        for row in some.sort("model", "horizon").iter_rows(named=True):
            figure = theirs.get(row["model"], {}).get(str(row["horizon"])) if test == YEAR else None
            sure = (
                row["p_holm"] is not None
                and row["p_holm"] < 0.01
                and row["difference"] > 0
                and row["model"] != BOUND
            )
            cells.append(
                [
                    Cell(heading(row["model"])),
                    Cell(str(row["horizon"])),
                    Cell(f"{row['difference']:.4f} ± {row['se']:.4f}", best=sure),
                    Cell(_percent(row["relative"])),
                    Cell("" if row["t"] is None else f"{row['t']:.1f}"),
                    Cell(str(row["df"])),
                    Cell(_p(row["p"])),
                    Cell(_p(row["p_holm"])),
                    Cell("" if figure is None else f"{figure:.1f}", published=True),
                ]
            )
        verdict = " ".join(line for line in lines if line.startswith(f"{setting}, test by {test},"))
        note = f"{verdict} CRPS of log earnings of the other model less that of {REFEREE}: above 0 {REFEREE} is better (bold: p < .01, Holm). "
        note += _TESTS[str(test)]
        head = [
            "model",
            "h",
            "difference",
            "cut (%)",
            "t",
            "df",
            "p",
            "p (Holm over h)",
            f"t ({LABEL})",
        ]
        tables.append(
            Table(f"Differences from {REFEREE}, {setting}, test by {test}", note, head, cells)
        )
    return tables


_TESTS = {
    "person": "Errors are clustered by person.",
    "person and future": "Errors are clustered by person and by macro future (Cameron, Gelbach and Miller 2011), t with as many degrees "
    "of freedom as futures less one.",
    "year": "Diebold-Mariano over origin years: Newey-West with h - 1 lags, Harvey-Leybourne-Newbold correction; not given with fewer than "
    "2 h years.",
}


def _coverage_by_group(results: Results) -> list[Table]:
    table = results.metrics.filter(
        pl.col("model") == REFEREE, pl.col("setting") == "in-time", pl.col("n") > 0
    )
    horizon = _horizon(table)
    found = {
        (r["group"], r["metric"]): r for r in table.filter(horizon=horizon).iter_rows(named=True)
    }
    theirs = {
        (f["group"], f["metric"]): f["value"]
        for f in published()["figures"]
        if f["horizon"] is None
    }
    metrics = sorted({metric for _, metric in theirs})
    rows = []
    for group, words in CUTS.items():
        if (group, metrics[0]) in found:
            cells = [Cell(words), Cell(f"{found[group, metrics[0]]['n']:,}")]
            for metric in metrics:
                row, figure = found.get((group, metric)), theirs.get((group, metric))
                if (
                    row is None or row["se"] is None
                ):  # too few calibration persons for an interval, or one person
                    cells.append(Cell(""))
                else:
                    outside = (
                        row["band_lower"] is not None
                        and not row["band_lower"] <= row["value"] <= row["band_upper"]
                    )
                    cells.append(
                        Cell(f"{100 * row['value']:.1f} ± {100 * row['se']:.1f}", alarm=outside)
                    )
                cells.append(Cell(_percent(figure), published=True))
            rows.append(cells)
    head = [
        "group",
        "n",
        *(
            text
            for metric in metrics
            for text in (f"{metric[-2:]} %", f"{metric[-2:]} % ({LABEL})")
        ),
    ]
    note = f"Share (%) inside {REFEREE}'s sets, {horizon} years ahead, in-time; ! marks a share outside its own band."
    return [Table("Coverage by group and level", note, head, rows)]


def _subgroups(results: Results) -> list[Table]:
    begin, rows = _cuts(results, CUTS)
    note = f"Cut in CRPS of log earnings of {REFEREE} against {begin}, {HORIZON} years ahead, in the same groups of persons."
    note += " Employers are counted by the year, places are counties."
    return [Table("Subgroups", note, *rows)] if begin else []


def _robustness(results: Results) -> list[Table]:
    begin, (head, rows) = _cuts(results, ROBUST)
    if not begin:
        return []
    theirs = published()["cut"]
    if results.lifetimes is not None:
        crps = results.lifetimes.filter(statistic="crps", group="all")
        for rate in RATES:
            at = dict(crps.filter(rate=rate).select("model", "value").iter_rows())
            if begin in at and REFEREE in at:
                cells = [Cell("") for _ in head[1:-1]]
                cells[-1] = Cell(f"{100 * (1 - at[REFEREE] / at[begin]):.1f}")
                figure = theirs.get(f"rate={rate:g}")
                rows.append(
                    [
                        Cell(f"present value at {100 * rate:g} % (lifetimes)"),
                        *cells,
                        Cell(_percent(figure), published=True),
                    ]
                )
    note = f"Cut in CRPS (%) of {REFEREE} against {begin}, {HORIZON} years ahead; of present values where the row says so."
    return [Table("Robustness", note, head, rows)]


def _cuts(
    results: Results, groups: Mapping[str, str]
) -> tuple[str | None, tuple[list[str], list[list[Cell]]]]:
    """The reference's name, and head and rows of the cuts in each setting."""
    table = results.comparisons
    if table is None or table.is_empty():
        return None, ([], [])
    begin = next((name for name in REFERENCES if name in table["model"].unique()), None)
    if begin is None:
        return None, ([], [])
    some = table.filter(
        pl.col("model") == begin,
        pl.col("metric") == "crps_log",
        pl.col("horizon") == HORIZON,
        pl.col("test") != YEAR,
    )
    found = {(r["setting"], r["group"]): r for r in some.iter_rows(named=True)}
    settings = some["setting"].unique().sort(descending=True).to_list()
    theirs = published()["cut"]
    rows = []
    for group, words in groups.items():
        cells = [Cell(words)]
        for setting in settings:
            row = found.get((setting, group))
            cells.append(Cell("" if row is None else f"{row['n']:,}"))
            cells.append(
                Cell("" if row is None else f"{_percent(row['relative'])} (p {_p(row['p'])})")
            )
        if any(cell.text for cell in cells[1:]):
            rows.append([*cells, Cell(_percent(theirs.get(group)), published=True)])
    head = [
        "group",
        *(text for s in settings for text in (f"n, {s}", f"cut (%), {s}")),
        f"against gkos ({LABEL})",
    ]
    return begin if rows else None, (head, rows)


def _variants(results: Results) -> list[Table]:
    """Placebos, and the rows of a file of variants (ablations, robustness with training), each beside the whole model."""
    listed = [
        {"name": name, "table": "Placebos", "label": label, "note": "no training"}
        for name, label in PLACEBOS.items()
    ]
    if results.variants is not None:
        listed += results.variants.to_dicts()
    metrics = results.metrics.filter(metric="crps_log", group="all", horizon=HORIZON)
    found = {
        (r["setting"], r["model"]): r for r in metrics.filter(pl.col("n") > 0).iter_rows(named=True)
    }
    settings = sorted({setting for setting, _ in found}, reverse=True)
    begin = next(
        (name for name in REFERENCES if any((setting, name) in found for setting in settings)), None
    )
    theirs, ratios, cuts = (
        published()["crps_log_10"],
        published()["crps_ratio_10"],
        published()["cut"],
    )
    tables: dict[str, list[list[Cell]]] = {}
    for row in listed:
        name = VARIANT + row["name"]
        if not any((setting, name) in found for setting in settings):
            continue
        cells = [Cell(row["label"])]
        for setting in settings:
            own, full, other = (found.get((setting, each)) for each in (name, REFEREE, begin))
            cells.append(Cell(f"{own['value']:.4f} ± {own['se']:.4f}" if own else ""))
            cells.append(Cell(f"{own['value'] / full['value']:.3f}" if own and full else ""))
            cells.append(Cell(_percent(1 - own["value"] / other["value"]) if own and other else ""))
        figure, cut = theirs.get(row["name"]), cuts.get(row["name"])
        ratio = ratios.get(row["name"], figure / theirs["full"] if figure else None)
        told_by_the_paper = (
            figure and f"{figure:.3f}",
            ratio and f"{ratio:.3f}",
            cut and _percent(cut),
        )
        cells += [Cell(text or "", published=True) for text in told_by_the_paper]
        tables.setdefault(row["table"], []).append([*cells, Cell(row["note"])])
    head = [
        "variant",
        *(
            text
            for s in settings
            for text in (f"CRPS, {s}", f"times {REFEREE}, {s}", f"cut against {begin} (%), {s}")
        ),
    ]
    head += [
        f"CRPS ({LABEL})",
        f"times the full model ({LABEL})",
        f"cut against gkos (%) ({LABEL})",
        "trained",
    ]
    note = f"CRPS of log earnings {HORIZON} years ahead, as a multiple of {REFEREE}'s and against {begin}'s on the same persons."
    return [Table(title, note, head, rows) for title, rows in tables.items()]


def _hindsight(results: Results) -> list[Table]:
    """What knowing the economy is worth in-time, beside the best baseline, which has learnt it from outcomes of the same years."""
    rows = []
    whole = results.metrics.filter(metric="crps_log", group="all", setting="in-time").filter(
        pl.col("n") > 0
    )
    for (horizon,), part in whole.group_by("horizon", maintain_order=True):
        found = {r["model"]: r for r in part.iter_rows(named=True)}
        rivals = [
            r
            for name, r in found.items()
            if not name.startswith(VARIANT) and name not in (REFEREE, BOUND)
        ]
        if HINDSIGHT in found and REFEREE in found and rivals:
            best = min(rivals, key=lambda r: float(r["value"]))
            three = [
                Cell(f"{r['value']:.4f} ± {r['se']:.4f}")
                for r in (found[REFEREE], found[HINDSIGHT], best)
            ]
            rows.append(
                [Cell(str(horizon)), Cell(f"{found[REFEREE]['n']:,}"), *three, Cell(best["model"])]
            )
    head = [
        "h",
        "persons",
        REFEREE,
        f"{REFEREE}, told the economy that came",
        "best baseline",
        "which",
    ]
    note = (
        "CRPS of log earnings. Baselines are fitted on outcomes of the very years that they are asked about, so they know what the economy "
        f"did; {REFEREE} does not, unless it is told (hindsight: no forecast can be)."
    )
    return [Table("What knowing the economy is worth, in-time", note, head, rows)] if rows else []


def _lifetime(results: Results) -> list[Table]:
    return _lives(results, "Lifetime earnings", STATISTICS, "", published()["lifetime"], _LIFE)


_LIFE = "Published: discounted to age 20, the observed past included, so levels are not comparable. true: the lives the register drew."


def _tax(results: Results) -> list[Table]:
    tables = []
    for rule in RULES:
        theirs = published()["tax"] if rule == "paper" else {}
        tables += _lives(
            results,
            f"Tax on lifetimes, rule {rule}",
            TAXES,
            f"tax:{rule}:",
            theirs,
            "Tax of every year at 2 %.",
        )
    return tables


def _lives(
    results: Results,
    title: str,
    names: Mapping[str, str],
    prefix: str,
    theirs: Mapping[str, Any],
    note: str,
) -> list[Table]:
    if results.lifetimes is None:
        return []
    table = results.lifetimes.filter(pl.col("rate") == RATE, pl.col("group") == "all")
    models = [TRUTH, *ordered([m for m in table["model"].unique().to_list() if m != TRUTH])]
    found = {(r["model"], r["statistic"]): r for r in table.iter_rows(named=True)}
    rows = []
    for name, words in names.items():
        own = [found.get((model, prefix + name)) for model in models]
        if any(own):
            cells = [
                Cell(_life(name, row["value"], row["se"] or row["sd_futures"]) if row else "")
                for row in own
            ]
            rows.append(
                [
                    Cell(words),
                    *cells,
                    *(Cell(_life(name, theirs[m].get(name)), published=True) for m in theirs),
                ]
            )
    head = ["", *(heading(model) for model in models), *(f"{model} ({LABEL})" for model in theirs)]
    reach, n = table["years"][0], table["n"][0]
    said = f"Present values at {100 * RATE:g} % of the years after the origin, {reach}; {n:,} persons of the forward setting. ± is the "
    said += "spread between macro futures (paths for models); of CRPS, coverage and bias the error clustered by person and future. "
    return [Table(title, said + note, head, rows)]


def _life(name: str, value: float | None, spread: float | None = None) -> str:
    if value is None:
        return ""
    scale, digits = (
        (1e-6, 3) if name in ("mean", "p10", "p50", "p90", "p99", "crps") else (100.0, 1)
    )
    scale, digits = (1.0, 3) if name == "gini" else (scale, digits)
    return f"{scale * value:.{digits}f}" + (
        "" if spread is None else f" ± {scale * spread:.{digits}f}"
    )


def _calibration_size(results: Results) -> list[Table]:
    if results.calibration_size is None:
        return []
    theirs = published()["calibration_size"]
    rows = []
    for (size,), some in results.calibration_size.group_by("size", maintain_order=True):
        repeats, available = some["repeats"][0], some["available"][0]
        said = (
            str(repeats)
            if repeats
            else "no interval"
            if size <= available
            else f"only {available:,} there"
        )
        cells = [Cell(f"{size:,}"), Cell(said)]
        for group in ("all", "quintile=1"):
            row = some.filter(group=group).to_dicts()
            value = row[0] if row else {"value": None, "sd": None}
            spread = f" ± {100 * value['sd']:.1f}" if value["sd"] is not None else ""
            figure = theirs.get(str(size), {}).get(group)
            cells.append(
                Cell("" if value["value"] is None else f"{100 * value['value']:.1f}{spread}")
            )
            cells.append(
                Cell(
                    "" if figure is None else f"{100 * figure[0]:.1f} ± {100 * figure[1]:.1f}",
                    published=True,
                )
            )
        rows.append(cells)
    head = [
        "calibration persons",
        "repeats",
        "everybody",
        f"everybody ({LABEL})",
        "lowest fifth",
        f"lowest fifth ({LABEL})",
    ]
    note = f"Coverage (%) of 90 % sets {HORIZON} years ahead, in-time, by the number of calibration persons with an outcome there; ± is the "
    return [
        Table(
            "Calibration size",
            note + "spread over random choices of them, on the same test persons.",
            head,
            rows,
        )
    ]


def _estimates(results: Results) -> list[Table]:
    if results.estimates is None:
        return []
    tables = []
    for (model,), some in results.estimates.group_by("model", maintain_order=True):
        rows = [
            [
                Cell(row["parameter"]),
                Cell(f"{row['value']:.4g}"),
                Cell("" if row["se"] is None else f"{row['se']:.2g}"),
            ]
            for row in some.iter_rows(named=True)
        ]
        tables.append(
            Table(
                f"Estimates of {model}",
                "Fitted on the training persons.",
                ["parameter", "estimate", "se"],
                rows,
            )
        )
    return tables


def _cost(results: Results) -> list[Table]:
    if results.cost is None:
        return []
    theirs = published()["ms_person"]
    rows = []
    for row in results.cost.sort("setting", "model", descending=[True, False]).iter_rows(
        named=True
    ):
        figure = theirs.get(row["model"]) if row["setting"] == "in-time" else None
        cells = [
            Cell(row["setting"]),
            Cell(heading(row["model"])),
            Cell(f"{row['fit_seconds']:.1f}"),
            Cell(f"{row['ms_person']:.2f}"),
        ]
        cells += [Cell(f"{row['persons']:,}"), Cell(str(row["paths"])), Cell(str(row["horizon"]))]
        rows.append([*cells, Cell("" if figure is None else f"{figure:.1f}", published=True)])
    head = [
        "setting",
        "model",
        "fit (s)",
        "ms a person",
        "persons",
        "paths",
        "years",
        f"ms, 500 paths x 20 years on an A100 ({LABEL})",
    ]
    return [
        Table(
            "Cost", "Wall time as measured in this run, whatever else the machine did.", head, rows
        )
    ]


def _horizon(table: pl.DataFrame) -> int:
    """The paper's horizon, or the nearest that was asked for."""
    horizons: Sequence[int] = table["horizon"].unique().to_list() or [HORIZON]
    return min(horizons, key=lambda h: (abs(h - HORIZON), h))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _p(p: float | None) -> str:
    return "" if p is None else "<.0001" if p < 1e-4 else f"{p:.4f}".removeprefix("0")
