"""The paper row by row: our figure beside the published one, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.paper import GROUP_LABELS, PAPER_HORIZON
from saga.evaluation.report.result_tables import published
from saga.evaluation.scoring.comparison import BUNDLE_NAME, VARIANT, YEAR
from saga.evaluation.scoring.gap import select_reference

from saga.pages.format import in_percent, markdown_table

MODELS = ("saga", "lstm", "gbt", "gkos", "ar1", "ff")
REASONS = {"hicp": "no: the register has one price index"}
STUDIED = {  # first words of the rows of `studies.paper_rows`
    "one-calibration-cohort": "one calibration cohort",
    "out-of-time-cohorts": "out-of-time cohorts",
    "survey-features": "survey-like records",
    "recession-fold": "recession fold",
    "point-head": "point head with conformal",
    "point-head-no-conformal": "point head without",
    "conformal-gkos": "gkos, recalibrated",
}
FULL, _CRPS, _CUT = "saga, recalibrated", 2, 3  # its row of the full model, and its columns
LABELS = {**GROUP_LABELS, "cohort=1965-79": "cohorts 1965-79", "window-5": "last 5 years"}


def ticked_rows(results: Results, study: Sequence[Sequence[str]]) -> str:
    """Accuracy, cuts against the reference and ablations, each beside the paper's.

    `study` are the rows of `studies.paper_rows`.
    """
    rows = {
        key: next(row for row in study if row[0].startswith(words))
        for key, words in {**STUDIED, FULL: FULL}.items()
    }
    return f"{_accuracy(results)}\n\n{_cuts(results, rows)}\n\n{_ablations(results, rows)}"


def _accuracy(results: Results) -> str:
    figures = {
        (f["metric"], f["horizon"], f["model"]): f["value"]
        for f in published()["figures"]
        if f["group"] == "all" and f["horizon"] is not None
    }
    in_time = results.metrics.filter(pl.col("group") == "all", pl.col("setting") == "in-time")
    values = {(r["metric"], r["horizon"], r["model"]): r["value"] for r in in_time.to_dicts()}
    rows = [
        [
            f"{metric}, {horizon}",
            *(
                f"{values[metric, horizon, m]:.3f} ({figures.get((metric, horizon, m), '')})"
                for m in MODELS
            ),
        ]
        for metric, horizon in dict.fromkeys(key[:2] for key in figures)
        if (metric, horizon, "saga") in values
    ]
    return markdown_table(["metric, years ahead", *MODELS], rows)


def _cuts(results: Results, study: Mapping[str, Sequence[str]]) -> str:
    tests = results.comparisons
    assert tests is not None
    reference = select_reference(tests["model"].unique().to_list())
    of_tests = tests.filter(
        pl.col("model") == reference,
        pl.col("metric") == "crps_log",
        pl.col("horizon") == PAPER_HORIZON,
        pl.col("test") != YEAR,
    )
    cuts = {(r["setting"], r["group"]): r["relative"] for r in of_tests.to_dicts()}
    means = {(r["setting"], r["model"]): r["value"] for r in _crps(results).to_dicts()}
    lifetimes = {} if results.lifetimes is None else _lifetimes(results.lifetimes)
    rows = []
    for key, figure in published()["cut"].items():
        shares: list[float | None] = []
        for setting in ("in-time", "forward"):
            share = cuts.get((setting, key))
            variant = means.get((setting, VARIANT + key))
            if variant is not None:
                share = 1 - variant / means[setting, str(reference)]
            if key.startswith("rate=") and setting == "forward":
                by_model = lifetimes[float(key.removeprefix("rate="))]
                share = 1 - by_model[BUNDLE_NAME] / by_model[str(reference)]
            shares.append(share)
        texts = [in_percent(share) for share in shares]
        if key in STUDIED:
            texts[0] = study[key][_CUT]
        rows.append([LABELS.get(key, key), *_ticked(key, texts), in_percent(figure)])
    head = [f"cut against {reference}, %", "in-time", "forward", "published"]
    return markdown_table(head, rows)


def _ablations(results: Results, study: Mapping[str, Sequence[str]]) -> str:
    means = {(r["setting"], r["model"]): r["value"] for r in _crps(results).to_dicts()}
    figures = published()["crps_log_10"]
    rows = []
    for key, figure in figures.items():
        ratios = [
            means[setting, VARIANT + key] / means[setting, f"{VARIANT}full"]
            if (setting, VARIANT + key) in means
            else None
            for setting in ("in-time", "forward")
        ]
        if key in STUDIED:
            ratios[0] = float(study[key][_CRPS]) / float(study[FULL][_CRPS])
        texts = ["" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
        rows.append([key, *_ticked(key, texts), f"{figure / figures['full']:.3f}"])
    return markdown_table(["times the full model", "in-time", "forward", "published"], rows)


def _ticked(key: str, texts: list[str]) -> list[str]:
    """Our figures in-time and forward, the last one ticked, or the reason why there are none."""
    if not any(texts):
        return [REASONS.get(key, "no"), ""]
    return [texts[0], f"{texts[1]} ✓"] if texts[1] else [f"{texts[0]} ✓", ""]


def _crps(results: Results) -> pl.DataFrame:
    return results.metrics.filter(
        pl.col("metric") == "crps_log",
        pl.col("group") == "all",
        pl.col("horizon") == PAPER_HORIZON,
        pl.col("n") > 0,
    )


def _lifetimes(table: pl.DataFrame) -> dict[float, dict[str, float]]:
    """Rate -> model -> CRPS of lifetimes."""
    rows = table.filter(pl.col("statistic") == "crps", pl.col("group") == "all")
    by_rate: dict[float, dict[str, float]] = {}
    for row in rows.iter_rows(named=True):
        by_rate.setdefault(row["rate"], {})[row["model"]] = row["value"]
    return by_rate
