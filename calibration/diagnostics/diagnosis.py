"""The diagnostics of a bundle: all tables that the calibration report shows.

Test persons are forecast from one drawn origin each, by the rule that calibration uses, and judged
by their outcomes in the panel's years. `coverage`, `distributions` and `averages` compute the
tables from the same `Cases`. Every figure is an average over at least `min_persons` persons, so the
tables may be stored in the bundle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from calibration.diagnostics import averages, coverage, distributions
from calibration.diagnostics.cases import ALPHA, Cases, Rows
from calibration.diagnostics.person_results import (
    PersonResults,
    SeveralYears,
    crps_thresholds,
    judge_persons,
)
from calibration.diagnostics.table_columns import TABLES
from calibration.diagnostics.verdicts import QUESTIONS, Verdict, rounded
from saga.conformal.calibrator import Calibrator
from saga.data.groups import Grouping
from saga.data.origins import Origins, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import BundleError, InputError, Problem
from saga.forecaster import Forecaster, Progress
from saga.keyed_random import sample_persons
from saga.requests import COVERAGE, MAX_HORIZON, Draws

HORIZONS = (1, 5, 10, 20, 30)
N_PATHS = 200
MIN_PERSONS = 10  # a figure that is shown needs so many persons
LOW_PAY_SHARE = 0.6  # of the median of positive earnings


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Tables by name, with the columns of TABLES.

    Figures of fewer than `min_persons` persons are null, and so is their number.
    """

    tables: Mapping[str, pl.DataFrame]

    def __getitem__(self, name: str) -> pl.DataFrame:
        return self.tables[name]

    @property
    def provenance(self) -> dict[str, str]:
        """How these tables were made, by name of the fact."""
        return dict(self.tables["provenance"].iter_rows())

    def to_table(self) -> pl.DataFrame:
        """All tables as one with a column `table`: the `diagnostics.parquet` of the bundle."""
        named = [
            table.select(pl.lit(name).alias("table"), pl.all())
            for name, table in self.tables.items()
        ]
        return pl.concat(named, how="diagonal")

    @classmethod
    def from_table(cls, stored: pl.DataFrame) -> Self:
        """The tables that `to_table` wrote.

        A column that is not required may be absent and is then null. Raises BundleError if a
        required column is missing.
        """
        columns = {
            name: column for table in TABLES.values() for name, column in table.columns.items()
        }
        absent = [name for name in columns if name not in stored.columns]
        missing = [name for name in absent if columns[name].required]
        if missing or "table" not in stored.columns:
            problem = Problem(
                "diagnostics-form",
                f"columns missing: {sorted(missing)}",
                "Run `saga report --panel DIR --store` again.",
            )
            raise BundleError("the diagnostics table does not have its columns", [problem])
        stored = stored.with_columns(
            pl.lit(None, columns[name].dtype).alias(name) for name in absent
        )
        return cls(
            {
                name: stored.filter(pl.col("table") == name).select(
                    pl.col(c).cast(dtype) for c, dtype in table.schema.items()
                )
                for name, table in TABLES.items()
            }
        )


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

    Intervals are judged as they are issued. Distributions, probabilities and mean bias are judged
    for forecasts conditioned on the realised macro series, if there are any: the few years of a
    panel cannot show whether the macro process is right, but its many persons can show whether the
    rest of the model is.

    Args:
        forecaster: The bundle that is judged.
        panel: Records with outcomes.
        horizons: Years ahead to judge.
        draws: Paths and seed.
        persons: Number of test persons, chosen by key; None: all.
        min_persons: Fewest persons behind a figure.
        progress: Called with persons done and all persons, in each pass.

    Raises:
        InputError: If the panel has no test person with an origin.
    """
    end = last_year(panel)
    people, origins = _draw_test_origins(panel, draws.seed, end, persons)
    records = history(people, origins)
    outcomes = realised_earnings(people, origins, range(1, max(horizons) + 1), end=end)
    judging = _Judging(
        forecaster,
        records,
        outcomes,
        tuple(horizons),
        panel.meta.floor,
        low_pay_line(panel),
        progress,
    )
    results, several_years = judging.judge(draws)
    macro = forecaster.realised_macro(panel, end)
    conditioned = None if macro is None else judging.judge(replace(draws, scenario=macro))[0]
    grouping = forecaster.calibrator.grouping or Grouping.fit(
        panel.only(persons_of(panel, "train"))
    )
    record = {
        **forecaster.provenance(draws),
        "panel": panel.meta.panel_id,
        "trained_on": forecaster.bundle.split.get("panel_id"),
        "persons": len(origins),
        "origins": f"{int(origins.year.min())}-{int(origins.year.max())}",
        "last_year": end,
        "economy": None
        if macro is None
        else f"{min(macro.rows)}-{max(macro.rows)}, given where whole forecasts are judged",
        "low_pay": judging.low_pay,
        "floor": judging.floor,
    }
    return summarise(
        results,
        grouping.assign(records, origins),
        forecaster.calibrator,
        several_years,
        conditioned,
        provenance=record,
        seed=draws.seed,
        min_persons=min_persons,
    )


@dataclass(frozen=True, eq=False)
class _Judging:
    """Judges forecasts of test persons by their outcomes (n, H) at horizons 1 to H."""

    forecaster: Forecaster
    records: Panel
    outcomes: averages.Array
    horizons: tuple[int, ...]
    floor: float | None
    low_pay: float
    progress: Progress | None

    def judge(self, draws: Draws) -> tuple[dict[int, PersonResults], SeveralYears]:
        """Results by horizon, and those of several years together."""
        calibrator = self.forecaster.calibrator
        thresholds = {
            h: crps_thresholds(self.outcomes[:, h - 1], self.floor) for h in self.horizons
        }
        parts: dict[int, list[PersonResults]] = {h: [] for h in self.horizons}
        several_years: list[SeveralYears] = []
        n_done = 0
        for block in self.forecaster.blocks(
            self.records, draws, to_horizon=max(self.horizons), progress=self.progress
        ):
            outcomes = self.outcomes[n_done : n_done + len(block)]
            intervals = calibrator.intervals(block, calibrator.coverage or COVERAGE)
            for h in self.horizons:
                parts[h].append(
                    judge_persons(
                        block,
                        intervals,
                        outcomes[:, h - 1],
                        h,
                        thresholds=thresholds[h],
                        floor=self.floor,
                        low_pay=self.low_pay,
                    )
                )
            several_years.append(SeveralYears.of(calibrator, block, outcomes))
            n_done += len(block)
        results = {h: PersonResults.join(part) for h, part in parts.items()}
        return results, SeveralYears.join(several_years)


def _draw_test_origins(
    panel: Panel, seed: int, end: int, n_persons: int | None
) -> tuple[Panel, Origins]:
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
    results: Mapping[int, PersonResults],
    groups: pl.DataFrame | None,
    calibrator: Calibrator,
    several_years: SeveralYears | None = None,
    conditioned: Mapping[int, PersonResults] | None = None,
    *,
    provenance: Mapping[str, Any],
    seed: int = 0,
    min_persons: int = MIN_PERSONS,
) -> Diagnostics:
    """All tables from results of single persons. The table "adaptive" is empty.

    Args:
        results: By horizon, for forecasts as they are issued.
        groups: `person_id` and a text column for each grouping.
        calibrator: The calibrator that made the intervals.
        several_years: Results for several years together.
        conditioned: Results of the same persons, for forecasts conditioned on the realised macro
            series; None: `results` are used instead.
        provenance: Facts for the table "provenance".
        seed: Key of the simulated sampling bands.
        min_persons: Fewest persons behind a figure.
    """
    cases = Cases.of(results, groups, calibrator, seed=seed, min_persons=min_persons)
    cases_for_distributions = (
        cases
        if conditioned is None
        else Cases.of(conditioned, groups, calibrator, seed=seed, min_persons=min_persons)
    )
    tables: dict[str, Rows] = {
        "promise": coverage.tabulate_guarantees(cases),
        "widths": averages.tabulate_widths(cases),
        "scores": averages.tabulate_scores(cases),
        "adaptive": [],
    }
    verdicts: list[Verdict] = []
    for name, (rows, verdicts_of_table) in {
        "coverage": coverage.tabulate_coverage(cases),
        "pit": distributions.tabulate_pit(cases_for_distributions),
        "reliability": distributions.tabulate_reliability(cases_for_distributions),
        "level": averages.tabulate_mean_bias(cases_for_distributions, cases),
        "together": coverage.tabulate_several_years(cases, several_years),
        "drift": coverage.tabulate_periods(cases),
    }.items():
        tables[name] = rows
        verdicts += verdicts_of_table
    order = {question: i for i, question in enumerate(QUESTIONS)}
    tables["lights"] = [
        verdict.row() for verdict in sorted(verdicts, key=lambda v: (order[v.question], v.horizon))
    ]
    record = {
        **provenance,
        "min_cell": min_persons,
        "alpha": ALPHA,
        "horizons": ",".join(str(h) for h in results),
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
