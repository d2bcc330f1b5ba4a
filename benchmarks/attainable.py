"""How much of what persons could teach it the bundle has learnt: the share of the gap from GKOS to an attainable floor, forward.

    python benchmarks/attainable.py REGISTER --panel JUDGED [--out build/attainable] [--bundle bundles/small] [--shares 0.1 0.3 1]
        [--config small] [--capacity CONFIG_OR_BUNDLE ...] [--rollout light] [--cache DIR] [--paths 200] [--persons N] [--seed 1]
        [--contest-seed 0] [--workers 1] [--report FILE]

REGISTER is the one that the bundle was trained on with --config: the same network is trained anew on nested shares of its training persons,
with the same validation persons and as many steps; the whole is the bundle. JUDGED is a generated register with `future/draw=k`, whose test
persons judge forward at h = 1, 5, 10, 20. The floor is where CRPS goes as persons grow (`evaluation/attainable.py` says how, and how
uncertain that is). For the sizes' sake all bundles are judged without calibration and by one rollout; `saga`, whose share of the gap
counts, is the bundle as the contest has it. --capacity: configurations (YAML files, trained here on all training persons) or bundles, rows
beside. --seed chooses the shares and trains, --contest-seed is the `--seed` of `saga evaluate`, whose --cache so serves.

Bundles and scores stay under --out and --cache (OUT/kept): the same command goes on where it stopped.
Exit 1 where the bundle closes less than 80 % of the gap at some horizon, or where futures end before one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from evaluation.attainable import (
    BEGIN,
    PROMISE,
    as_markdown,
    floors,
    means,
    subset,
    trained,
    uncalibrated,
)
from evaluation.contest import PATHS, Contest, chosen, clairvoyant
from evaluation.scoring.comparison import REFEREE, VARIANT
from evaluation.scoring.evaluation_settings import Setting
from evaluation.scoring.gap import BOUND
from evaluation.scripts import code_commit, command_line, options
from saga.bundle import Bundle
from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import Problem, UsageError
from saga.files.tables import write_table
from saga.forecaster import Forecaster
from training.found import found_or_trained
from training.train_config import TrainConfig, load_config

NOTE = f"""CRPS of log earnings, lower is better; ± is the standard error over persons and drawn futures together (bootstrap). n: persons
that a network was trained on, of one configuration and number of steps, uncalibrated. "floor": where CRPS(n) = floor + a n^-b goes, one b
for all horizons, and in brackets the floors if b were 1 and 1/2. "{REFEREE}" is the bundle with its calibration, and the shares of a gap
are its own. The {BOUND} knows hidden states, which no record holds: nobody reaches it. ? marks a verdict within two standard errors of
{PROMISE:.0%}. In the second table, in brackets: less what the whole register's gives."""
CAUTION = """A floor extrapolated from {sizes} sizes is uncertain. ± does not hold the luck of training runs, nor the choice of a power law;
it is the floor of this network with these steps, not of every network. b = {b:.2f} ± {b_se:.2f}{edge}; residuals {misfit}."""


def main() -> int:
    """Trains, scores, writes attainable.parquet, trained.parquet and attainable.md (and the report), prints the tables."""
    args = arguments()
    bundle, register = Bundle.load(args.bundle), read_panel(args.register)
    settings = smaller(bundle, load_config(args.config))
    known(bundle, register)
    folder = args.cache or args.out / "kept"
    contest = Contest(
        read_panel(args.panel),
        paths=args.paths,
        seed=args.contest_seed,
        persons=args.persons,
        until=bundle.config["until"],
        cache=folder,
        progress=told,
    )
    forward = futures(contest, args.panel)
    further = {
        path.stem: Bundle.load(path) if path.is_dir() else load_config(path)
        for path in args.capacity
    }
    # The ends of the gap come first: a register that cannot be lived again is found out before hours of work.
    forecaster = Forecaster(bundle, workers=args.workers, rollout=args.rollout)
    ends = [
        *clairvoyant([BOUND], args.panel, args.workers),
        *map(contest.baseline, chosen([BEGIN])),
        contest.bundle(forecaster),
    ]
    files = {entrant.name: contest.scores(entrant, forward, folder) for entrant in ends}
    sized = sizes(register, bundle, settings, args)
    bundles = {**sized, **capacity(register, further, args)}
    for name, one in bundles.items():
        files[name] = contest.scores(
            uncalibrated(one, name, forecaster.rollout, args.workers), forward, folder
        )
    found = means(files, seed=args.contest_seed)
    persons = {name: one.metrics["training"]["persons"]["train"] for name, one in sized.items()}
    table, rows = floors(found, persons), trained(found, bundles, persons)
    about = {**contest.provenance, "bundle": bundle.digest, "rollout": forecaster.rollout}
    about |= {"training seed": args.seed, "commit": code_commit()}
    page = report(table, rows, about)
    args.out.mkdir(parents=True, exist_ok=True)
    write_table(table, args.out / "attainable.parquet", about)
    write_table(rows, args.out / "trained.parquet", about)
    for file in (args.out / "attainable.md", args.report):
        if file:
            file.write_text(page, encoding="utf-8")
    print(page)
    return 0 if table["held"].all() and table["horizon"].to_list() == contest.horizons else 1


def arguments() -> argparse.Namespace:
    """The options, shares in order."""
    parser = options(__doc__, persons=None, paths=PATHS)
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
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    args.shares = sorted(set(args.shares))
    if len(args.shares) < 3 or args.shares[0] <= 0 or args.shares[-1] != 1:
        parser.error("--shares: three or more, above 0, the largest 1")
    if len({path.stem for path in args.capacity}) < len(args.capacity):
        parser.error("--capacity: two have one name, and names are rows")
    return args


def known(bundle: Bundle, register: Panel) -> None:
    """Raises UsageError unless the bundle was trained on this register's training persons, in all its years."""
    trained_on = (bundle.split["panel_id"], bundle.split["scheme"], bundle.config["until"])
    if trained_on != (register.meta.panel_id, "person", last_year(register)):
        message = "it was trained on {} (split: {}, until {})".format(*trained_on)
        raise UsageError(
            f"{bundle.path} is of another register",
            [Problem("register", message, "Give the one that it was trained on.")],
        )


def smaller(bundle: Bundle, settings: TrainConfig) -> TrainConfig:
    """The settings for the smaller shares. Raises UsageError where the bundle was trained with others."""
    if replace(settings, name="") != TrainConfig.from_dict(
        {**bundle.config["training"], "name": ""}, ""
    ):
        problem = Problem(
            "config",
            f"{bundle.path} was not trained with {settings.name}",
            "Give its configuration as --config.",
        )
        raise UsageError("The sizes would differ in more than their persons", [problem])
    return unhurried(settings)


def sizes(
    register: Panel, bundle: Bundle, settings: TrainConfig, args: argparse.Namespace
) -> dict[str, Bundle]:
    """A bundle a share of the register's training persons; that of them all is `bundle`."""
    found = {}
    for share in args.shares:
        own = (
            bundle
            if share == 1
            else network(
                subset(register, share, args.seed), f"{settings.name}-{share:g}", settings, args
            )
        )
        found[f"{VARIANT}{share:g}"] = own
    return found


def capacity(
    register: Panel, further: Mapping[str, Bundle | TrainConfig], args: argparse.Namespace
) -> dict[str, Bundle]:
    """Further bundles, trained on all training persons where they are configurations yet."""
    found = {}
    for name, one in further.items():
        if isinstance(one, TrainConfig):
            one = network(register, name, unhurried(one), args)
        known(one, register)
        found[VARIANT + name] = one
    return found


def network(panel: Panel, name: str, settings: TrainConfig, args: argparse.Namespace) -> Bundle:
    """The bundle of these settings that is trained here, or was."""
    out = args.out / f"{name}-{settings.max_steps}-{args.seed}"
    tell(f"{out.name}: found or trained")
    return found_or_trained(panel, out, settings, seed=args.seed, command=command_line(__file__))


def unhurried(settings: TrainConfig) -> TrainConfig:
    """The same without a stop before the last step: the weights that validated best are kept anyway, and every size has as many steps."""
    return replace(settings, patience=settings.max_steps)


def futures(contest: Contest, register: Path) -> Setting:
    """The forward setting; UsageError unless its outcomes are futures that were drawn."""
    there = register if any(register.glob("future/draw=*")) else None
    found = [setting for setting in contest.settings(there) if setting.name == "forward"]
    if not found or found[0].outcomes[0][0] is None:
        fix = "Generate it with --future-to and --future-draws, its last year the one that the bundle was trained until."
        raise UsageError(
            "There are no futures to judge by",
            [Problem("futures", f"{register} has none after {contest.sample.until}", fix)],
        )
    return found[0]


def report(table: pl.DataFrame, rows: pl.DataFrame, about: Mapping[str, Any]) -> str:
    """The page: command, provenance, tables, caution."""
    origin = ", ".join(
        f"{name} `{about[name]}`"
        for name in ("panel", "bundle", "rollout", "commit", "training seed", "seed", "paths")
    )
    law = table.row(0, named=True)
    edge = ", at the edge of where it is sought" if law["b"] in (0.2, 1.0) else ""
    misfit = (
        "cannot be judged"
        if law["misfit"] is None
        else f"are {law['misfit'] ** 0.5:.1f} times their sampling error"
    )
    sizes = rows.filter("sized")["model"].n_unique()
    caution = CAUTION.format(sizes=sizes, b=law["b"], b_se=law["b_se"], edge=edge, misfit=misfit)
    parts = [
        "# The attainable floor",
        f"`{command_line(__file__)}`",
        f"{origin}.",
        NOTE,
        as_markdown(table, rows),
        caution,
    ]
    return "\n\n".join(parts) + "\n"


def told(step: str, done: int, total: int) -> None:
    """`evaluation.contest.Progress`: a line where a step begins or ends."""
    if done in (0, total):
        tell(f"{step}: {'done' if done else 'begun'}")


def tell(line: str) -> None:
    """To the person who waits."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
