"""What an attacker learns about members beyond what he learns about others: attributes, amounts.

A model of many persons also says something of persons that it has not seen. So the leak is the
difference between members and persons who took no part (Yeom et al. 2018).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.audit.audit_signals import Queries, record_scores
from saga.evaluation.audit.bundle_scan import rare_codes

from saga.arrays import Bools, Floats
from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.requests import QUANTILES
from saga.schema import BY_NAME

ATTRIBUTES = ("disability_pension", "sickness_benefit", "birth_region")
_MOST_CODES = 8
_CLOSE = 0.002  # relative distance at which an amount counts as given away
_PROBES = 20  # rare codes that are asked for
_TOP = 0.99


@dataclass(frozen=True)
class Difference:
    """A share of members and of others, and their difference with its 95 % interval."""

    what: str
    members: float
    others: float
    difference: float
    lower: float
    upper: float

    @classmethod
    def of(cls, what: str, hits: Floats, is_member: Bools, is_other: Bools) -> Difference | None:
        """The difference of shares of hits (n,), NaN where unknown; None without persons."""
        known = np.isfinite(hits)
        inside, outside = hits[is_member & known], hits[is_other & known]
        if min(len(inside), len(outside)) < 10:
            return None
        first, second = float(inside.mean()), float(outside.mean())
        # One hit and one miss more, so that no interval has length zero.
        shares = [(part.sum() + 1) / (len(part) + 2) for part in (inside, outside)]
        sizes = (len(inside), len(outside))
        error = np.sqrt(sum(p * (1 - p) / n for p, n in zip(shares, sizes, strict=True)))
        gap = first - second
        values = (first, second, gap, gap - 1.96 * error, gap + 1.96 * error)
        return cls(what, *(round(float(value), 4) for value in values))

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def infer_attributes(
    forecaster: Forecaster, panel: Panel, is_member: Bools, is_other: Bools, seed: int
) -> list[Difference]:
    """How often the likeliest value of a hidden attribute is the true one.

    The attacker knows all else of the record, tries each value, and takes the one under which the
    weights find the record likeliest. Of benefits he asks whether there was ever any.
    """
    results = []
    for name in ATTRIBUTES:
        if name not in panel.meta.present or panel.frame[name].null_count() == len(panel):
            continue
        values, truth = _candidates(panel, name)
        if len(values) < 2:
            continue
        scores = np.stack(
            [record_scores(forecaster, _with_value(panel, name, v), seed) for v in values]
        )
        guess = np.where(np.isfinite(scores).all(axis=0), scores.argmin(axis=0), -1)
        hits = np.where((truth >= 0) & (guess >= 0), guess == truth, np.nan)
        difference = Difference.of(name.replace("_", " "), hits, is_member, is_other)
        results += [] if difference is None else [difference]
    return results


def _candidates(panel: Panel, name: str) -> tuple[list[Any], NDArray[np.int64]]:
    """The values that are tried, and the number of the true one (n,), -1 if unknown."""
    column = pl.col(name).drop_nulls()
    if BY_NAME[name].kind == "category":
        codes = panel.frame[name].drop_nulls().value_counts(sort=True)[name].to_list()
        codes = codes[:_MOST_CODES]
        true = panel.frame.group_by("person_id", maintain_order=True).agg(column.last())
        number = {code: i for i, code in enumerate(codes)}
        return codes, np.array([number.get(code, -1) for code in true[name].to_list()])
    typical = panel.frame.filter(pl.col(name) > 0)[name].median()
    largest = panel.frame.group_by("person_id", maintain_order=True).agg(column.max())[name]
    truth = np.array([-1 if amount is None else int(amount > 0) for amount in largest.to_list()])
    return ([] if typical is None else [0.0, typical]), truth


def _with_value(panel: Panel, name: str, value: object) -> Panel:
    known = pl.col(name).is_not_null()
    dtype = panel.frame.schema[name]
    return panel.with_frame(
        panel.frame.with_columns(pl.when(known).then(pl.lit(value, dtype)).alias(name))
    )


def extract_top_earnings(
    forecaster: Forecaster, queries: Queries, is_member: Bools, is_other: Bools
) -> list[Difference]:
    """How often an answer for a top earner has a figure within .2 % of a later true amount.

    By chance an answer with nine quantiles for thirty years does so now and then: for members and
    for others alike, unless the model has stored amounts.
    """
    close = []
    for answer, outcomes in queries.answers(forecaster):
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = answer.quantiles(QUANTILES) / outcomes[..., None]
        close.append((np.abs(ratios - 1) < _CLOSE).any(axis=2))
    known = np.isfinite(queries.outcomes) & (queries.outcomes > 0)
    hit = np.full(queries.panel.n_persons, np.nan)
    hit[queries.rows] = np.where(
        known.any(axis=1), (np.concatenate(close) & known).any(axis=1), np.nan
    )
    results = []
    for what, chosen in {
        "amount of a person in an answer": np.ones(len(hit), dtype=bool),
        "amount of a top earner in an answer": top_earners(queries.panel),
    }.items():
        difference = Difference.of(what, hit, is_member & chosen, is_other & chosen)
        results += [] if difference is None else [difference]
    return results


def top_earners(panel: Panel) -> Bools:
    """The one per cent (n,) of persons with the largest amounts of a year."""
    largest = panel.frame.group_by("person_id", maintain_order=True).agg(pl.col("earnings").max())
    amounts = largest["earnings"].fill_null(0.0).to_numpy()
    return np.asarray(amounts >= np.quantile(amounts, _TOP, method="higher"))


def extract_rare_codes(
    forecaster: Forecaster, bundle: Bundle, queries: Queries, members: Panel
) -> tuple[int, int]:
    """Rare codes asked for, and those that answers tell from an unknown code.

    Each is asked with the record of a member who has it at the origin, and then hidden there.
    """
    probes = recognised = 0
    of_members = pl.col("person_id").is_in(pl.Series(members.persons()).implode())
    records = queries.past.frame.filter(of_members)
    for name, code in rare_codes(bundle, members)[:_PROBES]:
        holder = records.filter(pl.col(name) == code)["person_id"].to_list()[:1]
        if not holder:
            continue
        record = queries.past.only(holder)
        hidden = record.with_frame(
            record.frame.with_columns(pl.when(pl.col(name) != code).then(pl.col(name)).alias(name))
        )
        first, second = (
            Marginals.joined(list(forecaster.marginals(of))) for of in (record, hidden)
        )
        probes += 1
        recognised += not np.array_equal(first.cdf, second.cdf, equal_nan=True)
    return probes, recognised
