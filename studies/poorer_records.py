"""What do poorer records cost the bundle, and is it still better than the baselines?

    python -m studies.poorer_records REGISTER --out DIR [--bundle bundles/small]
        [--baselines carry,groupq,gbt] [--persons N] [--paths 200] [--seed 0] [--cache DIR]
        [--workers 1] [--report FILE]

REGISTER is any panel. Forecasts of its test persons are scored in-time at h = 1, 5, 10, 20, and
forward if it has `future/draw=k` (`saga register generate --future-to 2042 --future-draws 20`).
Origins and outcomes are the same for every reduction (`studies.record_reductions`). Scores and
fitted baselines stay in --cache (OUT/kept), so the same command resumes; the cache of `saga
evaluate --cache` can be used. Exit 1 if the bundle is not better than some baseline with p < .01
(Holm over horizons).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from saga.evaluation.contest import PATHS, Contest, ContestOptions
from saga.evaluation.protocol import Baseline
from saga.evaluation.scoring.comparison import (
    BOTH,
    BUNDLE_NAME,
    HINDSIGHT,
    PERSON,
    SURE,
    VARIANT,
    compare_models,
)
from saga.evaluation.scoring.evaluation_settings import Setting
from saga.evaluation.scoring.metrics import metrics_table
from saga.evaluation.selection import select_baselines

from saga.data.reading import read_panel
from saga.files.tables import write_table
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table
from saga.requests import Draws
from studies.record_reductions import REDUCTIONS, WHOLE, Reduction
from studies.study_page import StepLog, bundle_parser, code_commit, page_head, publish_page, say

METRIC = "crps_log"
KEYS = ("setting", "horizon", "model")
BETTER, UNSURE, WORSE = "better", "unsure", "not better"
SCHEMA = {
    "record": pl.String(),
    "setting": pl.String(),
    "horizon": pl.Int32(),
    "model": pl.String(),
    "n": pl.Int64(),
    **dict.fromkeys(("crps", "se", "loss", "loss_se", "gain", "gain_se", "p"), pl.Float64()),
    "p_holm": pl.Float64(),
    "verdict": pl.String(),
    **dict.fromkeys(("informed_gain", "informed_gain_se", "informed_p_holm"), pl.Float64()),
    "informed_verdict": pl.String(),
}
Files = Mapping[str, Sequence[Path]]  # model -> its files of un-averaged scores, one per setting


def score_reduction(
    contest: Contest,
    reduction: Reduction,
    settings: Sequence[Setting],
    forecaster: Forecaster,
    baselines: Sequence[Baseline],
    folder: Path,
) -> dict[str, list[Path]]:
    """Files of un-averaged scores of the bundle and the baselines with reduced records.

    Args:
        contest: Scores contestants and writes the files.
        reduction: What is hidden.
        settings: The settings of the whole records.
        forecaster: The bundle. In-time it also takes part conditioned on realised macro
            (`Contest.hindsight`), which baselines know from outcomes of those years.
        baselines: Unfitted; they are fitted on the reduced records.
        folder: Directory of the files.
    """
    reduced = [reduction.setting(setting) for setting in settings]
    training = reduction.training(contest.sample.training)
    files = {}
    for contestant in (
        contest.bundle(forecaster),
        *(contest.baseline(reduction.baseline(baseline), training) for baseline in baselines),
        *contest.hindsight(forecaster),
    ):
        files[contestant.name] = [
            contest.scores(contestant, setting, folder)
            for setting in reduced
            if contestant.only_setting in (None, setting.name)
        ]
        contestant.close()
    return files


def compare_reductions(
    scored: Mapping[str, Files], settings: Sequence[Setting], horizons: Sequence[int]
) -> pl.DataFrame:
    """CRPS of log earnings, one row per record, setting, horizon and model; columns SCHEMA.

    In rows of the bundle, `loss` is the relative increase of its CRPS over the whole record. In
    rows of a baseline, `gain` is the share of the baseline's CRPS by which the bundle's is lower,
    `p` is that of the paired difference (clusters: persons in-time, persons and drawn futures
    forward), `p_holm` is adjusted for the horizons, and `verdict` is "better" (p_holm < .01),
    "unsure" or "not better". `informed_` columns are the same for the bundle conditioned on
    realised macro. The `_se` of a share is that of the paired difference over the same denominator.
    Null if nothing was scored.

    Args:
        scored: Files of `score_reduction` by name of the reduction, WHOLE among them.
        settings: The settings of the whole records.
        horizons: Years ahead.
    """
    groups = pl.concat(
        [
            s.origins.frame()
            .rename({"origin": "year"})
            .with_columns(pl.lit(s.name).alias("setting"))
            for s in settings
        ]
    ).select("setting", "person_id", "year")
    whole = scored[WHOLE.name][BUNDLE_NAME]
    rows = []
    for record, files in scored.items():
        scores = _scan({name: paths for name, paths in files.items() if name != HINDSIGHT or paths})
        table = metrics_table(scores, groups.drop("year"), horizons).filter(
            pl.col("metric") == METRIC, pl.col("group") == "all"
        )
        rivals = {
            name: paths for name, paths in files.items() if name not in (BUNDLE_NAME, HINDSIGHT)
        }
        against = _by_key(_paired(_scan({BUNDLE_NAME: files[BUNDLE_NAME], **rivals}), groups))
        informed = (
            _by_key(_paired(_scan({BUNDLE_NAME: files[HINDSIGHT], **rivals}), groups))
            if files.get(HINDSIGHT)
            else {}
        )
        against_whole: dict[Any, Any] = {}
        if record != WHOLE.name:
            reduced = _scan({VARIANT + record: files[BUNDLE_NAME], BUNDLE_NAME: whole})
            against_whole = {
                (row["setting"], row["horizon"]): row
                for row in _paired(reduced, groups).iter_rows(named=True)
            }
        for row in table.iter_rows(named=True):
            key = tuple(row[k] for k in KEYS)
            if row["model"] == HINDSIGHT and row["setting"] not in {key[0] for key in informed}:
                continue
            if row["model"] == BUNDLE_NAME:
                result = _loss(row, against_whole.get((row["setting"], row["horizon"])))
            else:
                gains = _gain(row, informed.get(key))
                gains.pop("p", None)
                result = _gain(row, against.get(key))
                result |= {f"informed_{name}": value for name, value in gains.items()}
            columns = {name: row[name] for name in ("setting", "horizon", "model", "n", "se")}
            rows.append({"record": record, "crps": row["value"], **columns, **result})
    order = {name: i for i, name in enumerate(scored)}
    return pl.DataFrame(rows, schema=SCHEMA).sort(
        pl.col("setting") != "in-time",
        pl.col("record").replace_strict(order, return_dtype=pl.Int32),
        "horizon",
        pl.col("model") != BUNDLE_NAME,
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
    return compare_models(scores, groups).filter(
        pl.col("metric") == METRIC, pl.col("group") == "all", pl.col("test").is_in([PERSON, BOTH])
    )


def _by_key(paired: pl.DataFrame) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[k] for k in KEYS): row for row in paired.iter_rows(named=True)}


def _loss(row: Mapping[str, Any], paired: Mapping[str, Any] | None) -> dict[str, Any]:
    if not paired or row["value"] is None:
        return {}
    whole = row["value"] - paired["difference"]
    return {"loss": paired["difference"] / whole, "loss_se": paired["se"] / whole}


def _gain(row: Mapping[str, Any], paired: Mapping[str, Any] | None) -> dict[str, Any]:
    if not paired:
        return {}
    sure = paired["p_holm"] is not None and paired["p_holm"] < SURE
    verdict = WORSE if paired["difference"] <= 0 else BETTER if sure else UNSURE
    shares = {"gain": paired["difference"] / row["value"], "gain_se": paired["se"] / row["value"]}
    return {**shares, "p": paired["p"], "p_holm": paired["p_holm"], "verdict": verdict}


def list_shortfalls(table: pl.DataFrame) -> list[str]:
    """One line per record, setting and baseline for which the bundle is not surely better.

    In-time the bundle is conditioned on realised macro, which the baselines know too.
    """
    verdicts = table.with_columns(verdict=pl.coalesce("informed_verdict", "verdict"))
    shortfalls = verdicts.filter(pl.col("verdict").is_in([UNSURE, WORSE]))
    at = pl.format("h = {} ({})", "horizon", "verdict").str.join(", ")
    by_model = shortfalls.group_by("record", "setting", "model", maintain_order=True).agg(at=at)
    text = pl.format("{}, {}: not surely better than {} at {}", "record", "setting", "model", "at")
    return by_model.select(text).to_series().to_list()


def to_markdown(table: pl.DataFrame, labels: Mapping[str, str]) -> str:
    """One table per setting; ? marks "unsure", **!** "not better". `labels` name the records."""
    parts = []
    for (setting,), part in table.group_by("setting", maintain_order=True):
        models = part["model"].unique(maintain_order=True).to_list()
        rivals = [name for name in models if name not in (BUNDLE_NAME, HINDSIGHT)]
        informed = HINDSIGHT in models
        header = ["record", "h", "persons", f"{BUNDLE_NAME} CRPS", "loss, %"]
        header += [f"{BUNDLE_NAME} informed"] if informed else []
        for model in rivals:
            header += [f"{model} CRPS", "saga better by, %"]
            header += ["informed, better by, %"] if informed else []
        lines = []
        for (record, horizon), rows in part.group_by("record", "horizon", maintain_order=True):
            by_model = {row["model"]: row for row in rows.iter_rows(named=True)}
            bundle = by_model[BUNDLE_NAME]
            line = [labels[str(record)], str(horizon), f"{bundle['n']:,}", _value(bundle)]
            line += [_share(bundle, "loss")]
            line += [_value(by_model[HINDSIGHT])] if informed else []
            for model in rivals:
                row = by_model[model]
                line += [_value(row), _share(row, "gain") + _sureness(row)]
                if informed:
                    line += [_share(row, "informed_gain") + _sureness(row, "informed_")]
            lines.append(line)
        parts.append(f"## {setting}\n\n{markdown_table(header, lines)}")
    return "\n\n".join(parts)


def _value(row: Mapping[str, Any]) -> str:
    if row["crps"] is None:
        return "no outcome"
    return f"{row['crps']:.4f}" + (f" ± {row['se']:.4f}" if row["se"] is not None else "")


def _share(row: Mapping[str, Any], name: str) -> str:
    return "" if row[name] is None else f"{100 * row[name]:+.2f} ± {100 * row[f'{name}_se']:.2f}"


def _sureness(row: Mapping[str, Any], prefix: str = "") -> str:
    if row[f"{prefix}verdict"] is None:
        return ""
    p = row[f"{prefix}p_holm"]
    text = "" if p is None else ", p < .001" if p < 0.001 else f", p = {p:.3f}"
    return text + {BETTER: "", UNSURE: " ?", WORSE: " **!**"}[row[f"{prefix}verdict"]]


NOTE = """CRPS of log earnings, lower is better; ± is the standard error (in-time over persons,
forward of the mean over drawn futures). "loss" is the loss of the bundle against itself with all
columns and years. Baselines are fitted on and judged with the reduced records. "saga better by" is
the share of the baseline's CRPS, from paired differences (clusters: persons in-time, persons and
drawn futures forward), p adjusted for the horizons (Holm). ? marks p of .01 and above, **!** a
baseline that is as good or better. In-time, baselines know the realised macro series from outcomes
of these years; "informed" is the bundle conditioned on it, which is judged in its place there."""


def main() -> int:
    """Score every reduction, write missing.parquet and missing.md, print the page."""
    parser = bundle_parser(__doc__, n_persons=None, n_paths=PATHS)
    parser.add_argument("register", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--baselines", default="carry,groupq,gbt")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle, workers=args.workers)
    names = args.baselines.split(",")
    select_baselines(names)  # an unknown name fails before the panel is read
    folder = args.cache or args.out / "kept"
    contest = Contest(
        read_panel(args.register),
        ContestOptions(
            n_paths=args.paths,
            seed=args.seed,
            n_persons=args.persons,
            until=forecaster.bundle.config.get("until"),
            cache=folder,
        ),
        progress=StepLog(),
    )
    futures = args.register if any(args.register.glob("future/draw=*")) else None
    settings = list(contest.settings(futures))
    scored = {}
    for reduction in REDUCTIONS:
        say(f"{reduction.label}:")
        baselines = select_baselines(names)
        scored[reduction.name] = score_reduction(
            contest, reduction, settings, forecaster, baselines, folder
        )
    table = compare_reductions(scored, settings, contest.horizons)
    about = {
        **forecaster.provenance(Draws(args.paths, args.seed)),
        **contest.provenance,
        "commit": code_commit(),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    write_table(table, args.out / "missing.parquet", about)
    publish_page(report(table, about), args.out / "missing.md", args.report)
    return int(bool(list_shortfalls(table)))


def report(table: pl.DataFrame, about: Mapping[str, object]) -> str:
    """The page: command, provenance, tables and the shortfalls."""
    names = ("panel", "bundle", "rollout", "seed", "paths")
    shortfalls = "\n".join(f"- {line}" for line in list_shortfalls(table))
    parts = [
        page_head("What poorer records cost", __file__, **{name: about[name] for name in names}),
        NOTE,
        to_markdown(table, {r.name: r.label for r in REDUCTIONS}),
        "## Against baselines with the same records",
        shortfalls
        or "The bundle (in-time: informed) is better than every baseline on every record at every "
        "horizon.",
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
