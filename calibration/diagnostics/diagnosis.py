"""How far a bundle can be trusted, as tables: everything that the calibration report shows.

Test persons are forecast from one drawn origin each, by the rule that calibration uses, and judged by what came true inside the panel's
years. `held`, `curves` and `averages` compute the tables, all from the same `cases`: averages over at least `min_cell` persons, no single
person's value, so they may travel with the bundle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from calibration.diagnostics import averages, coverage, distributions
from calibration.diagnostics.cases import ALPHA, Cases, Rows
from calibration.diagnostics.person_results import Judged, Together, judge, thresholds_for
from calibration.diagnostics.verdicts import QUESTIONS, Light, rounded
from saga.conformal.calibrator import Calibrator
from saga.data.groups import Grouping
from saga.data.origins import Origins, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import BundleError, InputError, Problem
from saga.forecaster import Forecaster, Progress
from saga.keyed_random import sample_persons
from saga.macro.scenarios import Scenario
from saga.requests import COVERAGE, MAX_HORIZON, Draws

HORIZONS = (1, 5, 10, 20, 30)
PATHS = 200
MIN_CELL = 10  # persons that a published figure rests on
LOW_PAY = 0.6  # of the median of positive earnings

_I, _N, _F, _S, _B = pl.Int32(), pl.Int64(), pl.Float64(), pl.String(), pl.Boolean()
_BAND: dict[str, pl.DataType] = {"band_lower": _F, "band_upper": _F}
SCHEMAS: dict[str, dict[str, pl.DataType]] = {
    "provenance": {"name": _S, "text": _S},
    "lights": {
        "question": _S,
        "horizon": _I,
        "status": _S,
        "n": _N,
        "size": _F,
        "tolerance": _F,
        "level": _F,
        "group": _S,
    },
    "promise": {
        "horizon": _I,
        "persons_map": _N,
        "persons_threshold": _N,
        "guarantee": _S,
        "n": _N,
    },
    "coverage": {
        "horizon": _I,
        "grouping": _S,
        "group": _S,
        "level": _F,
        "n": _N,
        "inside": _F,
        "under": _F,
        "over": _F,
        **_BAND,
        "status": _S,
    },
    "pit": {
        "horizon": _I,
        "rank": _F,
        "n": _N,
        "share": _F,
        "share_lower": _F,
        "share_upper": _F,
        "ecdf": _F,
        **_BAND,
        "outside": _B,
    },
    "reliability": {
        "event": _S,
        "horizon": _I,
        "forecast": _F,
        "observed": _F,
        "n": _N,
        **_BAND,
        "outside": _B,
    },
    "widths": {
        "horizon": _I,
        "grouping": _S,
        "group": _S,
        "level": _F,
        "n": _N,
        "width": _F,
        "typical": _F,
        "with_zero": _F,
        "without": _F,
    },
    "scores": {
        **{"horizon": _I, "score": _S, "n": _N, "value": _F, "se": _F, "recalibrated": _F},
        **{"miscalibration": _F, "discrimination": _F, "uncertainty": _F},
    },
    "level": {
        **{
            "horizon": _I,
            "n": _N,
            "mean_forecast": _F,
            "mean_outcome": _F,
            "mean_error": _F,
            "error_lower": _F,
            "error_upper": _F,
        },
        **{
            "intercept": _F,
            "slope": _F,
            "slope_lower": _F,
            "slope_upper": _F,
            "economy": _F,
            "status": _S,
        },
    },
    "together": {
        "question": _S,
        "horizon": _I,
        "level": _F,
        "n": _N,
        "inside": _F,
        **_BAND,
        "status": _S,
    },
    "adaptive": {
        "horizon": _I,
        "group": _S,
        "level": _F,
        "n": _N,
        "inside": _F,
        "size": _F,
        "last_year": _I,
    },
    "drift": {
        "horizon": _I,
        "first_year": _I,
        "last_year": _I,
        "n": _N,
        "inside": _F,
        **_BAND,
        "status": _S,
    },
}


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Tables by name, with the columns of SCHEMAS. Figures of fewer than `min_cell` persons are null, with their number."""

    tables: Mapping[str, pl.DataFrame]

    def __getitem__(self, name: str) -> pl.DataFrame:
        return self.tables[name]

    @property
    def provenance(self) -> dict[str, str]:
        """What made these tables, by name."""
        return dict(self.tables["provenance"].iter_rows())

    def to_table(self) -> pl.DataFrame:
        """All tables as one, a column `table` beside the columns of all: the `diagnostics.parquet` of the bundle."""
        return pl.concat(
            [
                table.select(pl.lit(name).alias("table"), pl.all())
                for name, table in self.tables.items()
            ],
            how="diagonal",
        )

    @classmethod
    def from_table(cls, stored: pl.DataFrame) -> Self:
        """The tables that `to_table` wrote. Raises BundleError where a column is missing."""
        if "economy" not in stored.columns:  # written before forecasts were told the economy
            stored = stored.with_columns(pl.lit(None, _F).alias("economy"))
        if missing := {"table", *(name for schema in SCHEMAS.values() for name in schema)} - set(
            stored.columns
        ):
            problem = Problem(
                "diagnostics-form",
                f"columns missing: {sorted(missing)}",
                "Run `saga report --panel DIR --store` again.",
            )
            raise BundleError("the diagnostics table does not have its columns", [problem])
        parts = {name: stored.filter(pl.col("table") == name) for name in SCHEMAS}
        return cls(
            {
                name: parts[name].select(pl.col(c).cast(dtype) for c, dtype in schema.items())
                for name, schema in SCHEMAS.items()
            }
        )


def diagnose(
    forecaster: Forecaster,
    panel: Panel,
    *,
    horizons: Sequence[int] = HORIZONS,
    draws: Draws = Draws(n_paths=PATHS),
    persons: int | None = None,
    min_cell: int = MIN_CELL,
    progress: Progress | None = None,
) -> Diagnostics:
    """Forecast the panel's test persons, one keyed origin each, and judge the forecasts by what came true.

    Ranges are judged as they are given, whatever the economy did. Whole distributions, chances and levels are judged as forecast under the
    economy that came: few years with one economy cannot tell whether its law is right, but many persons whether theirs is. `persons` limits
    them (a keyed choice). Raises InputError when the panel has no test person with an origin.
    """
    end, floor = last_year(panel), panel.meta.floor
    tested = persons_of(panel, "test")
    tested = sample_persons(tested, persons, "contest", panel.meta.panel_id)
    people = panel.only(tested)
    origins = (
        draw_origins(people, max_horizon=MAX_HORIZON, seed=draws.seed, end=end)
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
    past, years = (
        history(people, origins),
        realised_earnings(people, origins, range(1, max(horizons) + 1), end=end),
    )
    outcomes = years[:, np.asarray(horizons) - 1]
    thresholds = [thresholds_for(outcomes[:, i], floor) for i in range(len(horizons))]
    low_pay = low_pay_line(panel)

    def cases(scenario: Scenario | None, wholes: list[Together] | None = None) -> dict[int, Judged]:
        parts: list[list[Judged]] = [[] for _ in horizons]
        done = 0
        for block in forecaster.blocks(
            past,
            replace(draws, scenario=scenario),
            to_horizon=max(horizons),
            progress=progress,
        ):
            rows = slice(done, done + len(block))
            sets = forecaster.calibrator.intervals(
                block, forecaster.calibrator.coverage or COVERAGE
            )
            for i, h in enumerate(horizons):
                parts[i].append(
                    judge(
                        block,
                        sets,
                        outcomes[rows, i],
                        h,
                        thresholds=thresholds[i],
                        floor=floor,
                        low_pay=low_pay,
                    )
                )
            if wholes is not None:
                wholes.append(Together.of(forecaster.calibrator, block, years[rows]))
            done += len(block)
        return {h: Judged.join(part) for h, part in zip(horizons, parts, strict=True)}

    wholes: list[Together] = []
    judged = cases(None, wholes)
    economy = forecaster.realised_macro(panel, end)
    told = None if economy is None else cases(economy)
    grouping = forecaster.calibrator.grouping or Grouping.fit(
        panel.only(persons_of(panel, "train"))
    )
    groups = grouping.of(past, origins)
    record = {
        **forecaster.provenance(draws),
        "panel": panel.meta.panel_id,
        "trained_on": forecaster.bundle.split.get("panel_id"),
        "persons": len(origins),
        "origins": f"{int(origins.year.min())}-{int(origins.year.max())}",
        "last_year": end,
        "economy": None
        if economy is None
        else f"{min(economy.rows)}-{max(economy.rows)}, told where people are judged",
        "low_pay": low_pay,
        "floor": floor,
    }
    together = Together.join(wholes)
    return summarise(
        judged,
        groups,
        forecaster.calibrator,
        together,
        told,
        provenance=record,
        seed=draws.seed,
        min_cell=min_cell,
    )


def low_pay_line(panel: Panel) -> float:
    """60 % of the median of all positive earnings in the panel, rounded to two digits: real money a year."""
    median = panel.frame.filter(pl.col("earnings") > 0)["earnings"].median()
    return rounded(LOW_PAY * float(median), 2) if isinstance(median, (int, float)) else 0.0


def summarise(
    judged: Mapping[int, Judged],
    groups: pl.DataFrame | None,
    calibrator: Calibrator,
    together: Together | None = None,
    told: Mapping[int, Judged] | None = None,
    *,
    provenance: Mapping[str, Any],
    seed: int = 0,
    min_cell: int = MIN_CELL,
) -> Diagnostics:
    """All tables from un-averaged results by horizon, of several years `together`, and of the same persons `told` the economy that came
    (None: there is none to tell); `groups` has `person_id` and a text column a grouping. The table "adaptive" is empty (see
    `calibration.diagnostics.adaptive_table`)."""
    cases = Cases.of(judged, groups, calibrator, seed=seed, min_cell=min_cell)
    people = (
        cases if told is None else Cases.of(told, groups, calibrator, seed=seed, min_cell=min_cell)
    )
    tables: dict[str, Rows] = {
        "promise": coverage.promise(cases),
        "widths": averages.widths(cases),
        "scores": averages.scores(cases),
        "adaptive": [],
    }
    lights: list[Light] = []
    for name, (rows, verdicts) in {
        "coverage": coverage.coverage(cases),
        "pit": distributions.pit(people),
        "reliability": distributions.reliability(people),
        "level": averages.level(people, cases),
        "together": coverage.together(cases, together),
        "drift": coverage.drift(cases),
    }.items():
        tables[name] = rows
        lights += verdicts
    order = {question: i for i, question in enumerate(QUESTIONS)}
    tables["lights"] = [
        light.row()
        for light in sorted(lights, key=lambda light: (order[light.question], light.horizon))
    ]
    record = {
        **provenance,
        "min_cell": min_cell,
        "alpha": ALPHA,
        "horizons": ",".join(str(h) for h in judged),
    }
    tables["provenance"] = [
        {"name": name, "text": str(value)} for name, value in record.items() if value is not None
    ]
    return Diagnostics(
        {
            name: pl.DataFrame(tables[name], schema=schema, orient="row")
            for name, schema in SCHEMAS.items()
        }
    )
