"""Why do 90 % sets cover more than 90 % of the register's later years?

    python -m studies.forward_coverage --register DIR [--judged DIR] [--bundle bundles/small]
        [--calibration-persons 8000] [--persons 2000] [--value-persons 600]
        [--paths 200] [--histories 400] [--seed 0] [--report FILE]

DIR is a generated register with futures of at least 20 years. Half of its persons calibrate; of the
others (or of the register --judged), --persons are forecast from the last year and judged in every
drawn future. Two things vary:

- **Macro futures**: "estimated", drawn from the process that is fitted on the years known at the
  origin; or "rule", drawn from the process that drew the register's futures, which no forecaster
  knows.
- **Thresholds**: "free", fitted on forecasts that do not know the realised macro series, as by
  `saga calibrate`; or "conditioned", fitted on forecasts that do, so that the macro years of the
  panel do not influence them.

The last part of the page has no persons. Each of --histories drawn economies has 33 years, on which
the process is estimated, and 20 later years of the same rule. The page states the coverage of sets
whose spread between persons is right, and whose spread of macro futures is the estimated one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold
from saga.calibration.fit.thresholds import fit_thresholds
from saga.evaluation.scoring.futures import true_futures
from scipy.special import ndtri

from saga.conformal.calibrator import Calibrator
from saga.conformal.published_sets import band_intervals
from saga.data.origins import (
    Origins,
    draw_origins,
    history,
    last_year,
    origins_at,
    realised_earnings,
)
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.macro.scenarios import Scenario
from saga.pages.format import markdown_table
from saga.paths import Paths
from saga.requests import MAX_HORIZON, Draws
from studies.coverage_forecasts import YEARS, unseen_and_training
from studies.coverage_in_time import value_covered
from studies.macro_rule import (
    HORIZONS,
    STATED,
    RuleProcess,
    history_rows,
    spread_rows,
    with_process,
)
from studies.study_page import bundle_parser, page_head, publish_page, say

Array = NDArray[np.float64]
N_ORIGINS = 2  # of a calibration person


def raw_marginals(
    forecaster: Forecaster, draws: Sequence[Panel], scenario: Scenario | None = None
) -> Marginals:
    """Raw forecasts of the records of each draw, without groups."""
    blocks = [
        replace(block, groups={})
        for records in draws
        for block in forecaster.marginals(records, scenario, recalibrate=False)
    ]
    return Marginals.joined(blocks)


def fit_both(
    forecaster: Forecaster, panel: Panel, ids: list[str], seed: int, n_values: int, draws: Draws
) -> dict[str, Calibrator]:
    """Calibrators whose thresholds are of free and of conditioned forecasts; maps are equal."""
    end, people = last_year(panel), panel.only(ids)
    origins = [
        draw_origins(people, max_horizon=MAX_HORIZON, seed=seed + k, end=end)
        for k in range(N_ORIGINS)
    ]
    records = [history(people, of_draw) for of_draw in origins]
    horizons = range(1, MAX_HORIZON + 1)
    outcomes = np.concatenate(
        [realised_earnings(people, of_draw, horizons, end=end) for of_draw in origins]
    )
    realised = forecaster.realised_macro(panel, end)
    forecasts = {
        "free": raw_marginals(forecaster, records),
        "conditioned": raw_marginals(forecaster, records, realised),
    }
    threshold_fold = np.array(records[0].persons())
    threshold_fold = threshold_fold[~in_map_fold(threshold_fold, seed)][:n_values]
    few = records[0].only(threshold_fold.tolist())
    calibrators = {}
    for name, marginals in forecasts.items():
        scenario = realised if name == "conditioned" else None
        paths = forecaster.simulate(
            few, replace(draws, scenario=scenario), to_horizon=YEARS, recalibrate=False
        )
        calibrator = fit_calibration(
            marginals, outcomes, seed=seed, realised=forecasts["conditioned"], n_origins=N_ORIGINS
        )
        calibrators[name] = fit_thresholds(
            calibrator,
            marginals.first(YEARS),
            outcomes[:, :YEARS],
            seed=seed,
            paths=paths,
            n_origins=N_ORIGINS,
        )
    return calibrators


def product_coverage(
    calibrator: Calibrator, raw: Marginals, futures: Sequence[Array], paths: Paths
) -> dict[str, Array]:
    """Share of outcomes (n_future,) inside the 90 % sets, bands and present values, by product.

    "width h" are the mean widths of the sets.
    """
    marginals = calibrator.recalibrate(raw)
    sets = calibrator.intervals(marginals, [STATED])
    band = band_intervals(calibrator, marginals.first(YEARS), YEARS, [STATED])
    few = marginals.take(np.arange(len(paths))).first(YEARS)
    result: dict[str, list[float]] = {}
    for y in futures:
        complete = ~np.isnan(y[:, :YEARS]).any(axis=1)
        inside = sets.covered(y)[..., 0]
        band_inside = band.covered(y[:, :YEARS])[..., 0].min(axis=1)[complete]
        values = value_covered(calibrator, paths, few, y[: len(paths), :YEARS], (STATED,))
        shares = {f"set, h = {h}": np.nanmean(inside[:, h - 1]) for h in HORIZONS}
        shares[f"band, {YEARS} years"] = band_inside.mean()
        shares[f"present value, {YEARS} years"] = np.nanmean(values)
        for name, share in shares.items():
            result.setdefault(name, []).append(float(share))
    coverage = {name: np.array(shares) for name, shares in result.items()}
    width = np.nanmean((sets.upper - sets.lower)[..., 0], axis=0)
    return coverage | {f"width {h}": width[[h - 1]] for h in HORIZONS}


def judged_persons(
    panel: Panel, unseen: list[str], n_persons: int, register: Path
) -> tuple[Panel, Origins, list[Array]]:
    """Records up to the last year, origins, and outcomes (n, MAX_HORIZON) in every drawn future.

    The persons are evenly spaced among the sorted `unseen` ones who can be forecast.
    """
    at_end = origins_at(panel.only(sorted(unseen)), last_year(panel))
    chosen = at_end.person_id[np.linspace(0, len(at_end) - 1, n_persons).astype(int)]
    people = panel.only(np.unique(chosen).tolist())
    origins = origins_at(people, last_year(panel))
    futures = true_futures(
        register, origins, range(1, MAX_HORIZON + 1), price_year=panel.meta.price_year
    )
    return history(people, origins), origins, [outcomes for _, outcomes in futures]


def coverage_tables(
    forecaster: Forecaster,
    calibrators: Mapping[str, Calibrator],
    records: Panel,
    futures: Sequence[Array],
    draws: Draws,
    n_values: int,
) -> tuple[list[str], list[float]]:
    """Coverage and widths as Markdown, and the spread of persons at HORIZONS under the rule.

    Args:
        forecaster: The bundle, without a calibration.
        calibrators: Calibrators by the name of their thresholds.
        records: Persons up to their origins.
        futures: Outcomes in each future.
        draws: Paths of present values.
        n_values: Number of persons with present values.
    """
    few = records.only(sorted(records.persons())[:n_values])
    process = forecaster.process
    assert process is not None
    rule = RuleProcess(process.history, process.mean, process.transition, process.innovation)
    rows, widths = [], {}
    for macro, other in (("estimated", forecaster), ("rule", with_process(forecaster, rule))):
        say(f"forecasting {records.n_persons:,} persons, macro {macro}")
        raw = raw_marginals(other, [records])
        paths = other.simulate(few, draws, to_horizon=YEARS, recalibrate=False)
        for thresholds, calibrator in calibrators.items():
            coverage = product_coverage(calibrator, raw, futures, paths)
            widths[macro, thresholds] = [coverage.pop(f"width {h}")[0] for h in HORIZONS]
            shares = [
                f"{100 * c.mean():.1f} ({100 * c.std(ddof=1):.1f})" for c in coverage.values()
            ]
            rows.append([macro, thresholds, *shares])
    reference = widths["estimated", "free"]
    width_rows = [
        [*key, *(f"{w / r:.3f}" for w, r in zip(values, reference, strict=True))]
        for key, values in widths.items()
    ]
    tables = [
        markdown_table(("macro", "thresholds", *coverage), rows),
        "Mean width of the sets, as a multiple of the first row.",
        markdown_table(("macro", "thresholds", *(f"h = {h}" for h in HORIZONS)), width_rows),
    ]
    return tables, [log_spread(raw, h) for h in HORIZONS]


def log_spread(marginals: Marginals, horizon: int) -> float:
    """Median over persons of the spread of positive log earnings, from the 5 and 95 % quantiles."""
    at = marginals.at_horizon(horizon)
    p = at.p_zero[..., None] + (1 - at.p_zero[..., None]) * np.array([0.05, 0.95])
    ends = np.log(np.maximum(at.quantiles(p), 1.0))[:, 0]
    return float(np.nanmedian(ends[:, 1] - ends[:, 0]) / (2 * ndtri(0.95)))


def main() -> None:
    """Run the study and print its page."""
    parser = bundle_parser(__doc__, n_persons=2_000, n_paths=200)
    parser.add_argument("--register", type=Path, required=True)
    parser.add_argument("--judged", type=Path)
    parser.add_argument("--calibration-persons", type=int, default=8_000)
    parser.add_argument("--value-persons", type=int, default=600)
    parser.add_argument("--histories", type=int, default=400)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle).with_calibrator(Calibrator.identity())
    trained_on = forecaster.bundle.panel_id
    draws = Draws(args.paths, args.seed)
    panel = read_panel(args.register)
    unseen, _ = unseen_and_training(panel, trained_on, args.seed)
    half = min(len(unseen) // 2, args.calibration_persons)
    say(f"calibrating on {half:,} persons")
    calibrators = fit_both(
        forecaster, panel, unseen[:half], args.seed, 2 * args.value_persons, draws
    )
    judged, others = args.judged or args.register, unseen[half:]
    if judged != args.register:
        panel = read_panel(judged)
        others, _ = unseen_and_training(panel, trained_on, args.seed)
    records, origins, futures = judged_persons(panel, others, args.persons, judged)
    tables, person_sds = coverage_tables(
        forecaster, calibrators, records, futures, draws, args.value_persons
    )
    histories, verdict = history_rows(args.histories, person_sds)
    page = [
        page_head("Forward coverage", __file__, bundle=forecaster.bundle.digest[:12]),
        f"{len(origins):,} persons from {last_year(panel)}, {len(futures)} drawn futures of "
        f"{panel.meta.panel_id}; calibrated on {half:,} persons with {N_ORIGINS} origins each. "
        "Coverage of 90 % sets, mean (standard deviation over futures), %.",
        *tables,
        "Log wage index after the last year: mean and standard deviation, and the standard "
        "deviation of the unemployment rate (points).",
        markdown_table(
            ("h", *(f"{n}: {w}" for n in ("estimated", "rule") for w in ("mean", "SD", "SD of u"))),
            spread_rows(forecaster, 1_024),
        ),
        verdict,
        "What 33 years can tell if they follow the rule themselves. SD of persons is that of log "
        "earnings around the index, from the forecasts.",
        markdown_table(
            (
                *("h", "SD of persons", "SD of the index", "estimated: median (5-95 %)"),
                *("coverage, SD known", "coverage, SD estimated", "SD of one future"),
                "SD of a mean of 20",
            ),
            histories,
        ),
    ]
    publish_page("\n\n".join(page), args.report)


if __name__ == "__main__":
    main()
