"""Do 545 persons get 90 % intervals, and do these hold? A cross-fitted test on a real panel.

    python -m studies.small_panels OUT [--outer 5] [--members 4] [--steps 200]

Wages of 545 men in 1980-1987 (Vella and Verbeek 1998, in the package linearmodels). The men are
divided into outer folds. For each fold, a bundle with members is trained and calibrated on the
other men, and its intervals are compared with the wages of the men of the fold. So every man is
judged once, by a bundle that has not seen him.
"""

from __future__ import annotations

import bz2
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.training.folds import train_folds
from saga.training.harness import RunOptions
from saga.training.train_config import load_config
from scipy.stats import binom

from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.data.split import assign_folds
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.requests import COVERAGE, MAX_HORIZON
from studies.study_page import study_parser

HORIZONS = [1, 2, 3]
_FILE = Path("datasets") / "wage_panel" / "wage_panel.csv.bz2"


def read_wage_panel(package: Path | None = None) -> Panel:
    """Hourly wages as earnings; the birth year follows from schooling and experience in 1980.

    `package` is the folder of the installed package linearmodels; None: it is searched for.
    """
    if package is None:
        spec = find_spec("linearmodels")
        if spec is None or spec.origin is None:
            raise SystemExit("The data are in the package linearmodels: pip install linearmodels.")
        package = Path(spec.origin).parent
    age = pl.col("exper") + pl.col("educ") + 6
    frame = (
        pl.read_csv(bz2.decompress((package / _FILE).read_bytes()), infer_schema_length=None)
        .sort("nr", "year")
        .select(
            person_id=pl.col("nr").cast(pl.Int64).cast(pl.String),
            year=pl.col("year").cast(pl.Int32),
            birth_year=(pl.col("year") - age).first().over("nr").cast(pl.Int32),
            earnings=pl.col("lwage").exp(),
        )
        .sort("person_id", "year")
    )
    meta = PanelMeta("wage-panel", currency="USD", price_year=1987, floor=None, macro=None)
    return Panel.of(frame, meta)


def covered_persons(forecaster: Forecaster, people: Panel, *, seed: int, end: int) -> pl.DataFrame:
    """One row per person, horizon and coverage: `covered`, and the `ratio` upper / lower."""
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=seed, end=end)
    outcomes = realised_earnings(people, origins, HORIZONS, end=end)
    blocks = list(forecaster.marginals(history(people, origins)))
    sets = forecaster.calibrator.intervals(Marginals.joined(blocks).at_horizons(HORIZONS), COVERAGE)
    covered, ratio = sets.covered(outcomes), sets.upper / sets.lower
    rows = [
        (h, share, bool(covered[i, j, k]), float(ratio[i, j, k]))
        for j, h in enumerate(HORIZONS)
        for k, share in enumerate(COVERAGE)
        for i in np.flatnonzero(~np.isnan(covered[:, j, k])).tolist()
    ]
    return pl.DataFrame(rows, ["horizon", "coverage", "covered", "ratio"], orient="row")


def summarise(persons: pl.DataFrame) -> pl.DataFrame:
    """Share covered by horizon and coverage, with the 99 % sampling band of the stated coverage."""
    table = persons.group_by("horizon", "coverage").agg(
        n=pl.len(), covered=pl.col("covered").mean(), ratio=pl.col("ratio").median()
    )
    n, share = table["n"].to_numpy(), table["coverage"].to_numpy()
    low, high = (binom.ppf(p, n, share) / n for p in (0.005, 0.995))
    return table.with_columns(band_low=low, band_high=high).sort("horizon", "coverage")


def main() -> None:
    """Train, judge and print the table."""
    parser = study_parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--outer", type=int, default=5)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    panel, config = read_wage_panel(), load_config("tiny")
    every = max(1, args.steps // 8)
    config = replace(config, max_steps=args.steps, validate_every=every, patience=3)
    outer = assign_folds("outer", panel.persons(), args.outer)
    ids, judged = np.array(panel.persons()), []
    for fold in range(args.outer):
        others, people = (panel.only(ids[rows].tolist()) for rows in (outer != fold, outer == fold))
        path = args.out / f"without-{fold}"
        run = RunOptions(progress=False)
        train_folds(others, path, args.members, config=config, seed=fold, run=run)
        bundle = calibrate_bundle(path, others, CalibrationOptions(seed=1))
        forecaster = Forecaster(bundle)
        judged.append(covered_persons(forecaster, people, seed=1, end=last_year(panel)))
        print(summarise(pl.concat(judged)))
    summarise(pl.concat(judged)).write_csv(args.out / "coverage.csv")


if __name__ == "__main__":
    main()
