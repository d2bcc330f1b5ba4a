"""The paper's tables for this evaluation, with the published figures beside them.

Only shares of means are computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl

from evaluation.lifetime_scores import RATES, RULES, TRUTH
from evaluation.placebos import PLACEBOS
from evaluation.report.result_tables import (
    Table,
    TableCell,
    heading,
    order_models,
    outside_band,
    published,
)
from evaluation.scoring.comparison import HINDSIGHT, REFEREE, SURE, VARIANT, YEAR, verdict_lines
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
ROBUSTNESS = {
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
    "crps": "CRPS of single lifetimes (million)",
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
    """The tables of one evaluation; None if a table was not made."""

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
        tables = {
            name: pl.read_parquet(file)
            for name in names
            if (file := folder / f"{name}.parquet").is_file()
        }
        metrics = folder / "metrics.parquet"
        return cls(pl.read_parquet(metrics), read_provenance(metrics), **tables)


def paper_tables(results: Results) -> list[Table]:
    """Every table of the results except those of `build_tables`."""
    tables = [
        *_differences(results),
        *_hindsight(results),
        *_coverage_by_group(results),
        *_subgroups(results),
        *_robustness(results),
        *_variants(results),
        *_lifetime_earnings(results),
        *_lifetime_tax(results),
        *_calibration_size(results),
        *_estimates(results),
        *_cost(results),
    ]
    return [table for table in tables if table.rows]


def _differences(results: Results) -> list[Table]:
    table = results.comparisons
    if table is None or table.is_empty():
        return []
    figures = published()["diebold_mariano"]
    rows = table.filter(pl.col("metric") == "crps_log", pl.col("group") == "all")
    lines = verdict_lines(table)
    tables = []
    for (setting, test), tested in rows.group_by("setting", "test", maintain_order=True):
        of_test = figures if test == YEAR else {}
        cells = [
            [
                TableCell(heading(row["model"])),
                TableCell(str(row["horizon"])),
                TableCell(f"{row['difference']:.4f} ± {row['se']:.4f}", best=_is_sure(row)),
                TableCell(_percent(row["relative"])),
                TableCell("" if row["t"] is None else f"{row['t']:.1f}"),
                TableCell(str(row["df"])),
                TableCell(_p_value(row["p"])),
                TableCell(_p_value(row["p_holm"])),
                _figure(of_test.get(row["model"], {}).get(str(row["horizon"])), ".1f"),
            ]
            for row in tested.sort("model", "horizon").iter_rows(named=True)
        ]
        verdict = " ".join(line for line in lines if line.startswith(f"{setting}, test by {test},"))
        note = (
            f"{verdict} CRPS of log earnings of the other model less that of {REFEREE}: above 0 "
            f"{REFEREE} is better (bold: p < .01, Holm). {_TESTS[str(test)]}"
        )
        head = [
            *("model", "h", "difference", "cut (%)", "t", "df", "p", "p (Holm over h)"),
            f"t ({LABEL})",
        ]
        title = f"Differences from {REFEREE}, {setting}, test by {test}"
        tables.append(Table(title, note, head, cells))
    return tables


def _is_sure(row: Mapping[str, Any]) -> bool:
    """Whether the referee beats the model of a comparison, which is not the bound."""
    p = row["p_holm"]
    return p is not None and p < SURE and row["difference"] > 0 and row["model"] != BOUND


_TESTS = {
    "person": "Errors are clustered by person.",
    "person and future": "Errors are clustered by person and by macro future (Cameron, Gelbach and "
    "Miller 2011); t has as many degrees of freedom as futures less one.",
    "year": "Diebold-Mariano over origin years: Newey-West with h - 1 lags, correction of Harvey, "
    "Leybourne and Newbold; not given with fewer than 2 h years.",
}


def _coverage_by_group(results: Results) -> list[Table]:
    table = results.metrics.filter(
        pl.col("model") == REFEREE, pl.col("setting") == "in-time", pl.col("n") > 0
    )
    horizon = _nearest_horizon(table)
    by_group = {
        (row["group"], row["metric"]): row
        for row in table.filter(horizon=horizon).iter_rows(named=True)
    }
    figures = {
        (f["group"], f["metric"]): f["value"]
        for f in published()["figures"]
        if f["horizon"] is None
    }
    metrics = sorted({metric for _, metric in figures})
    rows = []
    for group, words in CUTS.items():
        if (group, metrics[0]) not in by_group:
            continue
        cells = [TableCell(words), TableCell(f"{by_group[group, metrics[0]]['n']:,}")]
        for metric in metrics:
            row = by_group.get((group, metric))
            if row is None or row["se"] is None:  # too few calibration persons, or one test person
                cells.append(TableCell(""))
            else:
                share = f"{100 * row['value']:.1f} ± {100 * row['se']:.1f}"
                cells.append(TableCell(share, alarm=outside_band(row)))
            cells.append(_percent_figure(figures.get((group, metric))))
        rows.append(cells)
    head = ["group", "n"]
    for metric in metrics:
        head += [f"{metric[-2:]} %", f"{metric[-2:]} % ({LABEL})"]
    note = (
        f"Share (%) inside {REFEREE}'s sets, {horizon} years ahead, in-time; ! marks a share "
        "outside its own band."
    )
    return [Table("Coverage by group", note, head, rows)]


def _subgroups(results: Results) -> list[Table]:
    begin, head, rows = _cuts(results, CUTS)
    note = (
        f"Cut in CRPS of log earnings of {REFEREE} against {begin}, {HORIZON} years ahead, in the "
        "same groups of persons. Employers are counted by year, places are counties."
    )
    return [Table("Subgroups", note, head, rows)] if begin else []


def _robustness(results: Results) -> list[Table]:
    begin, head, rows = _cuts(results, ROBUSTNESS)
    if not begin:
        return []
    if results.lifetimes is not None:
        crps = results.lifetimes.filter(statistic="crps", group="all")
        for rate in RATES:
            value = dict(crps.filter(rate=rate).select("model", "value").iter_rows())
            if begin in value and REFEREE in value:
                cells = [TableCell("") for _ in head[1:-1]]
                cells[-1] = TableCell(_percent(1 - value[REFEREE] / value[begin]))
                name = TableCell(f"present value at {100 * rate:g} % (lifetimes)")
                figure = _percent_figure(published()["cut"].get(f"rate={rate:g}"))
                rows.append([name, *cells, figure])
    note = (
        f"Cut in CRPS (%) of {REFEREE} against {begin}, {HORIZON} years ahead; of present values "
        "if the row says so."
    )
    return [Table("Robustness", note, head, rows)]


def _cuts(
    results: Results, groups: Mapping[str, str]
) -> tuple[str | None, list[str], list[list[TableCell]]]:
    """The reference's name (None: no table), and head and rows of the cuts in each setting."""
    table = results.comparisons
    if table is None or table.is_empty():
        return None, [], []
    begin = next((name for name in REFERENCES if name in table["model"].unique()), None)
    if begin is None:
        return None, [], []
    compared = table.filter(
        pl.col("model") == begin,
        pl.col("metric") == "crps_log",
        pl.col("horizon") == HORIZON,
        pl.col("test") != YEAR,
    )
    by_group = {(row["setting"], row["group"]): row for row in compared.iter_rows(named=True)}
    settings = compared["setting"].unique().sort(descending=True).to_list()
    rows = []
    for group, words in groups.items():
        cells = [TableCell(words)]
        for setting in settings:
            row = by_group.get((setting, group))
            cut = f"{_percent(row['relative'])} (p {_p_value(row['p'])})" if row else ""
            cells += [TableCell(f"{row['n']:,}" if row else ""), TableCell(cut)]
        if any(cell.text for cell in cells[1:]):
            rows.append([*cells, _percent_figure(published()["cut"].get(group))])
    head = ["group"]
    for setting in settings:
        head += [f"n, {setting}", f"cut (%), {setting}"]
    return begin if rows else None, [*head, f"against gkos ({LABEL})"], rows


def _variants(results: Results) -> list[Table]:
    """Placebos and the variants of a file (ablations, robustness), beside the whole model."""
    listed = [
        {"name": name, "table": "Placebos", "label": label, "note": "no training"}
        for name, label in PLACEBOS.items()
    ]
    if results.variants is not None:
        listed += results.variants.to_dicts()
    metrics = results.metrics.filter(metric="crps_log", group="all", horizon=HORIZON)
    by_model = {
        (row["setting"], row["model"]): row
        for row in metrics.filter(pl.col("n") > 0).iter_rows(named=True)
    }
    settings = sorted({setting for setting, _ in by_model}, reverse=True)
    begin = next(
        (name for name in REFERENCES if any((setting, name) in by_model for setting in settings)),
        None,
    )
    crps_figures, ratio_figures = published()["crps_log_10"], published()["crps_ratio_10"]
    tables: dict[str, list[list[TableCell]]] = {}
    for variant in listed:
        model = VARIANT + variant["name"]
        if not any((setting, model) in by_model for setting in settings):
            continue
        cells = [TableCell(variant["label"])]
        for setting in settings:
            row, full, reference = (
                by_model.get((setting, name)) for name in (model, REFEREE, begin or "")
            )
            cells += [
                TableCell(f"{row['value']:.4f} ± {row['se']:.4f}" if row else ""),
                TableCell(f"{row['value'] / full['value']:.3f}" if row and full else ""),
                TableCell(
                    _percent(1 - row["value"] / reference["value"]) if row and reference else ""
                ),
            ]
        crps = crps_figures.get(variant["name"])
        ratio = ratio_figures.get(variant["name"], crps / crps_figures["full"] if crps else None)
        cells += [
            _figure(crps, ".3f"),
            _figure(ratio, ".3f"),
            _percent_figure(published()["cut"].get(variant["name"])),
            TableCell(variant["note"]),
        ]
        tables.setdefault(variant["table"], []).append(cells)
    head = ["variant"]
    for setting in settings:
        head += [
            f"CRPS, {setting}",
            f"times {REFEREE}, {setting}",
            f"cut against {begin} (%), {setting}",
        ]
    head += [
        f"CRPS ({LABEL})",
        f"times the full model ({LABEL})",
        f"cut against gkos (%) ({LABEL})",
        "trained",
    ]
    note = (
        f"CRPS of log earnings {HORIZON} years ahead, as a multiple of {REFEREE}'s and against "
        f"{begin}'s on the same persons."
    )
    return [Table(title, note, head, rows) for title, rows in tables.items()]


def _hindsight(results: Results) -> list[Table]:
    """The bundle conditioned on realised macro, in-time, beside the best baseline."""
    rows = []
    crps = results.metrics.filter(
        pl.col("n") > 0, metric="crps_log", group="all", setting="in-time"
    )
    for (horizon,), part in crps.group_by("horizon", maintain_order=True):
        by_model = {row["model"]: row for row in part.iter_rows(named=True)}
        baselines = [
            row
            for name, row in by_model.items()
            if not name.startswith(VARIANT) and name not in (REFEREE, BOUND)
        ]
        if HINDSIGHT in by_model and REFEREE in by_model and baselines:
            best = min(baselines, key=lambda row: float(row["value"]))
            rows.append(
                [
                    TableCell(str(horizon)),
                    TableCell(f"{by_model[REFEREE]['n']:,}"),
                    *(
                        TableCell(f"{row['value']:.4f} ± {row['se']:.4f}")
                        for row in (by_model[REFEREE], by_model[HINDSIGHT], best)
                    ),
                    TableCell(best["model"]),
                ]
            )
    head = [
        "h",
        "persons",
        REFEREE,
        f"{REFEREE}, conditioned on realised macro",
        "best baseline",
        "its name",
    ]
    note = (
        "CRPS of log earnings. Baselines are fitted on outcomes of the years that they forecast, "
        f"so they know realised macro; {REFEREE} does not, unless it is conditioned on it. That is "
        "hindsight and no forecast."
    )
    return [Table("What knowing realised macro is worth, in-time", note, head, rows)]


def _lifetime_earnings(results: Results) -> list[Table]:
    note = (
        "Published: discounted to age 20 and with the observed past, so not comparable. "
        "true: the lifetimes that the register drew."
    )
    return _lifetimes(results, "Lifetime earnings", STATISTICS, "", published()["lifetime"], note)


def _lifetime_tax(results: Results) -> list[Table]:
    tables = []
    for rule in RULES:
        tables += _lifetimes(
            results,
            f"Tax on lifetimes, rule {rule}",
            TAXES,
            f"tax:{rule}:",
            published()["tax"] if rule == "paper" else {},
            "Tax of every year at 2 %.",
        )
    return tables


def _lifetimes(
    results: Results,
    title: str,
    statistics: Mapping[str, str],
    prefix: str,
    figures: Mapping[str, Any],
    note: str,
) -> list[Table]:
    if results.lifetimes is None:
        return []
    table = results.lifetimes.filter(pl.col("rate") == RATE, pl.col("group") == "all")
    models = [TRUTH, *order_models([m for m in table["model"].unique().to_list() if m != TRUTH])]
    by_model = {(row["model"], row["statistic"]): row for row in table.iter_rows(named=True)}
    rows = []
    for name, words in statistics.items():
        values = [by_model.get((model, prefix + name)) for model in models]
        if any(values):
            rows.append(
                [
                    TableCell(words),
                    *(
                        TableCell(
                            _amount(name, row["value"], row["se"] or row["sd_futures"])
                            if row
                            else ""
                        )
                        for row in values
                    ),
                    *(
                        TableCell(_amount(name, figure.get(name)), published=True)
                        for figure in figures.values()
                    ),
                ]
            )
    head = ["", *map(heading, models), *(f"{model} ({LABEL})" for model in figures)]
    reach, n = table["years"][0], table["n"][0]
    meaning = (
        f"Present values at {100 * RATE:g} % of the years after the origin, {reach}; {n:,} persons "
        "of the forward setting. ± is the spread between macro futures (paths for models); of "
        "CRPS, coverage and bias the error clustered by person and future. "
    )
    return [Table(title, meaning + note, head, rows)]


def _amount(statistic: str, value: float | None, spread: float | None = None) -> str:
    """A lifetime statistic as text: millions, per cent or a Gini coefficient."""
    if value is None:
        return ""
    scale, digits = (100.0, 1)
    if statistic in ("mean", "p10", "p50", "p90", "p99", "crps"):
        scale, digits = (1e-6, 3)
    elif statistic == "gini":
        scale, digits = (1.0, 3)
    error = "" if spread is None else f" ± {scale * spread:.{digits}f}"
    return f"{scale * value:.{digits}f}{error}"


def _calibration_size(results: Results) -> list[Table]:
    if results.calibration_size is None:
        return []
    figures = published()["calibration_size"]
    rows = []
    for (size,), of_size in results.calibration_size.group_by("size", maintain_order=True):
        repeats, available = of_size["repeats"][0], of_size["available"][0]
        no_value = "no interval" if size <= available else f"only {available:,} persons"
        cells = [TableCell(f"{size:,}"), TableCell(str(repeats) if repeats else no_value)]
        for group in ("all", "quintile=1"):
            rows_of_group = of_size.filter(group=group)
            value, sd = (
                rows_of_group[name].item() if rows_of_group.height else None
                for name in ("value", "sd")
            )
            figure = figures.get(str(size), {}).get(group)
            cells += [
                TableCell(_share(value, sd)),
                TableCell(_share(*figure) if figure else "", published=True),
            ]
        rows.append(cells)
    head = [
        "calibration persons",
        "repeats",
        "everybody",
        f"everybody ({LABEL})",
        "lowest fifth",
        f"lowest fifth ({LABEL})",
    ]
    note = (
        f"Coverage (%) of 90 % sets {HORIZON} years ahead, in-time, by the number of calibration "
        "persons with an outcome then; ± is the spread over random choices of them, on the same "
        "test persons."
    )
    return [Table("Calibration size", note, head, rows)]


def _estimates(results: Results) -> list[Table]:
    if results.estimates is None:
        return []
    tables = []
    for (model,), of_model in results.estimates.group_by("model", maintain_order=True):
        rows = [
            [
                TableCell(row["parameter"]),
                TableCell(f"{row['value']:.4g}"),
                TableCell("" if row["se"] is None else f"{row['se']:.2g}"),
            ]
            for row in of_model.iter_rows(named=True)
        ]
        head, note = ["parameter", "estimate", "se"], "Fitted on the training persons."
        tables.append(Table(f"Estimates of {model}", note, head, rows))
    return tables


def _cost(results: Results) -> list[Table]:
    if results.cost is None:
        return []
    costs = results.cost.sort("setting", "model", descending=[True, False])
    rows = [
        [
            TableCell(row["setting"]),
            TableCell(heading(row["model"])),
            TableCell(f"{row['fit_seconds']:.1f}"),
            TableCell(f"{row['ms_person']:.2f}"),
            TableCell(f"{row['persons']:,}"),
            TableCell(str(row["paths"])),
            TableCell(str(row["horizon"])),
            _figure(
                published()["ms_person"].get(row["model"]) if row["setting"] == "in-time" else None,
                ".1f",
            ),
        ]
        for row in costs.iter_rows(named=True)
    ]
    head = [
        *("setting", "model", "fit (s)", "ms per person", "persons", "paths", "years"),
        f"ms, 500 paths x 20 years on an A100 ({LABEL})",
    ]
    note = "Wall time as measured in this run; other work of the machine is included."
    return [Table("Cost", note, head, rows)]


def _nearest_horizon(table: pl.DataFrame) -> int:
    """The horizon of the table that is nearest to the paper's."""
    horizons: Sequence[int] = table["horizon"].unique().to_list() or [HORIZON]
    return min(horizons, key=lambda h: (abs(h - HORIZON), h))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _share(value: float | None, spread: float | None) -> str:
    return _percent(value) + ("" if spread is None else f" ± {100 * spread:.1f}")


def _p_value(p: float | None) -> str:
    return "" if p is None else "<.0001" if p < 1e-4 else f"{p:.4f}".removeprefix("0")


def _figure(value: float | None, form: str) -> TableCell:
    """A published figure."""
    return TableCell("" if value is None else format(value, form), published=True)


def _percent_figure(share: float | None) -> TableCell:
    return TableCell(_percent(share), published=True)
