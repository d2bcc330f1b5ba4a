"""Distributions at all horizons from boosted trees of a few horizons.

Distributions of positive earnings are those of a few quantiles of their logs. Between and beyond
the quantiles, log amounts are linear in the logit of the probability. This is exact for a logistic
distribution; for a normal one the error between the outer quantiles is below a hundredth of a
standard deviation. The tails of log amounts are exponential (amounts: Pareto).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Array, Floats
from saga.data.origins import Origins, eligible_origins, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import units_of
from saga.distributions import Marginals
from saga.keyed_random import uniform_each, uniforms
from saga.requests import QUANTILES, Progress
from saga.schema import MAX_AGE, N_AGES
from saga.special import expit, logit
from saga.trees.earnings_ranks import no_outcomes_error
from saga.trees.horizon_trees import (
    Examples,
    HorizonTrees,
    Settings,
    held_out_loss,
)
from saga.trees.recent_years import Window

GRID = (1, 2, 5, 10, 20, 30)
ROWS = 80_000  # largest number of origins per horizon
# Positive outcomes that a horizon needs, of training and of held-out persons.
MIN_POSITIVE = (200, 20)
SEARCH_HORIZON, SEARCH_ROWS = 5, 20_000  # the search for settings uses this horizon and sample
# Leaves, learning rate and share of features that are also tried if a panel has fewer than ROWS
# origins: with few persons, small steps and a choice among features for each tree overfit less.
SMALL_STEPS = ((6, 0.03, 0.5), (12, 0.03, 0.5))
HELD_OUT = 0.1  # share of persons for settings and numbers of trees
_WINDOW = "window"  # the row of a table that describes the features
KNOTS = logit(np.array(QUANTILES))
# Smallest distance of quantiles in logs, so that ranks and amounts map one to one.
MIN_DISTANCE = 1e-6
MAX_TAIL_SLOPE = 0.5  # largest slope of the upper tail, in logs per logit: Pareto index 2


@dataclass(frozen=True)
class TreeOptions:
    """What a fit tries.

    Args:
        grid: horizons with models.
        rows: largest number of origins per horizon, several per person.
        leaves: numbers of leaves to try.
        rates: learning rates to try.
        threads: see `Settings`.
    """

    grid: Sequence[int] = GRID
    rows: int = ROWS
    leaves: Sequence[int] = (6, 12, 24)
    rates: Sequence[float] = (0.1, 0.05)
    threads: int = 0


@dataclass(frozen=True, eq=False)
class TreeForecast:
    """A zero classifier and nine quantile models of positive earnings per horizon of `grid`.

    The distribution is interpolated between grid horizons and constant beyond the last. Years
    after a death count as zeros, in the fit and in outcomes.

    Args:
        window: the features.
        grid: horizons with models, ascending.
        models: the models of each of these horizons.
        settings: the settings of all models, which a table does not contain.
    """

    window: Window
    grid: NDArray[np.int64]
    models: tuple[HorizonTrees, ...]
    settings: Settings | None = None

    @classmethod
    def fit(
        cls,
        panel: Panel,
        held_out: set[str],
        window: Window,
        options: TreeOptions,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from the persons of `panel` that are not in `held_out`.

        Held-out persons decide leaves, learning rate and share of features, by their loss at one
        horizon, and when each model stops. `progress` is called with the number of horizons that
        have models, and with the number of all horizons.

        Raises InputError if no horizon has enough outcomes (MIN_POSITIVE).
        """
        examples = _examples(panel, held_out, window, options, seed)
        if not examples:
            fix = (
                "Give more persons, or persons with more years: an origin needs three known years "
                "before an outcome."
            )
            raise no_outcomes_error("No horizon has enough outcomes", fix)
        grid = np.array(sorted(examples))
        search_horizon = int(grid[np.abs(grid - SEARCH_HORIZON).argmin()])
        settings = _search(*examples[search_horizon], window, options, seed)
        models = []
        for h in grid.tolist():
            models.append(HorizonTrees.fit(*examples[h], window, settings))
            if progress:
                progress(len(models), len(grid))
        return cls(window, grid, tuple(models), settings)

    def refitted(
        self,
        panel: Panel,
        window: Window,
        options: TreeOptions,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> Self:
        """Trees fitted on all persons of `panel`, with the same settings and numbers of trees.

        `panel` has the persons of the first fit, and more. Arguments as in `fit`. Trees of a table,
        whose settings are not known, cannot be fitted again.
        """
        assert self.settings is not None
        options = replace(options, grid=self.grid.tolist())
        examples = _examples(panel, set(), window, options, seed, (MIN_POSITIVE[0], 0))
        models = list[HorizonTrees]()
        for h, fitted in zip(self.grid.tolist(), self.models, strict=True):
            models.append(HorizonTrees.fit(examples[h][0], fitted, window, self.settings))
            if progress:
                progress(len(models), len(self.grid))
        return type(self)(window, self.grid, tuple(models), self.settings)

    def marginals(
        self,
        features: NDArray[np.float32],
        origins: Origins,
        network: Marginals,
        horizons: Sequence[int],
    ) -> Marginals:
        """The distributions on the grid of a network's marginals of the same persons.

        `features` (n, F) are those of the window. `horizons` (H,), ascending, are those of the
        columns of `network`.
        """
        zero, logs = self.predict(features, origins, horizons)
        p_zero = zero[..., None]
        positive = probability_up_to(network.grid.astype(np.float64), logs)
        cdf = p_zero + (1 - p_zero) * positive
        return replace(network, cdf=cdf, p_zero=zero, members=())

    def predict(
        self, features: NDArray[np.float32], origins: Origins, horizons: Sequence[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probability of zero (n, H), and increasing log quantiles (n, H, 9) of positive earnings.

        Both are interpolated linearly between the horizons with models, and constant beyond.
        """
        zeros, quantiles = zip(*(model.predict(features) for model in self.models), strict=True)
        level = self.window.level(origins)[:, None, None]
        zero = np.clip(np.stack(zeros, axis=1), 0.0, 1.0)
        logs = increasing(np.stack(quantiles, axis=1) + level)
        last = len(self.grid) - 1
        position = np.interp(horizons, self.grid, np.arange(last + 1))
        low = np.minimum(position.astype(np.int64), max(last - 1, 0))
        high, share = np.minimum(low + 1, last), position - low
        return (
            zero[:, low] * (1 - share) + zero[:, high] * share,
            logs[:, low] * (1 - share)[:, None] + logs[:, high] * share[:, None],
        )

    def to_table(self) -> pl.DataFrame:
        """One row for the window and one per model: `name`, `horizon`, `content` (text)."""
        rows = [(_WINDOW, 0, json.dumps(self.window.as_dict()))]
        for horizon, model in zip(self.grid.tolist(), self.models, strict=True):
            rows += [(name, horizon, content) for name, content in model.as_texts().items()]
        schema = {"name": pl.String, "horizon": pl.Int64, "content": pl.String}
        return pl.DataFrame(rows, schema=schema, orient="row")

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> Self:
        """The trees that `to_table` wrote, bit for bit.

        Raises ImportError without LightGBM, ValueError or BundleError for another table.
        """
        texts: dict[int, dict[str, str]] = {}
        for name, horizon, content in table.select("name", "horizon", "content").iter_rows():
            texts.setdefault(horizon, {})[name] = content
        window = Window.from_dict(json.loads(texts.pop(0)[_WINDOW]))
        grid = np.array(sorted(texts))
        if not (len(grid) and 1 <= grid[0] and grid[-1] <= N_AGES):
            raise ValueError("it has no models of years ahead")
        models = tuple(HorizonTrees.from_texts(texts[h], window.names) for h in grid.tolist())
        return cls(window, grid, models)


def held_out_persons(panel: Panel, seed: int) -> set[str]:
    """About a tenth of the persons, or families, chosen reproducibly at random."""
    uniform = uniform_each(units_of(panel), "gbt", panel.meta.split_key, seed, "held")
    return {person for person, u in zip(panel.persons(), uniform, strict=True) if u < HELD_OUT}


def _examples(
    panel: Panel,
    held_out: set[str],
    window: Window,
    options: TreeOptions,
    seed: int,
    min_positive: tuple[int, int] = MIN_POSITIVE,
) -> dict[int, tuple[Examples, Examples]]:
    """Training and held-out examples of each horizon of the grid.

    A horizon h without `min_positive` positive outcomes is replaced by h + 1, or left out.
    """
    end = last_year(panel)
    eligible = eligible_origins(panel).with_columns(
        is_held_out=pl.col("person_id").is_in(list(held_out))
    )
    rows_of_horizon: dict[int, tuple[Array, Array]] = {}
    for horizon in options.grid:
        for h in (horizon, horizon + 1):
            if h in rows_of_horizon:
                continue
            chosen = _draw_rows(panel, eligible, h, end, options.rows, seed, min_positive)
            if chosen is not None:
                rows_of_horizon[h] = chosen
                break
    if not rows_of_horizon:
        return {}
    used = np.unique(np.concatenate([rows for rows, _ in rows_of_horizon.values()]))
    origins = Origins.from_rows(eligible[used])
    features, level = window.features(panel, origins), window.level(origins)
    is_held_out = eligible["is_held_out"].to_numpy()[used]
    person = np.unique(origins.person_id, return_inverse=True)[1]
    codes = [window.names.index(name) for name in window.categorical]
    examples = {}
    for h, (rows, outcomes) in rows_of_horizon.items():
        at = np.searchsorted(used, rows)
        with np.errstate(divide="ignore"):
            of_horizon = Examples(features[at], np.log(outcomes) - level[at], person[at])
        training = of_horizon.take(~is_held_out[at]).pooled(codes)
        examples[h] = training, of_horizon.take(is_held_out[at])
    return examples


def _draw_rows(
    panel: Panel,
    eligible: pl.DataFrame,
    h: int,
    end: int,
    n_rows: int,
    seed: int,
    min_positive: tuple[int, int],
) -> tuple[Array, Array] | None:
    """Rows of `eligible` with an outcome at horizon h, and the outcomes; None if too few.

    At most `n_rows` of them, chosen reproducibly at random.
    """
    reach = (pl.col("year") + h <= end) & (pl.col("year") + h - pl.col("birth_year") <= MAX_AGE)
    rows = np.flatnonzero(eligible.select(reach=reach)["reach"].to_numpy())
    # More than `n_rows`: outcomes may be missing, in a biennial panel half of them.
    rows = rows[np.argsort(uniforms(len(rows), "gbt", seed, "origin", h))[: 3 * n_rows]]
    if not len(rows):
        return None
    outcomes = realised_earnings(panel, Origins.from_rows(eligible[rows]), [h], end=end)[:, 0]
    seen = np.flatnonzero(np.isfinite(outcomes))[:n_rows]
    rows, outcomes = rows[seen], outcomes[seen]
    is_held_out = eligible["is_held_out"].to_numpy()[rows]
    positive = ((outcomes[part] > 0).sum() for part in (~is_held_out, is_held_out))
    enough = all(count >= least for count, least in zip(positive, min_positive, strict=True))
    return (rows, outcomes) if enough else None


def _search(
    training: Examples, held_out: Examples, window: Window, options: TreeOptions, seed: int
) -> Settings:
    """The candidate settings with the lowest quantile loss on held-out persons."""
    subset = training.take(slice(0, SEARCH_ROWS))
    candidates = [
        Settings(leaves, rate, options.threads, seed)
        for leaves, rate in product(options.leaves, options.rates)
    ]
    if len(candidates) == 1:
        return candidates[0]
    if len(training) + len(held_out) < options.rows:
        candidates += [
            Settings(leaves, rate, options.threads, seed, share)
            for leaves, rate, share in SMALL_STEPS
        ]
    losses = [held_out_loss(subset, held_out, window, settings) for settings in candidates]
    return candidates[int(np.argmin(losses))]


def increasing(logs: Floats) -> Floats:
    """Quantiles (..., 9) that increase, from some that may cross (Chernozhukov et al. 2010)."""
    return np.asarray(np.sort(logs, axis=-1) + MIN_DISTANCE * np.arange(len(QUANTILES)))


def tail_and_inner_slopes(logs: Floats) -> Floats:
    """Logs per logit below the first quantile, between and above the last; (..., 10)."""
    inner = np.diff(logs, axis=-1) / np.diff(KNOTS)
    return np.concatenate(
        [inner[..., :1], inner, np.minimum(inner[..., -1:], MAX_TAIL_SLOPE)], axis=-1
    )


def probability_up_to(at: Floats, logs: Floats) -> Floats:
    """Probability (n, H, G) of log amounts up to `at` (n, H, G), from quantiles (n, H, 9)."""
    logs, slopes = logs[..., None, :], tail_and_inner_slopes(logs)[..., None, :]
    x = KNOTS[0] + np.minimum(at - logs[..., 0], 0) / slopes[..., 0]
    for k in range(len(KNOTS) - 1):
        within = np.clip(at - logs[..., k], 0, logs[..., k + 1] - logs[..., k])
        x = x + within / slopes[..., k + 1]
    x = x + np.maximum(at - logs[..., -1], 0) / slopes[..., -1]
    return np.asarray(expit(x), dtype=np.float64)
