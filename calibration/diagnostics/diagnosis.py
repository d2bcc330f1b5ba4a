"""The diagnostics of a bundle: all tables that the calibration report shows.

Test persons are forecast from one drawn origin each, by the rule that calibration uses, and judged
by their outcomes in the panel's years. `coverage`, `whole_distribution`, `several_years` and
`simple_rules` compute the tables from the same `Cases`. Every figure is an average over at least
`min_persons` persons, so the tables may be stored in the bundle. The table "people" shows single
persons, who are simulated or invented.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, repeat
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.calibration.diagnostics import coverage, whole_distribution
from saga.calibration.diagnostics.example_persons import (
    draw_example_persons,
    invent_persons,
    tabulate_example_persons,
)
from saga.calibration.diagnostics.group_sums import (
    PathSums,
    predict_by_rule,
    sum_paths,
    tabulate_sums,
)
from saga.calibration.diagnostics.person_results import (
    ALPHA,
    Cases,
    Rows,
    headline_coverage,
    judge_persons,
)
from saga.calibration.diagnostics.several_years import (
    Inside,
    judge_several_years,
    measure_seed_ranges,
    tabulate_seed_ranges,
)
from saga.calibration.diagnostics.simple_rules import (
    MAX_PERSONS,
    SimpleRules,
    known_at_origin,
    tabulate_efficiency,
)
from saga.calibration.diagnostics.verdicts import Verdict, rounded

from saga.conformal.calibrator import Calibrator
from saga.data.groups import Grouping
from saga.data.origins import Origins, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.diagnostics_tables import QUESTIONS, SIMULATED, TABLES, Diagnostics
from saga.errors import InputError, Problem
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.macro.scenarios import Scenario
from saga.model_error import ModelError
from saga.paths import Paths
from saga.requests import COVERAGE, MAX_HORIZON, Draws, Progress
from saga.small_groups import MIN_PERSONS

HORIZONS = (1, 5, 10, 20, 30)
N_PATHS = 200
LOW_PAY_SHARE = 0.6  # of the median of positive earnings


def diagnose(
    forecaster: Forecaster,
    panel: Panel,
    *,
    horizons: Sequence[int] = HORIZONS,
    draws: Draws = Draws(n_paths=N_PATHS),
    persons: int | None = None,
    min_persons: int = MIN_PERSONS,
    progress: Progress | None = None,
) -> Diagnostics:
    """Forecast the panel's test persons, one keyed origin each, and judge the forecasts.

    Intervals are judged as they are issued. Distributions, probabilities and mean error are judged
    for forecasts conditioned on the realised macro series, if there are any: the few years of a
    panel cannot show whether the macro process is right, but its many persons can show whether the
    rest of the model is.

    Args:
        forecaster: The bundle that is judged.
        panel: Records with outcomes.
        horizons: Years ahead to judge. Where nobody has a record so far ahead, as in a panel of
            every second year, the next that somebody has is judged.
        draws: Paths and seed.
        persons: Number of test persons, chosen by key; None: all.
        min_persons: Fewest persons behind a figure.
        progress: Called with persons done and all persons, in each pass.

    Raises:
        InputError: If the panel has no test person with an origin.
        UsageError: If the bundle has learnt from every person.
    """
    forecaster.bundle.check_judgeable()
    panel = forecaster.bundle.salted(panel)
    end, calibrator = last_year(panel), forecaster.calibrator
    people, origins = _draw_test_origins(panel, draws.seed, end, persons)
    records = history(people, origins)
    horizons = _with_records(horizons, people, origins)
    outcomes = realised_earnings(people, origins, range(1, max(horizons) + 1), end=end)
    macro, training = forecaster.realised_macro(panel, end), persons_of(panel, "train")
    grouping = calibrator.grouping or Grouping.fit(panel.only(training))
    groups = grouping.assign(records, origins)
    judging = _Judging(
        forecaster,
        records,
        outcomes,
        tuple(horizons),
        panel.meta.floor,
        low_pay_line(panel),
        progress,
        groups,
    )
    known_to_rule = sample_persons(training, MAX_PERSONS, "rules", panel.meta.panel_id)
    headline = headline_coverage(calibrator.coverage or COVERAGE)
    years = [h for h in horizons if h > 1]
    rules = SimpleRules.fit(
        panel,
        grouping,
        horizons,
        seed=draws.seed,
        until=min(end, forecaster.bundle.training_records.last_year),
    )
    known = known_at_origin(records, origins, grouping)
    paths = (
        forecaster.blocks(records, draws, to_horizon=max(years))
        if years and calibrator.has_present_values
        else ()
    )
    results, several_years, path_sums = judging.run(paths=paths, years=years)
    findings = Findings(
        results=results,
        several_years=several_years,
        conditioned=None if macro is None else judging.run(macro)[0],
        rules={h: rules.judge(known, outcomes[:, h - 1], h, headline) for h in horizons},
        path_sums=path_sums,
        by_rule=predict_by_rule(
            panel.only([*known_to_rule, *records.persons()]), origins, horizons
        ),
        seed_ranges=measure_seed_ranges(forecaster, records, draws, years, headline),
        people=tabulate_example_persons(
            forecaster,
            draw_example_persons(records, groups, draws.seed)
            if panel.meta.simulated
            else invent_persons(panel, low_pay_line(panel) / LOW_PAY_SHARE),
        ),
    )
    record = {
        **forecaster.provenance(draws),
        "panel": panel.meta.panel_id,
        "people": SIMULATED if panel.meta.simulated else None,
        "trained_on": forecaster.bundle.panel_id,
        "persons": len(origins),
        "origins": f"{int(origins.year.min())}-{int(origins.year.max())}",
        "last_year": end,
        "economy": None
        if macro is None
        else f"{min(macro.rows)}-{max(macro.rows)}, given where whole forecasts are judged",
        "low_pay": judging.low_pay,
        "floor": judging.floor,
        "facts": f"{forecaster.facts.source}, sha256 {forecaster.facts.digest}",
        "late_origins": _late_origins(forecaster, origins),
    }
    return summarise(
        findings,
        groups,
        calibrator,
        provenance=record,
        seed=draws.seed,
        min_persons=min_persons,
        vintages=forecaster.bundle.vintages,
    )


def _late_origins(forecaster: Forecaster, origins: Origins) -> str | None:
    """How many origins are after the years that the intervals know, as a warning; None: none."""
    last_year = forecaster.records.last_year
    late = int((origins.year > last_year).sum())
    if not late:
        return None
    return (
        f"{late:,} of {len(origins):,} forecasts start after {last_year}, the "
        "last year of the records that the bundle was trained and calibrated on. Their intervals "
        "have no guarantee."
    )


@dataclass(frozen=True, eq=False)
class Findings:
    """What the tables are computed from; all but `people` hold values of single persons.

    Attributes:
        results: Results of persons by horizon, for forecasts as they are issued.
        several_years: Whether intervals for several years together contain the outcomes.
        conditioned: Results of the same persons, for forecasts conditioned on the realised macro
            series; None: `results` are used instead.
        rules: Intervals of the simple rules by horizon (`SimpleRules.judge`).
        path_sums: Sums over groups on each path, for forecasts as they are issued.
        by_rule: Forecasts of the rule of growth (`predict_by_rule`); None: it is not shown.
        seed_ranges: How far intervals of present values move with the seed, by number of years.
        people: Rows of the table of example persons.
    """

    results: Mapping[int, pl.DataFrame]
    several_years: Inside = field(default_factory=dict)
    conditioned: Mapping[int, pl.DataFrame] | None = None
    rules: Mapping[int, pl.DataFrame] = field(default_factory=dict)
    path_sums: PathSums = field(default_factory=dict)
    by_rule: pl.DataFrame | None = None
    seed_ranges: Mapping[int, pl.DataFrame] = field(default_factory=dict)
    people: Rows = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Judging:
    """Judges forecasts of test persons by their outcomes (n, H) at horizons 1 to H."""

    forecaster: Forecaster
    records: Panel
    outcomes: NDArray[np.float64]
    horizons: tuple[int, ...]
    floor: float | None
    low_pay: float
    progress: Progress | None
    groups: pl.DataFrame

    def run(
        self,
        scenario: Scenario | None = None,
        *,
        paths: Iterable[Paths] = (),
        years: Sequence[int] = (),
    ) -> tuple[dict[int, pl.DataFrame], Inside, PathSums]:
        """Results by horizon of the marginals under a scenario, and of the next K of `years`.

        Also the sums of groups on each path.

        `paths` are blocks of the same persons as those of the marginals, or none.
        """
        calibrator = self.forecaster.calibrator
        parts: dict[int, list[pl.DataFrame]] = {h: [] for h in self.horizons}
        inside: dict[tuple[str, int], list[NDArray[np.float64]]] = {}
        sums, n_done = PathSums(), 0
        blocks = self.forecaster.marginals(self.records, scenario, progress=self.progress)
        for block, block_paths in zip(blocks, chain(paths, repeat(None)), strict=False):
            outcomes = self.outcomes[n_done : n_done + len(block)]
            intervals = calibrator.intervals(block, calibrator.coverage or COVERAGE)
            for h in self.horizons:
                parts[h].append(
                    judge_persons(
                        block,
                        intervals,
                        outcomes[:, h - 1],
                        h,
                        floor=self.floor,
                        low_pay=self.low_pay,
                    )
                )
            several_years = judge_several_years(calibrator, block, block_paths, outcomes, years)
            for kind, of_block in several_years.items():
                inside.setdefault(kind, []).append(of_block)
            if block_paths is not None:
                labels = self.groups[n_done : n_done + len(block)]
                for key, part in sum_paths(labels, block_paths, outcomes, self.horizons).items():
                    sums[key] = sums.get(key, 0.0) + part
            n_done += len(block)
        return (
            {h: pl.concat(part) for h, part in parts.items()},
            {kind: np.concatenate(of_blocks) for kind, of_blocks in inside.items()},
            sums,
        )


def _with_records(horizons: Sequence[int], people: Panel, origins: Origins) -> list[int]:
    """The years ahead to judge: if nobody has a record in one, the next in which somebody has."""
    at_origin = pl.DataFrame({"person_id": origins.person_id, "origin": origins.year})
    known = people.frame.drop_nulls("earnings").join(at_origin, on="person_id")
    distances = known.select(pl.col("year") - pl.col("origin"))["year"].unique().to_list()
    return sorted(
        {min((d for d in distances if h <= d <= MAX_HORIZON), default=h) for h in horizons}
    )


def _draw_test_origins(
    panel: Panel, seed: int, end: int, n_persons: int | None
) -> tuple[Panel, Origins]:
    """The test persons of a panel, at most `n_persons`, and an origin of each who is eligible."""
    tested = persons_of(panel, "test")
    tested = sample_persons(tested, n_persons, "contest", panel.meta.panel_id)
    people = panel.only(tested)
    origins = (
        draw_origins(people, max_horizon=MAX_HORIZON, seed=seed, end=end)
        if tested
        else Origins(np.empty(0, str), np.empty(0, int))
    )
    if not len(origins):
        problem = Problem(
            "no-origins",
            "No test person is eligible",
            "Give a panel with persons of 3 years of earnings and an age of 20-60.",
        )
        raise InputError("There is nobody to judge the forecasts on.", [problem])
    return people, origins


def low_pay_line(panel: Panel) -> float:
    """60 % of the median positive earnings in the panel, to two digits: real money a year."""
    median = panel.frame.filter(pl.col("earnings") > 0)["earnings"].median()
    return rounded(LOW_PAY_SHARE * float(median), 2) if isinstance(median, (int, float)) else 0.0


def summarise(
    findings: Findings,
    groups: pl.DataFrame | None,
    calibrator: Calibrator,
    *,
    provenance: Mapping[str, Any],
    seed: int = 0,
    min_persons: int = MIN_PERSONS,
    vintages: pl.DataFrame | None = None,
) -> Diagnostics:
    """All tables.

    Args:
        findings: Results of single persons.
        groups: `person_id` and a text column for each grouping.
        calibrator: The calibrator that made the intervals.
        provenance: Facts for the table "provenance".
        seed: Key of the simulated sampling bands.
        min_persons: Fewest persons behind a figure.
        vintages: Those of the bundle; None: it has none, and bands lack the model's own error.
    """
    cases = Cases.of(findings.results, groups, calibrator, seed=seed, min_persons=min_persons)
    cases_for_distributions = (
        cases
        if findings.conditioned is None
        else Cases.of(findings.conditioned, groups, calibrator, seed=seed, min_persons=min_persons)
    )
    tables: dict[str, Rows] = {
        "guarantees": coverage.tabulate_guarantees(cases),
        "widths": coverage.tabulate_widths(cases),
        "stability": tabulate_seed_ranges(findings.seed_ranges, cases.headline, min_persons),
        "people": findings.people,
    }
    verdicts: list[Verdict] = []
    model = None if vintages is None else ModelError.fit(vintages)
    for name, (rows, verdicts_of_table) in {
        "sums": tabulate_sums(
            cases_for_distributions, cases, findings.path_sums, findings.by_rule, model
        ),
        "coverage": coverage.tabulate_coverage(cases),
        "pit": whole_distribution.tabulate_pit(cases_for_distributions),
        "reliability": whole_distribution.tabulate_reliability(cases_for_distributions),
        "mean_error": whole_distribution.tabulate_mean_error(cases_for_distributions, cases),
        "together": coverage.tabulate_several_years(cases, findings.several_years),
        "zero_bins": coverage.tabulate_zero_bins(cases),
        "efficiency": tabulate_efficiency(cases, findings.rules),
        "periods": coverage.tabulate_periods(cases),
    }.items():
        tables[name] = rows
        verdicts += verdicts_of_table
    order = {question: i for i, question in enumerate(QUESTIONS)}
    tables["verdicts"] = [
        asdict(verdict)
        for verdict in sorted(verdicts, key=lambda v: (order[v.question], v.horizon))
    ]
    record = {
        **provenance,
        "min_cell": min_persons,
        "alpha": ALPHA,
        "horizons": ",".join(str(h) for h in findings.results),
    }
    tables["provenance"] = [
        {"name": name, "text": str(value)} for name, value in record.items() if value is not None
    ]
    return Diagnostics(
        {
            name: pl.DataFrame(tables[name], schema=table.schema, orient="row")
            for name, table in TABLES.items()
        }
    )
