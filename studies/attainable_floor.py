"""How much of what persons could teach it the bundle has learnt: the share of the gap from GKOS to an attainable floor, forward.

    python -m studies.attainable_floor REGISTER --panel JUDGED [--out build/attainable] [--bundle bundles/small] [--shares 0.1 0.3 1]
        [--config small] [--capacity CONFIG_OR_BUNDLE ...] [--rollout light] [--cache DIR] [--paths 200] [--persons N] [--seed 1]
        [--contest-seed 0] [--workers 1] [--report FILE]

REGISTER is the one that the bundle was trained on with --config: the same network is trained anew on nested shares of its training persons,
with the same validation persons and as many steps; the whole is the bundle. JUDGED is a generated register with `future/draw=k`, whose test
persons judge forward at h = 1, 5, 10, 20. The floor is where CRPS goes as persons grow (`studies/attainable_floor.py` says how, and how
uncertain that is). For the sizes' sake all bundles are judged without calibration and by one rollout; `saga`, whose share of the gap
counts, is the bundle as the contest has it. --capacity: configurations (YAML files, trained here on all training persons) or bundles, rows
beside. --seed chooses the shares and trains, --contest-seed is the `--seed` of `saga evaluate`, whose --cache so serves.

Bundles and scores stay under --out and --cache (OUT/kept): the same command goes on where it stopped.
Exit 1 where the bundle closes less than 80 % of the gap at some horizon, or where futures end before one.

The attainable floor: where the model's CRPS goes as training persons grow, and the share of the gap from GKOS to there that is closed.

At each horizon CRPS(n) = floor + a n^-b, n persons in units of the most, one b for all horizons. Three sizes leave no degree of freedom at
a horizon, and what is sought lies outside them: such a floor is uncertain, and its standard error knows only what other test persons and
other futures would have changed, neither the luck of a training run nor whether the law is a power. So the floors at b = 1/2 and b = 1
stand beside it. It is the floor of this configuration with this many steps; a larger network may have another.
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

from evaluation.cache import code_digest
from evaluation.contest import PATHS, Contest, chosen, clairvoyant
from evaluation.contestants import Entrant, Model
from evaluation.scoring.comparison import REFEREE, VARIANT
from evaluation.scoring.evaluation_settings import Setting
from evaluation.scoring.gap import BOUND
from saga.bundle import Bundle
from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.errors import Problem, UsageError
from saga.files.tables import write_table
from saga.forecaster import Forecaster, RolloutName
from saga.keyed_random import uniform_each
from studies.harness import code_commit, command_line, say, study_parser
from studies.trained_bundle import found_or_trained
from training.train_config import TrainConfig, load_config

Array = NDArray[np.float64]
BEGIN = "gkos"  # where the gap begins
PROMISE = 0.8  # share of the gap from there to the floor
EXPONENTS = np.linspace(0.2, 1.0, 161)  # where b is sought
RANGE = (0.5, 1.0)  # the exponents whose floors stand beside
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
    **{f"{model}{part}": pl.Float64() for model in (BEGIN, BOUND, REFEREE) for part in ("", "_se")},
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
    "held": pl.Boolean(),
    "sure": pl.Boolean(),
}


def subset(panel: Panel, share: float, seed: int) -> Panel:
    """The panel with this share of its training persons, a keyed choice, and everybody else; a smaller share lies within a larger."""
    training = persons_of(panel, "train")
    drawn = uniform_each(training, "attainable", panel.meta.panel_id, seed)
    out = {person for person, u in zip(training, drawn, strict=True) if u >= share}
    return panel.only([person for person in panel.persons() if person not in out])


def uncalibrated(bundle: Bundle, name: str, rollout: RolloutName, workers: int = 1) -> Entrant:
    """The bundle as an entrant whose paths are as they are simulated, whether it has a calibration or not; it gives no intervals.

    Raises UsageError where the bundle has no such rollout.
    """
    forecaster = Forecaster(replace(bundle, calibration=None), workers=workers, rollout=rollout)
    key = "uncalibrated" + bundle.model_digest + rollout + code_digest("saga.forecaster", ("saga",))
    return Entrant(name, key, lambda: Model(forecaster, name))


@dataclass(frozen=True)
class Curve:
    """CRPS = `floor` + `a` n^-`b`, n in units of the most persons; `floor`, `a` (..., H), `b` and the weighted sum of squares (...)."""

    floor: Array
    a: Array
    b: Array
    squares: Array


def fit(
    persons: Sequence[int], crps: Array, se: Array, exponents: Sequence[float] | Array = EXPONENTS
) -> Curve:
    """Weighted least squares over `exponents`: `crps` (..., H, S) of models trained on `persons` (S,), `se` (H, S) of what is not common
    to the sizes (an error that all sizes share moves the floor alone).

    `a` is not below 0: where more persons do not help, the floor is the mean, and nothing is known of b.
    """
    relative, weight = np.asarray(persons) / max(persons), se**-2.0
    total = weight.sum(axis=-1)
    middle = (weight * crps).sum(axis=-1) / total
    best: Curve | None = None
    for b in exponents:
        x = relative**-b
        centre = (weight * x).sum(axis=-1) / total
        away = weight * (x - centre[:, None])
        a = np.maximum((away * crps).sum(axis=-1) / (away * x).sum(axis=-1), 0.0)
        floor = middle - a * centre
        left = crps - floor[..., None] - a[..., None] * x
        found = Curve(floor, a, np.full(a.shape[:-1], b), (weight * left**2).sum(axis=(-2, -1)))
        best = found if best is None else _better(best, found)
    if best is None:
        raise ValueError("no exponent to try")
    return best


def _better(old: Curve, new: Curve) -> Curve:
    won = new.squares < old.squares
    row = won[..., None]
    return Curve(
        np.where(row, new.floor, old.floor),
        np.where(row, new.a, old.a),
        np.where(won, new.b, old.b),
        np.where(won, new.squares, old.squares),
    )


@dataclass(frozen=True)
class Means:
    """Mean CRPS of log earnings on the same persons, futures and outcomes: `value` (H, M), and over `drawn` (R, H, M) bootstrap samples.

    `n` (H,) are persons with an outcome, over futures on average. Samples draw persons and futures anew, each on their own (Owen 2007),
    the same ones for every model and horizon, so that differences are paired; their spread is, if anything, too wide.
    """

    models: list[str]
    horizons: list[int]
    n: list[int]
    value: Array
    drawn: Array

    def at(self, *models: str) -> tuple[Array, Array]:
        """Of these models alone: values (H, m) and drawn (R, H, m)."""
        columns = [self.models.index(model) for model in models]
        return self.value[:, columns], self.drawn[:, :, columns]

    def of(self, model: str) -> tuple[Array, Array]:
        """Of one model: value (H,) and drawn (R, H)."""
        value, drawn = self.at(model)
        return value[:, 0], drawn[:, :, 0]


def means(files: Mapping[str, Path], *, seed: int, replicates: int = REPLICATES) -> Means:
    """Means over futures of means over persons, from a file of un-averaged forward scores a model (`evaluation.contest.Contest.scores`).

    Raises UsageError where outcomes are no drawn futures, ValueError where models were scored on other outcomes than the first.
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
    there, values = np.zeros(shape), np.zeros((len(scores), *shape))
    there[horizon, draw, person] = 1
    for array, frame in zip(values, scores, strict=True):
        array[horizon, draw, person] = frame["crps_log"].cast(pl.Float64).to_numpy()
    rng = np.random.default_rng(seed)
    futures, persons = (
        np.vstack([np.ones(size), rng.multinomial(size, np.full(size, 1 / size), replicates)])
        for size in shape[1:]
    )
    drawn = np.empty((replicates + 1, shape[0], len(scores)))
    for h in range(shape[0]):
        count = persons @ there[h].T  # (R, D)
        weight = futures * (count > 0)
        total = weight.sum(axis=1)
        for m in range(len(scores)):
            by_draw = persons @ values[m, h].T / np.maximum(count, 1)
            drawn[:, h, m] = np.divide(
                (weight * by_draw).sum(axis=1),
                total,
                out=np.full(len(total), np.nan),
                where=total > 0,
            )
    n = [round(float(there[h].sum(axis=1).mean())) for h in range(shape[0])]
    samples = drawn[1:][
        np.isfinite(drawn[1:]).all(axis=(1, 2))
    ]  # of few persons a sample may hold nobody who is seen so far ahead
    return Means(
        list(files), first["horizon"].unique(maintain_order=True).to_list(), n, drawn[0], samples
    )


def floors(found: Means, sizes: Mapping[str, int]) -> pl.DataFrame:
    """One row a horizon, columns FLOORS: the ends of the gap, the floor, and what the shipped bundle closes.

    `sizes`: the models that differ in training persons alone, and how many those were; three or more. `_half` and `_one` are floors and
    shares at b = 1/2 and b = 1. `closed`: share of the gap from GKOS to the floor that the shipped bundle closes as the contest has it,
    with its calibration; `of_bound` the same to the clairvoyant. Shares are null where there is no gap, which is a promise missed.
    `misfit` is the mean square of the residuals in units of their sampling error: far above 1, training runs differ by more than their
    judges do, or the law is no power. `sure`: the promise is held, or missed, by two standard errors.
    """
    value, drawn = found.at(*sizes)
    count = len(sizes)
    if count < 3:
        raise UsageError(
            "A floor needs three sizes",
            [Problem("shares", f"{count} give none", "Give three shares or more.")],
        )
    # What the sizes do not share; the mean of S equal errors takes 1 / S of each error's variance with it.
    se = (drawn - drawn.mean(axis=2, keepdims=True)).std(axis=0, ddof=1) * np.sqrt(
        count / (count - 1)
    )
    persons = list(sizes.values())
    curve, curves = fit(persons, value, se), fit(persons, drawn, se)
    sides = [fit(persons, value, se, [b]) for b in RANGE]
    begin, bound, own = (found.of(model) for model in (BEGIN, BOUND, REFEREE))
    freedom = value.size - 2 * len(value) - 1
    data: dict[str, Any] = {"horizon": found.horizons, "n": found.n}
    for model, (mean, means_) in zip((BEGIN, BOUND, REFEREE), (begin, bound, own), strict=True):
        data |= {model: mean, f"{model}_se": means_.std(axis=0, ddof=1)}
    data |= {"floor": curve.floor, "floor_se": curves.floor.std(axis=0, ddof=1)}
    data |= {
        "closed": _share(begin[0], own[0], curve.floor),
        "closed_se": _share(begin[1], own[1], curves.floor).std(axis=0, ddof=1),
    }
    for name, side in zip(("half", "one"), sides, strict=True):
        data |= {
            f"floor_{name}": side.floor,
            f"closed_{name}": _share(begin[0], own[0], side.floor),
        }
    data |= {
        "of_bound": _share(begin[0], own[0], bound[0]),
        "of_bound_se": _share(begin[1], own[1], bound[1]).std(axis=0, ddof=1),
    }
    data |= {
        "b": float(curve.b),
        "b_se": float(curves.b.std(ddof=1)),
        "misfit": float(curve.squares) / freedom if freedom > 0 else None,
    }
    held = np.nan_to_num(data["closed"], nan=-np.inf) >= PROMISE
    data |= {"held": held, "sure": np.abs(data["closed"] - PROMISE) > 2 * data["closed_se"]}
    return (
        pl.DataFrame(data)
        .with_columns(pl.col(pl.Float64).fill_nan(None))
        .cast(FLOORS)  # type: ignore[arg-type]
        .select(list(FLOORS))
    )


def _share(begin: Array, own: Array, end: Array) -> Array:
    gap = begin - end
    share: Array = np.divide(begin - own, gap, out=np.full(gap.shape, np.nan), where=gap > 0)
    return share


def trained(found: Means, bundles: Mapping[str, Bundle], sizes: Mapping[str, int]) -> pl.DataFrame:
    """One row a (bundle, horizon), columns TRAINED: what it was trained on, its CRPS, and that less the CRPS of the largest of `sizes`."""
    full = found.of(max(sizes, key=lambda name: sizes[name]))
    rows = []
    for name, bundle in bundles.items():
        told = bundle.metrics["training"]
        about = {
            "model": name,
            "sized": name in sizes,
            "persons": told["persons"]["train"],
            "parameters": bundle.parameters,
        }
        value, drawn = found.of(name)
        apart, apart_se = value - full[0], (drawn - full[1]).std(axis=0, ddof=1)
        columns = zip(
            found.horizons, value, drawn.std(axis=0, ddof=1), apart, apart_se, strict=True
        )
        for h, crps, se, difference, difference_se in columns:
            means_ = {
                "horizon": h,
                "crps": crps,
                "se": se,
                "difference": difference,
                "difference_se": difference_se,
            }
            rows.append({**about, "steps": told["steps"], **means_})
    return pl.DataFrame(rows, schema=TRAINED)


def as_markdown(table: pl.DataFrame, bundles: pl.DataFrame) -> str:
    """Two GitHub tables, of `floors` and of `trained`; ? marks a verdict within two standard errors of its limit."""
    ordered = (
        bundles.filter("sized")
        .sort("persons", maintain_order=True)
        .select("model", "persons")
        .unique(maintain_order=True)
    )
    sizes = ordered["model"].to_list()
    of_size = {(row["model"], row["horizon"]): row for row in bundles.iter_rows(named=True)}
    head = [
        "h",
        "persons",
        BEGIN,
        *(f"n = {n:,}" for n in ordered["persons"]),
        "floor (b = 1 to 1/2)",
        BOUND,
        REFEREE,
    ]
    head += [f"{BEGIN} to floor, % (b = 1 to 1/2)", f"{BEGIN} to {BOUND}, %", "promise"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in table.iter_rows(named=True):
        verdict = ("held" if row["held"] else "MISSED") + ("" if row["sure"] else " ?")
        reached = [_value(of_size[name, row["horizon"]], "crps", "se") for name in sizes]
        floor = f"{_value(row, 'floor', 'floor_se')} ({row['floor_one']:.4f} to {row['floor_half']:.4f})"
        closed = f"{_percent(row, 'closed')} ({_percent(row, 'closed_one')} to {_percent(row, 'closed_half')})"
        cells = [
            str(row["horizon"]),
            f"{row['n']:,}",
            _value(row, BEGIN, f"{BEGIN}_se"),
            *reached,
            floor,
        ]
        cells += [
            _value(row, BOUND, f"{BOUND}_se"),
            _value(row, REFEREE, f"{REFEREE}_se"),
            closed,
            _percent(row, "of_bound"),
            verdict,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    head = ["bundle", "persons", "parameters", "steps", *(f"h = {h}" for h in table["horizon"])]
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (name,), rows in bundles.group_by("model", maintain_order=True):
        about = rows.row(0, named=True)
        cells = [
            str(name),
            *(f"{about[column]:,}" for column in ("persons", "parameters", "steps")),
        ]
        cells += [
            f"{_value(row, 'crps', 'se')} ({row['difference']:+.4f} ± {row['difference_se']:.4f})"
            for row in rows.iter_rows(named=True)
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _value(row: Mapping[str, Any], name: str, error: str) -> str:
    return f"{row[name]:.4f} ± {row[error]:.4f}"


def _percent(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "no gap"
    error = row.get(f"{name}_se")
    return f"{100 * row[name]:.1f}" + (f" ± {100 * error:.1f}" if error is not None else "")


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
        {**bundle.config["training"], "name": ""}
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
    say(f"{out.name}: found or trained")
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
        say(f"{step}: {'done' if done else 'begun'}")


if __name__ == "__main__":
    sys.exit(main())
