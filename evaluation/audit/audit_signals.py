"""Scores of a person's whole record under a bundle: what attacks compare. Lower: it fits better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from saga.training.data import Batch, make_batch
from saga.training.masking import Masking

from saga.arrays import Floats
from saga.data.origins import Origins, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.features.sequences import encode
from saga.forecaster import Forecaster
from saga.keyed_random import sample_rows
from saga.model import Saga
from saga.requests import MAX_HORIZON
from saga.scores import log_earnings, log_score

# record: minus the log-likelihood under the weights, a mean over the person's years and gaps.
# forecast: minus the log density of outcomes in an answer of the service (trees and calibration
#     included), a mean over years ahead.
# neighbour: distance of the outcomes from the medians of that answer, less that of the nearest of
#     other persons' outcomes.
SIGNALS = ("record", "forecast", "neighbour")
_WHOLE = Masking(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
_THINNED = Masking(0.6, 0.0, 0.0, 0.0, 0.0, 0.0)  # gaps of several years
_LOOKS = (_WHOLE, _THINNED, _THINNED)  # a person's score is the mean over them
_BLOCK = 256  # persons
_NEIGHBOURS, _YEARS = 300, 10  # other persons, and years ahead, of the distances


@dataclass(frozen=True, eq=False)
class Queries:
    """The same questions to every model: all persons, an origin of those who have one, outcomes."""

    panel: Panel
    origins: Origins
    past: Panel
    outcomes: Floats
    rows: NDArray[np.int64]
    seed: int

    @classmethod
    def of(cls, panel: Panel, seed: int) -> Queries:
        """Questions about the persons of a panel."""
        origins = draw_origins(panel, max_horizon=MAX_HORIZON, seed=seed, end=last_year(panel))
        origins = origins.take(np.argsort(origins.person_id))
        outcomes = realised_earnings(panel, origins, range(1, MAX_HORIZON + 1))
        rows = np.searchsorted(np.array(panel.persons()), origins.person_id)
        return cls(panel, origins, history(panel, origins), outcomes, rows, seed)

    def scores(self, forecaster: Forecaster) -> Floats:
        """Scores (n, S) of the persons in the order of `Panel.persons`; NaN if there is none."""
        scores = np.full((self.panel.n_persons, len(SIGNALS)), np.nan)
        scores[:, 0] = record_scores(forecaster, self.panel, self.seed)
        density, medians = [], []
        for answer, outcomes in self.answers(forecaster):
            with np.errstate(invalid="ignore"):
                density.append(_mean(log_score(answer, outcomes)))
            medians.append(answer.quantiles([0.5])[:, :_YEARS, 0])
        scores[self.rows, 1] = np.concatenate(density)
        scores[self.rows, 2] = self._neighbours(np.concatenate(medians))
        return scores

    def answers(self, forecaster: Forecaster) -> Iterator[tuple[Marginals, Floats]]:
        """The answers about blocks of persons, and their outcomes; all at once need 15 GB."""
        start = 0
        for answer in forecaster.marginals(self.past):
            yield answer, self.outcomes[start : start + len(answer)]
            start += len(answer)

    def _neighbours(self, medians: Floats) -> Floats:
        """Scores (m,) from the medians (m, Y) of the next years."""
        floor = self.panel.meta.floor
        known = log_earnings(self.outcomes[:, :_YEARS], floor)
        median = log_earnings(medians, floor)
        to_own = _mean((median - known) ** 2)
        others = sample_rows(self.origins.person_id.tolist(), _NEIGHBOURS, "neighbour", self.seed)
        nearest = np.full(len(to_own), np.inf)
        for j in others:
            distance = _mean((median - known[j]) ** 2)
            distance[j] = np.inf
            nearest = np.fmin(nearest, distance)
        return np.where(np.isfinite(nearest), to_own - nearest, np.nan)


def record_scores(forecaster: Forecaster, panel: Panel, seed: int) -> Floats:
    """Minus the mean log-likelihood (n,) of each person's record, over networks and looks."""
    total = np.zeros(panel.n_persons)
    members, calendar = forecaster.model.members, forecaster.calendar
    for member in members:
        sequences = encode(panel, member.transforms, calendar)
        for start in range(0, len(sequences), _BLOCK):
            persons = np.arange(start, min(start + _BLOCK, len(sequences)))
            for look, masking in enumerate(_LOOKS):
                rng = np.random.default_rng([seed, start, look])  # the same gaps for every model
                batch = make_batch(sequences, persons, calendar, masking, rng)
                total[persons] += _losses(member.network, batch)
    return total / (len(members) * len(_LOOKS))


@torch.no_grad()
def _losses(network: Saga, batch: Batch) -> Floats:
    """Minus the mean log-likelihood (n,) of the targets of each person, NaN without one.

    Targets are the next known year after each record, and later years that are forecast directly.
    """
    tokens = network.tokens(
        batch["state"], batch["z"], batch["other"], batch["codes"], batch["age"]
    )
    hidden, _ = network.hidden(tokens, batch["age"])
    next_one = batch["gap"] > 0
    person, token = next_one.nonzero(as_tuple=True)
    predictive = network.head(
        hidden[person, token], batch["gap"][next_one], batch["macro"][next_one]
    )
    earnings, death = network.head.nll(predictive, *_outcome(batch, "next", next_one))
    losses, whose = [earnings + death], [person]
    later = batch["direct_horizon"] > 0
    person, token, _ = later.nonzero(as_tuple=True)
    horizon, direct = batch["direct_horizon"][later], network.direct
    age = batch["age"][person, token] + horizon
    predictive = direct(hidden[person, token], horizon, age, batch["direct_macro"][later])
    earnings, death = direct.head.nll(predictive, *_outcome(batch, "direct", later))
    losses.append(earnings + death)
    whose.append(person)
    persons, values = torch.cat(whose).numpy(), torch.cat(losses).double().numpy()
    n = len(batch["age"])
    count = np.bincount(persons, minlength=n)
    return np.where(count > 0, np.bincount(persons, values, n) / np.maximum(count, 1), np.nan)


def _outcome(batch: Batch, prefix: str, selected: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(batch[f"{prefix}_{name}"][selected] for name in ("state", "z", "dead"))


def _mean(values: Floats) -> Floats:
    """Mean (n,) of the known values of each row; NaN without one."""
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
