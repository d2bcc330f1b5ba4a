"""How much worse is a trained model than the forecaster that knows the true process?

    python -m studies.known_truth --out build/known-truth [--process gaussian gkos]
        [--config small] [--persons 300000] [--judged 2000] [--paths 500] [--seed 1]
        [--particles 250] [--workers 1] [--bundle DIR] [--report FILE]

A model is trained on a register of a textbook process and compared with the exact forecaster of
that process: how much CRPS does it lose, and is it biased? The process runs from age 20 to 64
instead of 25 to 60, so that origins after 3, 10 and 25 years of record all have an outcome 20 years
ahead. All judged persons are newly simulated. Model and exact forecaster have the same records and
the same outcomes. The model's marginals are judged, raw and recalibrated. The exact forecaster has
--paths paths; the expectation of its fair scores does not depend on their number. The economy has
no effect in these processes, so the model has no macro series.

Registers, bundles and scores stay under --out. A repeated command computes only what is missing, so
the registers and the scores of the exact forecaster are there for another --config.
`--bundle DIR` judges an existing bundle that was trained on the register in --out. Exit 1 if a
target is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.calibration.fit.maps import pit as marginal_pit
from saga.evaluation.cache import file_name
from saga.evaluation.contestants import BundleContestant
from saga.evaluation.scoring.ensemble_scores import crps_log, pit
from saga.evaluation.scoring.evaluation_settings import Setting
from saga.evaluation.textbook import PROCESSES, Process
from saga.evaluation.textbook.exact_forecaster import ExactForecaster
from saga.evaluation.textbook.textbook_register import Cohort
from saga.training.train_config import load_config

from saga.arrays import Floats
from saga.data.origins import Origins, history, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.data.reading import read_panel
from saga.distributions import Marginals
from saga.files.atomic import commit
from saga.files.bundle_folder import MANIFEST
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.economy import LAST_HISTORY
from saga.register.simulation.generation import generate_register
from saga.schema import MAX_AGE
from saga.scores import log_earnings, marginal_scores, pit_uniforms
from studies.study_page import bundle_parser, command_line, page_head, publish_page, say
from studies.trained_bundle import train_or_load

FIRST_AGE, LAST_AGE = 20, MAX_AGE
HORIZONS, HISTORIES = (1, 5, 10, 20), (3, 10, 25)
MAX_LOSS, MAX_BIAS = 0.02, 0.02  # targets: within 2 % of the exact forecaster's CRPS and mean
NINETY = 0.9
SCORES_VERSION = 3  # raise it when a score of this study may change (see `saga.evaluation.cache`)
_SLICES = 500  # of a distribution, for its mean and standard deviation in logs
_BLOCK = 256  # persons whose paths are in memory at once
_FIRST_SERIAL = 9_000_000  # above the serial numbers of any register, so that ids are new


@dataclass(frozen=True)
class JudgedPersons:
    """Persons with records of the same length.

    `past` ends at `origins`; `outcomes` (n_person, n_horizon) are real amounts at HORIZONS.
    """

    past: Panel
    origins: Origins
    outcomes: Floats


def extended_process(process: str) -> Process:
    """The textbook process of this name, from age 20 to 64 instead of 25 to 60."""
    return replace(PROCESSES[process], first_age=FIRST_AGE, last_age=LAST_AGE)


def new_persons(process: Process, n_persons: int, years: int, *, seed: int) -> JudgedPersons:
    """New persons of one cohort with `years` years of record up to the last year of history."""
    age = process.first_age - 1 + years
    born = LAST_HISTORY - age
    rng = np.random.default_rng([seed, years])
    rows = Cohort.at_start(process, born, _FIRST_SERIAL + np.arange(n_persons), rng).simulate(
        born + process.last_age, rng
    )
    panel = Panel.of(rows, PanelMeta("known-truth", macro=None))
    origins = Origins(np.array(panel.persons()), np.full(n_persons, LAST_HISTORY))
    outcomes = realised_earnings(panel, origins, list(HORIZONS))
    return JudgedPersons(history(panel, origins), origins, outcomes)


def person_scores(
    simulator: ExactForecaster, persons: JudgedPersons, *, n_paths: int, seed: int
) -> pl.DataFrame:
    """Un-averaged scores, one row per person and horizon.

    Columns: `person_id`, `horizon`, `crps` (fair, of log earnings), `mean` of the forecast of log
    earnings, `pit`.
    """
    floor, columns = persons.past.meta.floor, np.array(HORIZONS) - 1
    parts = []
    for start in range(0, len(persons.origins), _BLOCK):
        rows = slice(start, start + _BLOCK)
        origins, outcomes = persons.origins.take(rows), persons.outcomes[rows]
        paths = simulator.simulate(
            persons.past.only(origins.person_id.tolist()),
            origins,
            to_horizon=HORIZONS[-1],
            n_paths=n_paths,
            seed=seed,
        )
        if not np.array_equal(paths.person_id, origins.person_id):
            raise ValueError("the paths are not those of the requested persons")
        sample = paths.earnings[:, columns]
        values = {
            "crps": crps_log(sample, outcomes, floor),
            "mean": log_earnings(sample, floor).mean(axis=2),
            "pit": pit(sample, outcomes, pit_uniforms(paths)[:, columns]),
        }
        parts.append(_score_frame(origins.person_id, values))
    return pl.concat(parts)


def bundle_scores(
    forecaster: Forecaster, persons: JudgedPersons, *, recalibrate: bool
) -> pl.DataFrame:
    """As `person_scores`, of the bundle's marginals."""
    floor, columns = persons.past.meta.floor, np.array(HORIZONS) - 1
    whole = Marginals.joined(list(forecaster.marginals(persons.past, recalibrate=recalibrate)))
    if not np.array_equal(whole.person_id, persons.origins.person_id):
        raise ValueError("the marginals are not those of the requested persons")
    marginals, outcomes = whole.at_horizons(HORIZONS), persons.outcomes
    values = {
        "crps": marginal_scores(marginals, outcomes, floor)["crps_log"],
        "mean": log_earnings(marginals.slice_means(_SLICES), floor).mean(axis=2),
        "pit": marginal_pit(marginals, outcomes, pit_uniforms(whole)[:, columns]),
    }
    return _score_frame(whole.person_id, values)


def _score_frame(person_id: NDArray[np.str_], values: dict[str, Floats]) -> pl.DataFrame:
    keys = {
        "person_id": np.repeat(person_id, len(HORIZONS)).tolist(),
        "horizon": np.tile(HORIZONS, len(person_id)),
    }
    return pl.DataFrame({**keys, **{name: array.ravel() for name, array in values.items()}})


def compare(model: pl.DataFrame, exact: pl.DataFrame) -> pl.DataFrame:
    """One row per horizon from `person_scores` of both, on the same persons.

    - `loss`: CRPS of the model over that of the exact forecaster, minus 1; `bias`: difference of
      the forecast means of log earnings. Standard errors are over paired persons.
    - `coverage`: of the central 90 % interval.
    - `reached`: loss at most 2 % and bias within 2 %; `sure`: both by two standard errors, or one
      missed by two.
    """
    columns = ("crps", "mean", "pit")
    paired = model.join(exact, on=["person_id", "horizon"], suffix="_exact", validate="1:1")
    if paired.height != model.height or paired.height != exact.height:
        raise ValueError("model and exact forecaster were not scored on the same persons")
    rows = []
    for (horizon,), part in paired.group_by(["horizon"], maintain_order=True):
        crps, mean, pits = (part[name].to_numpy() for name in columns)
        crps_exact, mean_exact, pits_exact = (part[f"{name}_exact"].to_numpy() for name in columns)
        loss = crps.mean() / crps_exact.mean() - 1
        loss_se = _standard_error((crps - (1 + loss) * crps_exact) / crps_exact.mean())
        difference = mean - mean_exact
        bias, bias_se = difference.mean(), _standard_error(difference)
        reached = bool(loss <= MAX_LOSS and abs(bias) <= MAX_BIAS)
        margins = [
            (MAX_LOSS - loss) / max(loss_se, 1e-12),
            (MAX_BIAS - abs(bias)) / max(bias_se, 1e-12),
        ]  # in standard errors
        rows.append(
            {
                "horizon": horizon,
                "n": part.height,
                "crps_exact": crps_exact.mean(),
                "loss": loss,
                "loss_se": loss_se,
                "bias": bias,
                "bias_se": bias_se,
                "coverage": (np.abs(pits - 0.5) <= NINETY / 2).mean(),
                "coverage_exact": (np.abs(pits_exact - 0.5) <= NINETY / 2).mean(),
                "coverage_se": np.sqrt(NINETY * (1 - NINETY) / part.height),
                "reached": reached,
                "sure": bool(min(margins) > 2 if reached else min(margins) < -2),
            }
        )
    return pl.DataFrame(rows)


def to_markdown(table: pl.DataFrame) -> str:
    """`compare` with a column `history`; ? marks a verdict within two standard errors."""
    header = [
        *("years of record", "h", "n", "exact CRPS", "CRPS lost, %", "bias, log"),
        *("90 % coverage", "exact's", "target"),
    ]
    rows = [
        [
            str(r["history"]),
            str(r["horizon"]),
            f"{r['n']:,}",
            f"{r['crps_exact']:.4f}",
            f"{100 * r['loss']:+.2f} ± {100 * r['loss_se']:.2f}",
            f"{r['bias']:+.4f} ± {r['bias_se']:.4f}",
            f"{100 * r['coverage']:.1f} ± {100 * r['coverage_se']:.1f}",
            f"{100 * r['coverage_exact']:.1f}",
            ("reached" if r["reached"] else "MISSED") + ("" if r["sure"] else " ?"),
        ]
        for r in table.iter_rows(named=True)
    ]
    return markdown_table(header, rows)


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def main() -> int:
    """Train, score and print one table per process."""
    parser = bundle_parser(__doc__, n_persons=300_000, n_paths=500)
    parser.set_defaults(seed=1, bundle=None)
    parser.add_argument("--out", type=Path, default=Path("build/known-truth"))
    parser.add_argument("--process", nargs="+", default=["gaussian", "gkos"])
    parser.add_argument("--config", default="small")
    parser.add_argument("--judged", type=int, default=2_000, help="persons per length of record")
    parser.add_argument("--particles", type=int, default=250)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    if args.bundle and len(args.process) > 1:
        parser.error("--bundle needs one --process: that of the bundle's training")
    parts, reached = [page_head("Against known truth", __file__)], True
    for name in args.process:
        for title, table in judge_process(name, args):
            reached &= bool(table["reached"].all())
            parts += [f"## {title}", to_markdown(table)]
            say("\n\n".join(parts[-2:]))
    publish_page("\n\n".join(parts), args.report)
    return 0 if reached else 1


def judge_process(name: str, args: argparse.Namespace) -> list[tuple[str, pl.DataFrame]]:
    """Title and table of a process: of raw marginals, and of recalibrated ones if there are any."""
    folder = args.out / f"{name}-{args.persons}-{args.seed}"
    register = folder / "register"
    process = extended_process(name)
    if not register.exists():
        settings = RegisterSettings(persons=args.persons, seed=args.seed, process=process)
        generate_register(register, settings, workers=args.workers)
    directories = (
        {"raw": args.bundle, "calibrated": args.bundle}
        if args.bundle
        else trained_bundles(folder, without_macro(read_panel(register)), args)
    )
    forecasters = {
        kind: Forecaster.load(path, workers=args.workers) for kind, path in directories.items()
    }
    bundle = forecasters["raw"].bundle
    exact = ExactForecaster.open(register, particles=args.particles)
    description = (register / "register.json").read_text(encoding="utf-8")
    keys: dict[str, list[object]] = {
        "exact": [ExactForecaster.version, description, args.particles, args.paths]
    }
    for kind, forecaster in forecasters.items():
        if kind == "raw" or forecaster.bundle.calibration is not None:
            keys[kind] = [BundleContestant.version, forecaster.bundle.digest]
    tables: dict[str, list[pl.DataFrame]] = {kind: [] for kind in keys if kind != "exact"}
    for years in HISTORIES:
        persons = new_persons(process, args.judged, years, seed=args.seed)
        setting = Setting("known truth", persons.past, persons.origins, [(None, persons.outcomes)])
        question = {
            "question": setting.digest,
            "seed": args.seed,
            "version": SCORES_VERSION,
        }
        scores, label = {}, f"{years}-{args.judged}"
        for kind, key in keys.items():
            file = folder / "scores" / file_name(kind, label, {**question, "key": key})
            if kind == "exact":
                compute = partial(person_scores, exact, persons, n_paths=args.paths, seed=args.seed)
            else:
                compute = partial(
                    bundle_scores, forecasters[kind], persons, recalibrate=kind == "calibrated"
                )
            scores[kind] = read_or_write(file, compute)
        for kind, rows in tables.items():
            table = compare(scores[kind], scores["exact"])
            rows.append(table.with_columns(pl.lit(years).alias("history")))
    steps = bundle.metrics["training"]["steps"]
    size = f"{bundle.parameters:,} parameters, {steps:,} steps, {args.persons:,} persons"
    return [(f"{name}, {kind} ({size})", pl.concat(rows)) for kind, rows in tables.items()]


def trained_bundles(folder: Path, panel: Panel, args: argparse.Namespace) -> dict[str, Path]:
    """Directories of the raw bundle and the calibrated one; what is missing is computed."""
    config = load_config(args.config)
    out = folder / f"{config.name}-{config.max_steps}"
    raw = train_or_load(panel, out, config, seed=args.seed, command=command_line(__file__)).path
    calibrated = raw.with_name(f"{raw.name}-calibrated")
    if not (calibrated / MANIFEST).is_file():
        options = CalibrationOptions(seed=args.seed)
        calibrate_bundle(raw, panel, options, out=calibrated, workers=args.workers)
    return {"raw": raw, "calibrated": calibrated}


def without_macro(panel: Panel) -> Panel:
    """The panel without macro series."""
    return replace(panel, meta=replace(panel.meta, macro=None))


def read_or_write(file: Path, compute: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """The table in `file`, computed and written if the file does not exist."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        table = compute()
        commit(file, table.write_parquet)
    return pl.read_parquet(file, glob=False)


if __name__ == "__main__":
    sys.exit(main())
