"""What poorer records cost the bundle, and whether it still beats baselines that know as little: scores by record, setting and horizon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluation.contest import Contest
from evaluation.missing import WHOLE, Reduction
from evaluation.protocol import Baseline
from evaluation.scoring.comparison import BOTH, PERSON, REFEREE, SURE, TOLD, VARIANT, comparisons
from evaluation.scoring.evaluation_settings import Setting
from evaluation.scoring.metrics import metrics_table
from saga.forecaster import Forecaster

METRIC = "crps_log"
KEYS = ("setting", "horizon", "model")
BETTER, UNSURE, WORSE = "better", "unsure", "not better"
SCHEMA = {
    "record": pl.String(),
    "setting": pl.String(),
    "horizon": pl.Int32(),
    "model": pl.String(),
    "n": pl.Int64(),
    "crps": pl.Float64(),
    "se": pl.Float64(),
    "loss": pl.Float64(),
    "loss_se": pl.Float64(),
    "gain": pl.Float64(),
    "gain_se": pl.Float64(),
    "p": pl.Float64(),
    "p_holm": pl.Float64(),
    "verdict": pl.String(),
    "told_gain": pl.Float64(),
    "told_gain_se": pl.Float64(),
    "told_p_holm": pl.Float64(),
    "told_verdict": pl.String(),
}
Files = Mapping[str, Sequence[Path]]  # a model's files of un-averaged scores, one a setting


def score(
    contest: Contest,
    reduction: Reduction,
    settings: Sequence[Setting],
    forecaster: Forecaster,
    baselines: Sequence[Baseline],
    folder: Path,
) -> dict[str, list[Path]]:
    """Files of un-averaged scores of the bundle and the (unfitted) baselines, asked from the poorer records; kept in `folder`.

    `settings` are those of the whole record; baselines are fitted on what is left. In-time also the bundle told the economy that came
    (`Contest.hindsight`), which baselines know from outcomes of those years.
    """
    asked = [reduction.setting(setting) for setting in settings]
    training = reduction.training(contest.sample.training)
    files = {}
    for entrant in (
        contest.bundle(forecaster),
        *(contest.baseline(reduction.baseline(each), training) for each in baselines),
    ):
        files[entrant.name] = [contest.scores(entrant, setting, folder) for setting in asked]
        entrant.close()
    for told in contest.hindsight(forecaster):
        files[told.name] = [
            contest.scores(told, setting, folder) for setting in asked if setting.name == told.only
        ]
        told.close()
    return files


def compare(
    found: Mapping[str, Files], settings: Sequence[Setting], horizons: Sequence[int]
) -> pl.DataFrame:
    """CRPS of log earnings of every model by record; rows of SCHEMA, one a (record, setting, horizon, model).

    `found` is what `score` gave, by name of the record; `evaluation.missing.WHOLE` must be among them. Of the bundle's rows `loss` is the
    share by which its CRPS is above that from the whole record. Of a baseline's rows `gain` is the share of the baseline's CRPS by which
    the bundle's is lower, `p` that of the paired difference (clusters: persons in-time, persons and drawn futures forward), `p_holm`
    adjusted for the horizons, and `verdict` "better" (p_holm < 0.01), "unsure" or "not better"; `told_` is the same of the bundle told the
    economy. The `_se` of a share is that of the paired difference over the same denominator. Null where nothing was scored.
    """
    groups = pl.concat(
        [
            s.origins.frame()
            .rename({"origin": "year"})
            .with_columns(pl.lit(s.name).alias("setting"))
            for s in settings
        ]
    ).select("setting", "person_id", "year")
    whole = found[WHOLE.name][REFEREE]
    rows = []
    for record, files in found.items():
        scores = _scan({name: paths for name, paths in files.items() if name != TOLD or paths})
        table = metrics_table(scores, groups.drop("year"), horizons).filter(
            pl.col("metric") == METRIC, pl.col("group") == "all"
        )
        rivals = {name: paths for name, paths in files.items() if name not in (REFEREE, TOLD)}
        against = _by_key(_paired(_scan({REFEREE: files[REFEREE], **rivals}), groups))
        told = (
            _by_key(_paired(_scan({REFEREE: files[TOLD], **rivals}), groups))
            if files.get(TOLD)
            else {}
        )
        before: dict[Any, Any] = {}
        if record != WHOLE.name:
            poorer = _scan({VARIANT + record: files[REFEREE], REFEREE: whole})
            before = {
                (row["setting"], row["horizon"]): row
                for row in _paired(poorer, groups).iter_rows(named=True)
            }
        for row in table.iter_rows(named=True):
            key = tuple(row[k] for k in KEYS)
            cost = before.get((row["setting"], row["horizon"]))
            if row["model"] == TOLD and row["setting"] not in {key[0] for key in told}:
                continue
            won = {
                **_gain(row, against.get(key)),
                **{
                    f"told_{name}": value
                    for name, value in _gain(row, told.get(key)).items()
                    if name != "p"
                },
            }
            shared = {
                "record": record,
                "crps": row["value"],
                **{name: row[name] for name in ("setting", "horizon", "model", "n", "se")},
            }
            rows.append({**shared, **(_loss(row, cost) if row["model"] == REFEREE else won)})
    order = {name: i for i, name in enumerate(found)}
    return pl.DataFrame(rows, schema=SCHEMA).sort(
        pl.col("setting") != "in-time",
        pl.col("record").replace_strict(order, return_dtype=pl.Int32),
        "horizon",
        pl.col("model") != REFEREE,
        "model",
    )


def _scan(files: Files) -> pl.LazyFrame:
    """The scores of these models under these names."""
    return pl.concat(
        [
            pl.scan_parquet(path).with_columns(pl.lit(name).alias("model"))
            for name, paths in files.items()
            for path in paths
        ]
    )


def _paired(scores: pl.LazyFrame, groups: pl.DataFrame) -> pl.DataFrame:
    return comparisons(scores, groups).filter(
        pl.col("metric") == METRIC, pl.col("group") == "all", pl.col("test").is_in([PERSON, BOTH])
    )


def _by_key(paired: pl.DataFrame) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[k] for k in KEYS): row for row in paired.iter_rows(named=True)}


def _loss(row: Mapping[str, Any], cost: Mapping[str, Any] | None) -> dict[str, float]:
    if not cost or row["value"] is None:
        return {}
    before = row["value"] - cost["difference"]
    return {"loss": cost["difference"] / before, "loss_se": cost["se"] / before}


def _gain(row: Mapping[str, Any], won: Mapping[str, Any] | None) -> dict[str, Any]:
    if not won:
        return {}
    sure = won["p_holm"] is not None and won["p_holm"] < SURE
    verdict = WORSE if won["difference"] <= 0 else BETTER if sure else UNSURE
    shares = {"gain": won["difference"] / row["value"], "gain_se": won["se"] / row["value"]}
    return {**shares, "p": won["p"], "p_holm": won["p_holm"], "verdict": verdict}


def shortfalls(table: pl.DataFrame) -> list[str]:
    """A line a record, setting and baseline where the bundle is not surely better at every horizon; none: it beats them all.

    In-time it is judged as told the economy that came, so that both sides know as much.
    """
    lines = []
    equal = pl.coalesce("told_verdict", "verdict")
    some = table.with_columns(equal.alias("verdict")).filter(
        pl.col("verdict").is_in([UNSURE, WORSE])
    )
    for (record, setting, model), rows in some.group_by(
        "record", "setting", "model", maintain_order=True
    ):
        cells = [
            f"h = {h} ({verdict})" for h, verdict in rows.select("horizon", "verdict").iter_rows()
        ]
        lines.append(f"{record}, {setting}: not surely better than {model} at {', '.join(cells)}")
    return lines


def as_markdown(table: pl.DataFrame, labels: Mapping[str, str]) -> str:
    """A GitHub table a setting: a row a record and horizon, `labels` name the records; ? marks "unsure", **!** "not better"."""
    parts = []
    for (setting,), some in table.group_by("setting", maintain_order=True):
        models = [
            name
            for name in some["model"].unique(maintain_order=True)
            if name not in (REFEREE, TOLD)
        ]
        told = TOLD in some["model"]
        head = [
            "record",
            "h",
            "persons",
            f"{REFEREE} CRPS",
            "loss, %",
            *([f"{REFEREE} told"] if told else []),
            *(
                part
                for m in models
                for part in (
                    f"{m} CRPS",
                    "saga better by, %",
                    *(["told, better by, %"] if told else []),
                )
            ),
        ]
        lines = [f"## {setting}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for (record, horizon), rows in some.group_by("record", "horizon", maintain_order=True):
            own = {row["model"]: row for row in rows.iter_rows(named=True)}
            mine = own[REFEREE]
            cells = [
                labels[str(record)],
                str(horizon),
                f"{mine['n']:,}",
                _value(mine),
                _share(mine, "loss"),
            ]
            cells += [_value(own[TOLD])] if told else []
            for m in models:
                cells += [_value(own[m]), _share(own[m], "gain") + _sureness(own[m])]
                cells += [_share(own[m], "told_gain") + _sureness(own[m], "told_")] if told else []
            lines.append("| " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _value(row: Mapping[str, Any]) -> str:
    if row["crps"] is None:
        return "no outcome"
    return f"{row['crps']:.4f}" + (f" ± {row['se']:.4f}" if row["se"] is not None else "")


def _share(row: Mapping[str, Any], name: str) -> str:
    return "" if row[name] is None else f"{100 * row[name]:+.2f} ± {100 * row[f'{name}_se']:.2f}"


def _sureness(row: Mapping[str, Any], kind: str = "") -> str:
    if row[f"{kind}verdict"] is None:
        return ""
    p = row[f"{kind}p_holm"]
    text = "" if p is None else ", p < .001" if p < 0.001 else f", p = {p:.3f}"
    return text + {BETTER: "", UNSURE: " ?", WORSE: " **!**"}[row[f"{kind}verdict"]]
