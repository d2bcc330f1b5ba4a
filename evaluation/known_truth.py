"""A model against the forecaster that knows a textbook process: how much of its CRPS is the model's own fault, and is it biased.

The process is lived from 20 to 64 instead of 25 to 60, so that origins after 3, 10 and 25 years of record all have an outcome 20 years on.
Everybody judged is simulated anew: nobody was trained on. Model and exact forecaster see the same records and draw as many paths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.origins import Origins, history, realised
from saga.data.panel import Panel, PanelMeta
from saga.forecaster import Forecaster
from saga.paths import Paths
from saga.register.simulation.economy import LAST_HISTORY
from saga.register.textbook.textbook_register import PROCESSES, Cohort, Process
from saga.schema import MAX_AGE
from saga.scores import crps_log, log_earnings, pit, pit_uniforms

Array = NDArray[np.float64]
FIRST_AGE, LAST_AGE = 20, MAX_AGE
HORIZONS, HISTORIES = (1, 5, 10, 20), (3, 10, 25)
LOSS, BIAS = (
    0.02,
    0.02,
)  # promised: CRPS within 2 % of the exact forecaster's, level within 2 % of its
NINETY = 0.9
_BLOCK = 256  # persons whose paths are held at once
_FIRST_SERIAL = (
    9_000_000  # running numbers that no register reaches: the judged are nobody's namesakes
)


class Forecasts(Protocol):
    """Whatever gives paths for records and their origins; the exact forecasters and every baseline do."""

    def paths(
        self, history: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Paths:
        """Paths (n, to_horizon, paths) in the order of `origins`, real money."""
        ...


@dataclass(frozen=True)
class ModelForecasts:
    """A bundle's paths, raw or calibrated; its origin is the last record, so the history must end at the origin."""

    forecaster: Forecaster
    calibrated: bool = False

    def paths(
        self, history: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Paths:
        """Paths of `Forecaster.simulate`, which sorts persons by id as `people` does."""
        return self.forecaster.simulate(
            history, to_horizon=to_horizon, paths=paths, seed=seed, calibrated=self.calibrated
        )


@dataclass(frozen=True)
class People:
    """Persons with the same length of record: `past` ends at `origins`; `outcomes` (n, H) at HORIZONS, real money."""

    past: Panel
    origins: Origins
    outcomes: Array


def long_lived(process: str) -> Process:
    """The textbook process of that name (`saga.register.textbook.textbook_register.PROCESSES`), lived from 20 to 64; its law is unchanged."""
    return replace(PROCESSES[process], first_age=FIRST_AGE, last_age=LAST_AGE)


def people(
    process: Process, persons: int, years: int, *, seed: int, macro: str | None = None
) -> People:
    """New persons of one cohort with `years` years of record, from the process's first age to the last year of history."""
    age = process.first_age - 1 + years
    born = LAST_HISTORY - age
    rng = np.random.default_rng([seed, years])
    rows = Cohort.found(process, born, _FIRST_SERIAL + np.arange(persons), rng).live(
        born + process.last_age, rng
    )
    lives = Panel.of(rows, PanelMeta("known-truth", macro=macro))
    origins = Origins(np.array(lives.persons()), np.full(persons, LAST_HISTORY))
    return People(history(lives, origins), origins, realised(lives, origins, list(HORIZONS)))


def score(forecasts: Forecasts, who: People, *, paths: int, seed: int) -> pl.DataFrame:
    """Un-averaged: `person_id`, `horizon`, `crps` (fair, log earnings), `mean` and `sd` of the forecast's logs, `p_zero`, `pit`."""
    floor, columns = who.past.meta.floor, np.array(HORIZONS) - 1
    parts = []
    for start in range(0, len(who.origins), _BLOCK):
        rows = slice(start, start + _BLOCK)
        some, outcomes = who.origins.take(rows), who.outcomes[rows]
        drawn = forecasts.paths(
            who.past.only(some.person_id.tolist()),
            some,
            to_horizon=HORIZONS[-1],
            paths=paths,
            seed=seed,
        )
        if not np.array_equal(drawn.person_id, some.person_id):
            raise ValueError("paths of other persons than were asked for")
        sample = drawn.earnings[:, columns]
        logs = log_earnings(sample, floor)
        values = {
            "crps": crps_log(sample, outcomes, floor),
            "mean": logs.mean(axis=2),
            "sd": logs.std(axis=2),
            "p_zero": (sample == 0).mean(axis=2),
            "pit": pit(sample, outcomes, pit_uniforms(drawn)[:, columns]),
        }
        named = {
            "person_id": np.repeat(some.person_id, len(HORIZONS)).tolist(),
            "horizon": np.tile(HORIZONS, len(some)),
        }
        parts.append(
            pl.DataFrame({**named, **{name: array.ravel() for name, array in values.items()}})
        )
    return pl.concat(parts)


def compare(model: pl.DataFrame, exact: pl.DataFrame, paths: int) -> pl.DataFrame:
    """One row a horizon from the `score` of both, on the same persons with `paths` paths each.

    `loss` (CRPS of the model over the exact one's, less 1) and `bias` (mean of the forecast's logs less the exact one's) with standard
    errors over paired persons; `pit_mean` likewise, moved by what the exact forecaster's differs from 1/2 on these persons; `coverage` of
    the central 90 %, of both; `zero`: the model's mean p_zero less the exact one's; `spread`: the ratio of mean standard deviations;
    `wander`: the root mean square of the difference of means, Monte-Carlo noise taken out, as a share of the exact standard deviation:
    what the model misses of what the record tells of the level. `held`: loss at most 2 % and bias within 2 %; `sure`: both by two
    standard errors, or one missed by two.
    """
    paired = model.join(exact, on=["person_id", "horizon"], suffix="_exact", validate="1:1")
    if paired.height != model.height or paired.height != exact.height:
        raise ValueError("the two were not scored on the same persons")
    rows = []
    for (horizon,), part in paired.group_by(["horizon"], maintain_order=True):
        own = {name: part[name].to_numpy() for name in ("crps", "mean", "sd", "p_zero", "pit")}
        best = {name: part[f"{name}_exact"].to_numpy() for name in own}
        loss = own["crps"].mean() / best["crps"].mean() - 1
        loss_se = _error((own["crps"] - (1 + loss) * best["crps"]) / best["crps"].mean())
        apart = own["mean"] - best["mean"]
        noise = (own["sd"] ** 2 + best["sd"] ** 2).mean() / paths
        bias, bias_se = apart.mean(), _error(apart)
        inside = {
            name: np.abs(pits - 0.5) <= NINETY / 2
            for name, pits in (("own", own["pit"]), ("best", best["pit"]))
        }
        held = bool(loss <= LOSS and abs(bias) <= BIAS)
        margins = [
            (LOSS - loss) / max(loss_se, 1e-12),
            (BIAS - abs(bias)) / max(bias_se, 1e-12),
        ]  # in standard errors
        rows.append(
            {
                "horizon": horizon,
                "n": part.height,
                "crps_exact": best["crps"].mean(),
                "loss": loss,
                "loss_se": loss_se,
                "bias": bias,
                "bias_se": bias_se,
                "pit_mean": 0.5 + (own["pit"] - best["pit"]).mean(),
                "pit_se": _error(own["pit"] - best["pit"]),
                "coverage": inside["own"].mean(),
                "coverage_exact": inside["best"].mean(),
                "coverage_se": np.sqrt(NINETY * (1 - NINETY) / part.height),
                "zero": (own["p_zero"] - best["p_zero"]).mean(),
                "spread": own["sd"].mean() / best["sd"].mean(),
                "wander": np.sqrt(max((apart**2).mean() - noise, 0.0) / (best["sd"] ** 2).mean()),
                "held": held,
                "sure": bool(min(margins) > 2 if held else min(margins) < -2),
            }
        )
    return pl.DataFrame(rows)


def as_markdown(table: pl.DataFrame) -> str:
    """The table of `compare` with a column `history` as a GitHub table; ? marks a verdict within two standard errors of its limit."""
    head = (
        "| years of record | h | n | exact CRPS | CRPS lost, % | bias, log | PIT mean | 90 % coverage | exact's | zeros, points "
        "| spread | wander | promise |"
    )
    lines = [head, "|" + "---|" * 13]
    for r in table.iter_rows(named=True):
        verdict = ("held" if r["held"] else "MISSED") + ("" if r["sure"] else " ?")
        lines.append(
            f"| {r['history']} | {r['horizon']} | {r['n']:,} | {r['crps_exact']:.4f} | {100 * r['loss']:+.2f} ± {100 * r['loss_se']:.2f} "
            f"| {r['bias']:+.4f} ± {r['bias_se']:.4f} | {r['pit_mean']:.4f} ± {r['pit_se']:.4f} "
            f"| {100 * r['coverage']:.1f} ± {100 * r['coverage_se']:.1f} | {100 * r['coverage_exact']:.1f} | {100 * r['zero']:+.2f} "
            f"| {r['spread']:.3f} | {r['wander']:.3f} | {verdict} |"
        )
    return "\n".join(lines)


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))
