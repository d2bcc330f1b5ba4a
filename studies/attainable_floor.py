"""How near is the bundle to the best that more training persons could give it?

    python -m studies.attainable_floor REGISTER --panel JUDGED [--out build/attainable]
        [--bundle bundles/small] [--shares 0.1 0.3 1] [--config small] [--rollout light]
        [--cache DIR] [--paths 200] [--persons N] [--seed 1] [--workers 1] [--report FILE]

REGISTER is the register that the bundle was trained on, --config the configuration. The same
network is trained again on nested shares of the training persons, with the same validation persons
and number of steps; the largest size is the bundle itself. JUDGED is a generated register with
`future/draw=k`. Forecasts of its test persons from the last year are scored at h = 1, 5, 10, 20.

At each horizon CRPS(n) = floor + a n^-b, with n in units of the largest size and one b for all
horizons. The floor is an extrapolation from few sizes, so it is uncertain: the page also shows the
floors at b = 1/2 and b = 1. It is the floor of this configuration with this many steps; a larger
network may have another.

Smaller sizes have no calibration, so all sizes are scored without it, with one rollout. `saga`,
whose share of the gap is reported, is the bundle as in the contest. --seed is the seed of shares
and training.

Bundles and scores stay under --out and --cache (OUT/scores): the same command resumes, and the
cache of `saga evaluate` can be used. Exit 1 if the bundle closes less than 80 % of the gap at some
horizon, or if the futures end before the last one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.contest import PATHS, Contest, ContestOptions
from saga.evaluation.contest_tables import score_tables
from saga.evaluation.contestants import BundleContestant, LazyContestant
from saga.evaluation.scoring.comparison import BUNDLE_NAME, VARIANT
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
from saga.pages.format import in_percent, markdown_table
from saga.requests import RolloutName
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

Array = NDArray[np.float64]
GAP_START = "gkos"  # the model at the upper end of the gap
TARGET_SHARE = 0.8  # of the gap from there to the floor
EXPONENTS = np.linspace(0.2, 1.0, 161)  # the values of b that are tried
SIDES = (1.0, 0.5)  # values of b whose floors are shown next to the estimate
NOTE = f"""CRPS of log earnings, lower is better. n: training persons of uncalibrated networks with
one configuration and number of steps. "floor": the limit of CRPS(n) = floor + a n^-b with one b for
all horizons, and in brackets the floors for b = 1 and b = 1/2. "{BUNDLE_NAME}" is the bundle with
its calibration, and the shares of the gap are those that it closes. The {CLAIRVOYANT} knows hidden
states that no record contains, so no forecaster can reach it."""
CAUTION = """A floor extrapolated from {sizes} sizes is uncertain, by the chance in training runs
and by the choice of a power law. It is the floor of this network with these steps, not of every
network. b = {b:.2f}; standard errors of the scores over macro futures are up to {se:.4f}."""


def fit_floors(
    persons: Sequence[int], crps: Array, exponents: Sequence[float] | Array = EXPONENTS
) -> tuple[Array, float]:
    """The floors (n_horizon,) and b of CRPS = floor + a n^-b, a >= 0, by least squares.

    If more persons do not help, `a` is 0, the floor is the mean, and the data do not determine b.

    Args:
        persons: Training persons of each size, (n_size,).
        crps: Mean scores, (n_horizon, n_size).
        exponents: Values of b to try.
    """
    relative, best = np.asarray(persons) / max(persons), (np.inf, crps.mean(axis=1), np.nan)
    for b in exponents:
        x = relative**-b
        deviation = x - x.mean()
        a = np.maximum(crps @ deviation / (deviation @ deviation), 0.0)
        floor = crps.mean(axis=1) - a * x.mean()
        squares = float(((crps - floor[:, None] - a[:, None] * x) ** 2).sum())
        if squares < best[0]:
            best = squares, floor, float(b)
    return best[1:]


def floor_table(metrics: pl.DataFrame, sizes: Mapping[str, int]) -> pl.DataFrame:
    """One row per horizon: scores, the floor, and the shares of the gap that the bundle closes.

    Columns are the models' CRPS by name, `floor`, `floor_1` and `floor_0.5` (b = 1 and 1/2), `b`,
    `closed` (the share of the gap from GKOS to the floor), `of_bound` (to the clairvoyant), `se`
    (the largest standard error of the scores over futures) and `reached`. A share without a gap is
    null, and the target is then missed.

    Args:
        metrics: The contest's metrics of the forward setting.
        sizes: Training persons of the models that differ in nothing else.
    """
    crps = metrics.filter(pl.col("n") > 0, metric="crps_log", group="all", setting="forward")
    table = crps.pivot("model", index="horizon", values="value").sort("horizon")
    values, persons = table.select(*sizes).to_numpy(), list(sizes.values())
    floor, b = fit_floors(persons, values)
    start = pl.col(GAP_START)

    def share(end: pl.Expr) -> pl.Expr:
        return pl.when(start > end).then((start - pl.col(BUNDLE_NAME)) / (start - end))

    sides = {f"floor_{side:g}": fit_floors(persons, values, [side])[0] for side in SIDES}
    errors = crps.group_by("horizon").agg(pl.col("se").max())
    return (
        table.with_columns(pl.Series("floor", floor), b=pl.lit(b))
        .with_columns(pl.Series(name, values) for name, values in sides.items())
        .join(errors, on="horizon", maintain_order="left")
        .with_columns(closed=share(pl.col("floor")), of_bound=share(pl.col(CLAIRVOYANT)))
        .with_columns(reached=(pl.col("closed") >= TARGET_SHARE).fill_null(False))
    )


def to_markdown(table: pl.DataFrame, sizes: Mapping[str, int]) -> str:
    """The table of `floor_table`."""
    header = [
        *("h", GAP_START, *(f"n = {n:,}" for n in sizes.values())),
        *("floor (b = 1 to 1/2)", CLAIRVOYANT, BUNDLE_NAME),
        *(f"{GAP_START} to floor, %", f"{GAP_START} to {CLAIRVOYANT}, %", "target"),
    ]
    rows = [
        [
            str(row["horizon"]),
            *(f"{row[name]:.4f}" for name in (GAP_START, *sizes)),
            f"{row['floor']:.4f} ({row['floor_1']:.4f} to {row['floor_0.5']:.4f})",
            *(f"{row[name]:.4f}" for name in (CLAIRVOYANT, BUNDLE_NAME)),
            *(in_percent(row[name]) or "no gap" for name in ("closed", "of_bound")),
            "reached" if row["reached"] else "MISSED",
        ]
        for row in table.iter_rows(named=True)
    ]
    return markdown_table(header, rows)


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


def matching_config(bundle: Bundle, register: Panel, config: TrainConfig) -> TrainConfig:
    """The configuration of the smaller sizes, with the same number of steps for every size.

    Raises UsageError unless the bundle was trained with it on this register, in all its years.
    """
    trained_on = (bundle.panel_id, bundle.split["scheme"], bundle.training_records.last_year)
    if trained_on != (register.meta.panel_id, "person", last_year(register)):
        message = "it was trained on {} (split: {}, until {})".format(*trained_on)
        problem = Problem("register", message, "Give the register that it was trained on.")
        raise UsageError(f"{bundle.path} is of another register", [problem])
    trained_with = TrainConfig(**{**bundle.config["training"], "name": ""})
    if replace(config, name="") != trained_with:
        message = f"{bundle.path} was not trained with {config.name}"
        problem = Problem("config", message, "Give its configuration as --config.")
        raise UsageError("The sizes would differ in more than their persons", [problem])
    return replace(config, patience=config.max_steps)  # the best validated weights are used anyway


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


def main() -> int:
    """Train, score, write the table and attainable.md, print the page."""
    args = arguments()
    bundle, register = Bundle.load(args.bundle), read_panel(args.register)
    config = matching_config(bundle, register, load_config(args.config))
    contest = Contest(
        read_panel(args.panel),
        ContestOptions(
            n_paths=args.paths,
            n_persons=args.persons,
            until=bundle.training_records.last_year,
            cache=args.cache,
        ),
        progress=StepLog(),
    )
    forecaster, sizes = Forecaster(bundle, workers=args.workers, rollout=args.rollout), {}

    def contestants() -> Iterator[LazyContestant]:
        # The ends of the gap come first, so that a wrong register fails before hours of training.
        yield from select_clairvoyant([CLAIRVOYANT], args.panel, args.workers)
        yield from map(contest.baseline, select_baselines([GAP_START]))
        yield contest.bundle(forecaster)
        for share in args.shares:
            trained, name = bundle, f"{VARIANT}{share:g}"
            if share < 1:
                out = args.out / f"{config.name}-{share:g}-{config.max_steps}-{args.seed}"
                say(f"{out.name}: train, or load")
                persons, command = subset(register, share, args.seed), command_line(__file__)
                trained = train_or_load(persons, out, config, seed=args.seed, command=command)
            sizes[name] = trained.metrics["training"]["persons"]["train"]
            yield uncalibrated(trained, name, forecaster.rollout, args.workers)

    scored = contest.score(contestants(), args.out, [forward_setting(contest, args.panel)])
    table = floor_table(score_tables([scored], contest.horizons)["metrics"], sizes)
    about = {**contest.provenance, "bundle": bundle.digest, "rollout": forecaster.rollout}
    about |= {"training seed": args.seed, "commit": code_commit()}
    args.out.mkdir(parents=True, exist_ok=True)
    write_table(table, args.out / "attainable.parquet", about)
    names = ("panel", "bundle", "rollout", "training seed", "seed", "paths")
    head = page_head("The attainable floor", __file__, **{name: about[name] for name in names})
    caution = CAUTION.format(sizes=len(sizes), b=table["b"][0], se=table["se"].max())
    page = "\n\n".join([head, NOTE, to_markdown(table, sizes), caution])
    publish_page(page, args.out / "attainable.md", args.report)
    return int(not table["reached"].all() or table["horizon"].to_list() != contest.horizons)


def arguments() -> argparse.Namespace:
    """The command line, with shares in ascending order."""
    parser = bundle_parser(__doc__, n_persons=None, n_paths=PATHS)
    parser.set_defaults(seed=1)
    parser.add_argument("register", type=Path)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("build/attainable"))
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1, 0.3, 1.0])
    parser.add_argument("--config", default="small")
    parser.add_argument("--rollout", choices=["exact", "light"])
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    args.shares = sorted(set(args.shares))
    if len(args.shares) < 3 or args.shares[0] <= 0 or args.shares[-1] != 1:
        parser.error("--shares: three or more, above 0, the largest 1")
    return args


if __name__ == "__main__":
    sys.exit(main())
