r"""The rows of the paper that no contest makes, ten years ahead, on a register.

    python -m studies.paper_rows --panel build/bundle/calibration --out build/paper
        [--bundle bundles/small] [--persons 30000] [--horizon 10] [--seed 0] [--draws 20]

The panel must be a register of whose persons the network has learnt from none: a random half of
the persons calibrates, GKOS and `carry` are fitted on a quarter, and a quarter is judged, with one
origin each. Every forecast is raw in one row and recalibrated on the same persons in another:

- *point head*: the mean of log earnings, with the calibration persons' errors around it, the same
  for everybody; without conformal it is one amount, so its CRPS is the absolute error;
- *conformal on GKOS*, and on `carry`;
- *one calibration cohort*, *sizes* 1,000, 5,000 and 14,107 (means and SD over --draws samples);
- *CQR*: the paper's intervals, with their width;
- cuts against GKOS on *out-of-time cohorts* (born 1986-90), of a *recession fold* (outcomes of
  1991-94 and 2009-10) and from *survey-like records*, where GKOS has what it always has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.cqr import fit_cqr
from saga.calibration.fit.split_conformal import fit_calibration
from saga.evaluation.baselines.gkos.gkos import Gkos
from saga.evaluation.baselines.naive.carry import CarryForward
from saga.evaluation.contestants import BaselineContestant
from saga.evaluation.protocol import Baseline
from saga.evaluation.scoring.ensemble_scores import crps_log
from saga.evaluation.scoring.year_forecasts import nominal_sets

from saga.arrays import Bools, Floats
from saga.conformal.calibrator import Calibrator
from saga.data.groups import Grouping
from saga.data.origins import Origins, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons, uniform_each
from saga.pages.format import markdown_table
from saga.requests import MAX_HORIZON
from saga.scores import covered, log_earnings, marginal_scores, mean_log
from studies.record_reductions import reduce_to_profile
from studies.study_page import bundle_parser, page_head, publish_page, say

COVERAGE = 0.9
SIZES = (1_000, 5_000, 14_107)
OUT_OF_TIME = (1986, 1990)
RECESSIONS = (*range(1991, 1995), 2009, 2010)
PATHS = 200


@dataclass(frozen=True, eq=False)
class Sample:
    """Persons with an outcome: records, origins and outcomes (n, 1); calibration or judged."""

    past: Panel
    origins: Origins
    outcomes: Floats
    calibrates: Bools
    quintile: NDArray[np.str_]
    birth_year: NDArray[np.int64]
    floor: float | None
    horizon: int

    @property
    def judged(self) -> Bools:
        """The persons who are judged, (n,)."""
        return ~self.calibrates


def main() -> int:
    """Forecast, calibrate, and write the page."""
    parser = bundle_parser(__doc__, n_persons=30_000, n_paths=None, report=False)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--horizon", type=int, default=10)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("build/paper"))
    args = parser.parse_args()
    everybody = read_panel(args.panel)
    chosen = sample_persons(everybody.persons(), args.persons, "paper-rows", "persons")
    u = uniform_each(chosen, "paper-rows", "parts", str(args.seed))
    parts = {
        name: everybody.only([p for p, x in zip(chosen, u, strict=True) if low <= x < high])
        for name, low, high in (("fit", 0.0, 0.25), ("forecast", 0.25, 1.0))
    }
    sample = draw_sample(parts["forecast"], parts["fit"], args.horizon, args.seed)
    forecaster = Forecaster.load(args.bundle)
    say(f"{len(sample.origins)} persons, {int(sample.judged.sum())} of them judged")
    saga = forecasts_of(forecaster, sample.past, args.horizon)
    survey = forecasts_of(forecaster, reduce_to_profile(sample.past, "survey"), args.horizon)
    rivals = dict(fitted_rivals(parts["fit"], sample, args.horizon, args.seed))
    rows = list(forecast_rows(saga, survey, rivals, sample))
    sizes = list(size_rows(saga, sample, args.draws, args.seed))
    head = page_head(
        "Rows of the paper",
        __file__,
        bundle=forecaster.bundle.digest,
        panel=everybody.meta.panel_id,
        seed=args.seed,
    )
    columns = ["row", "persons", "CRPS", "cut against gkos, %", "inside 90 %, %", "mean width"]
    text = f"{head}\n\n{markdown_table(columns, rows)}\n\n"
    text += markdown_table(["calibration persons", "inside 90 %, %", "lowest fifth, %"], sizes)
    args.out.mkdir(parents=True, exist_ok=True)
    publish_page(text, args.out / "results.md")
    return 0


def draw_sample(people: Panel, fitting: Panel, horizon: int, seed: int) -> Sample:
    """One origin for each person; those without an outcome at the horizon are left out."""
    end = last_year(people)
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=seed, end=end)
    outcomes = realised_earnings(people, origins, [horizon], end=end)
    known = np.isfinite(outcomes[:, 0])
    origins, outcomes = origins.take(known), outcomes[known]
    past = history(people, origins)
    labels = Grouping.fit(fitting).labels(past, origins)
    born = dict(past.frame.select("person_id", "birth_year").unique("person_id").iter_rows())
    persons = origins.person_id.tolist()
    calibrates = uniform_each(persons, "paper-rows", "calibrates") < 2 / 3
    birth_year = np.array([born[person] for person in persons])
    return Sample(
        past,
        origins,
        outcomes,
        calibrates,
        labels["quintile"],
        birth_year,
        people.meta.floor,
        horizon,
    )


def forecasts_of(forecaster: Forecaster, past: Panel, horizon: int) -> Marginals:
    """Raw distributions (n, 1) at the horizon, without groups."""
    blocks = forecaster.marginals(past, recalibrate=False, n_horizons=horizon)
    return replace(Marginals.joined([b.at_horizon(horizon) for b in blocks]), groups={})


def fitted_rivals(
    fitting: Panel, sample: Sample, horizon: int, seed: int
) -> Iterator[tuple[str, tuple[Marginals, Floats]]]:
    """Name of each rival -> its raw distributions (n, 1) and fair CRPS (n,)."""
    baselines: tuple[Baseline, ...] = (Gkos(), CarryForward())
    for baseline in baselines:
        say(f"fit {baseline.name}")
        contestant = BaselineContestant(baseline.fit(fitting, seed=seed))
        marginals, crps = list[Marginals](), list[Floats]()
        done = 0
        for block in contestant.forecasts(
            sample.past, sample.origins, horizons=[horizon], n_paths=PATHS, seed=seed
        ):
            rows = slice(done, done + len(block))
            marginals.append(
                replace(
                    block.marginals,
                    person_id=sample.origins.person_id[rows],
                    birth_year=sample.birth_year[rows],
                    origin_year=np.asarray(sample.origins.year[rows]),
                )
            )
            assert block.samples is not None
            crps.append(crps_log(block.samples, sample.outcomes[rows], sample.floor)[:, 0])
            done += len(block)
        yield baseline.name, (Marginals.joined(marginals), np.concatenate(crps))


def forecast_rows(
    saga: Marginals,
    survey: Marginals,
    rivals: dict[str, tuple[Marginals, Floats]],
    sample: Sample,
) -> Iterator[list[str]]:
    """The rows of the first table."""
    everybody = sample.judged
    gkos = rivals["gkos"][1]

    def row(name: str, crps: Floats, inside: Floats, width: Floats, at: Bools) -> list[str]:
        figures = [crps[at].mean(), 100 * (1 - crps[at].mean() / gkos[at].mean())]
        texts = [f"{figures[0]:.4f}", f"{figures[1]:.1f}"]
        texts += [f"{100 * inside[at].mean():.1f}", f"{width[at].mean():,.0f}"]
        return [name, f"{int(at.sum()):,}", *(t if "nan" not in t else "" for t in texts)]

    for name, raw in (("saga", saga), *((n, m) for n, (m, _) in rivals.items())):
        samples = PATHS if name in rivals else None
        crps = rivals[name][1] if name in rivals else crps_of(raw, sample)
        yield row(f"{name}, raw", crps, *nominal(raw, sample, samples), everybody)
        yield row(f"{name}, recalibrated", *recalibrated(raw, sample), everybody)
    point, spread = point_head(saga, sample)
    unknown = np.full(len(point), np.nan)
    yield row("point head with conformal", spread, unknown, unknown, everybody)
    yield row("point head without", point, unknown, unknown, everybody)
    calibrator = fit_cqr(saga.take(sample.calibrates), sample.outcomes[sample.calibrates])
    yield row("CQR", unknown, *inside_and_width(saga_as_is(saga), calibrator, sample), everybody)
    years, counts = np.unique(sample.birth_year[sample.calibrates], return_counts=True)
    cohort = int(years[counts.argmax()])
    of_cohort = sample.calibrates & (sample.birth_year == cohort)
    yield row(
        f"one calibration cohort ({cohort}, {int(of_cohort.sum())} persons)",
        *recalibrated(saga, replace(sample, calibrates=of_cohort)),
        everybody,
    )
    full = recalibrated(saga, sample)
    born, outcome_year = sample.birth_year, sample.origins.year + sample.horizon
    subsets = {
        "out-of-time cohorts": (born >= OUT_OF_TIME[0]) & (born <= OUT_OF_TIME[1]),
        "recession fold": np.isin(outcome_year, RECESSIONS),
    }
    for name, subset in subsets.items():
        yield row(name, *full, everybody & subset)
    yield row("survey-like records", *recalibrated(survey, sample), everybody)


def size_rows(saga: Marginals, sample: Sample, draws: int, seed: int) -> Iterator[list[str]]:
    """Coverage of everybody and of the lowest fifth by the number of calibration persons."""
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(sample.calibrates)
    lowest = sample.judged & (sample.quintile == "1")
    for size in SIZES:
        if size > len(rows):
            yield [f"{size:,}", f"not run: {len(rows):,} persons with an outcome", ""]
            continue
        shares = []
        for _ in range(draws):
            chosen = np.zeros(len(saga), dtype=bool)
            chosen[rng.choice(rows, size, replace=False)] = True
            _, inside, _ = recalibrated(saga, replace(sample, calibrates=chosen))
            shares.append([100 * inside[at].mean() for at in (sample.judged, lowest)])
        mean, sd = np.mean(shares, axis=0), np.std(shares, axis=0, ddof=1)
        yield [f"{size:,}", *(f"{m:.1f} ({s:.1f})" for m, s in zip(mean, sd, strict=True))]


def recalibrated(raw: Marginals, sample: Sample) -> tuple[Floats, Floats, Floats]:
    """CRPS, whether inside the 90 % set, and its width, (n,) each, after maps and thresholds."""
    at = sample.calibrates
    calibrator = fit_calibration(raw.take(at), sample.outcomes[at], seed=0, coverage=(COVERAGE,))
    mapped = calibrator.recalibrate(raw)
    return crps_of(mapped, sample), *inside_and_width(mapped, calibrator, sample)


def inside_and_width(
    mapped: Marginals, calibrator: Calibrator, sample: Sample
) -> tuple[Floats, Floats]:
    """Whether the outcome is inside the 90 % set, and the width of the set, (n,) each."""
    sets = calibrator.intervals(mapped, (COVERAGE,))
    return _inside(sample, sets.lower[:, 0], sets.upper[:, 0], sets.includes_zero[:, 0])


def nominal(raw: Marginals, sample: Sample, samples: int | None) -> tuple[Floats, Floats]:
    """The same of sets of the published family without thresholds."""
    lower, upper, zero = nominal_sets(raw, (COVERAGE,), samples)
    return _inside(sample, lower[:, 0], upper[:, 0], zero[:, 0])


def _inside(sample: Sample, lower: Floats, upper: Floats, zero: Bools) -> tuple[Floats, Floats]:
    inside = covered(sample.outcomes, lower, upper, zero)
    return np.asarray(inside[:, 0], dtype=float), (upper - lower)[:, 0]


def crps_of(marginals: Marginals, sample: Sample) -> Floats:
    """CRPS of log earnings (n,)."""
    return np.asarray(marginal_scores(marginals, sample.outcomes, sample.floor)["crps_log"][:, 0])


def point_head(saga: Marginals, sample: Sample) -> tuple[Floats, Floats]:
    """CRPS (n,) of the mean of log earnings alone, and with the calibration persons' errors."""
    point = mean_log(saga, sample.floor)[:, 0]
    y = log_earnings(sample.outcomes, sample.floor)[:, 0]
    errors = np.quantile((y - point)[sample.calibrates], (np.arange(PATHS) + 0.5) / PATHS)
    # CRPS of an empirical distribution: E|X - y| - E|X - X'| / 2.
    within = np.abs(errors[:, None] - errors).mean() / 2
    distance = np.abs(errors - (y - point)[:, None]).mean(axis=1)
    return np.abs(y - point), distance - within


def saga_as_is(raw: Marginals) -> Marginals:
    """Raw distributions as CQR takes them: its calibrator has no maps."""
    return replace(raw, recalibrated=True)


if __name__ == "__main__":
    sys.exit(main())
