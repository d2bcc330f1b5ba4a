"""Work on one's own account: who runs a firm, and how uneven its yield is.

Business income is part of labour earnings. It is lower at the median and far more unequal than wages (Hamilton 2000; for Sweden LISA's
business incomes, [M]): many small incomes, some very large ones.
"""

from __future__ import annotations

import numpy as np

from saga.register.simulation.careers import Activity
from saga.register.simulation.labour_market import INDUSTRY_CODES
from saga.register.simulation.life_state import EMPLOYED, Floats, LifeState
from saga.register.simulation.parameters import SelfEmploymentParameters

# How common firms of one's own are, relative to the mean of all industries: farms, building, shops, restaurants, professions.
_COMMON = {
    "01": 6.0, "24": 0.2, "29": 0.1, "41": 1.4, "42": 0.7, "43": 2.2, "45": 1.5, "47": 1.3, "49": 1.4, "56": 2.5, "64": 0.2, "68": 1.4,
    "69": 1.8, "70": 2.5, "71": 1.2, "73": 2.0, "84": 0.0, "85": 0.15, "86": 0.3, "87": 0.05, "88": 0.1, "93": 1.8, "96": 4.0,
}  # fmt: skip
COMMON: Floats = np.array([_COMMON.get(code, 0.7) for code in INDUSTRY_CODES])


def own_account_year(
    life: LifeState,
    activity: Activity,
    age: int,
    rng: np.random.Generator,
    p: SelfEmploymentParameters,
) -> Floats:
    """Log yield of the own firm relative to the pay of an employee alike (n,), 0 for employees; firms start and stop in place."""
    u, e = rng.random((2, len(life))), rng.standard_normal((2, len(life)))
    works = (life.state == EMPLOYED) & ~activity.odd & (life.employer >= 0)
    rate = (
        np.where(life.female, p.start[1], p.start[0])
        * COMMON[life.industry]
        * (0.4 if age < 25 else 0.8 if age < 35 else 1.2)
    )
    stays = life.own & works & ~activity.hired & (u[0] >= p.stop)
    # A new job is a firm of one's own three times as often as an old one becomes one.
    starts = works & ~stays & (u[1] < rate * np.where(activity.hired, 3.0, 1.0))
    life.profit = np.where(
        stays, p.persistence * life.profit + p.shock_sd * e[0], p.start_sd * e[0]
    )
    life.own = stays | starts
    return np.where(life.own, p.level + life.profit + p.transitory_sd * e[1], 0.0)
