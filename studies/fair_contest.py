r"""Which part of a lead is whose? Networks, trees and both, trained and recalibrated alike.

    python -m studies.fair_contest --panel PANEL --out build/fair
        [--mapping NAME] [--prices YEAR] [--config small] [--seeds 3] [--horizons 1 2 5 10]
        [--baselines carry groupq ar1] [--persons N]

For each training seed a bundle with the transformer, one with an LSTM and one with a feed-forward
network are trained on the same persons by `saga train`, with the same steps, and with trees if the
panel allows them. All contestants then have maps and thresholds of the same calibration persons
(`+cal`), and are rows without them too:

- `saga`: the bundle as it ships, network and trees, calibrated by `saga calibrate`;
- `network`, `lstm`, `ff`: the networks alone; `lstm-trees`, `ff-trees`: with their trees;
- `trees`: the trees of the bundle alone; and --baselines, fitted on training persons.

Scores are averaged over the training seeds person by person, so p is that for other persons, and
the spread over seeds is a table of its own. p is adjusted over all tests of the page (Holm).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.contest_tables import ScoredSample, score_tables, write_results
from saga.evaluation.contestants import Contestant
from saga.evaluation.fair_contestants import Part, RawBundle, Recalibrated
from saga.evaluation.scoring.comparison import BUNDLE_NAME, YEAR, adjust_together
from saga.evaluation.selection import select_baselines
from saga.training.train_config import TrainConfig, load_config

from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.files.tables import write_table
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table, p_value
from studies.study_page import StepLog, page_head, publish_page, study_parser
from studies.trained_bundle import train_or_load

NETWORKS = {"network": "small", "lstm": "lstm", "ff": "feedforward"}
KEYS = ("model", "setting", "draw", "person_id", "horizon")


def main() -> int:
    """Train, calibrate and judge; write tables and the page."""
    parser = study_parser(__doc__)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--mapping")
    parser.add_argument("--prices", type=int)
    parser.add_argument("--config", default="small")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--horizons", type=int, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--baselines", nargs="*", default=["carry", "groupq", "ar1"])
    parser.add_argument("--persons", type=int)
    parser.add_argument("--out", type=Path, default=Path("build/fair"))
    args = parser.parse_args()
    panel = read_panel(args.panel, mapping=args.mapping, prices=args.prices)
    options = ContestOptions(horizons=args.horizons, n_persons=args.persons)
    contest = Contest(panel, options, progress=StepLog())
    settings = list(contest.settings())
    scored: list[ScoredSample] = []
    for seed in range(1, args.seeds + 1):
        rivals = contestants(contest, args.config, args.out, seed, args.baselines)
        scored.append(contest.score(rivals, args.out / f"seed-{seed}", settings))
    mean = mean_over_seeds(scored, args.out / "scores.parquet")
    tables = score_tables([mean], args.horizons)
    write_results(
        tables, args.out / "results", {**contest.provenance, "training_seeds": args.seeds}
    )
    spread = spread_over_seeds(scored)
    head = page_head("A fair contest", __file__, panel=panel.meta.panel_id, seeds=args.seeds)
    page = f"{head}\n\n{leads_table(tables, spread)}\n"
    publish_page(page, args.out / "results.md")
    return 0


def contestants(
    contest: Contest, config: str, out: Path, seed: int, baselines: Sequence[str]
) -> Iterator[Contestant]:
    """Every contestant of a seed, raw and recalibrated, but `saga`, which is as it ships."""
    panel, budget = contest.panel, load_config(config)
    people = panel.only(persons_of(panel, "calibration"))
    raw: list[Contestant] = []
    for name, shape in NETWORKS.items():
        settings = shaped(budget, shape)
        bundle = train_or_load(panel, out / name, settings, seed=seed)
        forecaster = Forecaster(bundle)
        if name == "network":
            shipped = out / f"saga-{seed}"
            calibrated = calibrate_bundle(
                bundle.path, panel, CalibrationOptions(rollout="exact"), out=shipped
            )
            yield contest.bundle(Forecaster(calibrated))
        parts: dict[str, Part] = {name: "network"}
        if bundle.trees is not None:
            both = "network-trees" if name == "network" else f"{name}-trees"
            parts[both] = "both"
            if name == "network":
                parts["trees"] = "trees"
        raw += [RawBundle(forecaster, label, part) for label, part in parts.items()]
    raw += [contest.baseline(baseline).open() for baseline in select_baselines(baselines)]
    for contestant in raw:
        yield contestant
        yield Recalibrated(contestant, people, contest.seed)


def shaped(budget: TrainConfig, shape: str) -> TrainConfig:
    """The budget's configuration with the network of `shape`, as wide as has as many parameters."""
    shaped = load_config(shape).model
    if shaped.backbone == budget.model.backbone:
        return replace(budget, trees=True)
    width = round(budget.model.width * shaped.width / load_config("small").model.width)
    model = replace(budget.model, backbone=shaped.backbone, width=width, light=0)
    return replace(budget, model=model, members=1, trees=True)


def mean_over_seeds(scored: Sequence[ScoredSample], file: Path) -> ScoredSample:
    """The scores of all seeds, averaged person by person, in `file`."""
    files = [path for sample in scored for path in sample.scores]
    frame = pl.concat([pl.read_parquet(path, glob=False) for path in files])
    means = frame.group_by(KEYS, maintain_order=True).agg(pl.exclude(KEYS).mean())
    record = {"model": "", "setting": "", "horizon": 0, "paths": 0, "persons": 0}
    record |= {"fit_seconds": 0.0, "seconds": 0.0}
    write_table(means, file, record)
    return ScoredSample(scored[0].groups, [file])


def spread_over_seeds(scored: Sequence[ScoredSample]) -> dict[tuple[str, str, int], float]:
    """Standard deviation over training seeds of each mean CRPS of log earnings."""
    means = pl.concat(
        [
            pl.read_parquet(path, glob=False)
            .group_by("model", "setting", "horizon")
            .agg(pl.col("crps_log").mean())
            for sample in scored
            for path in sample.scores
        ]
    )
    rows = means.group_by("model", "setting", "horizon").agg(pl.col("crps_log").std()).iter_rows()
    return {(model, setting, horizon): sd or 0.0 for model, setting, horizon, sd in rows}


def leads_table(tables: dict[str, pl.DataFrame], spread: dict[tuple[str, str, int], float]) -> str:
    """CRPS, spread over seeds, and each contestant less saga with p over all tests (Holm)."""
    metrics = tables["metrics"].filter(metric="crps_log", group="all")
    tests = adjust_together(tables["comparisons"]).filter(metric="crps_log")
    by_key = {(r["model"], r["setting"], r["horizon"], r["test"]): r for r in tests.to_dicts()}
    rows = []
    order = [pl.col("setting") != "in-time", pl.col("horizon"), pl.col("value")]
    for row in metrics.sort(order).iter_rows(named=True):
        key = row["model"], row["setting"], row["horizon"]
        by_test = {test: by_key[k] for k in by_key if k[:3] == key for test in [k[3]]}
        person = next((t for name, t in by_test.items() if name != YEAR), None)
        lead = f"{person['difference']:+.4f} ± {person['se']:.4f}" if person else ""
        rows.append(
            [
                *(row["setting"], str(row["horizon"]), row["model"], f"{row['value']:.4f}"),
                *(f"{spread[key]:.4f}", f"{row['n']:,}", lead),
                *(p_value(t["p_holm"]) if t else "" for t in (person, by_test.get(YEAR))),
            ]
        )
    head = ["setting", "years ahead", "contestant", "CRPS", "SD over seeds", "persons"]
    return markdown_table([*head, f"less {BUNDLE_NAME}", "p", "p by origin year"], rows)


if __name__ == "__main__":
    sys.exit(main())
