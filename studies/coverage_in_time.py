"""Do the intervals cover as often as they state? One year, groups, sums and whole paths.

    python -m studies.coverage_in_time [--bundle bundles/small] [--register DIR [DIR ...]]
        [--persons N] [--value-persons 50000] [--paths 25] [--seed 0] [--workers 1]
        [--rollout exact|light]

Persons come from a generated register. The cut-offs of groups are those of a tenth of them, or of
the bundle's training persons if it was trained on this register. A keyed hash divides the others
into calibration and test persons, with origins drawn as `saga calibrate` draws them. With several
registers each has a calibration of its own, and the tables count the persons of all of them. Sets
and bands need no paths. Present values need them: they are fitted on half of --value-persons (the
threshold fold) and judged on at least --value-persons test persons. The guarantee of split
conformal prediction holds for any number of paths, so few are simulated; the intervals are wider,
but cover as often. `saga evaluate` judges coverage in true futures.

Exit 1 if a stated coverage is missed, if nothing was measured, or if a calibrator that is known to
be broken passes although there are enough persons to detect it. A figure without outcomes or
intervals counts neither as held nor as missed. The verdict says so.

The bounds in `studies.coverage_verdicts` need a register of 500,000 persons. Without --register a
small register is generated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.cqr import fit_cqr
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold
from saga.evaluation.scoring.year_forecasts import nominal_sets

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.published_sets import band_intervals, value_intervals
from saga.conformal.recalibration import map_paths
from saga.data.groups import Grouping
from saga.data.origins import Origins, draw_origins, history, last_year
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.lifetime import present_value, realised_value
from saga.macro.scenarios import Scenario
from saga.pages.format import markdown_table
from saga.paths import Paths
from saga.register import RegisterSettings, generate_register
from saga.requests import COVERAGE, MAX_HORIZON, RATE, Draws
from saga.scores import covered
from studies.coverage_forecasts import (
    YEARS,
    ForecastBlock,
    Persons,
    forecast_blocks,
    persons_by_role,
)
from studies.coverage_verdicts import (
    HEADER,
    HORIZONS,
    NINETY,
    CoverageTables,
    conclusion,
    conditional_table,
    shipped_figures,
)
from studies.study_page import bundle_parser

Array = NDArray[np.float64]
STATED = COVERAGE[NINETY]  # coverage of the comparisons and in true futures


class ValuePaths:
    """Raw paths of the first panels that are asked for, up to at least `limit` persons."""

    def __init__(self, forecaster: Forecaster, draws: Draws, limit: int) -> None:
        self.forecaster, self.draws, self.persons_left = forecaster, draws, limit

    def simulate_next(self, past: Panel) -> Paths | None:
        """Raw paths (n, YEARS, M) of the persons of `past`.

        None after calls for `limit` persons or more, so the order of the calls matters.
        """
        if self.persons_left <= 0 or not len(past):
            return None
        self.persons_left -= len(past.persons())
        return self.forecaster.simulate(past, self.draws, to_horizon=YEARS, recalibrate=False)


def covered_by_product(
    calibrator: Calibrator,
    cqr: Calibrator,
    shipped: Calibrator,
    blocks: Iterable[ForecastBlock],
    value_paths: ValuePaths,
) -> tuple[tuple[dict[str, Array], dict[str, Array]], Persons]:
    """Whether each product covers the outcome (1, 0; NaN if unknown), and the persons.

    The first results are those of `calibrator`, the second those of `shipped`, the bundle's own:
    "sets" (n, n_horizon, n_coverage); "band" (n, n_coverage); "p_zero" (n, n_horizon), the forecast
    probability. The first also have "value" (n, n_coverage), and "cqr" and "uncalibrated"
    (n, n_horizon) at 90 %.
    """
    results: list[dict[str, Array]] = []
    of_shipped: list[dict[str, Array]] = []
    persons: list[Persons] = []
    for block in blocks:
        raw, y = block.marginals, block.outcomes
        paths, marginals = value_paths.simulate_next(block.past), calibrator.recalibrate(raw)
        lower, upper, zero = nominal_sets(raw, (STATED,))
        results.append(
            {
                **_covered_by(calibrator, marginals, y),
                "value": value_covered(calibrator, paths, marginals, y),
                "cqr": cqr.intervals(cqr.recalibrate(raw), (STATED,)).covered(y)[..., 0],
                # The broken calibrator: sets of 90 % of a person's raw distribution.
                "uncalibrated": covered(y, lower[..., 0], upper[..., 0], zero[..., 0]),
            }
        )
        of_shipped.append(_covered_by(shipped, block.shipped(shipped), y))
        persons.append(Persons.of(block))
    return (_joined(results), _joined(of_shipped)), Persons.joined(persons)


def _covered_by(calibrator: Calibrator, marginals: Marginals, y: Array) -> dict[str, Array]:
    """Coverage of sets and bands by one calibrator, see `covered_by_product`."""
    band = band_intervals(calibrator, marginals, YEARS, COVERAGE).covered(y).min(axis=1)
    band[np.isnan(y).any(axis=1)] = np.nan
    return {
        "sets": calibrator.intervals(marginals, COVERAGE).covered(y),
        "band": band,
        "p_zero": marginals.p_zero.astype(np.float64),
    }


def _joined(blocks: Sequence[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def value_covered(
    calibrator: Calibrator,
    raw_paths: Paths | None,
    marginals: Marginals,
    outcomes: Array,
) -> Array:
    """Whether intervals of the present value cover the realised one, (n, n_coverage).

    NaN without paths or if one of the outcomes is missing.
    """
    inside = np.full((len(outcomes), len(COVERAGE)), np.nan)
    complete = np.flatnonzero(~np.isnan(outcomes).any(axis=1))
    if raw_paths is None or not len(complete):
        return inside
    paths = map_paths(raw_paths.take(complete), marginals.take(complete))
    value = realised_value(outcomes[complete], rate=RATE)[:, None]
    simulated = SimulatedValues.of(paths, partial(present_value, rate=RATE, years=YEARS))
    years = np.full(len(simulated), YEARS)
    interval = value_intervals(calibrator, simulated, years, COVERAGE, RATE)
    holds = (interval.lower <= value) & (value <= interval.upper)
    inside[complete] = np.where(np.isnan(interval.lower), np.nan, holds)
    return inside


def main() -> int:
    """Run the study on a given or a temporary register; the exit status."""
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        if not args.register:
            args.register = [Path(scratch) / "register"]
            generate_register(args.register[0], RegisterSettings(persons=2_000, seed=11))
        return judge_registers(args)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = bundle_parser(__doc__, n_persons=None, n_paths=25, report=False)
    parser.add_argument("--register", type=Path, nargs="+", help="generated registers")
    parser.add_argument("--value-persons", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rollout", choices=["exact", "light"])
    return parser.parse_args()


Forecast = Callable[..., Iterator[ForecastBlock]]
"""Forecasts of persons (ids), conditioned on a scenario if one is given."""


def fit_both_methods(
    forecaster: Forecaster,
    panel: Panel,
    forecast: Forecast,
    ids: list[str],
    args: argparse.Namespace,
) -> tuple[Calibrator, Calibrator, Persons]:
    """The calibrators "sets" and "cqr", and the calibration persons `ids` they are fitted on."""
    blocks = list(forecast(ids))
    persons = Persons.joined([Persons.of(block) for block in blocks])
    raw, outcomes = Marginals.joined([block.marginals for block in blocks]), persons.outcomes
    in_map = in_map_fold(raw.person_id, args.seed)
    realised = None
    end = last_year(panel)
    realised_macro = forecaster.realised_macro(panel, end)
    if realised_macro is not None and in_map.any():
        conditioned = forecast(sorted(raw.person_id[in_map].tolist()), realised_macro)
        realised = Marginals.joined([block.marginals for block in conditioned])
    # The threshold fold is half of the persons.
    chosen = panel.only(raw.person_id[~in_map][: args.value_persons // 2].tolist())
    origins = draw_origins(chosen, max_horizon=MAX_HORIZON, seed=args.seed, end=end)
    value_paths = ValuePaths(forecaster, Draws(args.paths, args.seed), args.value_persons)
    paths = value_paths.simulate_next(history(chosen, origins))
    calibrator = fit_calibration(raw, outcomes, seed=args.seed, realised=realised, paths=paths)
    return calibrator, fit_cqr(raw, outcomes), persons


@dataclass(frozen=True, eq=False)
class CoveredPersons:
    """Whom the new calibration of one register and the shipped table cover there.

    `inside` and `by_shipped` are those of `covered_by_product` for the persons of `test`.
    """

    calibration: Persons
    test: Persons
    inside: dict[str, Array]
    by_shipped: dict[str, Array]


def cover_register(
    args: argparse.Namespace, register: Path, forecaster: Forecaster
) -> CoveredPersons:
    """Calibrate anew on half of a register and forecast the other half; prints how they cover."""
    start = time.perf_counter()
    panel = read_panel(register)
    trained_on, end = forecaster.bundle.panel_id, last_year(panel)
    persons = persons_by_role(panel, trained_on, args.seed, args.persons)
    grouping = Grouping.fit(panel.only(persons["grouping"]))

    def one_origin(people: Panel) -> Origins:
        # As `saga calibrate` draws them: the bundle's own table holds for persons drawn like that.
        return draw_origins(people, max_horizon=MAX_HORIZON, seed=args.seed, end=end)

    def forecast(ids: list[str], scenario: Scenario | None = None) -> Iterator[ForecastBlock]:
        return forecast_blocks(forecaster, panel, ids, one_origin, grouping, scenario)

    calibrator, cqr, calibration = fit_both_methods(
        forecaster, panel, forecast, persons["calibration"], args
    )
    fitted_at = time.perf_counter()
    value_paths = ValuePaths(forecaster, Draws(args.paths, args.seed), args.value_persons)
    (inside, by_shipped), test = covered_by_product(
        calibrator, cqr, forecaster.calibrator, forecast(persons["test"]), value_paths
    )
    print(
        f"{panel.meta.panel_id}: {len(calibration.person_id):,} calibration and "
        f"{len(test.person_id):,} test persons; {fitted_at - start:,.0f} s to read and fit, "
        f"{time.perf_counter() - fitted_at:,.0f} s to judge. Cells of groups: "
        f"{sum(group != ALL for _, group in calibrator.cells)}. Points beyond {100 * STATED:g} % "
        f"after {HORIZONS} years: new calibration {_excess(inside)}; "
        f"shipped table {_excess(by_shipped)}.",
        flush=True,
    )
    return CoveredPersons(calibration, test, inside, by_shipped)


def _excess(covered: dict[str, Array]) -> str:
    """Points beyond the stated coverage of sets of 90 %, at HORIZONS."""
    shares = (np.nanmean(covered["sets"][:, h - 1, NINETY]) for h in HORIZONS)
    return ", ".join(f"{100 * (share - STATED):+.2f}" for share in shares)


def judge_registers(args: argparse.Namespace) -> int:
    """Print all tables of the given registers together; the exit status."""
    forecaster = Forecaster.load(
        args.bundle, threads=args.workers, workers=args.workers, rollout=args.rollout
    )
    print(
        f"{args.bundle}, {args.paths} paths of {YEARS} years ({forecaster.rollout} rollout), "
        f"seed {args.seed}.",
        flush=True,
    )
    parts = [cover_register(args, register, forecaster) for register in args.register]
    inside = _joined([part.inside for part in parts])
    by_shipped = _joined([part.by_shipped for part in parts])
    test = Persons.joined([part.test for part in parts])
    calibrations = [part.calibration for part in parts]
    tables = CoverageTables(inside, calibrations, test, args.seed, args.value_persons // 2)
    figures = tables.figures()
    comparisons, detected = tables.comparisons()
    shipped_rows = [
        figure.row for figure in shipped_figures(forecaster.calibrator, by_shipped, test)
    ]
    n_smaller = min(len(tables.calibration.person_id), len(test.person_id))
    verdict, status = conclusion([figure.holds for figure in figures], detected, n_smaller)
    sections = [
        "",
        markdown_table(HEADER, [figure.row for figure in figures]),
        tables.pairs_line(),
        markdown_table(("for comparison", *HEADER[1:]), [figure.row for figure in comparisons]),
        conditional_table(inside, test.outcomes),
        verdict,
        "The bundle's own calibration table, on the same test persons:",
        markdown_table(HEADER, shipped_rows),
        conditional_table(by_shipped, test.outcomes),
    ]
    print("\n\n".join(sections), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
