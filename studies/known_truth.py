"""A model trained on textbook registers beside the forecaster that knows the process. Exit 1 where a promise is missed.

    python -m studies.known_truth --out build/known-truth [--process gaussian gkos] [--config small] [--steps N] [--persons 300000]
        [--judged 2000] [--paths 500] [--seed 1] [--macro none] [--rollout exact] [--report FILE]

Registers, bundles and scores stay under --out: the same command goes on where it stopped, and another --config or --steps uses the same
registers and the same scores of the exact forecaster. The network's own paths are judged, and those of the product, which are calibrated.
`--bundle DIR` judges a bundle that is there already, trained on --out's register.
The economy plays no part in these processes; by default the model is told so (`--macro none`).

A model against the forecaster that knows a textbook process: how much of its CRPS is the model's own fault, and is it biased.

The process is lived from 20 to 64 instead of 25 to 60, so that origins after 3, 10 and 25 years of record all have an outcome 20 years on.
Everybody judged is simulated anew: nobody was trained on. Model and exact forecaster see the same records and draw as many paths.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from evaluation.cache import file_name
from evaluation.contestants import BundleContestant
from evaluation.scoring.evaluation_settings import Setting
from saga.bundle import MANIFEST, Bundle
from saga.data.origins import Origins, history, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.data.reading import read_panel
from saga.files.atomic import commit
from saga.forecaster import Forecaster
from saga.paths import Paths
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.economy import LAST_HISTORY
from saga.register.simulation.generation import generate_register
from saga.register.textbook.exact_forecaster import ExactForecaster
from saga.register.textbook.textbook_register import PROCESSES, Cohort, Process
from saga.requests import Draws
from saga.schema import MAX_AGE
from saga.scores import crps_log, log_earnings, pit, pit_uniforms
from studies.harness import code_commit, command_line
from studies.trained_bundle import train_or_load
from training.train_config import TrainConfig, load_config

Array = NDArray[np.float64]
FIRST_AGE, LAST_AGE = 20, MAX_AGE
HORIZONS, HISTORIES = (1, 5, 10, 20), (3, 10, 25)
LOSS, BIAS = (
    0.02,
    0.02,
)  # promised: CRPS within 2 % of the exact forecaster's, level within 2 % of its
NINETY = 0.9
_BLOCK = 256  # persons whose paths are held at once
_FIRST_SERIAL = (
    9_000_000  # running numbers that no register reaches: the judged are nobody's namesakes
)


class Forecasts(Protocol):
    """Whatever gives paths for records and their origins; the exact forecasters and every baseline do."""

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """Paths (n, to_horizon, n_paths) in the order of `origins`, real money."""
        ...


@dataclass(frozen=True)
class ModelForecasts:
    """A bundle's paths, raw or calibrated; its origin is the last record, so the history must end at the origin."""

    forecaster: Forecaster
    calibrated: bool = False

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """Paths of `Forecaster.simulate`, which sorts persons by id as `people` does."""
        return self.forecaster.simulate(
            history, Draws(n_paths, seed), to_horizon=to_horizon, recalibrate=self.calibrated
        )


@dataclass(frozen=True)
class People:
    """Persons with the same length of record: `past` ends at `origins`; `outcomes` (n, H) at HORIZONS, real money."""

    past: Panel
    origins: Origins
    outcomes: Array


def long_lived(process: str) -> Process:
    """The textbook process of that name (`saga.register.textbook.textbook_register.PROCESSES`), lived from 20 to 64; its law is unchanged."""
    return replace(PROCESSES[process], first_age=FIRST_AGE, last_age=LAST_AGE)


def people(
    process: Process, persons: int, years: int, *, seed: int, macro: str | None = None
) -> People:
    """New persons of one cohort with `years` years of record, from the process's first age to the last year of history."""
    age = process.first_age - 1 + years
    born = LAST_HISTORY - age
    rng = np.random.default_rng([seed, years])
    rows = Cohort.at_start(process, born, _FIRST_SERIAL + np.arange(persons), rng).simulate(
        born + process.last_age, rng
    )
    lives = Panel.of(rows, PanelMeta("known-truth", macro=macro))
    origins = Origins(np.array(lives.persons()), np.full(persons, LAST_HISTORY))
    return People(
        history(lives, origins), origins, realised_earnings(lives, origins, list(HORIZONS))
    )


def score(forecasts: Forecasts, who: People, *, paths: int, seed: int) -> pl.DataFrame:
    """Un-averaged: `person_id`, `horizon`, `crps` (fair, log earnings), `mean` and `sd` of the forecast's logs, `p_zero`, `pit`."""
    floor, columns = who.past.meta.floor, np.array(HORIZONS) - 1
    parts = []
    for start in range(0, len(who.origins), _BLOCK):
        rows = slice(start, start + _BLOCK)
        some, outcomes = who.origins.take(rows), who.outcomes[rows]
        drawn = forecasts.simulate(
            who.past.only(some.person_id.tolist()),
            some,
            to_horizon=HORIZONS[-1],
            n_paths=paths,
            seed=seed,
        )
        if not np.array_equal(drawn.person_id, some.person_id):
            raise ValueError("paths of other persons than were asked for")
        sample = drawn.earnings[:, columns]
        logs = log_earnings(sample, floor)
        values = {
            "crps": crps_log(sample, outcomes, floor),
            "mean": logs.mean(axis=2),
            "sd": logs.std(axis=2),
            "p_zero": (sample == 0).mean(axis=2),
            "pit": pit(sample, outcomes, pit_uniforms(drawn)[:, columns]),
        }
        named = {
            "person_id": np.repeat(some.person_id, len(HORIZONS)).tolist(),
            "horizon": np.tile(HORIZONS, len(some)),
        }
        parts.append(
            pl.DataFrame({**named, **{name: array.ravel() for name, array in values.items()}})
        )
    return pl.concat(parts)


def compare(model: pl.DataFrame, exact: pl.DataFrame, paths: int) -> pl.DataFrame:
    """One row a horizon from the `score` of both, on the same persons with `paths` paths each.

    `loss` (CRPS of the model over the exact one's, less 1) and `bias` (mean of the forecast's logs less the exact one's) with standard
    errors over paired persons; `pit_mean` likewise, moved by what the exact forecaster's differs from 1/2 on these persons; `coverage` of
    the central 90 %, of both; `zero`: the model's mean p_zero less the exact one's; `spread`: the ratio of mean standard deviations;
    `wander`: the root mean square of the difference of means, Monte-Carlo noise taken out, as a share of the exact standard deviation:
    what the model misses of what the record tells of the level. `held`: loss at most 2 % and bias within 2 %; `sure`: both by two
    standard errors, or one missed by two.
    """
    paired = model.join(exact, on=["person_id", "horizon"], suffix="_exact", validate="1:1")
    if paired.height != model.height or paired.height != exact.height:
        raise ValueError("the two were not scored on the same persons")
    rows = []
    for (horizon,), part in paired.group_by(["horizon"], maintain_order=True):
        own = {name: part[name].to_numpy() for name in ("crps", "mean", "sd", "p_zero", "pit")}
        best = {name: part[f"{name}_exact"].to_numpy() for name in own}
        loss = own["crps"].mean() / best["crps"].mean() - 1
        loss_se = _error((own["crps"] - (1 + loss) * best["crps"]) / best["crps"].mean())
        apart = own["mean"] - best["mean"]
        noise = (own["sd"] ** 2 + best["sd"] ** 2).mean() / paths
        bias, bias_se = apart.mean(), _error(apart)
        inside = {
            name: np.abs(pits - 0.5) <= NINETY / 2
            for name, pits in (("own", own["pit"]), ("best", best["pit"]))
        }
        held = bool(loss <= LOSS and abs(bias) <= BIAS)
        margins = [
            (LOSS - loss) / max(loss_se, 1e-12),
            (BIAS - abs(bias)) / max(bias_se, 1e-12),
        ]  # in standard errors
        rows.append(
            {
                "horizon": horizon,
                "n": part.height,
                "crps_exact": best["crps"].mean(),
                "loss": loss,
                "loss_se": loss_se,
                "bias": bias,
                "bias_se": bias_se,
                "pit_mean": 0.5 + (own["pit"] - best["pit"]).mean(),
                "pit_se": _error(own["pit"] - best["pit"]),
                "coverage": inside["own"].mean(),
                "coverage_exact": inside["best"].mean(),
                "coverage_se": np.sqrt(NINETY * (1 - NINETY) / part.height),
                "zero": (own["p_zero"] - best["p_zero"]).mean(),
                "spread": own["sd"].mean() / best["sd"].mean(),
                "wander": np.sqrt(max((apart**2).mean() - noise, 0.0) / (best["sd"] ** 2).mean()),
                "held": held,
                "sure": bool(min(margins) > 2 if held else min(margins) < -2),
            }
        )
    return pl.DataFrame(rows)


def as_markdown(table: pl.DataFrame) -> str:
    """The table of `compare` with a column `history` as a GitHub table; ? marks a verdict within two standard errors of its limit."""
    head = (
        "| years of record | h | n | exact CRPS | CRPS lost, % | bias, log | PIT mean | 90 % coverage | exact's | zeros, points "
        "| spread | wander | promise |"
    )
    lines = [head, "|" + "---|" * 13]
    for r in table.iter_rows(named=True):
        verdict = ("held" if r["held"] else "MISSED") + ("" if r["sure"] else " ?")
        lines.append(
            f"| {r['history']} | {r['horizon']} | {r['n']:,} | {r['crps_exact']:.4f} | {100 * r['loss']:+.2f} ± {100 * r['loss_se']:.2f} "
            f"| {r['bias']:+.4f} ± {r['bias_se']:.4f} | {r['pit_mean']:.4f} ± {r['pit_se']:.4f} "
            f"| {100 * r['coverage']:.1f} ± {100 * r['coverage_se']:.1f} | {100 * r['coverage_exact']:.1f} | {100 * r['zero']:+.2f} "
            f"| {r['spread']:.3f} | {r['wander']:.3f} | {verdict} |"
        )
    return "\n".join(lines)


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


SCORES_VERSION = 1  # raise it when a score of this study may change (see `evaluation.cache`)


def main() -> int:
    """Trains, scores and prints a table a process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("build/known-truth"))
    parser.add_argument("--process", nargs="+", default=["gaussian", "gkos"])
    parser.add_argument("--config", default="small")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--persons", type=int, default=300_000)
    parser.add_argument(
        "--judged", type=int, default=2_000, help="persons judged, a length of record"
    )
    parser.add_argument("--paths", type=int, default=500)
    parser.add_argument("--particles", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--macro", choices=["none", "sweden"], default="none")
    parser.add_argument("--rollout", choices=["exact", "light"], default="exact")
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    if args.bundle and len(args.process) > 1:
        parser.error("--bundle knows one process: name it with --process")
    lines = [
        "# Against known truth",
        "",
        f"`{command_line(__file__)}`",
        "",
        f"Commit {code_commit()}.",
        "",
    ]
    held = True
    for name in args.process:
        for title, table in judged(name, args):
            held &= bool(table["held"].all())
            lines += [f"## {title}", "", as_markdown(table), ""]
            print("\n".join(lines[-4:]), flush=True)
    if args.report:
        args.report.write_text("\n".join(lines), encoding="utf-8")
    return 0 if held else 1


def judged(name: str, args: argparse.Namespace) -> list[tuple[str, pl.DataFrame]]:
    """Tables of one process: the raw model, and the calibrated one where the bundle has a calibration."""
    folder = args.out / f"{name}-{args.persons}-{args.seed}"
    register = folder / "register"
    process = long_lived(name)
    if not register.exists():
        generate_register(
            register,
            RegisterSettings(persons=args.persons, seed=args.seed, process=process),
            workers=args.workers,
        )
    macro = None if args.macro == "none" else args.macro
    made = (
        {"raw": args.bundle, "calibrated": args.bundle}
        if args.bundle
        else bundles(folder, told(register, macro), args)
    )
    forecasters = {
        kind: Forecaster.load(path, workers=args.workers, rollout=args.rollout)
        for kind, path in made.items()
    }
    bundle = forecasters["raw"].bundle
    contestants: dict[str, Forecasts] = {
        "exact": ExactForecaster.open(register, particles=args.particles)
    }
    about = (register / "register.json").read_text(encoding="utf-8")
    keys = {
        "exact": [
            ExactForecaster.version,
            about,
            args.particles,
        ]
    }
    for kind, forecaster in forecasters.items():
        if kind == "raw" or forecaster.bundle.calibration is not None:
            contestants[kind] = ModelForecasts(forecaster, calibrated=kind == "calibrated")
            keys[kind] = [
                BundleContestant.version,
                forecaster.bundle.digest,
                args.rollout,
            ]
    tables: dict[str, list[pl.DataFrame]] = {kind: [] for kind in contestants if kind != "exact"}
    for years in HISTORIES:
        who = people(process, args.judged, years, seed=args.seed, macro=macro)
        question = Setting("known truth", who.past, who.origins, [(None, who.outcomes)]).digest
        asked = {
            "question": question,
            "paths": args.paths,
            "seed": args.seed,
            "version": SCORES_VERSION,
        }
        found = {}
        for kind, forecasts in contestants.items():
            file = (
                folder
                / "scores"
                / file_name(
                    kind, f"{years}-{args.judged}-{args.paths}", {**asked, "key": keys[kind]}
                )
            )
            found[kind] = kept(
                file, lambda f=forecasts, w=who: score(f, w, paths=args.paths, seed=args.seed)
            )  # type: ignore[misc]
        for kind, rows in tables.items():
            rows.append(
                compare(found[kind], found["exact"], args.paths).with_columns(
                    pl.lit(years).alias("history")
                )
            )
    trained_on = f"{args.rollout} rollout, {bundle.parameters:,} parameters, {bundle.metrics['training']['steps']:,} steps, {args.persons:,} persons"
    return [(f"{name}, {kind} ({trained_on})", pl.concat(rows)) for kind, rows in tables.items()]


def bundles(folder: Path, panel: Panel, args: argparse.Namespace) -> dict[str, Path]:
    """The bundle of these settings, and the same calibrated on the register's calibration persons; what is not there is made."""
    settings = load_config(args.config)
    if args.steps:
        settings = shortened(settings, args.steps)
    out = folder / f"{settings.name}-{settings.max_steps}-{args.macro}"
    raw = train_or_load(panel, out, settings, seed=args.seed, command=command_line(__file__))
    calibrated = out.with_name(f"{out.name}-calibrated-{args.rollout}")
    if (
        not (calibrated / MANIFEST).is_file()
        or Bundle.load(calibrated).model_digest != raw.model_digest
    ):
        chosen = CalibrationOptions(seed=args.seed, rollout=args.rollout)
        calibrate_bundle(out, panel, chosen, out=calibrated, workers=args.workers)
    return {"raw": out, "calibrated": calibrated}


def told(register: Path, macro: str | None) -> Panel:
    """The register, its economy known by this name."""
    panel = read_panel(register)
    return replace(panel, meta=replace(panel.meta, macro=macro))


def shortened(settings: TrainConfig, steps: int) -> TrainConfig:
    """The same configuration with another budget: warm-up and validations in proportion."""
    share = steps / settings.max_steps
    return replace(
        settings,
        max_steps=steps,
        warmup_steps=round(settings.warmup_steps * min(1.0, share)),
        validate_every=max(1, min(steps, round(settings.validate_every * min(1.0, share)))),
    )


def kept(file: Path, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """The table in `file`, made where it is not there."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        made = make()
        commit(file, made.write_parquet)
    return pl.read_parquet(file)


if __name__ == "__main__":
    sys.exit(main())
