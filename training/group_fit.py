"""The economy of groups of a panel, for macro.json: its past, and what the network makes of it.

In each year the cells of age, sex and education with ten persons or more have a log mean of
positive earnings and log odds of having any. A regression on ages and levels gives the effects of
levels, and of ages a straight line, with their errors; a Kalman filter with the steps of many
countries shrinks them and tells their trends.

Last, the network forecasts training persons from the last year. A forecast for an age is compared
with persons of this age in the last year, grown by wages. What is different for all, or between the
levels that a person has for life, is the network's own trend: it carries on what it has learnt of
careers, while this panel's newest cross-section may have another profile. The layer after it
(`saga.simulation.group_layer`) puts a drawn trend in its place. Where this comparison fails
(`beside_network`), and for the odds of work, the network's trend stays, and draws spread around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from saga.training.panel_cells import (
    BAND,
    LAST_AGE,
    cells_of,
    everybody_of,
    person_years,
    statistic_of,
)

from saga.arrays import Floats
from saga.bundle import Bundle, write_bundle
from saga.data.origins import cut, last_year
from saga.data.panel import Panel
from saga.data.split import persons_of, shares_of
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.macro.group_trends import (
    AGE,
    AGE_LEVELS,
    STATISTICS,
    GroupSeries,
    GroupTrends,
    TrendParameters,
    age_shares,
    filter_ratios,
    prior_of_countries,
)
from saga.macro.wage_trends import CountryWages
from saga.requests import MAX_HORIZON
from saga.small_groups import MIN_PERSONS

COLUMNS = ("sex", "education_level")
SETTLED_AGE = 28  # forecasts of persons who are still at school would tell of their later education
_MIN_BANDS = 5  # of ages, in all years: else a trend cannot be told from ageing
_MAX_PERSONS = 100_000  # whom the network forecasts
# Prior standard deviation of a network's own trend: of its pace, and of what is added to it a year.
_PACE = np.array([0.01, 0.01 / MAX_HORIZON])
_NONE = np.zeros((1, 0))
_NO_GROUPS = GroupSeries(_NONE, _NONE, _NONE, _NONE[0], np.zeros((MAX_HORIZON, 0)))


def with_groups(bundle: Bundle, panel: Panel, *, command: str = "") -> Bundle:
    """Write the bundle again with the economy of groups of its panel in macro.json.

    A calibration no longer fits and is left out. A panel without persons of most ages in every year
    has no groups; if it has no years to compare either, the bundle stays as it is.

    Args:
        bundle: A bundle.
        panel: The panel on which it was trained.
        command: Command line that the manifest records.
    """
    if last_year(panel) > bundle.training_records.last_year:
        panel = cut(panel, bundle.training_records.last_year)
    persons = persons_of(panel, "train", shares_of(bundle.split))
    macro = {name: part for name, part in bundle.macro.items() if name != "groups"}
    network = Forecaster(replace(bundle, macro=macro))
    everybody = network.model.process is None
    trends = group_history(panel, persons, everybody=everybody)
    if trends is None:
        return bundle
    if trends.columns:
        trends = beside_network(network, panel, persons, trends)
    contents = replace(
        bundle,
        macro={**macro, "groups": trends.as_dict()},
        metrics={name: part for name, part in bundle.metrics.items() if name != "calibration"},
        calibration=None,
        diagnostics=bundle.lasting_diagnostics,
        audit=None,
    )
    origin = {name: bundle.manifest[name] for name in ("seed", "parents")}
    return write_bundle(bundle.path, contents, command=command, **origin)


def group_history(
    panel: Panel,
    persons: Sequence[str],
    columns: Sequence[str] = COLUMNS,
    without: Sequence[str] = (),
    *,
    everybody: bool = False,
) -> GroupTrends | None:
    """The past of groups among these persons, and its prior; None if they cannot tell it.

    `columns` are categories whose levels are groups; `without` are codes of countries that the
    prior leaves out, for a judge who uses them. The network's trends are zero. With `everybody` the
    growth of everybody is drawn, too; panels without most ages tell it from persons of one age, and
    no groups.
    """
    columns = [name for name in columns if panel.frame[name].null_count() < panel.frame.height]
    last, rows = last_year(panel), person_years(panel, persons, columns)
    cells = cells_of(rows, ["year", "band", *columns])
    bands = cells.group_by("year").agg(pl.col("band").n_unique())["band"].to_list()
    now = cells.filter(pl.col("year") == last)
    levels = [(column, now[column].unique().sort().to_list()) for column in columns]
    levels = [(column, names) for column, names in levels if len(names) > 1]
    most_ages = min(bands, default=0) >= _MIN_BANDS
    if not (most_ages or everybody):
        return None
    growth, prior = None, prior_of_countries(last, frozenset(without))
    if everybody:
        by = ["band" if most_ages else "age", *columns]
        wages = CountryWages.shipped(last, tuple(sorted(without)))
        growth = everybody_of(cells_of(rows, ["year", *by]), by, wages)
    if not most_ages:
        series = dict.fromkeys(STATISTICS, _NO_GROUPS)
        return None if growth is None else GroupTrends([], last, *prior, series, growth)
    levels.append((AGE, [*AGE_LEVELS]))
    years = range(min(cells["year"].to_list()), last + 1)
    frame = GroupTrends(levels, years[0], *prior, {}, growth)
    series = {}
    for statistic in STATISTICS:
        effects = [
            effects_of(frame, cells.filter(pl.col("year") == year), statistic) for year in years
        ]
        series[statistic] = _series(frame, statistic, effects, now)
    return replace(frame, series=series)


def effects_of(trends: GroupTrends, cells: pl.DataFrame, statistic: str) -> tuple[Floats, Floats]:
    """Effects (K,) of the levels on a statistic of cells and their standard errors; NaN unknown."""
    value, variance = statistic_of(cells, statistic)
    rows = _regression(trends, cells)
    return rows @ value, np.sqrt(rows**2 @ variance)


def _regression(trends: GroupTrends, cells: pl.DataFrame) -> Floats:
    """Rows (K, n_cell) that give the effects of levels from values of cells; NaN without cells.

    Least squares on bands of age and levels, weighted by `weight`. Effects of a column have mean
    zero; those of ages are of the straight line through the effects of the bands.
    """
    weight, bands = cells["weight"].to_numpy(), cells["band"].to_numpy()
    names, root = np.unique(bands), np.sqrt(weight)
    of_band = (bands[:, None] == names).astype(float)
    of_level = np.stack(
        [
            np.zeros(len(cells)) if column == AGE else (cells[column] == level).to_numpy()
            for column, level in trends.levels
        ],
        axis=1,
    )
    rows = np.linalg.pinv(np.c_[of_band, of_level] * root[:, None]) * root
    ages, of_bands = age_shares((names + 0.5) * BAND), np.sqrt(weight @ of_band)
    line = np.linalg.pinv(ages * of_bands[:, None]) * of_bands
    effects = rows[len(names) :]
    effects[trends.of_age] = line @ rows[: len(names)]
    effects = trends.centred(effects.T, np.ones(len(effects))).T
    effects[~trends.of_age & ~of_level.any(axis=0)] = np.nan
    return effects


def _series(
    trends: GroupTrends,
    statistic: str,
    effects: Sequence[tuple[Floats, Floats]],
    now: pl.DataFrame,
) -> GroupSeries:
    """The filtered series of a statistic."""
    observed, error = (np.stack(each) for each in zip(*effects, strict=True))
    p, size = TrendParameters.of(trends.mode), trends.sizes(statistic)
    steps = replace(p, trend_step=size * p.trend_step, level_step=size * p.level_step)
    mean, covariance, _ = filter_ratios(observed, error, steps, p.pull * trends.pulled(statistic))
    earnings = statistic == "earnings"
    amount = now["workers"] * now["mean"] if earnings else now["persons"] * 1.0
    ages = amount.to_numpy() @ age_shares((now["band"].to_numpy() + 0.5) * BAND)
    of_level = [
        ages[AGE_LEVELS.index(level)]
        if column == AGE
        else amount.filter(now[column] == level).sum()
        for column, level in trends.levels
    ]
    shares = np.array(of_level) / amount.sum()
    return GroupSeries(
        trends.centred(mean[..., 0], shares),
        mean[..., 1] * (trends.compared if earnings else 0.0),
        np.sqrt(covariance[..., 1, 1]),
        shares,
        np.zeros((MAX_HORIZON, len(shares))),
    )


def beside_network(
    network: Forecaster, panel: Panel, persons: Sequence[str], trends: GroupTrends
) -> GroupTrends:
    """The trends of these persons beside the own ones of a network without an economy of groups.

    A forecast for an age is compared with persons of this age in the last year. At both ages of the
    column `age` the change is that of all: the log of the forecasts' sum beside that of as many
    workers with the means of the last year, less the growth of wages. Between levels for life it is
    the difference at equal ages. Other columns have none: those who have a level differ between
    cohorts. Without macro series no growth is taken off, and the change is that of everybody, if
    the trends draw it. Changes are smooth: a parabola of the horizon through zero, shrunk by its
    error. Horizons without ten persons in a cell have the change of the last one before.
    """
    columns, last = [column for column, _ in trends.columns if column != AGE], last_year(panel)
    now = person_years(panel, persons, columns).filter(pl.col("year") == last)
    age = last - pl.col("birth_year")
    settled = now.filter(age >= SETTLED_AGE, age < LAST_AGE)["person_id"].to_list()
    sample = sample_persons(settled, _MAX_PERSONS, "groups", panel.meta.panel_id)
    mean, works = (
        np.concatenate(blocks)
        for blocks in zip(
            *(
                (block.mean, 1 - block.p_zero.astype(np.float64))
                for block in network.marginals(panel.only(sample), recalibrate=False)
            ),
            strict=True,
        )
    )
    growth = None if network.model.process is None else network.model.expected_growth(last)
    ahead = now.filter(pl.col("person_id").is_in(pl.Series(sample).implode()))
    by, weights = ["band", *columns], trends.series["earnings"].weights
    now_cells = cells_of(now, by).drop("weight")
    fits = []
    for h in range(1, mean.shape[1] + 1):
        forecasts = ahead.with_columns(
            band=(age + h) // BAND, total=mean[:, h - 1], works=works[:, h - 1]
        ).filter(age + h <= LAST_AGE)
        cells = (
            forecasts.group_by(by)
            .agg(
                pl.col("total", "works").sum(),
                weight=pl.len() * 1.0,
                spread=(pl.col("total").std() / pl.col("total").mean()) ** 2 / pl.len(),
            )
            .filter(pl.col("weight") >= MIN_PERSONS)
            .join(now_cells, on=by)
            .sort(by)
        )
        if cells.is_empty():
            break
        expected = (cells["works"] * cells["mean"]).to_numpy()
        total, value = cells["total"].to_numpy(), np.log(cells["total"].to_numpy() / expected)
        variance = cells["spread"] + (cells["sd"] / cells["mean"]) ** 2 / cells["workers"]
        rows = trends.centred(np.nan_to_num(_regression(trends, cells)).T, weights).T
        effects = (rows @ value) * trends.compared
        error = rows**2 @ variance.to_numpy()
        of_all = np.log(total.sum() / expected.sum())
        effects[trends.of_age] = 0.0 if growth is None else of_all - growth[h - 1]
        error_of_all = (total / total.sum()) ** 2 @ variance.to_numpy()
        error[trends.of_age] = error_of_all
        effects, error = np.append(effects, of_all), np.append(error, error_of_all)
        fits.append((effects, np.where(error > 0, error, np.inf)))
    if not fits:
        return trends
    changes, errors = (np.array(part) for part in zip(*fits, strict=True))
    powers = np.arange(1, len(fits) + 1)[:, None] ** np.array([1.0, 2.0])
    of_levels = zip(changes.T, errors.T, strict=True)
    curves = np.stack([_shrunk(powers, *each) for each in of_levels], axis=1)
    trends = trends.beside(curves[:, :-1])
    if trends.everybody is None:
        return trends
    earned = (now_cells["workers"] * now_cells["mean"]).to_numpy()
    start_sd = np.sqrt((earned / earned.sum()) ** 2 @ statistic_of(now_cells, "earnings")[1])
    everybody = replace(trends.everybody, implied=curves[:, -1], start_sd=float(start_sd))
    return replace(trends, everybody=everybody)


def _shrunk(powers: Floats, changes: Floats, variance: Floats) -> Floats:
    """The parabola (H,) through changes (H,), which together tell as much as one.

    Their errors move together, because the persons are the same.
    """
    weighted = powers / variance[:, None] / len(powers)
    precision = weighted.T @ powers + np.diag(_PACE**-2)
    return np.asarray(powers @ np.linalg.solve(precision, weighted.T @ changes))
