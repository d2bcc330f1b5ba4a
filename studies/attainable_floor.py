"""How near is the bundle to the best that more training persons could give it?

    python -m studies.attainable_floor REGISTER --panel JUDGED [--out build/attainable]
        [--bundle bundles/small] [--shares 0.1 0.3 1] [--config small]
        [--capacity CONFIG_OR_BUNDLE ...] [--rollout light] [--cache DIR] [--paths 200]
        [--persons N] [--seed 1] [--contest-seed 0] [--workers 1] [--report FILE]

REGISTER is the register that the bundle was trained on, with the configuration --config. The same
network is trained again on nested shares of its training persons, with the same validation persons
and the same number of steps; the largest size is the bundle itself. JUDGED is a generated register
with `future/draw=k`. Its test persons are judged forward at h = 1, 5, 10, 20.

At each horizon CRPS(n) = floor + a n^-b, with n in units of the largest size and one b for all
horizons. Three sizes leave no degree of freedom at a horizon, and the floor is an extrapolation, so
it is uncertain. Its standard error covers other test persons and other futures, but not the luck of
a training run and not the choice of a power law. The floors at b = 1/2 and b = 1 are shown beside
it. It is the floor of this configuration with this many steps; a larger network may have another.

All sizes are judged without calibration and by one rollout, because smaller sizes have no
calibration. `saga`, whose share of the gap counts, is the bundle as in the contest. --capacity adds
rows for further configurations (YAML files, trained here) or bundles. --seed chooses the shares and
trains; --contest-seed is the `--seed` of `saga evaluate`, whose --cache can be used again.

Bundles and scores stay under --out and --cache (OUT/kept): the same command resumes. Exit 1 if the
bundle closes less than 80 % of the gap at some horizon, or if the futures end before one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.contest import PATHS, Contest, ContestOptions
from evaluation.contestants import BundleContestant, LazyContestant
from evaluation.scoring.comparison import REFEREE, VARIANT
from evaluation.scoring.evaluation_settings import Setting
from evaluation.scoring.gap import BOUND
from evaluation.selection import select_baselines, select_clairvoyant
from saga.bundle import Bundle
from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.errors import Problem, UsageError
from saga.files.atomic import digest_json
from saga.files.markdown import markdown_table
from saga.files.tables import write_table
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each
from saga.requests import RolloutName
from studies.study_page import StepLog, code_commit, command_line, publish_page, say, study_parser
from studies.trained_bundle import train_or_load
from training.train_config import TrainConfig, load_config

Array = NDArray[np.float64]
GAP_START = "gkos"  # the model at the upper end of the gap
TARGET_SHARE = 0.8  # of the gap from there to the floor
EXPONENTS = np.linspace(0.2, 1.0, 161)  # the values of b that are tried
SIDE_EXPONENTS = (0.5, 1.0)  # exponents whose floors are shown beside the estimate
REPLICATES = 500
TRAINED = {
    "model": pl.String(),
    "sized": pl.Boolean(),
    "persons": pl.Int64(),
    "parameters": pl.Int64(),
    "steps": pl.Int64(),
    "horizon": pl.Int32(),
    "crps": pl.Float64(),
    "se": pl.Float64(),
    "difference": pl.Float64(),
    "difference_se": pl.Float64(),
}
FLOORS = {
    "horizon": pl.Int32(),
    "n": pl.Int64(),
    **{
        f"{model}{part}": pl.Float64()
        for model in (GAP_START, BOUND, REFEREE)
        for part in ("", "_se")
    },
    **{
        f"{name}{part}": pl.Float64()
        for name in ("floor", "closed")
        for part in ("", "_se", "_half", "_one")
    },
    "of_bound": pl.Float64(),
    "of_bound_se": pl.Float64(),
    "b": pl.Float64(),
    "b_se": pl.Float64(),
    "misfit": pl.Float64(),
    "reached": pl.Boolean(),
    "sure": pl.Boolean(),
}


def subset(panel: Panel, share: float, seed: int) -> Panel:
    """The panel with a keyed share of its training persons and all others; shares are nested."""
    training = persons_of(panel, "train")
    uniforms = uniform_each(training, "attainable", panel.meta.panel_id, seed)
    excluded = {person for person, u in zip(training, uniforms, strict=True) if u >= share}
    return panel.only([person for person in panel.persons() if person not in excluded])


def uncalibrated(
    bundle: Bundle, name: str, rollout: RolloutName, workers: int = 1
) -> LazyContestant:
    """The bundle as a contestant with raw paths and without intervals.

    Raises UsageError if the bundle does not have this rollout.
    """
    forecaster = Forecaster(replace(bundle, calibration=None), workers=workers, rollout=rollout)
    key = digest_json(["uncalibrated", bundle.model_digest, rollout, BundleContestant.version])
    return LazyContestant(name, key, lambda: BundleContestant(forecaster, name))


@dataclass(frozen=True)
class Curve:
    """CRPS = `floor` + `a` n^-`b`, n in units of the largest size.

    `floor` and `a` have shape (..., n_horizon), `b` and the weighted sum of `squares` (...).
    """

    floor: Array
    a: Array
    b: Array
    squares: Array


def fit_floors(
    persons: Sequence[int], crps: Array, se: Array, exponents: Sequence[float] | Array = EXPONENTS
) -> Curve:
    """Weighted least squares, with b searched over `exponents`.

    If more persons do not help, `a` is 0, the floor is the mean, and nothing is known of b.

    Args:
        persons: training persons of each size, (n_size,).
        crps: mean scores, (..., n_horizon, n_size).
        se: standard errors without what all sizes share, (n_horizon, n_size). An error that all
            sizes share moves the floor alone.
        exponents: values of b to try.
    """
    relative, weight = np.asarray(persons) / max(persons), se**-2.0
    total = weight.sum(axis=-1)
    middle = (weight * crps).sum(axis=-1) / total
    best: Curve | None = None
    for b in exponents:
        x = relative**-b
        centre = (weight * x).sum(axis=-1) / total
        deviation = weight * (x - centre[:, None])
        a = np.maximum((deviation * crps).sum(axis=-1) / (deviation * x).sum(axis=-1), 0.0)
        floor = middle - a * centre
        residual = crps - floor[..., None] - a[..., None] * x
        squares = (weight * residual**2).sum(axis=(-2, -1))
        curve = Curve(floor, a, np.full(a.shape[:-1], b), squares)
        best = curve if best is None else _better(best, curve)
    if best is None:
        raise ValueError("no exponent to try")
    return best


def _better(old: Curve, new: Curve) -> Curve:
    improved = new.squares < old.squares
    row = improved[..., None]
    return Curve(
        np.where(row, new.floor, old.floor),
        np.where(row, new.a, old.a),
        np.where(improved, new.b, old.b),
        np.where(improved, new.squares, old.squares),
    )


@dataclass(frozen=True)
class MeanScores:
    """Mean CRPS of log earnings of all models on the same persons, futures and outcomes.

    `value` has shape (n_horizon, n_model), `replicates` (n_replicate, n_horizon, n_model). `n`
    (n_horizon,) counts persons with an outcome, on average over futures. The bootstrap draws
    persons and futures independently (Owen 2007), the same ones for every model and horizon, so
    that differences are paired. Its spread is too wide rather than too narrow.
    """

    models: list[str]
    horizons: list[int]
    n: list[int]
    value: Array
    replicates: Array

    def of_models(self, *models: str) -> tuple[Array, Array]:
        """Values (n_horizon, m) and replicates (n_replicate, n_horizon, m) of these models."""
        columns = [self.models.index(model) for model in models]
        return self.value[:, columns], self.replicates[:, :, columns]

    def of(self, model: str) -> tuple[Array, Array]:
        """Values (n_horizon,) and replicates (n_replicate, n_horizon) of one model."""
        value, replicates = self.of_models(model)
        return value[:, 0], replicates[:, :, 0]


def mean_scores(
    files: Mapping[str, Path], *, seed: int, replicates: int = REPLICATES
) -> MeanScores:
    """Means over futures of means over persons.

    `files` holds one file of un-averaged forward scores a model (`evaluation.contest`).

    Raises:
        UsageError: the outcomes are not drawn futures.
        ValueError: the models were not scored on the same outcomes.
    """
    keys = ["horizon", "draw", "person_id"]
    scores = [
        pl.read_parquet(file, columns=[*keys, "crps_log"]).drop_nulls("crps_log").sort(keys)
        for file in files.values()
    ]
    first = scores[0].select(keys)
    if first["draw"].null_count() or first["draw"].n_unique() < 2:
        fix = "Generate the register with --future-to and --future-draws."
        raise UsageError(
            "There are no futures to judge by",
            [Problem("futures", "the forward setting needs two drawn futures", fix)],
        )
    if not all(other.select(keys).equals(first) for other in scores):
        raise ValueError("the models were not scored on the same outcomes")
    horizon, draw, person = (
        np.unique(first[name].to_numpy(), return_inverse=True)[1] for name in keys
    )
    shape = tuple(int(codes.max()) + 1 for codes in (horizon, draw, person))
    observed, values = np.zeros(shape), np.zeros((len(scores), *shape))
    observed[horizon, draw, person] = 1
    for array, frame in zip(values, scores, strict=True):
        array[horizon, draw, person] = frame["crps_log"].cast(pl.Float64).to_numpy()
    rng = np.random.default_rng(seed)
    futures, persons = (
        np.vstack([np.ones(size), rng.multinomial(size, np.full(size, 1 / size), replicates)])
        for size in shape[1:]
    )
    averages = np.empty((replicates + 1, shape[0], len(scores)))
    for h in range(shape[0]):
        count = persons @ observed[h].T  # (R, D)
        weight = futures * (count > 0)
        total = weight.sum(axis=1)
        for m in range(len(scores)):
            by_draw = persons @ values[m, h].T / np.maximum(count, 1)
            averages[:, h, m] = np.divide(
                (weight * by_draw).sum(axis=1),
                total,
                out=np.full(len(total), np.nan),
                where=total > 0,
            )
    n = [round(float(observed[h].sum(axis=1).mean())) for h in range(shape[0])]
    # A sample of few persons may hold nobody with an outcome at a long horizon.
    complete = averages[1:][np.isfinite(averages[1:]).all(axis=(1, 2))]
    horizons = first["horizon"].unique(maintain_order=True).to_list()
    return MeanScores(list(files), horizons, n, averages[0], complete)


def floor_table(scores: MeanScores, sizes: Mapping[str, int]) -> pl.DataFrame:
    """One row per horizon: the ends of the gap, the floor, and the share that the bundle closes.

    Columns: FLOORS. `_half` and `_one` are floors and shares at b = 1/2 and b = 1.
    `closed` is the share of the gap from GKOS to the floor that the calibrated bundle closes,
    `of_bound` the share of the gap to the clairvoyant. A share is null if there is no gap; the
    target is then missed. `misfit` is the mean square of the residuals in units of their sampling
    error; far above 1, training runs differ by more than the sampling error, or the curve is not a
    power law. `sure`: the target is reached, or missed, by two standard errors.

    Args:
        scores: mean scores of all models.
        sizes: training persons of the models that differ in nothing else; three or more.

    Raises:
        UsageError: fewer than three sizes.
    """
    value, replicates = scores.of_models(*sizes)
    count = len(sizes)
    if count < 3:
        raise UsageError(
            "A floor needs three sizes",
            [Problem("shares", f"{count} give none", "Give three shares or more.")],
        )
    # The error that the sizes do not share. Subtracting the mean of S equal errors removes 1 / S of
    # the variance of each.
    se = (replicates - replicates.mean(axis=2, keepdims=True)).std(axis=0, ddof=1) * np.sqrt(
        count / (count - 1)
    )
    persons = list(sizes.values())
    curve, curves = fit_floors(persons, value, se), fit_floors(persons, replicates, se)
    sides = [fit_floors(persons, value, se, [b]) for b in SIDE_EXPONENTS]
    ends = (GAP_START, BOUND, REFEREE)
    start, bound, bundle = (scores.of(model) for model in ends)
    freedom = value.size - 2 * len(value) - 1
    data: dict[str, Any] = {"horizon": scores.horizons, "n": scores.n}
    for model, (mean, samples) in zip(ends, (start, bound, bundle), strict=True):
        data |= {model: mean, f"{model}_se": samples.std(axis=0, ddof=1)}
    data |= {"floor": curve.floor, "floor_se": curves.floor.std(axis=0, ddof=1)}
    data |= {
        "closed": _share(start[0], bundle[0], curve.floor),
        "closed_se": _share(start[1], bundle[1], curves.floor).std(axis=0, ddof=1),
    }
    for name, side in zip(("half", "one"), sides, strict=True):
        data |= {
            f"floor_{name}": side.floor,
            f"closed_{name}": _share(start[0], bundle[0], side.floor),
        }
    data |= {
        "of_bound": _share(start[0], bundle[0], bound[0]),
        "of_bound_se": _share(start[1], bundle[1], bound[1]).std(axis=0, ddof=1),
    }
    data |= {
        "b": float(curve.b),
        "b_se": float(curves.b.std(ddof=1)),
        "misfit": float(curve.squares) / freedom if freedom > 0 else None,
    }
    distance = data["closed"] - TARGET_SHARE
    data |= {
        "reached": np.nan_to_num(distance, nan=-np.inf) >= 0,
        "sure": np.abs(distance) > 2 * data["closed_se"],
    }
    return (
        pl.DataFrame(data)
        .with_columns(pl.col(pl.Float64).fill_nan(None))
        .cast(FLOORS)  # type: ignore[arg-type]
        .select(list(FLOORS))
    )


def _share(start: Array, bundle: Array, end: Array) -> Array:
    gap = start - end
    share: Array = np.divide(start - bundle, gap, out=np.full(gap.shape, np.nan), where=gap > 0)
    return share


def training_table(
    scores: MeanScores, bundles: Mapping[str, Bundle], sizes: Mapping[str, int]
) -> pl.DataFrame:
    """One row a (bundle, horizon): training, CRPS, difference from the largest size.

    Columns are those of TRAINED.
    """
    full = scores.of(max(sizes, key=lambda name: sizes[name]))
    rows = []
    for name, bundle in bundles.items():
        training = bundle.metrics["training"]
        about = {
            "model": name,
            "sized": name in sizes,
            "persons": training["persons"]["train"],
            "parameters": bundle.parameters,
        }
        value, replicates = scores.of(name)
        columns = {
            "horizon": scores.horizons,
            "crps": value,
            "se": replicates.std(axis=0, ddof=1),
            "difference": value - full[0],
            "difference_se": (replicates - full[1]).std(axis=0, ddof=1),
        }
        for values in zip(*columns.values(), strict=True):
            by_horizon = dict(zip(columns, values, strict=True))
            rows.append({**about, "steps": training["steps"], **by_horizon})
    return pl.DataFrame(rows, schema=TRAINED)


def to_markdown(floors: pl.DataFrame, trainings: pl.DataFrame) -> str:
    """Both tables; ? marks a verdict within two standard errors of its limit."""
    sized = trainings.filter("sized").sort("persons", maintain_order=True)
    persons = dict(sized.select("model", "persons").unique(maintain_order=True).iter_rows())
    scores = {(row["model"], row["horizon"]): row for row in trainings.iter_rows(named=True)}
    header = [
        *("h", "persons", GAP_START),
        *(f"n = {n:,}" for n in persons.values()),
        *("floor (b = 1 to 1/2)", BOUND, REFEREE),
        *(f"{GAP_START} to floor, % (b = 1 to 1/2)", f"{GAP_START} to {BOUND}, %", "target"),
    ]
    rows = []
    for row in floors.iter_rows(named=True):
        verdict = ("reached" if row["reached"] else "MISSED") + ("" if row["sure"] else " ?")
        sides = (_percent(row, "closed_one"), _percent(row, "closed_half"))
        rows.append(
            [
                str(row["horizon"]),
                f"{row['n']:,}",
                _value(row, GAP_START, f"{GAP_START}_se"),
                *(_value(scores[name, row["horizon"]], "crps", "se") for name in persons),
                f"{_value(row, 'floor', 'floor_se')} "
                f"({row['floor_one']:.4f} to {row['floor_half']:.4f})",
                _value(row, BOUND, f"{BOUND}_se"),
                _value(row, REFEREE, f"{REFEREE}_se"),
                f"{_percent(row, 'closed')} ({sides[0]} to {sides[1]})",
                _percent(row, "of_bound"),
                verdict,
            ]
        )
    first = markdown_table(header, rows)
    header = ["bundle", "persons", "parameters", "steps", *(f"h = {h}" for h in floors["horizon"])]
    rows = []
    for (name,), part in trainings.group_by("model", maintain_order=True):
        about = part.row(0, named=True)
        counts = [f"{about[column]:,}" for column in ("persons", "parameters", "steps")]
        values = [
            f"{_value(row, 'crps', 'se')} ({row['difference']:+.4f} ± {row['difference_se']:.4f})"
            for row in part.iter_rows(named=True)
        ]
        rows.append([str(name), *counts, *values])
    return first + "\n\n" + markdown_table(header, rows)


def _value(row: Mapping[str, Any], name: str, error: str) -> str:
    return f"{row[name]:.4f} ± {row[error]:.4f}"


def _percent(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "no gap"
    error = row.get(f"{name}_se")
    return f"{100 * row[name]:.1f}" + (f" ± {100 * error:.1f}" if error is not None else "")


NOTE = f"""CRPS of log earnings, lower is better; ± is the standard error over persons and drawn
futures together (bootstrap). n: training persons of networks of one configuration and number of
steps, uncalibrated. "floor": the limit of CRPS(n) = floor + a n^-b with one b for all horizons, and
in brackets the floors for b = 1 and b = 1/2. "{REFEREE}" is the bundle with its calibration; the
shares of the gap are its own. The {BOUND} knows hidden states that no record holds, so nobody can
reach it. ? marks a verdict within two standard errors of {TARGET_SHARE:.0%}. In the second table,
in brackets: the difference from the whole register."""
CAUTION = """A floor extrapolated from {sizes} sizes is uncertain. ± covers neither the luck of
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
            until=bundle.config["until"],
            cache=folder,
        ),
        progress=StepLog(),
    )
    forward = forward_setting(contest, args.panel)
    further = {
        path.stem: Bundle.load(path) if path.is_dir() else load_config(path)
        for path in args.capacity
    }
    # The ends of the gap come first, so that a wrong register fails before hours of work.
    forecaster = Forecaster(bundle, workers=args.workers, rollout=args.rollout)
    ends = [
        *select_clairvoyant([BOUND], args.panel, args.workers),
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
    """The options, shares in order."""
    parser = study_parser(__doc__, n_persons=None, n_paths=PATHS)
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
    trained_on = (bundle.split["panel_id"], bundle.split["scheme"], bundle.config["until"])
    if trained_on != (register.meta.panel_id, "person", last_year(register)):
        message = "it was trained on {} (split: {}, until {})".format(*trained_on)
        raise UsageError(
            f"{bundle.path} is of another register",
            [Problem("register", message, "Give the register that it was trained on.")],
        )


def matching_config(bundle: Bundle, config: TrainConfig) -> TrainConfig:
    """The configuration of the smaller sizes; UsageError if the bundle had another."""
    trained_with = TrainConfig.from_dict({**bundle.config["training"], "name": ""})
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
    """The same number of steps for every size; the weights that validated best are used anyway."""
    return replace(config, patience=config.max_steps)


def forward_setting(contest: Contest, register: Path) -> Setting:
    """The forward setting; UsageError unless its outcomes are drawn futures."""
    futures = register if any(register.glob("future/draw=*")) else None
    forward = [setting for setting in contest.settings(futures) if setting.name == "forward"]
    if not forward or forward[0].outcomes[0][0] is None:
        fix = (
            "Generate it with --future-to and --future-draws. Its last year must be the last year "
            "of the bundle's training."
        )
        raise UsageError(
            "There are no futures to judge by",
            [Problem("futures", f"{register} has none after {contest.sample.until}", fix)],
        )
    return forward[0]


def report(floors: pl.DataFrame, trainings: pl.DataFrame, about: Mapping[str, Any]) -> str:
    """The page: command, provenance, tables, caution."""
    names = ("panel", "bundle", "rollout", "commit", "training seed", "seed", "paths")
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
        edge=", at the edge of the range" if curve["b"] in (0.2, 1.0) else "",
        misfit=misfit,
    )
    parts = [
        "# The attainable floor",
        f"`{command_line(__file__)}`",
        ", ".join(f"{name} `{about[name]}`" for name in names) + ".",
        NOTE,
        to_markdown(floors, trainings),
        caution,
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
