"""What was issued, stored so that it can be judged years later.

An issued interval is about a single year, or it is a path band or a present value over the K years
after an origin (a *span*). The distribution of a person is stored, from which the rank of any
outcome can be computed. Of a single year upper limits at LEVELS are judged: 90 % of the outcomes
should be below the limit at level 0.9. Of spans the published sets are judged; the thresholds of
all persons follow their scores. `AdaptiveState` has the cells of spans under the family in place of
a group.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import BAND, PRESENT_VALUE, YEAR, AdaptiveState
from saga.calibration.adaptive.ledger_tables import pack_numbers
from saga.calibration.adaptive.marginal_moves import (
    LEVELS,
    followed_groups,
    levels_of_span,
    moved_levels,
)

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.families.set_family import probability_of_less
from saga.distributions import Marginals
from saga.keyed_random import uniform_each
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.person_forecasts import PersonForecasts
from saga.requests import COVERAGE
from saga.schema import MAX_AGE

Scales = Mapping[int, tuple[Floats, Floats]]  # horizon -> knots and values of the scale of bands
MovedCell = tuple[int, str] | None  # horizon and group of the cell whose move a year has
Key = TypeVar("Key", bound=Hashable)
SPANS = (2, 5)  # default numbers of years that deliveries issue bands and present values about


@dataclass(frozen=True, eq=False)
class IssuedInterval:
    """What was issued for one person, origin year and horizon, as a row stores it.

    Attributes:
        person_id: The person.
        origin_year: Last year that the forecast knew.
        family: YEAR, BAND or PRESENT_VALUE.
        horizon: Horizon, or number of years of a span.
        group: Group of the cell that outcomes move; of a span the family.
        base: Thresholds of the bundle by coverage (L,), NaN without one; of a single year LEVELS.
        issued: Thresholds in force (L,), each by itself; those of a single year may cross.
        in_force: Probabilities in force for LEVELS: of each year of a band (K, 9), otherwise of the
            distribution (1, 9).
        cells: The cells whose moves the years have, as JSON; null for a year without a move.
        distribution: Packed distributions, of a band those of all years.
        scales: The scale of bands by horizon.
    """

    person_id: str
    origin_year: int
    family: str
    horizon: int
    group: str
    base: bytes
    issued: bytes
    in_force: bytes
    cells: str
    distribution: bytes = field(repr=False)
    scales: Scales = field(repr=False, default_factory=dict)

    def columns(self) -> dict[str, Any]:
        """The columns of the table that do not depend on the ledger."""
        others = ("person_id", "distribution", "scales")
        return {name: value for name, value in vars(self).items() if name not in others}


def collect_intervals(
    marginals: Marginals, split: Calibrator, state: AdaptiveState, horizons: Iterable[int]
) -> list[IssuedInterval]:
    """The limits of single years that recalibrated `marginals` give under a state.

    `split` is the calibrator before the state moved it. Left out are persons whose group has no
    threshold fitted on outcomes of this horizon, and years beyond age 64. Raises UsageError for raw
    marginals.
    """
    marginals.require_recalibrated()
    issued: list[IssuedInterval] = []
    for horizon in sorted(set(horizons)):
        of_year = marginals.at_horizon(horizon)
        known = of_year.take(of_year.exists[:, 0])
        ahead = range(horizon, horizon + 1)
        issued += _issue(YEAR, ahead, known, pack_marginals(known), split, state)
    return issued


def collect_bands(
    marginals: Marginals, split: Calibrator, state: AdaptiveState, years: int
) -> list[IssuedInterval]:
    """The bands over `years` that recalibrated `marginals` give; arguments as before."""
    marginals.require_recalibrated()
    known = marginals.take(_reach(marginals, years))
    ahead = range(1, years + 1)
    scales = {h: split.band.scale(h) for h in ahead}
    return _issue(BAND, ahead, known, pack_marginals(known, years), split, state, scales)


def collect_values(
    paths: Paths, split: Calibrator, state: AdaptiveState, years: int
) -> list[IssuedInterval]:
    """The present values of the next `years` that recalibrated `paths` give under a state."""
    paths.require_recalibrated()
    known = paths.take(_reach(paths, years))
    values = SimulatedValues.of(known, lambda p: present_value(p, years=years))
    packed = pack_marginals(values.distribution) if len(known) else []
    return _issue(PRESENT_VALUE, range(1, years + 1), known, packed, split, state)


def collect_lifetimes(
    paths: Paths, split: Calibrator, state: AdaptiveState, to_age: int
) -> list[IssuedInterval]:
    """The present values until `to_age`."""
    years_left = to_age - (paths.origin_year - paths.birth_year)
    return [
        issued
        for years in np.unique(years_left[years_left > 0]).tolist()
        for issued in collect_values(paths.take(years_left == years), split, state, years)
    ]


def _reach(forecasts: PersonForecasts, years: int) -> NDArray[np.bool_]:
    """The persons who are at most 64 in all of the years."""
    return np.asarray(forecasts.origin_year - forecasts.birth_year + years <= MAX_AGE)


def _issue(
    family: str,
    years: range,
    forecasts: PersonForecasts,
    packed: Sequence[bytes],
    split: Calibrator,
    state: AdaptiveState,
    scales: Scales | None = None,
) -> list[IssuedInterval]:
    """What is issued to persons about `years` ahead, with their packed distributions."""
    base, issued = _span_thresholds(family, years[-1], split, state)
    if family != YEAR and np.isnan(base).all():  # no outcome could judge them
        return []
    in_force = cache(lambda h: moved_levels(state, h, followed_groups(split, h)))
    rows: dict[int, IssuedInterval] = {}
    for groups, members in split.fitted.candidate_cells(forecasts):
        cells = [split.fitted.moved_cell(h, groups) for h in years]
        of_years = [None if cell is None else in_force(cell[0])[cell[1]] for cell in cells]
        levels, group = levels_of_span(family, of_years), family
        if family == YEAR:
            if cells[0] is None or cells[0][0] != years[0]:
                continue
            group, base, issued = cells[0][1], np.asarray(LEVELS), levels[0]
        of_cell = pack_numbers(base), pack_numbers(issued), pack_numbers(levels), json.dumps(cells)
        for i in members.tolist():
            person, origin = str(forecasts.person_id[i]), int(forecasts.origin_year[i])
            about = person, origin, family, years[-1], group
            rows[i] = IssuedInterval(*about, *of_cell, packed[i], scales or {})
    return [rows[i] for i in sorted(rows)]


def _span_thresholds(
    family: str, years: int, split: Calibrator, state: AdaptiveState
) -> tuple[Floats, Floats]:
    """The thresholds (L,) of the bundle for spans of `years`, and those in force."""
    fitted = split.thresholds_of_kind.get((family, years))
    known = fitted.thresholds if fitted else {}
    base = np.array([known.get(share) for share in COVERAGE], dtype=np.float64)
    base = np.where(base < 1, base, np.nan)
    return base, base + np.array([state.offset(family, years, share) for share in COVERAGE])


def cells_of_text(text: str) -> list[MovedCell]:
    """The cells that `IssuedInterval.cells` names."""
    return [None if cell is None else (int(cell[0]), str(cell[1])) for cell in json.loads(text)]


def outcome_years(origin_year: int, family: str, horizon: int) -> range:
    """The years whose outcomes judge an interval: the last one, or all after the origin."""
    first = horizon if family == YEAR else 1
    return range(origin_year + first, origin_year + horizon + 1)


def pack_marginals(marginals: Marginals, years: int = 1) -> list[bytes]:
    """The distributions of the first `years` as bytes, about 800 per person and year.

    The probability of zero is a float64, because zero outcomes tie; grid and CDF are float32.
    """
    table = np.empty((len(marginals), years), dtype=_packed_type(marginals.cdf.shape[2]))
    for name in ("p_zero", "grid", "cdf"):
        table[name] = getattr(marginals, name)[:, :years]
    return [row.tobytes() for row in table]


def unpack_marginals(packed: Sequence[bytes], years: int = 1) -> Marginals:
    """The distributions (n, years) that `pack_marginals` stored, all of one grid size."""
    points = (len(packed[0]) // years - 8) // 8
    table = np.frombuffer(b"".join(packed), dtype=_packed_type(points)).reshape(-1, years)
    unknown = np.zeros(len(packed), dtype=np.int64)
    return Marginals(
        np.full(len(packed), "", dtype=np.str_),
        unknown,
        unknown,
        table["grid"],
        table["cdf"],
        table["p_zero"],
        recalibrated=True,
    )


def _packed_type(points: int) -> np.dtype[np.void]:
    return np.dtype([("p_zero", "<f8"), ("grid", "<f4", points), ("cdf", "<f4", points)])


def judge(
    families: Sequence[str], distributions: Sequence[bytes], amounts: Sequence[Floats]
) -> list[Floats]:
    """Forecast probabilities (K, 2) of less than each outcome and of zero, of issued intervals.

    `amounts` are the outcomes (K,) of the years of each. A present value has one outcome, the value
    of its years.
    """
    outcomes = [
        realised_value(of_years[None]) if family == PRESENT_VALUE else of_years
        for family, of_years in zip(families, amounts, strict=True)
    ]
    ranks = [np.empty((0, 2))] * len(outcomes)
    sizes = zip(map(len, outcomes), map(len, distributions), strict=True)
    for (years, _), index in rows_alike(sizes).items():
        marginals = unpack_marginals([distributions[i] for i in index], years)
        less = probability_of_less(marginals, np.stack([outcomes[i] for i in index]))
        both = np.stack([less, marginals.p_zero.astype(np.float64)], axis=-1)
        for i, of_row in zip(index, both, strict=True):
            ranks[i] = of_row
    return ranks


def rows_alike(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """The index of the rows with each key."""
    rows: dict[Key, list[int]] = {}
    for i, key in enumerate(keys):
        rows.setdefault(key, []).append(i)
    return rows


def ranks_of_outcomes(less: Floats, p_zero: Floats) -> Floats:
    """Forecast probability of each outcome's rank (r,), from `probability_of_less` and `p_zero`.

    Zero outcomes have a random part of the probability of zero. The random number is a hash of
    that probability, so that the log alone gives the ranks again.
    """
    random = uniform_each([value.hex() for value in p_zero.tolist()], "rank-of-zero")
    return np.where(less > 0, less, random * p_zero)
