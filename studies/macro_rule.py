"""The rule that draws the register's macro series after its history, and what 33 years tell of it.

A forecaster estimates the process of the macro series from the years known at the origin. The rule
is the process that drew the register's futures, which no forecaster knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from saga.forecaster import Forecaster
from saga.macro.history import MacroHistory, log_wage_index, sweden
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario
from saga.register.simulation.economy import build_economy
from saga.register.simulation.parameters import Parameters
from saga.requests import MAX_HORIZON

Array = NDArray[np.float64]
HORIZONS = (1, 5, 10, 20)
STATED = 0.9  # coverage of the sets
HISTORY_YEARS = 33  # as many as the history of Sweden has, 1990-2022
RULE_KEY = 1_000  # seeds of the rule's economies are counted from it; no register has them


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
        """Draws of the rule from the last year of the history on, if there is no scenario.

        With a scenario, or from another year, as in `MacroProcess`.
        """
        if scenario is not None or from_year != self.history.last_year:
            return super().draw(seed, n_paths, from_year, to_year, scenario)
        return rule_draws(RULE_KEY + seed, n_paths, to_year)[:, : to_year - from_year]


@cache
def rule_draws(seed: int, n_draws: int, to_year: int) -> Array:
    """Macro series (n_draws, n_year, 3) of the years after 2022, by the register's rule."""
    first, parameters = sweden().last_year + 1, Parameters().economy
    economies = (
        build_economy(first - 1, to_year, parameters, seed=seed, draw=k) for k in range(n_draws)
    )
    return np.stack([e.to_frame(first, to_year).drop("year").to_numpy() for e in economies])


def with_process(forecaster: Forecaster, process: MacroProcess) -> Forecaster:
    """The forecaster with another macro process."""
    return forecaster.with_model(replace(forecaster.model, process=process))


def estimated_histories(n_histories: int, years: int = MAX_HORIZON) -> Iterator[tuple[Array, ...]]:
    """For each economy that the rule draws: what happened, and what its first 33 years forecast.

    Four arrays: real wage growth of the first 33 years; the log wage index of the later years; and
    the mean and the standard deviation, by horizon, that a process fitted on the 33 years forecasts
    for it.
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
    """What 33 years can tell about the spread, and whether the history of Sweden fits the rule.

    Returns rows by horizon: the spread of persons, that of the wage index, its estimates from 33
    years, and the coverage with the true and with the estimated spread; and a sentence that
    compares the real wage growth of Sweden with that of the rule.
    """
    growth, later, mean, sd = (
        np.stack(columns) for columns in zip(*estimated_histories(n_histories), strict=True)
    )
    true_sd = later.std(axis=0)
    rows = []
    for h, person_sd in zip(HORIZONS, person_sds, strict=True):
        at = h - 1
        share = covered_share(later[:, at] - mean[:, at], sd[:, at], person_sd)
        share_with_true_sd = covered_share(
            later[:, at] - later[:, at].mean(), true_sd[at], person_sd
        )
        of_twenty = share[: len(share) // 20 * 20].reshape(-1, 20).mean(axis=1)
        low, high = np.quantile(sd[:, at], [0.05, 0.95])
        rows.append(
            [
                *(str(h), f"{person_sd:.2f}", f"{true_sd[at]:.3f}"),
                f"{np.median(sd[:, at]):.3f} ({low:.3f}-{high:.3f})",
                *(f"{100 * share_with_true_sd.mean():.1f}", f"{100 * share.mean():.1f}"),
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
    """Rows by horizon after the last year of the history, for the estimate and for the rule.

    For each: mean and spread of the log wage index, and spread of unemployment in points.
    """
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
