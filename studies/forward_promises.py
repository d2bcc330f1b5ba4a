"""Why do 90 % sets cover more than 90 % of the register's later years, and who could know better?

    python -m studies.forward_promises --register DIR [--judged DIR] [--bundle bundles/small]
        [--calibration-persons 8000]
        [--persons 2000] [--value-persons 600] [--paths 200] [--histories 400] [--seed 0]

DIR is a generated register with futures of at least 20 years. Half of its persons calibrate; of the
others (or of the register --judged), --persons are forecast from the last year and judged in every
drawn future. Two things vary:

- **Macro futures**: estimated, from the process that is fitted on the years known at the origin;
  or "rule", drawn from the process that drew the register's futures, which nobody knows.
- **Thresholds**: of free forecasts, as `saga calibrate` fits them, or of forecasts conditioned on
  the realised macro series, in which the deviations of the panel's own years have no part.

The last part has no persons. Each of --histories drawn economies has 33 years, on which the
process is estimated, and 20 later years of the same rule. The page states how often a forecaster
covers who has the right spread of persons and the estimated spread of macro futures.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from calibration.fit.split_conformal import fit_calibration, in_map_fold
from calibration.fit.thresholds import fit_thresholds
from evaluation.scoring.futures import true_futures
from saga.conformal.calibrator import Calibrator
from saga.conformal.path_bands import band_intervals
from saga.data.origins import draw_origins, history, last_year, origins_at, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.distributions import Marginals
from saga.files.markdown import markdown_table
from saga.forecaster import Forecaster
from saga.macro.history import MacroHistory, log_wage_index, sweden
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario
from saga.paths import Paths
from saga.register.simulation.economy import build_economy
from saga.register.simulation.parameters import EconomyParameters
from saga.requests import MAX_HORIZON, Draws
from studies.coverage_forecasts import YEARS, unseen_and_training
from studies.coverage_in_time import value_covered
from studies.study_page import bundle_parser, page_head, publish_page, say

Array = NDArray[np.float64]
HORIZONS = (1, 5, 10, 20)
STATED = 0.9
N_ORIGINS = 2  # of a calibration person
HISTORY_YEARS = 33  # 1990-2022
RULE_KEY = 1_000  # seed of the rule's economies; that of no register


@dataclass(frozen=True)
class RuleProcess(MacroProcess):
    """The process of a forecaster who knows the rule of the register's later years."""

    def draw(
        self,
        seed: int,
        n_paths: int,
        from_year: int,
        to_year: int,
        scenario: Scenario | None = None,
    ) -> Array:
        """As in `MacroProcess`; from the last historical year on, draws of the rule."""
        if scenario is not None or from_year != self.history.last_year:
            return super().draw(seed, n_paths, from_year, to_year, scenario)
        return rule_draws(RULE_KEY + seed, n_paths, to_year)[:, : to_year - from_year]


@cache
def rule_draws(seed: int, n_draws: int, to_year: int) -> Array:
    """Macro series (n_draws, n_year, 3) of the years after 2022, by the register's rule."""
    first, parameters = sweden().last_year + 1, EconomyParameters()
    economies = (
        build_economy(first - 1, to_year, parameters, seed=seed, draw=k) for k in range(n_draws)
    )
    return np.stack([e.to_frame(first, to_year).drop("year").to_numpy() for e in economies])


def with_process(forecaster: Forecaster, process: MacroProcess) -> Forecaster:
    """The forecaster with another macro process."""
    other = copy.copy(forecaster)
    other.process = process
    other._unconditioned = other._direct_marginals(None)
    return other


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


def estimated_histories(n_histories: int, years: int = MAX_HORIZON) -> Iterator[tuple[Array, ...]]:
    """Economies of the rule: yearly growth of 33 years, later log wage index, and its forecast.

    The forecast is of the process fitted on the 33 years: mean and standard deviation by horizon.
    """
    first = sweden().last_year + 1
    last = first + HISTORY_YEARS - 1
    for series in rule_draws(RULE_KEY - 1, n_histories, last + years):
        known = MacroHistory(first, series[:HISTORY_YEARS])
        process = MacroProcess.fit(known)
        wage = log_wage_index(process.draw(0, 1_024, last, last + years)[..., 1])
        later = log_wage_index(series[HISTORY_YEARS:, 1])
        yield known.values[:, 1], later, wage.mean(axis=0), wage.std(axis=0)


def covered_share(missed: Array, stated_sd: Array | float, person_sd: float) -> Array:
    """Share of persons in 90 % sets if the wage index misses its forecast by `missed`.

    Log earnings vary by `person_sd` around the index; the sets add `stated_sd` of the index.
    """
    half = float(ndtri((1 + STATED) / 2)) * np.hypot(person_sd, stated_sd)
    return np.asarray(ndtr((half - missed) / person_sd) - ndtr((-half - missed) / person_sd))


def history_rows(n_histories: int, person_sds: Sequence[float]) -> tuple[list[list[str]], str]:
    """What 33 years can tell about the spread, and what the history of Sweden says of the rule."""
    growth, later, mean, sd = (
        np.stack(columns) for columns in zip(*estimated_histories(n_histories), strict=True)
    )
    true_sd = later.std(axis=0)
    rows = []
    for h, person_sd in zip(HORIZONS, person_sds, strict=True):
        at = h - 1
        share = covered_share(later[:, at] - mean[:, at], sd[:, at], person_sd)
        right = covered_share(later[:, at] - later[:, at].mean(), true_sd[at], person_sd)
        of_twenty = share[: len(share) // 20 * 20].reshape(-1, 20).mean(axis=1)
        low, high = np.quantile(sd[:, at], [0.05, 0.95])
        rows.append(
            [
                *(str(h), f"{person_sd:.2f}", f"{true_sd[at]:.3f}"),
                f"{np.median(sd[:, at]):.3f} ({low:.3f}-{high:.3f})",
                *(f"{100 * right.mean():.1f}", f"{100 * share.mean():.1f}"),
                f"{100 * share.std():.1f}",
                f"{100 * of_twenty.std():.1f}",
            ]
        )
    swedish = sweden().values[:, 1].std()
    sds = growth.std(axis=1)
    text = (
        f"Real wage growth of 1990-2022 has a standard deviation of {100 * swedish:.2f} points. "
        f"Of {n_histories} economies of the rule with {HISTORY_YEARS} years, "
        f"{int((sds >= swedish).sum())} have as much; the median has "
        f"{100 * float(np.median(sds)):.2f}, the largest {100 * float(sds.max()):.2f}."
    )
    return rows, text


def spread_rows(forecaster: Forecaster, n_draws: int) -> list[list[str]]:
    """Spread of the log wage index after the last year, estimated and of the rule."""
    process = forecaster.process
    assert process is not None
    year = process.history.last_year
    series = {
        "estimated": process.draw(0, n_draws, year, year + max(HORIZONS)),
        "rule": rule_draws(RULE_KEY, n_draws, year + max(HORIZONS)),
    }
    rows = []
    for h in HORIZONS:
        cells = []
        for draws in series.values():
            wage, unemployment = log_wage_index(draws[:, :h, 1])[:, -1], draws[:, h - 1, 0]
            cells += [f"{wage.mean():+.3f}", f"{wage.std():.3f}", f"{100 * unemployment.std():.1f}"]
        rows.append([str(h), *cells])
    return rows


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
    assert forecaster.process is not None
    draws = Draws(args.paths, args.seed)
    panel = read_panel(args.register)
    unseen, _ = unseen_and_training(panel, forecaster.bundle.split.get("panel_id"), args.seed)
    half = min(len(unseen) // 2, args.calibration_persons)
    say(f"calibrating on {half:,} persons")
    calibrators = fit_both(
        forecaster, panel, unseen[:half], args.seed, 2 * args.value_persons, draws
    )
    judged, others = args.judged or args.register, unseen[half:]
    if judged != args.register:
        panel = read_panel(judged)
        others = unseen_and_training(panel, forecaster.bundle.split.get("panel_id"), args.seed)[0]
    at_end = origins_at(panel.only(sorted(others)), last_year(panel))
    chosen = at_end.person_id[np.linspace(0, len(at_end) - 1, args.persons).astype(int)]
    people = panel.only(np.unique(chosen).tolist())
    origins = origins_at(people, last_year(panel))
    records = history(people, origins)
    futures = [
        y
        for _, y in true_futures(
            judged, origins, range(1, MAX_HORIZON + 1), price_year=panel.meta.price_year
        )
    ]
    few = records.only(sorted(records.persons())[: args.value_persons])
    process = forecaster.process
    rule = RuleProcess(process.history, process.mean, process.transition, process.innovation)
    rows, widths, person_sds = [], {}, list[float]()
    for macro, other in (("estimated", forecaster), ("rule", with_process(forecaster, rule))):
        say(f"forecasting {len(origins):,} persons, macro {macro}")
        raw = raw_marginals(other, [records])
        paths = other.simulate(few, draws, to_horizon=YEARS, recalibrate=False)
        for thresholds, calibrator in calibrators.items():
            coverage = product_coverage(calibrator, raw, futures, paths)
            widths[macro, thresholds] = [coverage.pop(f"width {h}")[0] for h in HORIZONS]
            rows.append(
                [macro, thresholds]
                + [f"{100 * c.mean():.1f} ({100 * c.std(ddof=1):.1f})" for c in coverage.values()]
            )
        names = list(coverage)
        if macro == "rule":
            person_sds = [log_spread(raw, h) for h in HORIZONS]
    reference = widths["estimated", "free"]
    width_rows = [
        [*key, *(f"{w / r:.3f}" for w, r in zip(values, reference, strict=True))]
        for key, values in widths.items()
    ]
    histories, verdict = history_rows(args.histories, person_sds)
    page = [
        page_head("Forward promises", __file__, bundle=forecaster.bundle.digest[:12]),
        f"{len(origins):,} persons from {last_year(panel)}, {len(futures)} drawn futures of "
        f"{panel.meta.panel_id}; calibrated on {half:,} persons with {N_ORIGINS} origins each. "
        "Coverage of 90 % sets, mean (standard deviation over futures), %.",
        markdown_table(("macro", "thresholds", *names), rows),
        "Mean width of the sets, as a multiple of the first row.",
        markdown_table(("macro", "thresholds", *(f"h = {h}" for h in HORIZONS)), width_rows),
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


def log_spread(marginals: Marginals, horizon: int) -> float:
    """Median over persons of the spread of positive log earnings, from the 5 and 95 % quantiles."""
    at = marginals.at_horizon(horizon)
    p = at.p_zero[..., None] + (1 - at.p_zero[..., None]) * np.array([0.05, 0.95])
    ends = np.log(np.maximum(at.quantiles(p), 1.0))[:, 0]
    return float(np.nanmedian(ends[:, 1] - ends[:, 0]) / (2 * ndtri(0.95)))


if __name__ == "__main__":
    main()
