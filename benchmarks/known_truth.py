"""A model trained on textbook registers beside the forecaster that knows the process. Exit 1 where a promise is missed.

    python benchmarks/known_truth.py --out build/known-truth [--process gaussian gkos] [--config small] [--steps N] [--persons 300000]
        [--judged 2000] [--paths 500] [--seed 1] [--macro none] [--rollout exact] [--report FILE]

Registers, bundles and scores stay under --out: the same command goes on where it stopped, and another --config or --steps uses the same
registers and the same scores of the exact forecaster. The network's own paths are judged, and those of the product, which are calibrated.
`--bundle DIR` judges a bundle that is there already, trained on --out's register.
The economy plays no part in these processes; by default the model is told so (`--macro none`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl

from calibration.fit.bundle_calibration import calibrate
from evaluation.cache import code_digest, file_name
from evaluation.known_truth import (
    HISTORIES,
    Forecasts,
    ModelForecasts,
    as_markdown,
    compare,
    long_lived,
    people,
    score,
)
from evaluation.scoring.evaluation_settings import Setting
from evaluation.scripts import code_commit, command_line
from saga.bundle import MANIFEST, Bundle
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.files.atomic import commit
from saga.forecaster import Forecaster
from saga.register.simulation.generation import generate_register
from saga.register.textbook.exact_forecaster import exact_forecaster
from training.found import found_or_trained
from training.train_config import TrainConfig, load_config

SCORING = (
    "evaluation.known_truth",
    "saga.scores",
)  # the code that a kept score comes from, beside the forecaster's


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
            register, persons=args.persons, seed=args.seed, process=process, workers=args.workers
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
        "exact": exact_forecaster(register, particles=args.particles)
    }
    about = (register / "register.json").read_text(encoding="utf-8")
    keys = {
        "exact": [
            code_digest("saga.register.textbook.exact_forecaster", ("saga",)),
            about,
            args.particles,
        ]
    }
    for kind, forecaster in forecasters.items():
        if kind == "raw" or forecaster.bundle.calibration is not None:
            contestants[kind] = ModelForecasts(forecaster, calibrated=kind == "calibrated")
            keys[kind] = [
                code_digest("saga.forecaster", ("saga",)),
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
            "code": [code_digest(module, ()) for module in SCORING],
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
    raw = found_or_trained(panel, out, settings, seed=args.seed, command=command_line(__file__))
    calibrated = out.with_name(f"{out.name}-calibrated-{args.rollout}")
    if (
        not (calibrated / MANIFEST).is_file()
        or Bundle.load(calibrated).model_digest != raw.model_digest
    ):
        calibrate(
            out, panel, out=calibrated, seed=args.seed, workers=args.workers, rollout=args.rollout
        )
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
