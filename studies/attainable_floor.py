"""How near is the bundle to the best that more training persons could give it?

    python -m studies.attainable_floor REGISTER --panel JUDGED [--out build/attainable]
        [--bundle bundles/small] [--shares 0.1 0.3 1] [--config small]
        [--capacity CONFIG_OR_BUNDLE ...] [--rollout light] [--cache DIR] [--paths 200]
        [--persons N] [--seed 1] [--contest-seed 0] [--workers 1] [--report FILE]

REGISTER is the register that the bundle was trained on, --config the configuration. The same
network is trained again on nested shares of the training persons, with the same validation persons
and number of steps; the largest size is the bundle itself. JUDGED is a generated register with
`future/draw=k`. Forecasts of its test persons from the last year are scored at h = 1, 5, 10, 20.

At each horizon CRPS(n) = floor + a n^-b, with n in units of the largest size and one b for all
horizons. The floor is an extrapolation from few sizes, so it is uncertain. Its standard error
covers other test persons and other futures, but neither the chance in a training run nor the choice
of a power law. The page also shows the floors at b = 1/2 and b = 1. The floor is that of this
configuration with this many steps; a larger network may have another.

Smaller sizes have no calibration, so all sizes are scored without it, with one rollout. `saga`,
whose share of the gap is reported, is the bundle as in the contest. --capacity adds rows for
further configurations (YAML files, trained here) or bundles. --seed is the seed of shares and
training; --contest-seed is the `--seed` of `saga evaluate`, whose --cache can be used again.

Bundles and scores stay under --out and --cache (OUT/kept): the same command resumes. Exit 1 if the
bundle closes less than 80 % of the gap at some horizon, or if the futures end before the last one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from saga.evaluation.contest import PATHS, Contest, ContestOptions
from saga.evaluation.contestants import BundleContestant, LazyContestant
from saga.evaluation.scoring.comparison import VARIANT
from saga.evaluation.scoring.evaluation_settings import Setting
from saga.evaluation.scoring.gap import CLAIRVOYANT
from saga.evaluation.selection import select_baselines, select_clairvoyant
from saga.training.train_config import TrainConfig, load_config

from saga.bundle import Bundle
from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.errors import Problem, UsageError
from saga.files.atomic import digest_json
from saga.files.tables import write_table
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each
from saga.requests import RolloutName
from studies.floor_estimation import (
    EXPONENTS,
    GAP_START,
    TARGET_SHARE,
    floor_table,
    mean_scores,
    to_markdown,
    training_table,
)
from studies.study_page import (
    StepLog,
    bundle_parser,
    code_commit,
    command_line,
    page_head,
    publish_page,
    say,
)
from studies.trained_bundle import train_or_load


def subset(panel: Panel, share: float, seed: int) -> Panel:
    """The panel without a keyed part of its training persons; smaller shares lie inside larger."""
    training = persons_of(panel, "train")
    uniforms = uniform_each(training, "attainable", panel.meta.panel_id, seed)
    excluded = {person for person, u in zip(training, uniforms, strict=True) if u >= share}
    return panel.only([person for person in panel.persons() if person not in excluded])


def uncalibrated(
    bundle: Bundle, name: str, rollout: RolloutName, workers: int = 1
) -> LazyContestant:
    """The bundle as a contestant with raw marginals; UsageError without such a rollout."""
    forecaster = Forecaster(replace(bundle, calibration=None), workers=workers, rollout=rollout)
    key = digest_json(["uncalibrated", bundle.model_digest, rollout, BundleContestant.version])
    return LazyContestant(name, key, lambda: BundleContestant(forecaster, name))


NOTE = f"""CRPS of log earnings, lower is better; ± is the standard error over persons and drawn
futures together (bootstrap). n: training persons of uncalibrated networks with one configuration
and number of steps. "floor": the limit of CRPS(n) = floor + a n^-b with one b for all horizons, and
in brackets the floors for b = 1 and b = 1/2. "saga" is the bundle with its calibration, and
the shares of the gap are those that it closes. The {CLAIRVOYANT} knows hidden states that no record
contains, so no forecaster can reach it. ? marks a verdict within two standard errors of
{TARGET_SHARE:.0%}. In the second table, in brackets: the difference from the whole register."""
CAUTION = """A floor extrapolated from {sizes} sizes is uncertain. ± covers neither the chance in
training runs nor the choice of a power law. It is the floor of this network with these steps, not
of every network. b = {b:.2f} ± {b_se:.2f}{edge}; residuals {misfit}."""


def main() -> int:
    """Train, score, write the tables and attainable.md, print the page."""
    args = arguments()
    bundle, register = Bundle.load(args.bundle), read_panel(args.register)
    config = matching_config(bundle, load_config(args.config))
    check_register_of(bundle, register)
    folder = args.cache or args.out / "kept"
    contest = Contest(
        read_panel(args.panel),
        ContestOptions(
            n_paths=args.paths,
            seed=args.contest_seed,
            n_persons=args.persons,
            until=bundle.training_records.last_year,
            cache=folder,
        ),
        progress=StepLog(),
    )
    forward = forward_setting(contest, args.panel)
    further = {
        path.stem: Bundle.load(path) if path.is_dir() else load_config(path)
        for path in args.capacity
    }
    # The ends of the gap are scored first, so that a wrong register fails before hours of training.
    forecaster = Forecaster(bundle, workers=args.workers, rollout=args.rollout)
    ends = [
        *select_clairvoyant([CLAIRVOYANT], args.panel, args.workers),
        *map(contest.baseline, select_baselines([GAP_START])),
        contest.bundle(forecaster),
    ]
    files = {entrant.name: contest.scores(entrant, forward, folder) for entrant in ends}
    sized = bundles_by_size(register, bundle, config, args)
    bundles = {**sized, **capacity_bundles(register, further, args)}
    for name, trained in bundles.items():
        contestant = uncalibrated(trained, name, forecaster.rollout, args.workers)
        files[name] = contest.scores(contestant, forward, folder)
    scores = mean_scores(files, seed=args.contest_seed)
    sizes = {name: one.metrics["training"]["persons"]["train"] for name, one in sized.items()}
    floors, trainings = floor_table(scores, sizes), training_table(scores, bundles, sizes)
    about = {**contest.provenance, "bundle": bundle.digest, "rollout": forecaster.rollout}
    about |= {"training seed": args.seed, "commit": code_commit()}
    args.out.mkdir(parents=True, exist_ok=True)
    write_table(floors, args.out / "attainable.parquet", about)
    write_table(trainings, args.out / "trained.parquet", about)
    publish_page(report(floors, trainings, about), args.out / "attainable.md", args.report)
    reached = floors["reached"].all() and floors["horizon"].to_list() == contest.horizons
    return 0 if reached else 1


def arguments() -> argparse.Namespace:
    """The command line, with shares in ascending order."""
    parser = bundle_parser(__doc__, n_persons=None, n_paths=PATHS)
    parser.set_defaults(seed=1)
    parser.add_argument("register", type=Path)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("build/attainable"))
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1, 0.3, 1.0])
    parser.add_argument("--config", default="small")
    parser.add_argument("--capacity", nargs="+", type=Path, default=[])
    parser.add_argument("--rollout", choices=["exact", "light"])
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--contest-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    args.shares = sorted(set(args.shares))
    if len(args.shares) < 3 or args.shares[0] <= 0 or args.shares[-1] != 1:
        parser.error("--shares: three or more, above 0, the largest 1")
    if len({path.stem for path in args.capacity}) < len(args.capacity):
        parser.error("--capacity: two have the same name, and names label the rows")
    return args


def check_register_of(bundle: Bundle, register: Panel) -> None:
    """Raise UsageError unless the bundle was trained on this register, in all its years."""
    trained_on = (bundle.panel_id, bundle.split["scheme"], bundle.training_records.last_year)
    if trained_on != (register.meta.panel_id, "person", last_year(register)):
        message = "it was trained on {} (split: {}, until {})".format(*trained_on)
        problem = Problem("register", message, "Give the register that it was trained on.")
        raise UsageError(f"{bundle.path} is of another register", [problem])


def matching_config(bundle: Bundle, config: TrainConfig) -> TrainConfig:
    """The configuration of the smaller sizes; UsageError if the bundle had another."""
    trained_with = TrainConfig(**{**bundle.config["training"], "name": ""})
    if replace(config, name="") != trained_with:
        problem = Problem(
            "config",
            f"{bundle.path} was not trained with {config.name}",
            "Give its configuration as --config.",
        )
        raise UsageError("The sizes would differ in more than their persons", [problem])
    return without_early_stop(config)


def bundles_by_size(
    register: Panel, bundle: Bundle, config: TrainConfig, args: argparse.Namespace
) -> dict[str, Bundle]:
    """A bundle for each share of the register's training persons; `bundle` is the whole."""
    return {
        f"{VARIANT}{share:g}": bundle
        if share == 1
        else train_network(
            subset(register, share, args.seed), f"{config.name}-{share:g}", config, args
        )
        for share in args.shares
    }


def capacity_bundles(
    register: Panel, further: Mapping[str, Bundle | TrainConfig], args: argparse.Namespace
) -> dict[str, Bundle]:
    """Further bundles; configurations are trained on all training persons."""
    bundles = {}
    for name, source in further.items():
        bundle = (
            train_network(register, name, without_early_stop(source), args)
            if isinstance(source, TrainConfig)
            else source
        )
        check_register_of(bundle, register)
        bundles[VARIANT + name] = bundle
    return bundles


def train_network(panel: Panel, name: str, config: TrainConfig, args: argparse.Namespace) -> Bundle:
    """The bundle of this configuration: trained now, or by an earlier run."""
    out = args.out / f"{name}-{config.max_steps}-{args.seed}"
    say(f"{out.name}: train, or load")
    return train_or_load(panel, out, config, seed=args.seed, command=command_line(__file__))


def without_early_stop(config: TrainConfig) -> TrainConfig:
    """The same number of steps for every size; the best validated weights are used anyway."""
    return replace(config, patience=config.max_steps)


def forward_setting(contest: Contest, register: Path) -> Setting:
    """The forward setting; UsageError unless its outcomes are drawn futures."""
    futures = register if any(register.glob("future/draw=*")) else None
    forward = [setting for setting in contest.settings(futures) if setting.name == "forward"]
    if not forward or forward[0].outcomes[0][0] is None:
        problem = Problem(
            "futures",
            f"{register} has none after {contest.sample.until}",
            "Generate it with --future-to and --future-draws. Its last year must be the last year "
            "of the bundle's training.",
        )
        raise UsageError("There are no futures to judge by", [problem])
    return forward[0]


def report(floors: pl.DataFrame, trainings: pl.DataFrame, about: Mapping[str, Any]) -> str:
    """The page: command, provenance, tables, caution."""
    names = ("panel", "bundle", "rollout", "training seed", "seed", "paths")
    curve = floors.row(0, named=True)
    misfit = (
        "cannot be judged"
        if curve["misfit"] is None
        else f"are {curve['misfit'] ** 0.5:.1f} times their sampling error"
    )
    caution = CAUTION.format(
        sizes=trainings.filter("sized")["model"].n_unique(),
        b=curve["b"],
        b_se=curve["b_se"],
        edge=", at the edge of the range" if curve["b"] in EXPONENTS[[0, -1]] else "",
        misfit=misfit,
    )
    parts = [
        page_head("The attainable floor", __file__, **{name: about[name] for name in names}),
        NOTE,
        to_markdown(floors, trainings),
        caution,
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
