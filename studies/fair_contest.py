r"""Which part of a lead is whose? Networks, trees and both, trained and recalibrated alike.

    python -m studies.fair_contest --panel PANEL --out build/fair
        [--mapping NAME] [--prices YEAR] [--on-error drop] [--config auto] [--folds 3] [--seed 0]
        [--horizons 1 2 5 10] [--baselines carry groupq ar1]

Every person is judged once, by models that have learnt from the other folds; the training seed of
fold k is the given one plus k. These networks learn from the same persons, as `saga train` does it,
with the same trees beside them, weighted for each, if the panel allows trees:

- `network`: with `--config auto` SAGA's network, fine-tuned from the prior as by default; else the
  transformer of the configuration, from random weights;
- `decoder`, only with `--config auto`: a transformer from random weights;
- `lstm`, `ff`: an LSTM and a feed-forward network about as large, from random weights.

All contestants then have maps and thresholds of the same calibration persons (`+cal`), and are rows
without them too:

- `saga`: the bundle as it ships, network and trees, calibrated by `saga calibrate`;
- `network`, `decoder`, `lstm`, `ff`: the networks alone; `-trees`: with their trees;
- `trees`: the trees of the bundle alone; and --baselines, fitted on all persons of other folds.

p is that for other persons, adjusted over all tests of the page (Holm). The leads of single folds
show the spread over persons and training seeds together.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.contest_tables import ScoredSample, score_tables, write_results
from saga.evaluation.contestants import Contestant
from saga.evaluation.fair_contestants import RawBundle, Recalibrated
from saga.evaluation.fold_training import SHARES
from saga.evaluation.scoring.comparison import BUNDLE_NAME, YEAR, adjust_together
from saga.evaluation.scoring.evaluation_settings import Sample
from saga.evaluation.selection import select_baselines
from saga.training.ensembles import train_members
from saga.training.fit import settings_for
from saga.training.harness import RunOptions
from saga.training.train_config import AUTO, TrainConfig, choose_config, choose_start, load_config
from saga.training.transfer import Source
from saga.training.tree_member import fit_first_trees, weights_beside

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.files.bundle_folder import MANIFEST
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table, p_value
from saga.trees.mixture import WEIGHTS
from studies.study_page import StepLog, page_head, publish_page, say, study_parser
from studies.trained_bundle import path_of

RIVALS = {"lstm": "lstm", "ff": "feedforward"}
METRICS = {"crps_log": "CRPS of log earnings", "interval_90": "Interval score, 90 %"}
Start = tuple[TrainConfig, Path | None]  # a configuration, and the bundle that training starts from
KEYS = ("model", "setting", "draw", "person_id", "horizon")


def main() -> int:
    """Train, calibrate and judge; write tables and the page."""
    parser = study_parser(__doc__)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--mapping")
    parser.add_argument("--prices", type=int)
    parser.add_argument("--on-error", default="fail")
    parser.add_argument("--config", default=AUTO)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--horizons", type=int, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--baselines", nargs="*", default=["carry", "groupq", "ar1"])
    parser.add_argument("--out", type=Path, default=Path("build/fair"))
    args = parser.parse_args()
    panel = read_panel(args.panel, mapping=args.mapping, prices=args.prices, on_error=args.on_error)
    options = ContestOptions(horizons=args.horizons, seed=args.seed)
    scored: list[ScoredSample] = []
    for k, sample in enumerate(Sample.of_folds(panel, args.folds, seed=args.seed)):
        contest = Contest(panel, options, sample=sample, progress=StepLog())
        settings = list(contest.settings())
        outside = panel.only(sample.training.persons())
        rivals = contestants(contest, outside, args.config, args.out, k, args.baselines)
        scored.append(contest.score(rivals, args.out / f"fold-{k}", settings))
    tables = score_tables(scored, args.horizons)
    write_results(tables, args.out / "results", {**contest.provenance, "folds": args.folds})
    head = page_head("A fair contest", __file__, panel=panel.meta.panel_id, folds=args.folds)
    leads = [leads_table(tables, metric, leads_by_fold(scored, metric)) for metric in METRICS]
    parts = [f"## {title}\n\n{table}" for title, table in zip(METRICS.values(), leads, strict=True)]
    publish_page("\n\n".join([head, *parts]) + "\n", args.out / "results.md")
    return 0


def contestants(
    contest: Contest, outside: Panel, config: str, out: Path, fold: int, baselines: Sequence[str]
) -> Iterator[Contestant]:
    """Every contestant of a fold, raw and recalibrated, but `saga`, which is as it ships."""
    training, validation, calibration = (
        persons_of(outside, part, SHARES) for part in ("train", "validation", "calibration")
    )
    seed, starts = contest.seed + fold, networks(outside, config)
    bundles = {
        name: trained(outside, out / name, settings, seed, source)
        for name, (settings, source) in starts.items()
    }
    network = bundles["network"]
    shipped = out / f"saga-{network.digest[:12]}"
    if not (shipped / MANIFEST).is_file():  # few paths: present values are not judged
        calibrate_bundle(network.path, outside, CalibrationOptions(n_paths=20), out=shipped)
    yield contest.bundle(Forecaster.load(shipped))
    raw: list[Contestant] = [
        RawBundle(Forecaster(bundle), name, "network") for name, bundle in bundles.items()
    ]
    settings = starts["network"][0]
    if network.trees is not None:
        raw.append(RawBundle(Forecaster(network), "trees", "trees"))
        raw.append(RawBundle(Forecaster(network), "network-trees"))
        first = fit_first_trees(outside.only(training), settings, seed, say)
        assert first is not None, "as in the training of the network"
        for name in [rival for rival in bundles if rival != "network"]:
            weights = weights_beside(bundles[name], first, outside, settings, validation, seed)
            by_horizon = dict(zip(map(str, first.grid.tolist()), weights.tolist(), strict=True))
            beside = replace(
                bundles[name],
                trees=network.trees,
                config={**bundles[name].config, WEIGHTS: by_horizon},
            )
            raw.append(RawBundle(Forecaster(beside), f"{name}-trees"))
    people = outside.only(calibration)
    raw += [contest.baseline(baseline).open() for baseline in select_baselines(baselines)]
    for contestant in raw:
        yield contestant
        yield Recalibrated(contestant, people, contest.seed)


def networks(panel: Panel, config: str) -> Mapping[str, Start]:
    """How each network is trained, by name."""
    n_persons = len(persons_of(panel, "train", SHARES))
    if config != AUTO:
        budget = replace(load_config(config), members=1, trees=False)
        starts: dict[str, Start] = {"network": (replace(budget, trees=True), None)}
    else:
        budget = replace(choose_config(n_persons), members=1, trees=False)
        _, prior = choose_start(None, None, simulated=False, n_persons=n_persons)
        source = None if prior is None else Source.open(prior)
        settings = settings_for(AUTO, n_persons, source)
        starts = {"network": (settings, prior), "decoder": (budget, None)}
    return starts | {name: (shaped(budget, shape), None) for name, shape in RIVALS.items()}


def shaped(budget: TrainConfig, shape: str) -> TrainConfig:
    """The budget's configuration with the network of `shape`, as wide as has as many parameters."""
    model = load_config(shape).model
    width = round(budget.model.width * model.width / load_config("small").model.width)
    width -= width % 2
    model = replace(budget.model, backbone=model.backbone, width=width, light=0)
    return replace(budget, model=model)


def trained(
    panel: Panel, out: Path, settings: TrainConfig, seed: int, source: Path | None
) -> Bundle:
    """The bundle of these arguments: that of an earlier run, or trained now, or continued.

    With trees and an economy of groups, as `saga train` makes it; other studies train the network
    alone (`studies.trained_bundle`).
    """
    if source is not None:
        out = out.with_name(f"{out.name}-{Source.open(source).digest[:12]}")
    path = path_of(panel, out, settings, seed=seed)
    if (path / MANIFEST).is_file():
        return Bundle.load(path)
    started = path.with_name(f"{path.name}.run").is_dir()
    run = RunOptions(resume=started, source=source)
    return train_members(panel, path, config=settings, seed=seed, shares=SHARES, run=run)


def leads_by_fold(
    scored: Sequence[ScoredSample], metric: str
) -> dict[tuple[str, str, int], list[float]]:
    """Mean of each contestant less that of saga in every fold, by setting and horizon."""
    leads: dict[tuple[str, str, int], list[float]] = {}
    for sample in scored:
        frame = pl.concat([pl.read_parquet(path, glob=False) for path in sample.scores])
        means = frame.group_by("model", "setting", "horizon", maintain_order=True).agg(
            pl.col(metric).fill_nan(None).mean()
        )
        value = {(m, s, h): mean for m, s, h, mean in means.iter_rows()}
        for (model, setting, horizon), mean in value.items():
            of_saga = value[BUNDLE_NAME, setting, horizon]
            lead = math.nan if mean is None or of_saga is None else mean - of_saga
            leads.setdefault((model, setting, horizon), []).append(lead)
    return leads


def leads_table(
    tables: dict[str, pl.DataFrame], metric: str, leads: dict[tuple[str, str, int], list[float]]
) -> str:
    """Means of a metric, and each contestant less saga with p over all tests (Holm)."""
    metrics = tables["metrics"].filter(metric=metric, group="all").drop_nulls("value")
    tests = adjust_together(tables["comparisons"]).filter(metric=metric)
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
                *(f"{row['n']:,}", lead),
                ", ".join(f"{x:+.4f}" for x in leads[key]) if person else "",
                *(p_value(t["p_holm"]) if t else "" for t in (person, by_test.get(YEAR))),
            ]
        )
    head = ["setting", "years ahead", "contestant", "mean", "persons", f"less {BUNDLE_NAME}"]
    return markdown_table([*head, "by fold", "p", "p by origin year"], rows)


if __name__ == "__main__":
    sys.exit(main())
