"""Membership inference: can an attacker tell the persons trained on from others like them?

Attacks give each person a number, the larger the more likely a member. `threshold` (Yeom et al.
2018) is the score itself, one threshold for all. `offline` and `online` are the likelihood ratio
attack of Carlini et al. (2022, sections V and VI.A) with normal distributions: the score, compared
with those under shadows without the person, and also with those under shadows with the person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.audit.audit_signals import SIGNALS
from saga.evaluation.audit.shadow_models import INSIDE, OUTSIDE

from saga.arrays import Bools, Floats

FALSE_POSITIVES = (0.1, 0.01, 0.001)
MIN_FALSE_POSITIVES = 10  # expected ones, for a rate to be printed
MIN_GROUP = 30  # members, and others, of a group, for an area to be printed
_PRIOR_SHADOWS = 4  # weight of the variance over all persons beside a person's own, in shadows
_RESAMPLES = 200


@dataclass(frozen=True)
class Result:
    """What an attack reached against a target, on a group of persons.

    `auc` is the area under its curve with a 95 % interval over persons; `rates` are the true
    positives (a share) at shares of false positives.
    """

    attack: str
    target: str
    group: str
    members: int
    others: int
    auc: float
    lower: float
    upper: float
    rates: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def attack_numbers(scores: Floats, shadows: Floats, parts: NDArray[np.int64]) -> dict[str, Floats]:
    """The number (n,) of each person in each attack.

    Args:
        scores: (n, S), under the target.
        shadows: (K, n, S), under shadow models.
        parts: (K, n), INSIDE, OUTSIDE or NEITHER of them.
    """
    numbers = {}
    for s, signal in enumerate(SIGNALS):
        numbers[f"{signal}, threshold"] = -scores[:, s]
        if signal == "neighbour":
            continue
        outside, spread_outside = _moments(shadows[..., s], parts == OUTSIDE)
        inside, spread_inside = _moments(shadows[..., s], parts == INSIDE)
        from_outside = (scores[:, s] - outside) / spread_outside
        from_inside = (scores[:, s] - inside) / spread_inside
        numbers[f"{signal}, offline"] = -from_outside
        numbers[f"{signal}, online"] = (from_outside**2 - from_inside**2) / 2 + np.log(
            spread_outside / spread_inside
        )
    return numbers


def _moments(values: Floats, chosen: Bools) -> tuple[Floats, Floats]:
    """Mean and standard deviation (n,) over the chosen shadows; NaN with fewer than two.

    A person's variance is shrunk to that of all, because few shadows estimate it badly.
    """
    count = chosen.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(chosen, values, 0.0).sum(axis=0) / count
        squares = (np.where(chosen, values - mean, 0.0) ** 2).sum(axis=0)
        usable = (count >= 2) & np.isfinite(squares)
        common = squares[usable].sum() / max((count[usable] - 1).sum(), 1)
        variance = (squares + _PRIOR_SHADOWS * common) / (count - 1 + _PRIOR_SHADOWS)
    # Equal scores under all shadows: any difference is then infinite evidence, but of rounding.
    spread = np.sqrt(np.maximum(variance, 1e-12))
    return np.where(usable, mean, np.nan), np.where(usable, spread, np.nan)


def judge(
    numbers: Mapping[str, Floats],
    is_member: Bools,
    is_other: Bools,
    groups: Mapping[str, Bools],
    units: NDArray[np.int64],
    target: str,
    seed: int = 0,
) -> list[Result]:
    """The result of each attack on each group that is large enough.

    Args:
        numbers: (n,) of each attack, see `attack_numbers`.
        is_member: Who was trained on.
        is_other: Who took no part.
        groups: Persons of each group.
        units: The family, or the person, of each row.
        target: What was attacked, for the results.
        seed: Of the intervals.
    """
    results = []
    for attack, values in numbers.items():
        known = np.isfinite(values)
        for group, in_group in groups.items():
            members, others = is_member & in_group & known, is_other & in_group & known
            if min(members.sum(), others.sum()) < MIN_GROUP:
                continue
            rows = members | others
            area, lower, upper = area_with_interval(values[rows], members[rows], units[rows], seed)
            rates = {
                f"{share:g}": float(
                    (values[members] > np.quantile(values[others], 1 - share, method="higher"))
                    .mean()
                    .round(4)
                )
                for share in FALSE_POSITIVES
                if share * others.sum() >= MIN_FALSE_POSITIVES
            }
            counts = int(members.sum()), int(others.sum())
            results.append(Result(attack, target, group, *counts, area, lower, upper, rates))
    return results


def pooled(
    shadows: Floats, parts: NDArray[np.int64]
) -> tuple[dict[str, Floats], Bools, Bools, NDArray[np.int64]]:
    """Each shadow as the target of an attack with the others, one after the other.

    Returns the numbers (K n,) of each attack, members, others, and the index of each person.
    """
    each = []
    for k in range(len(shadows)):
        others = np.arange(len(shadows)) != k
        each.append(attack_numbers(shadows[k], shadows[others], parts[others]))
    numbers = {name: np.concatenate([of[name] for of in each]) for name in each[0]}
    person = np.tile(np.arange(shadows.shape[1]), len(shadows))
    return numbers, (parts == INSIDE).ravel(), (parts == OUTSIDE).ravel(), person


def area_with_interval(
    values: Floats, is_member: Bools, units: NDArray[np.int64], seed: int
) -> tuple[float, float, float]:
    """The area under the curve, and its 95 % interval by resampling units with replacement."""
    level = np.unique(values, return_inverse=True)[1]
    unit = np.unique(units, return_inverse=True)[1]
    rng, n = np.random.default_rng(seed), int(unit.max()) + 1
    areas = []
    for _ in range(_RESAMPLES):
        weight = np.bincount(rng.integers(0, n, n), minlength=n)[unit]
        areas.append(_area(level, is_member, weight.astype(float)))
    lower, upper = np.nanquantile(areas, [0.025, 0.975])
    area = _area(level, is_member, np.ones(len(level)))
    return round(area, 4), round(float(lower), 4), round(float(upper), 4)


def _area(level: NDArray[np.int64], is_member: Bools, weight: Floats) -> float:
    """Weighted share of pairs in which the member has the larger number; ties count half."""
    n = int(level.max()) + 1
    members = np.bincount(level, weight * is_member, n)
    others = np.bincount(level, weight * ~is_member, n)
    below = others.cumsum() - others / 2
    with np.errstate(invalid="ignore"):
        return float((members * below).sum() / (members.sum() * others.sum()))
