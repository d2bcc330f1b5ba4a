"""The paper's tables for this evaluation, each with the paper's published figures.

Nothing is computed here except ratios of means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from saga.evaluation.lifetime_scores import RATES
from saga.evaluation.placebos import PLACEBOS
from saga.evaluation.report.difference_tables import build_differences, build_interval_differences
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.lifetime_tables import build_lifetime_tables
from saga.evaluation.report.result_tables import (
    LABEL,
    Table,
    TableCell,
    format_figure,
    heading,
    outside_band,
    published,
    published_cell,
    published_percent,
)
from saga.evaluation.scoring.comparison import (
    BUNDLE_NAME,
    HINDSIGHT,
    VARIANT,
    YEAR,
)
from saga.evaluation.scoring.gap import CLAIRVOYANT, select_reference

from saga.pages.format import in_percent, p_value

PAPER_HORIZON = 10  # years ahead, of the tables for one horizon
GROUP_LABELS = {
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


def paper_tables(results: Results) -> list[Table]:
    """Every table of the results except those of `build_tables`."""
    tables = [
        *build_differences(results),
        *build_interval_differences(results),
        *_hindsight(results),
        *_coverage_by_group(results),
        *_subgroups(results),
        *_variants(results),
        *build_lifetime_tables(results),
        *_estimates(results),
        *_cost(results),
    ]
    return [table for table in tables if table.rows]


def _coverage_by_group(results: Results) -> list[Table]:
    table = results.metrics.filter(
        pl.col("model") == BUNDLE_NAME, pl.col("setting") == "in-time", pl.col("n") > 0
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
    for group, words in GROUP_LABELS.items():
        if (group, metrics[0]) not in by_group:
            continue
        cells = [TableCell(words), TableCell(f"{by_group[group, metrics[0]]['n']:,}")]
        for metric in metrics:
            row = by_group.get((group, metric))
            if row is None or row["se"] is None:  # too few calibration persons, or one test person
                cells.append(TableCell(""))
            else:
                share = in_percent(row["value"], row["se"])
                cells.append(TableCell(share, alarm=outside_band(row)))
            cells.append(published_percent(figures.get((group, metric))))
        rows.append(cells)
    head = ["group", "persons"]
    for metric in metrics:
        head += [f"{metric[-2:]} %", f"{metric[-2:]} % ({LABEL})"]
    note = (
        f"Share (%) inside {BUNDLE_NAME}'s sets, {horizon} years ahead, in-time; ! marks a share "
        "outside its own band."
    )
    return [Table("Coverage by group", note, head, rows)]


def _subgroups(results: Results) -> list[Table]:
    """Cuts in CRPS by group, and of present values by rate."""
    groups = {**GROUP_LABELS, "cohort=1965-79": "cohorts 1965-79"}
    reference, head, rows = _cuts(results, groups)
    if not reference:
        return []
    if results.lifetimes is not None:
        crps = results.lifetimes.filter(statistic="crps", group="all")
        for rate in RATES:
            value = dict(crps.filter(rate=rate).select("model", "value").iter_rows())
            if reference in value and BUNDLE_NAME in value:
                cells = [TableCell("") for _ in head[1:-1]]
                # Lifetimes are scored in the last setting, whose cut is the last of these columns.
                cells[-1] = TableCell(in_percent(1 - value[BUNDLE_NAME] / value[reference]))
                name = TableCell(f"present value at {100 * rate:g} % (lifetimes)")
                figure = published_percent(published()["cut"].get(f"rate={rate:g}"))
                rows.append([name, *cells, figure])
    note = (
        f"Cut in CRPS of log earnings of {BUNDLE_NAME} against {reference}, {PAPER_HORIZON} years "
        "ahead, on the persons of each row; of present values if the row says so. Every employer "
        "of a year beyond the first counts as a change of employer. The county is the last known "
        "one."
    )
    return [Table("Subgroups", note, head, rows)]


def _cuts(
    results: Results, groups: Mapping[str, str]
) -> tuple[str | None, list[str], list[list[TableCell]]]:
    """The reference's name (None: no table), and head and rows of the cuts in CRPS."""
    table = results.comparisons
    if table is None or table.is_empty():
        return None, [], []
    reference = select_reference(table["model"].unique().to_list())
    if reference is None:
        return None, [], []
    # Without the test by year, which has no groups, each setting has one test.
    compared = table.filter(
        pl.col("model") == reference,
        pl.col("metric") == "crps_log",
        pl.col("horizon") == PAPER_HORIZON,
        pl.col("test") != YEAR,
    )
    by_group = {(row["setting"], row["group"]): row for row in compared.iter_rows(named=True)}
    settings = compared["setting"].unique().sort(descending=True).to_list()
    rows = []
    for group, words in groups.items():
        cells = [TableCell(words)]
        for setting in settings:
            row = by_group.get((setting, group))
            cut = f"{in_percent(row['relative'])} (p {p_value(row['p'])})" if row else ""
            cells += [TableCell(f"{row['n']:,}" if row else ""), TableCell(cut)]
        if any(cell.text for cell in cells[1:]):
            rows.append([*cells, published_percent(published()["cut"].get(group))])
    head = ["group"]
    for setting in settings:
        head += [f"persons, {setting}", f"cut (%), {setting}"]
    return reference if rows else None, [*head, f"against gkos ({LABEL})"], rows


@dataclass(frozen=True)
class _Variant:
    """A row of the tables of variants, as in `saga.evaluation.bundle_variants.Variant`.

    `table` is the table's title, `label` the row's; `note` says how the variant was trained.
    """

    name: str
    table: str
    label: str
    note: str


def _variants(results: Results) -> list[Table]:
    """Placebos, and the variants that a file lists (ablations, robustness)."""
    listed = [_Variant(name, "Placebos", label, "no training") for name, label in PLACEBOS.items()]
    if results.variants is not None:
        fields = results.variants.select("name", "table", "label", "note")
        listed += [_Variant(*row) for row in fields.iter_rows()]
    metrics = results.metrics.filter(metric="crps_log", group="all", horizon=PAPER_HORIZON)
    by_model = {
        (row["setting"], row["model"]): row
        for row in metrics.filter(pl.col("n") > 0).iter_rows(named=True)
    }
    settings = sorted({setting for setting, _ in by_model}, reverse=True)
    reference = select_reference([model for _, model in by_model])
    crps_figures, ratio_figures = published()["crps_log_10"], published()["crps_ratio_10"]
    tables: dict[str, list[list[TableCell]]] = {}
    for variant in listed:
        model = VARIANT + variant.name
        if not any((setting, model) in by_model for setting in settings):
            continue
        cells = [TableCell(variant.label)]
        for setting in settings:
            row, full, other = (
                by_model.get((setting, name)) for name in (model, BUNDLE_NAME, reference or "")
            )
            texts = [
                format_figure(row),
                f"{row['value'] / full['value']:.3f}" if row and full else "",
            ]
            if reference:
                cut = 1 - row["value"] / other["value"] if row and other else None
                texts.append(in_percent(cut))
            cells += map(TableCell, texts)
        crps = crps_figures.get(variant.name)
        ratio = ratio_figures.get(variant.name, crps / crps_figures["full"] if crps else None)
        cells += [
            published_cell(crps, ".3f"),
            published_cell(ratio, ".3f"),
            published_percent(published()["cut"].get(variant.name)),
            TableCell(variant.note),
        ]
        tables.setdefault(variant.table, []).append(cells)
    head = ["variant"]
    for setting in settings:
        head += [f"CRPS, {setting}", f"times {BUNDLE_NAME}, {setting}"]
        head += [f"cut against {reference} (%), {setting}"] if reference else []
    head += [
        f"CRPS ({LABEL})",
        f"times the full model ({LABEL})",
        f"cut against gkos (%) ({LABEL})",
        "trained",
    ]
    note = (
        f"CRPS of log earnings {PAPER_HORIZON} years ahead, and as a multiple of {BUNDLE_NAME}'s"
        + (f", and cut against {reference}'s" if reference else "")
        + ", on the same persons."
    )
    return [Table(title, note, head, rows) for title, rows in tables.items()]


def _hindsight(results: Results) -> list[Table]:
    """CRPS in-time of the bundle, of the bundle given realised macro, and of the best baseline."""
    rows = []
    crps = results.metrics.filter(
        pl.col("n") > 0, metric="crps_log", group="all", setting="in-time"
    )
    for (horizon,), part in crps.group_by("horizon", maintain_order=True):
        by_model = {row["model"]: row for row in part.iter_rows(named=True)}
        baselines = [
            row
            for name, row in by_model.items()
            if not name.startswith(VARIANT) and name not in (BUNDLE_NAME, CLAIRVOYANT)
        ]
        if HINDSIGHT in by_model and BUNDLE_NAME in by_model and baselines:
            best = min(baselines, key=lambda row: float(row["value"]))
            compared = (by_model[BUNDLE_NAME], by_model[HINDSIGHT], best)
            crps_texts = [format_figure(row) for row in compared]
            texts = [str(horizon), f"{compared[0]['n']:,}", *crps_texts, best["model"]]
            rows.append([TableCell(text) for text in texts])
    head = [
        "years ahead",
        "persons",
        BUNDLE_NAME,
        f"{BUNDLE_NAME}, conditioned on realised macro",
        "best baseline",
        "its name",
    ]
    note = (
        "CRPS of log earnings. Baselines are fitted on outcomes of the years that they forecast, "
        "so their parameters depend on realised macro. The forecasts of "
        f"{BUNDLE_NAME} do not, unless they are conditioned on it: that is hindsight, not a "
        "forecast."
    )
    return [Table("What knowing realised macro is worth, in-time", note, head, rows)]


def _estimates(results: Results) -> list[Table]:
    if results.estimates is None:
        return []
    tables = []
    for (model,), of_model in results.estimates.group_by("model", maintain_order=True):
        rows = [
            [
                TableCell(parameter),
                TableCell(f"{value:.4g}"),
                TableCell("" if se is None else f"{se:.2g}"),
            ]
            for parameter, value, se in of_model.select("parameter", "value", "se").iter_rows()
        ]
        head, note = ["parameter", "estimate", "se"], "Fitted on the training persons."
        tables.append(Table(f"Estimates of {model}", note, head, rows))
    return tables


def _cost(results: Results) -> list[Table]:
    if results.cost is None:
        return []
    costs = results.cost.sort("setting", "model", descending=[True, False])
    rows = []
    for row in costs.iter_rows(named=True):
        texts = [
            *(row["setting"], heading(row["model"]), f"{row['fit_seconds']:.1f}"),
            *(f"{row['ms_person']:.2f}", f"{row['persons']:,}"),
            *(str(row["paths"]), str(row["horizon"])),
        ]
        figures = published()["ms_person"] if row["setting"] == "in-time" else {}
        figure = published_cell(figures.get(row["model"]), ".1f")
        rows.append([*map(TableCell, texts), figure])
    head = [
        *("setting", "model", "fit (s)", "ms per person", "persons", "paths", "years"),
        f"ms, 500 paths x 20 years on an A100 ({LABEL})",
    ]
    note = "Wall time as measured in this run; other work of the machine is included."
    return [Table("Cost", note, head, rows)]


def _nearest_horizon(table: pl.DataFrame) -> int:
    """The horizon of the table that is nearest to the paper's."""
    horizons: list[int] = table["horizon"].unique().to_list() or [PAPER_HORIZON]
    return min(horizons, key=lambda h: (abs(h - PAPER_HORIZON), h))
